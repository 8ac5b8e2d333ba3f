"""The pure parts of engine, registry, control plane and Kubernetes build."""

import json
import tarfile
from io import BytesIO
from pathlib import Path

import pytest
import yaml

from testbed import kube_patches, runtime_wrapper
from testbed.base_image import carried_options
from testbed.control_plane import egress_configuration, tokens_csv
from testbed.errors import TestbedError
from testbed.host_node import make_cgroups
from testbed.kube_binaries import source_version
from testbed.kubeconfig import kubeconfig_text, token_user
from testbed.kubelet_proxy import target_port
from testbed.pki import CertificateAuthority
from testbed.ports import free_ports
from testbed.registry import bcrypt, config_text
from testbed.runtime_wrapper import option, with_allowed_oom_score
from testbed.small_image import busybox_archive
from testbed.state import GroundState, GuestState


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({"oomScoreAdj": -998, "args": ["x"]}, {"oomScoreAdj": 0, "args": ["x"]}, id="negative becomes 0"),
        pytest.param({"oomScoreAdj": 1000}, {"oomScoreAdj": 1000}, id="positive stays"),
        pytest.param({"args": []}, {"args": []}, id="none stays away"),
    ],
)
def test_oom_scores_that_root_may_not_set_are_raised(before: dict[str, object], after: dict[str, object]) -> None:
    """Only a negative score is changed."""
    assert with_allowed_oom_score(before) == after


@pytest.mark.parametrize(
    "arguments",
    [["create", "--bundle", "/b", "id"], ["create", "-b", "/b", "id"], ["create", "--bundle=/b", "id"]],
    ids=["long", "short", "with equals sign"],
)
def test_the_bundle_is_found_in_every_spelling(arguments: list[str]) -> None:
    """The shim may spell the option as it likes."""
    assert option(arguments, "--bundle", "-b") == "/b"


def test_a_call_without_bundle_has_none() -> None:
    """Most calls of a runtime name no bundle."""
    assert option(["state", "id"], "--bundle", "-b") is None


def test_the_launcher_starts_python_only_where_it_is_needed() -> None:
    """Other calls go straight to runc."""
    text = runtime_wrapper.launcher_text("/usr/bin/python3")
    assert text.startswith("#!/bin/sh\n")
    assert text.endswith('exec runc "$@"\n')


def test_a_mend_replaces_the_one_line() -> None:
    """The text around it stays."""
    mend = kube_patches.Mend(path="x", old="old", new="new", why="test")
    assert kube_patches.mended("a old b", mend) == "a new b"


@pytest.mark.parametrize("text", ["nothing here", "old and old"], ids=["gone", "twice"])
def test_a_mend_that_does_not_fit_is_an_error(text: str) -> None:
    """A changed source is never built unmended."""
    mend = kube_patches.Mend(path="x", old="old", new="new", why="test")
    with pytest.raises(TestbedError, match="the line to patch"):
        kube_patches.mended(text, mend)


def test_the_newest_source_version_is_taken() -> None:
    """apt-cache prints the newest first."""
    assert source_version("Package: kubernetes\nVersion: 1.20-2\n\nVersion: 1.20-1\n") == "1.20-2"


def test_no_source_package_says_what_to_do() -> None:
    """The way out is a folder of own binaries."""
    with pytest.raises(TestbedError, match="KUBEBUILDER_ASSETS"):
        source_version("")


def test_only_needed_apt_options_reach_the_base_image() -> None:
    """What a stale or proxied archive needs is carried along, nothing else."""
    needed = 'Acquire::Check-Valid-Until "false";\nAcquire::http::Proxy "http://p.test";\n'
    assert carried_options(f'Acquire "";\n{needed}Acquire::Retries "3";\n') == needed


def test_tokens_are_quoted_as_csv() -> None:
    """Token, user, uid and group are quoted as CSV fields."""
    assert tokens_csv({"t": ("admin", "system:masters")}) == "t,admin,admin,system:masters\n"


def test_kubelets_are_reached_through_the_socket() -> None:
    """The API server dials nodes through the proxy."""
    config = json.loads(egress_configuration(Path("/x.sock")))
    selection = config["egressSelections"][0]
    assert selection["name"] == "cluster"
    assert selection["connection"]["transport"]["uds"]["udsName"] == "/x.sock"


@pytest.mark.parametrize(
    ("request_line", "port"),
    [
        pytest.param(b"CONNECT 10.0.2.15:10250 HTTP/1.1\r\nHost: x\r\n\r\n", 10250, id="address"),
        pytest.param(b"CONNECT [fd00::1]:10251 HTTP/1.1\r\n\r\n", 10251, id="IPv6 address"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", None, id="another method"),
        pytest.param(b"CONNECT nowhere HTTP/1.1\r\n\r\n", None, id="no port"),
        pytest.param(b"\r\n\r\n", None, id="nothing"),
    ],
)
def test_the_proxy_takes_the_port_alone(request_line: bytes, port: int | None) -> None:
    """Addresses of guests mean nothing on the host, their ports do."""
    assert target_port(request_line) == port


def test_the_registry_may_delete_and_asks_for_no_password_by_default() -> None:
    """Without a password file there is no auth section at all."""
    config = yaml.safe_load(config_text("127.0.0.1:5000", Path("/s"), None))
    assert config["storage"]["delete"]["enabled"] is True
    assert "auth" not in config


def test_the_registry_reads_its_password_file() -> None:
    """With one it is the only way in."""
    config = yaml.safe_load(config_text("127.0.0.1:5000", Path("/s"), Path("/p")))
    assert config["auth"]["htpasswd"]["path"] == "/p"


def test_passwords_are_hashed_with_bcrypt() -> None:
    """The registry reads nothing else."""
    assert bcrypt("secret").startswith("$2y$05$")
    assert bcrypt("secret") != bcrypt("secret")


def test_kubeconfigs_verify_the_server() -> None:
    """The authority is inside, and nothing switches the check off."""
    config = yaml.safe_load(kubeconfig_text("https://127.0.0.1:1", b"ca", token_user("t")))
    assert config["clusters"][0]["cluster"] == {"server": "https://127.0.0.1:1", "certificate-authority-data": "Y2E="}
    assert config["users"][0]["user"] == {"token": "t"}


def test_the_authority_is_read_again_by_a_later_command(tmp_path: Path) -> None:
    """A second object on the same folder has the same certificate, and the key is private."""
    first, second = CertificateAuthority(tmp_path), CertificateAuthority(tmp_path)
    assert first.file.read_bytes() == second.file.read_bytes()
    assert (tmp_path / "ca.key").stat().st_mode & 0o777 == 0o600
    assert b"BEGIN CERTIFICATE" in second.issue("x", hosts=["127.0.0.1", "localhost"]).certificate


def test_the_small_image_links_every_applet() -> None:
    """The small image has a link to busybox for every applet."""
    with tarfile.open(fileobj=BytesIO(busybox_archive(b"program", ["sh", "busybox", "ls"]))) as archive:
        assert archive.getmember("bin/sh").linkname == "busybox"
        assert archive.getmember("bin/busybox").size == 7
        assert archive.getmember("tmp").isdir()


def test_control_groups_are_made_in_every_hierarchy(tmp_path: Path) -> None:
    """Version 1: a cpuset group gets the CPUs of its parent, or no process could enter it."""
    for hierarchy in ("cpuset", "pids"):
        (tmp_path / hierarchy / "dw-x").mkdir(parents=True)
    for folder in (tmp_path / "cpuset", tmp_path / "cpuset/dw-x"):
        (folder / "cpuset.cpus").write_text("0-1" if folder.name == "cpuset" else "")
        (folder / "cpuset.mems").write_text("0" if folder.name == "cpuset" else "")
    make_cgroups(tmp_path, "dw-x")
    assert (tmp_path / "cpuset/dw-x/cpuset.cpus").read_text() == "0-1"
    assert (tmp_path / "pids/dw-x").is_dir()


def test_one_control_group_is_made_in_the_unified_hierarchy(tmp_path: Path) -> None:
    """Version 2 has one tree."""
    (tmp_path / "cgroup.controllers").touch()
    (tmp_path / "system.slice").mkdir()
    make_cgroups(tmp_path, "dw-x")
    assert (tmp_path / "dw-x").is_dir()
    assert not (tmp_path / "system.slice/dw-x").exists()


def test_the_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    """A later command sees guests, ports and secrets; nobody else can read them."""
    state = GroundState(
        name="dw-x", by_hand=True, control_plane=True, nodes=True, engine=True, ports={"api": 1}, admin_token="t"
    )
    state.guests["a"] = GuestState(name="a", kernel_release="6.1.0-1", kubelet_port=2)
    state.save(tmp_path)
    assert GroundState.load(tmp_path) == state
    assert (tmp_path / "state.json").stat().st_mode & 0o777 == 0o600


def test_ports_are_given_out_once() -> None:
    """Also those that nobody listens on yet: a part may be started minutes after its port was chosen."""
    first, second = free_ports(200), free_ports(200)
    assert not set(first) & set(second)
