"""A real registry with TLS whose certificate a private authority signed, asked with the CA out of a ConfigMap."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from driver_builder.api.build_settings import ConfigMapKey
from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.archives.image_archive import ImageArchive, read_image_archive
from driver_builder.model.image_state import Absent, Invalid, Present, Unauthorized, Unreachable
from driver_builder.model.images import ImageRef
from driver_builder.registry.registry_access import Registries
from kube_api.resources import CONFIG_MAPS, SECRETS
from testbed import places
from testbed.packages import ensure_packages, why_unsupported
from testbed.pki import CertificateAuthority
from testbed.ports import accepts_connections, free_ports
from testbed.process import Processes
from testbed.registry import PACKAGES, bcrypt, config_text
from tests.support.driver_builder.image_tars import docker_20, special, tar_of
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.loopback import LOOPBACK
from tests.unit.driver_builder.registry.test_registry_access import secret

NAMESPACE = "driverwright"
READY_SECONDS = 600.0
WITH_CA = RegistrySettings(secret="push", ca_config_map=ConfigMapKey(name="ca", key="ca.crt"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    """An authority that no system knows."""
    return CertificateAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def host(authority: CertificateAuthority) -> Iterator[str]:
    """A registry that speaks TLS and asks for a password."""
    if reason := why_unsupported():
        pytest.skip(reason)
    ensure_packages(PACKAGES)
    processes = Processes.start(places.new_folder(), outlive_harness=False)
    try:
        host = f"127.0.0.1:{free_ports(1)[0]}"
        _start(processes, host, authority.issue_files("registry", "registry", hosts=["127.0.0.1"]))
        yield host
    finally:
        processes.end(keep_logs=False)


def _start(processes: Processes, host: str, certificate: Path) -> None:
    folder = processes.folder
    (folder / "htpasswd").write_text(f"anna:{bcrypt('s3cret')}\n")
    config = json.loads(config_text(host, folder / "storage", folder / "htpasswd"))
    config["http"]["tls"] = {"certificate": f"{certificate}.crt", "key": f"{certificate}.key"}
    (folder / "config.yml").write_text(json.dumps(config))
    processes.spawn("registry", ["docker-registry", "serve", folder / "config.yml"])
    port = int(host.rpartition(":")[2])
    processes.wait_ready("registry", lambda: accepts_connections(port), READY_SECONDS)


@pytest.fixture
def cluster(host: str, authority: CertificateAuthority) -> MemoryClient:
    """The objects of a driver's namespace: the Secret with the password, the ConfigMap with the CA."""
    client = MemoryClient()
    auth = {"auths": {host: {"username": "anna", "password": "s3cret"}}}
    client.create(SECRETS.path(namespace=NAMESPACE), secret(auth))
    put_ca(client, authority.file.read_text())
    return client


def put_ca(client: MemoryClient, pem: str) -> None:
    """Write the ConfigMap with the CA."""
    client.create(CONFIG_MAPS.path(namespace=NAMESPACE), {"metadata": {"name": "ca"}, "data": {"ca.crt": pem}})


@pytest.fixture
def image(tmp_path: Path) -> ImageArchive:
    """An image of one layer."""
    layer = tar_of({"driver/": special(tarfile.DIRTYPE), "driver/kernel": b"6.1.0-55-cloud-amd64\n"})
    return read_image_archive(docker_20(tmp_path / "image.tar", [layer]), tmp_path)


def test_a_registry_is_read_and_written_with_its_ca(host: str, cluster: MemoryClient, image: ImageArchive) -> None:
    """Absent, pushed, present: all over TLS."""
    registries = Registries(cluster, reach=LOOPBACK)
    wanted = ImageRef(host, "drivers/edu", "v1")
    assert registries.inspect(NAMESPACE, WITH_CA, wanted) == Absent()
    client = registries.connect(NAMESPACE, WITH_CA, host, "drivers/edu")
    digest = client.push("drivers/edu", image)
    client.tag("drivers/edu", digest, "v1")
    state = registries.inspect(NAMESPACE, WITH_CA, wanted)
    assert isinstance(state, Present)
    assert state.digest == digest


def test_a_wrong_password_is_reported_from_a_wrong_ca(host: str, cluster: MemoryClient) -> None:
    """The certificate is believed, the user is not."""
    settings = RegistrySettings(ca_config_map=WITH_CA.ca_config_map)
    state = Registries(cluster, reach=LOOPBACK).inspect(NAMESPACE, settings, ImageRef(host, "drivers/edu", "v1"))
    assert isinstance(state, Unauthorized)


def test_the_ca_of_another_registry_is_not_believed(host: str, cluster: MemoryClient, tmp_path: Path) -> None:
    """Nothing is known of the image then, so nothing is built; the message speaks of the certificate."""
    cluster.delete(CONFIG_MAPS.path(namespace=NAMESPACE, name="ca"))
    put_ca(cluster, CertificateAuthority(tmp_path / "other").file.read_text())
    state = Registries(cluster, reach=LOOPBACK).inspect(NAMESPACE, WITH_CA, ImageRef(host, "drivers/edu", "v1"))
    assert isinstance(state, Unreachable)
    assert "certificate verify failed" in state.message
    assert "spec.registry.caConfigMap" in state.message


def test_without_its_ca_the_registry_is_not_believed(host: str, cluster: MemoryClient) -> None:
    """Also when the authority is known to other drivers."""
    settings = RegistrySettings(secret="push")
    state = Registries(cluster, reach=LOOPBACK).inspect(NAMESPACE, settings, ImageRef(host, "drivers/edu", "v1"))
    assert isinstance(state, Unreachable)
    assert "certificate verify failed" in state.message


def test_a_ca_that_comes_later_is_taken_up(host: str, cluster: MemoryClient, authority: CertificateAuthority) -> None:
    """The next look sees it: nothing has to be started again."""
    cluster.delete(CONFIG_MAPS.path(namespace=NAMESPACE, name="ca"))
    registries = Registries(cluster, reach=LOOPBACK)
    wanted = ImageRef(host, "drivers/later", "v1")
    state = registries.inspect(NAMESPACE, WITH_CA, wanted)
    assert isinstance(state, Invalid)
    assert f"ConfigMap {NAMESPACE}/ca does not exist" in state.message
    put_ca(cluster, authority.file.read_text())
    assert registries.inspect(NAMESPACE, WITH_CA, wanted) == Absent()
