"""Where a registry may send the controller: by address, whatever the name."""

import ipaddress

import pytest

from driver_builder.model.registry_reach import Reach, parse_hosts, parse_networks

CLUSTER = Reach(forbidden=parse_networks("10.96.0.0/12, 10.244.0.0/16,fd00:10::/32"))


@pytest.mark.parametrize(
    ("address", "refused"),
    [
        pytest.param("192.168.7.7", False, id="private: a registry's store on premises"),
        pytest.param("10.1.2.3", False, id="private, beside the forbidden ranges"),
        pytest.param("8.8.8.8", False, id="public"),
        pytest.param("2001:db8::1", False, id="IPv6"),
        pytest.param("127.0.0.1", True, id="loopback"),
        pytest.param("0.0.0.0", True, id="this host"),
        pytest.param("169.254.169.254", True, id="metadata of a cloud"),
        pytest.param("fd00:ec2::254", True, id="metadata in IPv6"),
        pytest.param("fd00:ec2::23", True, id="another service of that cloud"),
        pytest.param("64:ff9b:1::a9fe:a9fe", True, id="NAT64 of the network's own"),
        pytest.param("::10.1.2.3", True, id="IPv4-compatible"),
        pytest.param("fec0::1", True, id="site-local"),
        pytest.param("::1", True, id="loopback in IPv6"),
        pytest.param("fe80::1%eth0", True, id="link-local with a zone"),
        pytest.param("::ffff:127.0.0.1", True, id="mapped"),
        pytest.param("2002:7f00:1::", True, id="6to4 of loopback"),
        pytest.param("64:ff9b::a9fe:a9fe", True, id="NAT64 of metadata"),
        pytest.param("10.96.0.1", True, id="Service range of the setting"),
        pytest.param("::ffff:10.244.3.4", True, id="Pod range of the setting, mapped"),
        pytest.param("fd00:10::7", True, id="IPv6 range of the setting"),
    ],
)
def test_an_address_is_refused_by_its_range(address: str, refused: bool) -> None:
    """Link-local, loopback and the ranges of the setting are refused in every form."""
    assert CLUSTER.refusal(["8.8.4.4", address]) == (address if refused else "")


@pytest.mark.parametrize(
    ("reach", "address", "refused"),
    [
        pytest.param(CLUSTER, "127.0.0.1", True, id="loopback"),
        pytest.param(CLUSTER, "::ffff:169.254.169.254", True, id="metadata of a cloud, mapped"),
        pytest.param(CLUSTER, "10.96.0.1", False, id="Service range of the setting: a registry in the cluster"),
        pytest.param(CLUSTER, "192.168.7.7", False, id="private"),
        pytest.param(Reach(local=True), "127.0.0.1", False, id="loopback, for a command on one's own machine"),
    ],
)
def test_the_registry_itself_may_be_in_the_cluster(reach: Reach, address: str, refused: bool) -> None:
    """The ranges of the setting are for what a registry refers to."""
    assert reach.refusal_of_own(["8.8.4.4", address]) == (address if refused else "")


@pytest.mark.parametrize(
    ("host", "port", "expected"),
    [
        pytest.param("Blobs.example.com", 443, True, id="by name"),
        pytest.param("tokens.example.com", 8443, True, id="by name and port"),
        pytest.param("tokens.example.com", 443, False, id="another port"),
        pytest.param("evil.example.com", 443, False, id="another name"),
    ],
)
def test_a_setting_allows_hosts(host: str, port: int, expected: bool) -> None:
    """A host of the setting may have any address."""
    reach = Reach(allowed=parse_hosts("blobs.example.com, Tokens.example.com:8443,"))
    assert reach.allows_host(host, port) is expected


def test_flags_make_the_same() -> None:
    """A hand-over in a Job's pod is sent no further than the controller."""
    made = Reach(
        forbidden=parse_networks("10.96.0.0/12,fd00:10::/32"), allowed=parse_hosts("b.example.com,a.example.com:1")
    )
    assert made.as_flags() == [
        "--registry-forbidden-ranges=10.96.0.0/12,fd00:10::/32",
        "--registry-allowed-hosts=a.example.com:1,b.example.com",
    ]
    assert Reach().as_flags() == []


def test_ranges_are_read_leniently_and_checked() -> None:
    """Host bits do not matter; a word that is no range is named."""
    assert parse_networks("10.96.0.1/12,") == (ipaddress.ip_network("10.96.0.0/12"),)
    with pytest.raises(ValueError, match=r"pods.* write CIDR,\.\.\."):
        parse_networks("pods")
