"""A registry whose certificate is signed by a private authority."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from driver_builder.base.errors import RegistryRefused, RegistryUnavailable
from driver_builder.registry.credentials import Credentials
from driver_builder.registry.registry_transport import RegistryTransport
from testbed.pki import CertificateAuthority
from tests.support.driver_builder.scripted_registry import Reply, Request, ScriptedRegistry, scripted_registry
from tests.support.loopback import LOOPBACK

ANNA = Credentials(username="anna", password="s3cret")


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    """An authority that no system knows."""
    return CertificateAuthority(tmp_path / "ca")


@pytest.fixture
def server_side(authority: CertificateAuthority) -> ssl.SSLContext:
    """The server's end, with a certificate of that authority."""
    pair = authority.issue_files("server", "registry", hosts=["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.with_suffix(".crt"), pair.with_suffix(".key"))
    return context


@pytest.fixture
def registry(server_side: ssl.SSLContext) -> Iterator[ScriptedRegistry]:
    """A registry with TLS that sends readers to plain HTTP where they ask for ``/v2/lost``."""

    def script(request: Request) -> Reply:
        if "Authorization" not in request.headers:
            return Reply(status=401, headers={"WWW-Authenticate": 'Basic realm="r"'})
        lost = {"Location": f"http://{request.headers['Host']}/plain?token=x"}
        return Reply(status=307, headers=lost) if request.path == "/v2/lost" else Reply(body=b"here")

    with scripted_registry(script, tls=server_side) as registry:
        yield registry


def test_the_ca_that_is_given_is_believed(
    registry: ScriptedRegistry, authority: CertificateAuthority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the environment names another one for every program."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "other.pem"))
    transport = RegistryTransport(registry.host, credentials=ANNA, ca_file=authority.file, reach=LOOPBACK)
    assert transport.request("GET", "/v2/a", repository="a").body == b"here"


def test_without_its_ca_a_registry_gets_no_password(registry: ScriptedRegistry) -> None:
    """It may be somebody else: the message says what to give."""
    with pytest.raises(RegistryUnavailable, match=r"TLS failed.*the registry's CA"):
        RegistryTransport(registry.host, credentials=ANNA, reach=LOOPBACK).request("GET", "/v2/a", repository="a")
    assert registry.requests == []


def test_a_ca_file_without_certificates_is_reported(registry: ScriptedRegistry, tmp_path: Path) -> None:
    """A CA file without certificates is a configuration error; no foreign exception escapes."""
    (tmp_path / "empty.pem").write_text("no certificate\n")
    with pytest.raises(RegistryUnavailable, match="TLS failed"):
        RegistryTransport(registry.host, ca_file=tmp_path / "empty.pem", reach=LOOPBACK).request(
            "GET", "/v2/a", repository="a"
        )


def test_nobody_is_sent_from_tls_to_plain_http(registry: ScriptedRegistry, authority: CertificateAuthority) -> None:
    """A redirect there is not followed, and its query, which may contain a token, is not quoted."""
    transport = RegistryTransport(registry.host, credentials=ANNA, ca_file=authority.file, reach=LOOPBACK)
    with pytest.raises(RegistryRefused, match=r"redirect to 'http://[^?]*/plain', which is not followed"):
        transport.request("GET", "/v2/lost", repository="a")


def test_a_wrong_bundle_of_the_environment_is_reported(
    registry: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a CA of ours, requests' own variable decides."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/bundle.pem")
    with pytest.raises(RegistryRefused, match=r"cannot be reached: .*/no/such/bundle\.pem"):
        RegistryTransport(registry.host, reach=LOOPBACK).request("GET", "/v2/a", repository="a")
