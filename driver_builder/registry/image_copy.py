"""Copies an image from one store to another: the same bytes under the same digests, with what refers to it.

Place in the flow: ``bundle`` copies from registries to a layout and back. Blobs come first, then manifests, then what
refers to them and the signatures; the tag is set last, so it names a whole image. What is there already is not copied.
"""

import json
from dataclasses import dataclass
from typing import Any

from driver_builder.base.errors import RegistryRefused
from driver_builder.registry.image_signature import signature_image, signature_tag
from driver_builder.registry.image_store import ImageStore, Manifest
from driver_builder.registry.referrers import attach, referrers_of


@dataclass(frozen=True, slots=True)
class ImagePlace:
    """A repository of a store."""

    store: ImageStore
    repository: str

    def manifest(self, reference: str) -> Manifest | None:
        """Read a manifest."""
        return self.store.manifest(self.repository, reference)


def copy_image(origin: ImagePlace, target: ImagePlace, reference: str, *, tag: str = "") -> tuple[str, bool]:
    """Copy an image, and let ``tag`` name it there; returns its digest, and whether the tag was set by this.

    Raises:
        RegistryUnavailable: worth trying again; what was copied stays.
        RegistryRefused: the image cannot be copied, or the tag names another one there: it is not moved.
    """
    image = origin.manifest(reference)
    if image is None:
        raise RegistryRefused(f"{origin.repository} has no image {reference}")
    there = target.manifest(tag) if tag else None
    if there is not None and there.digest != image.digest:
        raise RegistryRefused(
            f"{target.repository}:{tag} names {there.digest} there already, not {image.digest}: remove that tag, or"
            " copy to another repository"
        )
    _copy(origin, target, image)
    # A digest is no tag: a layout lists it all the same, and its blobs alone do not say that it is whole.
    if tag and (there is None or tag == image.digest):
        target.store.tag(target.repository, image.digest, tag)
    return image.digest, bool(tag) and there is None


def _copy(origin: ImagePlace, target: ImagePlace, image: Manifest) -> None:
    """Copy a manifest with all that it names and all that names it."""
    for child in _children(image):
        _copy(origin, target, _needed(origin, child))
    _copy_blobs(origin, target, image)
    target.store.put_manifest(target.repository, image.content, media_type=image.media_type)
    for digest in referrers_of(origin.store, origin.repository, image.digest):
        referrer = _needed(origin, digest)
        _copy_blobs(origin, target, referrer)
        attach(target.store, target.repository, referrer.content)
    _copy_signatures(origin, target, image.digest)


def _copy_signatures(origin: ImagePlace, target: ImagePlace, digest: str) -> None:
    """Copy the signatures that the target does not have; its own stay."""
    tag = signature_tag(digest)
    signatures, there = origin.manifest(tag), target.manifest(tag)
    if signatures is None or (there is not None and there.digest == signatures.digest):
        return
    _copy_blobs(origin, target, signatures)
    own: list[Any] = list(there.document.get("layers") or ()) if there else []
    missing = [layer for layer in signatures.document.get("layers") or () if layer not in own]
    if there is None:
        target.store.put_manifest(target.repository, signatures.content, tag=tag, media_type=signatures.media_type)
    elif missing:
        manifest, config = signature_image([*own, *missing])
        target.store.upload(target.repository, json.loads(manifest)["config"]["digest"], config)
        target.store.put_manifest(target.repository, manifest, tag=tag)


def _copy_blobs(origin: ImagePlace, target: ImagePlace, manifest: Manifest) -> None:
    for digest in _blobs(manifest):
        if not target.store.has_blob(target.repository, digest):
            target.store.upload(target.repository, digest, origin.store.whole_blob(origin.repository, digest))


def _needed(origin: ImagePlace, digest: str) -> Manifest:
    found = origin.manifest(digest)
    if found is None:
        raise RegistryRefused(f"{origin.repository} lacks {digest}, which belongs to the image")
    return found


def _children(index: Manifest) -> list[str]:
    return _digests(index.document.get("manifests"))


def _blobs(manifest: Manifest) -> list[str]:
    document = manifest.document
    return list(dict.fromkeys(_digests([document.get("config"), *(document.get("layers") or ())])))


def _digests(descriptors: Any) -> list[str]:
    found = descriptors if isinstance(descriptors, list) else []
    return [item["digest"] for item in found if isinstance(item, dict) and isinstance(item.get("digest"), str)]
