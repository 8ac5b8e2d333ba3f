"""Images from registry to layout and back: the same bytes, with what refers to them, and no tag is moved."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from driver_builder.archives.image_archive import INDEX_TYPE, ImageArchive, canonical_json, read_image_archive, sha256
from driver_builder.base.errors import RegistryRefused, RegistryUnavailable
from driver_builder.model.image_state import Absent, Present
from driver_builder.model.images import ImageRef
from driver_builder.registry.image_copy import ImagePlace, copy_image
from driver_builder.registry.image_signature import has_signature, push_signature
from driver_builder.registry.image_store import ImageStore, push_image
from driver_builder.registry.layout_registry import LayoutRegistry
from driver_builder.registry.oci_layout import OciLayout, opened_layout
from driver_builder.registry.referrers import push_referrer, referrers_of
from driver_builder.registry.registry import RegistryClient
from tests.support.driver_builder.image_tars import docker_20, tar_of
from tests.support.driver_builder.scripted_registry import MemoryRegistry, ScriptedRegistry, scripted_registry
from tests.support.loopback import LOOPBACK

HOST, REPOSITORY = "r.io", "team/edu"
KEY, OTHER = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))


@pytest.fixture
def image(tmp_path: Path) -> ImageArchive:
    """An image of two layers, with a label."""
    layers = [tar_of({"driver/loader": b"#!/bin/sh\n"}), tar_of({"driver/kernel": b"6.1\n"})]
    return read_image_archive(docker_20(tmp_path / "image.tar", layers), tmp_path / "l").with_provenance({"a": "b"})


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[OciLayout]:
    """An empty layout."""
    with opened_layout(tmp_path / "images") as layout:
        yield layout


@pytest.fixture(params=[True, False], ids=["keeps referrers", "keeps none"])
def memory(request: pytest.FixtureRequest) -> MemoryRegistry:
    """A registry that keeps the list of referrers, and one that leaves it to its clients."""
    return MemoryRegistry(keeps_referrers=request.param)


@pytest.fixture
def server(memory: MemoryRegistry) -> Iterator[ScriptedRegistry]:
    """Serve the registry."""
    with scripted_registry(memory) as server:
        yield server


def fill(store: ImageStore, image: ImageArchive) -> str:
    """Push an image with a bill of materials and a signature, and tag it."""
    digest = push_image(store, REPOSITORY, image)
    push_referrer(store, REPOSITORY, subject=image.manifest_bytes, artifact_type="text/plain", content=b"materials")
    push_signature(store, ImageRef(HOST, REPOSITORY, digest), KEY)
    store.tag(REPOSITORY, digest, "v1")
    return digest


def whole(store: ImageStore, image: ImageArchive) -> Any:
    """Return all that a store has of the image, in bytes."""
    (referrer,) = referrers_of(store, REPOSITORY, image.digest)
    found = [store.manifest(REPOSITORY, name) for name in ("v1", referrer)]
    is_signed = has_signature(store, ImageRef(HOST, REPOSITORY, image.digest), KEY.public_key())
    return [item.content for item in found if item], store.inspect(REPOSITORY, "v1"), is_signed


def test_from_a_layout_to_a_registry_and_back(
    layout: OciLayout, server: ScriptedRegistry, image: ImageArchive, tmp_path: Path
) -> None:
    """All three have the same: manifest, bill of materials, labels, signature."""
    first, registry = LayoutRegistry(layout, HOST), RegistryClient(server.host, plain_http=True, reach=LOOPBACK)
    fill(first, image)
    assert copy_image(ImagePlace(first, REPOSITORY), ImagePlace(registry, REPOSITORY), "v1", tag="v1") == (
        image.digest,
        True,
    )
    with opened_layout(tmp_path / "second") as other:
        second = LayoutRegistry(other, HOST)
        copy_image(ImagePlace(registry, REPOSITORY), ImagePlace(second, REPOSITORY), "v1", tag="v1")
        assert whole(first, image) == whole(registry, image) == whole(second, image)
    assert whole(registry, image)[1:] == (Present(digest=image.digest, labels={"a": "b"}), True)


def test_a_second_copy_uploads_nothing(layout: OciLayout, server: ScriptedRegistry, image: ImageArchive) -> None:
    """The tag is reported as there already."""
    store, registry = LayoutRegistry(layout, HOST), RegistryClient(server.host, plain_http=True, reach=LOOPBACK)
    fill(store, image)
    copy_image(ImagePlace(store, REPOSITORY), ImagePlace(registry, REPOSITORY), "v1", tag="v1")
    before = len(server.requests)
    assert copy_image(ImagePlace(store, REPOSITORY), ImagePlace(registry, REPOSITORY), "v1", tag="v1") == (
        image.digest,
        False,
    )
    assert {"POST", "PATCH"}.isdisjoint(request.method for request in server.requests[before:])


def test_a_tag_that_names_another_image_is_not_moved(
    layout: OciLayout, server: ScriptedRegistry, image: ImageArchive
) -> None:
    """Nodes may run it; both digests are named."""
    store, registry = LayoutRegistry(layout, HOST), RegistryClient(server.host, plain_http=True, reach=LOOPBACK)
    fill(store, image)
    theirs = image.with_labels({"of": "somebody else"})
    registry.tag(REPOSITORY, registry.push(REPOSITORY, theirs), "v1")
    with pytest.raises(RegistryRefused, match=f"names {theirs.digest} there already, not {image.digest}"):
        copy_image(ImagePlace(store, REPOSITORY), ImagePlace(registry, REPOSITORY), "v1", tag="v1")
    assert registry.inspect(REPOSITORY, "v1") == Present(digest=theirs.digest, labels=theirs.labels)


def test_a_copy_that_is_cut_off_has_no_tag_and_goes_on(
    layout: OciLayout, memory: MemoryRegistry, image: ImageArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the registry has by then is not uploaded again."""
    store = LayoutRegistry(layout, HOST)
    fill(store, image)
    with scripted_registry(memory) as server:
        registry = RegistryClient(server.host, plain_http=True, reach=LOOPBACK)
        with monkeypatch.context() as patched:

            def gone(*_words: object, **_options: object) -> bool:
                raise RegistryUnavailable("gone")

            patched.setattr(RegistryClient, "put_referrer", gone)
            with pytest.raises(RegistryUnavailable):
                copy_image(ImagePlace(store, REPOSITORY), ImagePlace(registry, REPOSITORY), "v1", tag="v1")
        assert registry.inspect(REPOSITORY, "v1") == Absent()
        uploads = sum(request.method == "POST" for request in server.requests)
        copy_image(ImagePlace(store, REPOSITORY), ImagePlace(registry, REPOSITORY), "v1", tag="v1")
        assert registry.inspect(REPOSITORY, "v1") == Present(digest=image.digest, labels={"a": "b"})
        # Payload and config of the signature.
        assert sum(request.method == "POST" for request in server.requests) == uploads + 2


def test_signatures_of_others_stay(layout: OciLayout, server: ScriptedRegistry, image: ImageArchive) -> None:
    """An image that is signed there already has both signatures afterwards."""
    store, registry = LayoutRegistry(layout, HOST), RegistryClient(server.host, plain_http=True, reach=LOOPBACK)
    digest = fill(store, image)
    registry.push(REPOSITORY, image)
    place = ImageRef(HOST, REPOSITORY, digest)
    push_signature(registry, place, OTHER)
    copy_image(ImagePlace(store, REPOSITORY), ImagePlace(registry, REPOSITORY), "v1", tag="v1")
    assert all(has_signature(registry, place, key.public_key()) for key in (KEY, OTHER))


def test_an_index_of_several_platforms_is_copied_whole(
    layout: OciLayout, server: ScriptedRegistry, image: ImageArchive
) -> None:
    """With each of its images, under its own digest."""
    registry = RegistryClient(server.host, plain_http=True, reach=LOOPBACK)
    arm = image.with_labels({"for": "arm64"})
    entries = [
        {"digest": registry.push(REPOSITORY, one), "size": 1, "platform": {"os": "linux", "architecture": architecture}}
        for one, architecture in ((image, "amd64"), (arm, "arm64"))
    ]
    index = canonical_json({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": entries})
    registry.put_manifest(REPOSITORY, index, tag="v1", media_type=INDEX_TYPE)
    store = LayoutRegistry(layout, HOST)
    copy_image(ImagePlace(registry, REPOSITORY), ImagePlace(store, REPOSITORY), "v1", tag="v1")
    assert store.inspect(REPOSITORY, "v1", architecture="arm64") == Present(digest=sha256(index), labels=arm.labels)
    assert [entry["mediaType"] for entry in layout.entries()] == [INDEX_TYPE]


def test_an_image_that_is_not_there_is_said(layout: OciLayout, server: ScriptedRegistry) -> None:
    """By its tag, and as an absent image of the layout."""
    store, registry = LayoutRegistry(layout, HOST), RegistryClient(server.host, plain_http=True, reach=LOOPBACK)
    with pytest.raises(RegistryRefused, match="team/edu has no image v2"):
        copy_image(ImagePlace(store, REPOSITORY), ImagePlace(registry, REPOSITORY), "v2", tag="v2")
    assert store.inspect(REPOSITORY, "v2") == Absent()


def test_an_image_by_digest_is_listed_by_it(layout: OciLayout, server: ScriptedRegistry, image: ImageArchive) -> None:
    """A prebuilt image may have no tag; one whose blobs are there alone is not in the list yet."""
    registry = RegistryClient(server.host, plain_http=True, reach=LOOPBACK)
    digest = registry.push(REPOSITORY, image)
    push_image(LayoutRegistry(layout, HOST), REPOSITORY, image)
    copy_image(
        ImagePlace(registry, REPOSITORY),
        ImagePlace(LayoutRegistry(layout, HOST), REPOSITORY),
        digest,
        tag=digest,
    )
    (entry,) = layout.entries()
    assert entry["annotations"] == {"org.opencontainers.image.ref.name": f"r.io/team/edu@{digest}"}
