"""Builds by an engine of another machine: over TLS with certificates of both sides, and over SSH."""

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from driver_builder.base.errors import TemporaryError
from driver_builder.builds.docker.docker_builder import DockerBuilder
from driver_builder.builds.docker.docker_engine import docker_engine
from driver_builder.model.build import BuildRequest, ModuleSpec, SourceFiles
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.kernels import KernelTarget, KernelVersion
from testbed.packages import ensure_packages
from testbed.pki import CertificateAuthority, write_private
from testbed.ports import accepts_connections, free_ports
from testbed.testbed import Testbed
from tests.support.real_parts.small_parts import SmallEngine

pytestmark = pytest.mark.every_engine

TIMEOUT = 600.0
FACTS = {"Module.symvers": b"0x1\tsymbol\tvmlinux\tEXPORT_SYMBOL\t\n", "compiler": b"gcc 12\n"}
TEMPLATE = """\
FROM scratch AS build
COPY source/ /facts/
FROM scratch
COPY --from=build /facts/ /
"""
"""Needs no base image, so any engine can build it."""


def build_by(address: str, folder: Path, certificates: Path | None = None) -> str:
    """Build by the engine at an address; returns what the build found out about the compiler."""
    templates = folder / "templates"
    templates.mkdir()
    (templates / "plain.Dockerfile.j2").write_text(TEMPLATE)
    request = BuildRequest(
        recipe="remote",
        driver=DriverKey("integration/remote"),
        version="1",
        target=KernelTarget(KernelVersion("6.1.0-55-cloud-amd64"), "debian", "12", "amd64"),
        template="plain",
        base_image="debian:bookworm-slim",
        source=SourceFiles(files=FACTS),
        modules=(ModuleSpec(name="remote"),),
    )
    with docker_engine(address, certificates=certificates) as api:
        builder = DockerBuilder(api, templates=templates)
        built = builder.build(request, directory=folder, log=lambda _line: None, cancelled=threading.Event())
    assert built.archive.stat().st_size > 0
    return built.compiler


# --- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    """Who issues the certificates of engine and controller."""
    return CertificateAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls_engine(
    engine_ground: Testbed, authority: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of an engine that answers nobody without a certificate."""
    (port,) = free_ports(1)
    folder = certificates(authority, tmp_path_factory.mktemp("engine"), hosts=("127.0.0.1",))
    files = {"tlscacert": "ca.pem", "tlscert": "cert.pem", "tlskey": "key.pem"}
    flags = [f"--{flag}={folder / file}" for flag, file in files.items()]
    flags += ["--tlsverify", f"--host=tcp://127.0.0.1:{port}"]
    engine = SmallEngine.start(engine_ground.processes, *flags, name="tls-engine", kind=engine_ground.engine.kind)
    yield f"tcp://127.0.0.1:{port}"
    engine.stop()


def certificates(authority: CertificateAuthority, folder: Path, hosts: tuple[str, ...] = ()) -> Path:
    """Put a certificate into a folder as the docker command wants it."""
    pair = authority.issue(folder.name, hosts=hosts)
    (folder / "ca.pem").write_bytes(authority.file.read_bytes())
    (folder / "cert.pem").write_bytes(pair.certificate)
    write_private(folder / "key.pem", pair.key)
    return folder


def test_an_engine_over_tls_builds(
    tls_engine: str, authority: CertificateAuthority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sides prove who they are, whatever authorities the environment names for other servers."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt")
    (tmp_path / "ours").mkdir()
    ours = certificates(authority, tmp_path / "ours")
    assert build_by(tls_engine, tmp_path, ours) == "gcc 12"


def test_a_stranger_gets_nothing_of_an_engine_over_tls(tls_engine: str, tmp_path: Path) -> None:
    """Neither without a certificate nor with another authority's; and an engine that we cannot trust is not asked."""
    other = CertificateAuthority(tmp_path / "other")
    (tmp_path / "theirs").mkdir()
    theirs = certificates(other, tmp_path / "theirs")
    with pytest.raises(TemporaryError, match="connecting to tcp://"), docker_engine(tls_engine):
        pass
    words = r"connecting to tcp://.*certificate verify failed"
    with pytest.raises(TemporaryError, match=words), docker_engine(tls_engine, certificates=theirs):
        pass


# --- SSH --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ssh_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a key of its user, and whom that user knows."""
    home = tmp_path_factory.mktemp("home")
    (home / ".ssh").mkdir(mode=0o700)
    return home


@pytest.fixture(scope="module")
def ssh_engine(engine_ground: Testbed, ssh_home: Path) -> Iterator[str]:
    """The address of the ground's engine on a machine that is reached by SSH."""
    ensure_packages(("openssh-server",))
    (port,) = free_ports(1)
    folder = engine_ground.processes.folder
    host, user = key_pair(folder / "host-key"), key_pair(ssh_home / ".ssh" / "id_ed25519")
    (folder / "authorized").write_text(f"{user}\n")
    (ssh_home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{port} {host}\n")
    settings: Mapping[str, object] = {
        "ListenAddress": f"127.0.0.1:{port}",
        "HostKey": folder / "host-key",
        "AuthorizedKeysFile": folder / "authorized",
        "PidFile": "none",
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "SetEnv": f"DOCKER_HOST={engine_ground.engine.socket}",
    }
    (folder / "sshd.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    # sshd refuses a user whose account is locked, as root's is on many machines: it is shown accounts of its own.
    (folder / "shadow").write_text("root:*:19000:0:99999:7:::\nsshd:*:19000:0:99999:7:::\n")
    command = 'mkdir -p /run/sshd && mount --bind "$0" /etc/shadow && exec "$@"'
    alone: list[str | Path] = ["unshare", "--mount", "sh", "-c", command, folder / "shadow"]
    engine_ground.processes.spawn("sshd", [*alone, "/usr/sbin/sshd", "-D", "-e", "-f", folder / "sshd.conf"])
    engine_ground.processes.wait_ready("sshd", lambda: accepts_connections(port), TIMEOUT)
    yield f"ssh://root@127.0.0.1:{port}"
    engine_ground.processes.stop("sshd")


def key_pair(path: Path) -> str:
    """Make a key as ssh-keygen does; returns the public half."""
    key = ed25519.Ed25519PrivateKey.generate()
    openssh = (serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    write_private(path, key.private_bytes(serialization.Encoding.PEM, *openssh))
    public = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return key.public_key().public_bytes(*public).decode()


def test_an_engine_over_ssh_builds(
    ssh_engine: str, ssh_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the user's key, and to a host that is known."""
    monkeypatch.setenv("HOME", str(ssh_home))
    assert build_by(ssh_engine, tmp_path) == "gcc 12"


def test_an_unknown_host_is_not_trusted(ssh_engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host key that nobody vouched for ends it before anything is sent."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with (
        pytest.raises(TemporaryError, match=r"connecting to ssh://.*not found in known_hosts"),
        docker_engine(ssh_engine),
    ):
        pass
