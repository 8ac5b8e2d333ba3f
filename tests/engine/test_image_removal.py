"""``driver-builder gc`` with a real registry, with removal switched on and off, and with a password.

One registry is docker-registry 2.8: it keeps no list of referrers, and removal is off unless its configuration says so.
The other one is crane's, which keeps no such list either, and whose tags stay when an image is removed by its digest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.archives.image_archive import ImageArchive, read_image_archive
from driver_builder.cli import main
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.images import ImageRef
from driver_builder.registry.credentials import Credentials
from driver_builder.registry.image_signature import push_signature
from driver_builder.registry.referrers import push_referrer
from driver_builder.registry.registry import RegistryClient
from driver_builder.retention import record
from driver_builder.retention.record import PushedImage, Record
from driver_builder.retention.recorder import record_path
from kube_api.client import Client
from testbed import places
from testbed.crane_registry import CraneRegistry
from testbed.packages import ensure_packages, why_unsupported
from testbed.ports import free_ports
from testbed.process import Processes
from testbed.progress import Silent
from testbed.registry import PACKAGES, Registry
from tests.support.driver_builder.factories import NAMESPACE
from tests.support.driver_builder.image_tars import docker_20, tar_of
from tests.support.driver_builder.installation import InstalledClient, as_client
from tests.support.loopback import ALLOWED, LOOPBACK

KEY = ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    """What keeps the registries' processes."""
    if reason := why_unsupported():
        pytest.skip(reason)
    processes = Processes.start(places.new_folder(), outlive_harness=False)
    yield processes
    processes.end(keep_logs=False)


@pytest.fixture(scope="module")
def registry(processes: Processes) -> Registry:
    """A registry alone."""
    ensure_packages(PACKAGES)
    made = Registry(processes, free_ports(1)[0])
    made.bring_up(Silent())
    return made


EACH_REGISTRY = pytest.mark.parametrize("installed", ["registry", "crane"], indirect=True)


@dataclass(frozen=True)
class Installation:
    """A cluster in memory whose controller has pushed ``old`` and ``young`` to a repository of the test's own."""

    cluster: InstalledClient
    client: RegistryClient
    repository: str
    images: tuple[PushedImage, ...]

    def tags(self) -> set[str]:
        """All tags that the registry lists for the repository."""
        return set(self.client.tags(self.repository))

    def recorded(self) -> set[str]:
        """The tags of the record."""
        data = self.cluster.get(record_path(NAMESPACE))["data"]
        return {image.image.reference for image in record.parse(data).images}


@pytest.fixture
def installed(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Installation:
    """Push both images with bill of materials and signature, as a build does, and record them."""
    registry: Registry | CraneRegistry = request.getfixturevalue(getattr(request, "param", "registry"))
    repository = f"drivers/{request.node.name.partition('[')[0].replace('_', '-')}"
    client, cluster = RegistryClient(registry.host, plain_http=True, reach=LOOPBACK), InstalledClient()
    base = read_image_archive(docker_20(tmp_path / "image.tar", [tar_of({"x": b"x"})]), tmp_path)
    today = date.today()
    images = tuple(
        PushedImage(
            image=ImageRef(registry.host, repository, tag),
            digest=_push(client, repository, tag, base),
            driver=DriverKey(f"{NAMESPACE}/gone"),
            registry=RegistrySettings(plain_http=True),
            last_needed=today - timedelta(days=days),
        )
        for tag, days in (("old", 100), ("young", 1))
    )
    metadata = {"name": record.CONFIG_MAP, "namespace": NAMESPACE}
    data = record.render(Record(observed=today, namespaces=(NAMESPACE,), images=images))
    cluster.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    monkeypatch.setattr(Client, "from_environment", as_client(cluster))
    return Installation(cluster, client, repository, images)


def _push(client: RegistryClient, repository: str, tag: str, base: ImageArchive) -> str:
    image = base.with_labels({"tag": tag})
    digest = client.push(repository, image)
    push_referrer(
        client, repository, subject=image.manifest_bytes, artifact_type="application/spdx+json", content=tag.encode()
    )
    push_signature(client, ImageRef("r.io", repository, digest), KEY)
    client.tag(repository, digest, tag)
    return digest


def gc(installed: Installation, *flags: str) -> int:
    """Run the command."""
    pattern = f"{installed.images[0].image.host}/{installed.repository}"
    return main.main(
        ["gc", "-n", NAMESPACE, "--gc-repositories", pattern, f"--registry-allowed-hosts={ALLOWED}", *flags]
    )


def _names(digest: str) -> set[str]:
    return {digest.replace(":", "-"), f"{digest.replace(':', '-')}.sig"}


@EACH_REGISTRY
def test_an_old_image_goes_with_its_documents_and_the_young_one_stays(
    installed: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dry run first, which changes nothing; the second removal finds nothing to do."""
    old, young = installed.images
    every = {"old", "young", *_names(old.digest), *_names(young.digest)}
    assert (gc(installed), installed.tags(), installed.recorded()) == (0, every, {"old", "young"})
    assert "dry run: --delete would remove 1 of 2 images" in capsys.readouterr().out

    (document,) = (installed.client.fetch_manifest(installed.repository, min(_names(old.digest))) or {})["manifests"]
    assert gc(installed, "--delete") == 0
    assert (installed.tags(), installed.recorded()) == ({"young", *_names(young.digest)}, {"young"})
    for digest in (old.digest, document["digest"]):
        assert installed.client.manifest(installed.repository, digest) is None
    assert installed.client.manifest(installed.repository, young.digest)
    assert "removed 1 of 2 images" in capsys.readouterr().out
    assert gc(installed, "--delete") == 0
    assert "removed 0 of 1 images" in capsys.readouterr().out


@EACH_REGISTRY
def test_an_image_with_another_tag_stays(installed: Installation) -> None:
    """Whoever gave it that tag wants it."""
    before = installed.tags()
    installed.client.tag(installed.repository, installed.images[0].digest, "stable")
    assert gc(installed, "--delete") == 0
    assert installed.tags() == {*before, "stable"}


def test_a_registry_that_removes_nothing_says_so_once(
    registry: Registry, installed: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    """405: every image stays, with all that belongs to it, in the record too."""
    data = installed.cluster.objects[record_path(NAMESPACE)]["data"]
    both = tuple(replace(image, last_needed=installed.images[0].last_needed) for image in installed.images)
    data |= {image.key: record.render_image(image) for image in both}
    before = installed.tags()
    registry.set_deletes(False)
    try:
        assert gc(installed, "--delete") == 1
    finally:
        registry.set_deletes(True)
    assert (installed.tags(), installed.recorded()) == (before, {"old", "young"})
    assert capsys.readouterr().err.count("405 UNSUPPORTED") == 1


def test_a_removal_needs_the_password_of_the_registry(
    registry: Registry, installed: Installation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without it nothing is read and nothing removed; with that of a file it is."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"auths": {registry.host: {"username": "anna", "password": "s3cret"}}}))
    registry.set_auth("anna", "s3cret")
    try:
        credentials = Credentials(username="anna", password="s3cret")
        client = RegistryClient(registry.host, plain_http=True, credentials=credentials, reach=LOOPBACK)
        assert gc(installed, "--delete") == 1
        assert "no credentials were sent" in capsys.readouterr().out
        assert "old" in client.tags(installed.repository)
        flags = ["--registry-config", str(config), "--registry-plain-http-passwords"]
        assert gc(installed, "--delete", *flags) == 0
        assert "old" not in client.tags(installed.repository)
    finally:
        registry.set_auth(None)
