"""Images in a real registry: absent, pushed, tagged, refused, with what belongs to them, and a registry that is away.

One registry is docker-registry 2.8, as many clusters run it, the other one crane's: neither keeps a list of referrers.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from driver_builder.archives.image_archive import INDEX_TYPE, ImageArchive, read_image_archive
from driver_builder.base.errors import RegistryRefused, RegistryUnavailable
from driver_builder.model.image_state import Absent, Present, Unauthorized, Unreachable
from driver_builder.model.images import ImageRef
from driver_builder.registry.credentials import Credentials, credentials_for, parse_docker_config
from driver_builder.registry.image_signature import has_signature, push_signature, signature_tag
from driver_builder.registry.referrers import fallback_tag, push_referrer, referrers_of
from driver_builder.registry.registry import RegistryClient
from testbed import places
from testbed.crane_registry import CraneRegistry
from testbed.packages import ensure_packages, why_unsupported
from testbed.ports import free_ports
from testbed.process import Processes
from testbed.progress import Silent
from testbed.registry import PACKAGES, Registry
from testbed.testbed import Testbed
from tests.support.driver_builder.image_tars import docker_20, special, tar_of
from tests.support.loopback import LOOPBACK

LABELS = {"driverwright.io/key": "k1"}


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    """What keeps the registry's process."""
    if reason := why_unsupported():
        pytest.skip(reason)
    processes = Processes.start(places.new_folder(), outlive_harness=False)
    yield processes
    processes.end(keep_logs=False)


@pytest.fixture(scope="module")
def registry(processes: Processes) -> Registry:
    """A registry alone: nothing else is needed to push."""
    ensure_packages(PACKAGES)
    registry = Registry(processes, free_ports(1)[0])
    registry.bring_up(Silent())
    return registry


@pytest.fixture(params=["registry", "crane"])
def any_registry(request: pytest.FixtureRequest) -> Registry | CraneRegistry:
    """Each of two programs, for what all registries do alike."""
    found: Registry | CraneRegistry = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def repository(request: pytest.FixtureRequest) -> str:
    """A repository of the test's own."""
    return f"integration/{request.node.name.partition('[')[0].replace('_', '-').lower()}"


@pytest.fixture
def image(tmp_path: Path) -> ImageArchive:
    """An image of two layers, with provenance."""
    lower = tar_of({"driver/": special(tarfile.DIRTYPE), "driver/loader": b"#!/bin/busybox sh\n" * 100})
    upper = tar_of({"driver/kernel": b"6.1.0-55-cloud-amd64\n"})
    return read_image_archive(docker_20(tmp_path / "image.tar", [lower, upper]), tmp_path).with_provenance(LABELS)


@pytest.fixture
def with_password(registry: Registry) -> Iterator[Credentials]:
    """The registry asks for a password while the test runs."""
    registry.set_auth("anna", "s3cret")
    yield Credentials(username="anna", password="s3cret")
    registry.set_auth(None)


def client_of(registry: Registry | CraneRegistry, credentials: Credentials | None = None) -> RegistryClient:
    """A client of the registry."""
    return RegistryClient(registry.host, plain_http=True, credentials=credentials, timeout=240, reach=LOOPBACK)


def uploads(processes: Processes) -> int:
    """How many blobs and manifests the registry has taken, by its own log."""
    return processes.log("registry").read_text().count("http.request.method=PUT")


def test_an_image_is_pushed_by_digest_and_then_tagged(
    any_registry: Registry | CraneRegistry,
    repository: str,
    image: ImageArchive,
) -> None:
    """The tag names nothing until the whole image is there."""
    client = client_of(any_registry)
    assert client.inspect(repository, "v1") == Absent()

    digest = client.push(repository, image)
    assert client.inspect(repository, "v1") == Absent()
    assert client.inspect(repository, digest) == Present(digest=digest, labels=LABELS)

    client.tag(repository, digest, "v1")
    assert client.inspect(repository, "v1") == Present(digest=digest, labels=LABELS)
    assert client.inspect(repository, "v2") == Absent()


@pytest.mark.every_engine
def test_an_engine_pulls_what_was_pushed(
    engine_ground: Testbed,
    repository: str,
    image: ImageArchive,
) -> None:
    """With its labels and its layers, by tag and by digest."""
    client = client_of(engine_ground.registry)
    digest = client.push(repository, image)
    client.tag(repository, digest, "v1")
    engine = engine_ground.engine.client()
    try:
        engine.pull(f"{engine_ground.registry.host}/{repository}", tag="v1")
        pulled = engine.inspect_image(f"{engine_ground.registry.host}/{repository}@{digest}")
    finally:
        engine.close()
    assert pulled["Config"]["Labels"] == LABELS
    assert pulled["RootFS"]["Layers"] == [layer.diff_id for layer in image.layers]


def test_pushing_again_transfers_nothing(
    registry: Registry,
    processes: Processes,
    repository: str,
    image: ImageArchive,
) -> None:
    """Nor does another image upload the layers it shares."""
    client = client_of(registry)
    before = uploads(processes)
    digest = client.push(repository, image)
    first = uploads(processes) - before
    assert client.push(repository, image) == digest
    assert uploads(processes) - before == first
    other = client.push(repository, image.with_labels({"a": "b"}))
    assert other != digest
    # Its own config and its own manifest; a blob's upload is logged as often as any other request.
    assert uploads(processes) - before - first < first


def test_a_tag_moves_and_the_old_image_stays(
    any_registry: Registry | CraneRegistry,
    repository: str,
    image: ImageArchive,
) -> None:
    """Nodes that were given the digest are not disturbed."""
    client = client_of(any_registry)
    old = client.push(repository, image)
    client.tag(repository, old, "v1")
    new = client.push(repository, image.with_labels({"driverwright.io/key": "k2"}))
    client.tag(repository, new, "v1")
    client.tag(repository, new, "v1")
    assert client.inspect(repository, "v1") == Present(digest=new, labels={"driverwright.io/key": "k2"})
    assert client.inspect(repository, old) == Present(digest=old, labels=LABELS)


def test_a_push_that_was_cut_off_is_completed(
    any_registry: Registry | CraneRegistry,
    repository: str,
    image: ImageArchive,
) -> None:
    """A builder killed between two layers leaves no image, and the next one uploads the rest."""
    client = client_of(any_registry)
    first, _ = image.layers
    client.upload(repository, first.digest, first.path)
    assert client.inspect(repository, image.digest) == Absent()
    assert client.push(repository, image) == image.digest
    assert client.inspect(repository, image.digest) == Present(digest=image.digest, labels=LABELS)


def test_a_password_opens_the_registry(
    registry: Registry,
    with_password: Credentials,
    repository: str,
    image: ImageArchive,
) -> None:
    """As an image pull secret holds it."""
    secret = json.dumps({"auths": {registry.host: {"username": "anna", "password": "s3cret"}}}).encode()
    credentials = credentials_for(parse_docker_config(secret), registry.host)
    assert credentials == with_password
    client = client_of(registry, credentials)
    assert client.inspect(repository, "v1") == Absent()
    client.tag(repository, client.push(repository, image), "v1")
    assert client.inspect(repository, "v1") == Present(digest=image.digest, labels=LABELS)


@pytest.mark.usefixtures("with_password")
@pytest.mark.parametrize(
    "credentials",
    [
        pytest.param(None, id="nobody"),
        pytest.param(Credentials(username="anna", password="wrong"), id="wrong password"),
        pytest.param(Credentials(username="otto", password="s3cret"), id="unknown user"),
    ],
)
def test_without_the_password_nothing_is_known_and_nothing_pushed(
    registry: Registry,
    credentials: Credentials | None,
    image: ImageArchive,
) -> None:
    """Unauthorized is not absent: it must never start a build."""
    client = client_of(registry, credentials)
    state = client.inspect("integration/any", "v1")
    assert isinstance(state, Unauthorized)
    assert "UNAUTHORIZED" in state.message
    assert "s3cret" not in state.message
    with pytest.raises(RegistryRefused, match="denies access"):
        client.push("integration/any", image)


def test_a_registry_that_is_away_is_unreachable_until_it_is_back(
    registry: Registry,
    repository: str,
    image: ImageArchive,
) -> None:
    """The same client goes on once the registry answers again."""
    client = client_of(registry)
    client.tag(repository, client.push(repository, image), "v1")
    registry.stop()
    try:
        state = client.inspect(repository, "v1")
        assert state == Unreachable(message=f"registry {registry.host}: connection refused", is_silent=True)
        with pytest.raises(RegistryUnavailable, match="connection refused"):
            client.push(repository, image)
    finally:
        registry.start()
    assert client.inspect(repository, "v1") == Present(digest=image.digest, labels=LABELS)


def test_a_document_is_found_by_the_image_it_refers_to(
    any_registry: Registry | CraneRegistry, repository: str, image: ImageArchive
) -> None:
    """No list of referrers is kept here: it is an index under a tag made of the image's digest, and is found there."""
    client = client_of(any_registry)
    digest = client.push(repository, image)
    documents = {}
    for content in (b'{"a": 1}', b'{"b": 2}', b'{"a": 1}'):
        reference = push_referrer(
            client, repository, subject=image.manifest_bytes, artifact_type="application/spdx+json", content=content
        )
        documents[reference] = content

    index = client.fetch_manifest(repository, fallback_tag(digest))
    assert index is not None
    assert index["mediaType"] == INDEX_TYPE
    assert [entry["digest"] for entry in index["manifests"]] == list(documents)
    assert referrers_of(client, repository, digest) == tuple(documents)
    for reference, content in documents.items():
        manifest = client.fetch_manifest(repository, reference)
        assert manifest is not None
        assert manifest["subject"]["digest"] == digest
        assert client.fetch_blob(repository, manifest["layers"][0]["digest"]) == content
    assert client.inspect(repository, digest) == Present(digest=digest, labels=LABELS)


def test_a_signature_lies_beside_its_image(
    any_registry: Registry | CraneRegistry, repository: str, image: ImageArchive
) -> None:
    """Where cosign looks for it; a second key signs beside the first, and neither signs twice."""
    client = client_of(any_registry)
    signed = ImageRef(any_registry.host, repository, client.push(repository, image))
    first, second, other = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    assert not has_signature(client, signed, first.public_key())
    for key in (first, second, first):
        push_signature(client, signed, key)
    assert has_signature(client, signed, first.public_key())
    assert has_signature(client, signed, second.public_key())
    assert not has_signature(client, signed, other.public_key())
    manifest = client.fetch_manifest(repository, signature_tag(signed.reference))
    assert manifest is not None
    assert len(manifest["layers"]) == 2


def test_papers_are_attached_with_the_password_too(
    registry: Registry, with_password: Credentials, repository: str, image: ImageArchive
) -> None:
    """All of it is written with the same credentials."""
    client = client_of(registry, with_password)
    digest = client.push(repository, image)
    push_referrer(client, repository, subject=image.manifest_bytes, artifact_type="application/x", content=b"x")
    key = ec.generate_private_key(ec.SECP256R1())
    push_signature(client, ImageRef(registry.host, repository, digest), key)
    assert client.fetch_manifest(repository, fallback_tag(digest)) is not None
    with pytest.raises(RegistryRefused, match="denies access"):
        client_of(registry).fetch_manifest(repository, signature_tag(digest))


def test_annotations_are_read_without_the_config(
    any_registry: Registry | CraneRegistry, repository: str, image: ImageArchive
) -> None:
    """The registry keeps the manifest to the byte."""
    client = client_of(any_registry)
    manifest = client.fetch_manifest(repository, client.push(repository, image))
    assert manifest is not None
    assert manifest["annotations"] == LABELS
