"""Documents that belong to an image in a registry, such as its bill of materials: found by the image's digest.

Place in the flow: after ``push`` and before ``tag``, so that who sees an image's tag finds its documents too.
The media types and the order of steps are those of the OCI distribution specification 1.1, "Pushing Manifests with
Subject": a registry that keeps the list of referrers itself says so when it takes one (``OCI-Subject``); for every
other one the client keeps the list, as an index under the tag ``sha256-<digest>``. Errors are those of ``ImageStore``.
"""

import json
from collections.abc import Mapping
from typing import Any

from driver_builder.archives.image_archive import INDEX_TYPE, MANIFEST_TYPE, canonical_json, descriptor
from driver_builder.base.errors import RegistryRefused
from driver_builder.registry.image_store import ImageStore
from driver_builder.registry.registry import descriptor_digests

EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
_EMPTY = b"{}"

Json = dict[str, Any]


def push_referrer(
    registry: ImageStore,
    repository: str,
    *,
    subject: bytes,
    artifact_type: str,
    content: bytes,
    annotations: Mapping[str, str] | None = None,
) -> str:
    """Attach ``content`` to the pushed image whose manifest is ``subject``; returns the digest of what refers to it.

    Repeating it changes nothing.
    """
    manifest = referrer_manifest(subject, artifact_type=artifact_type, content=content, annotations=annotations or {})
    for blob in (_EMPTY, content):
        registry.upload(repository, descriptor("", blob)["digest"], blob)
    return attach(registry, repository, manifest)


def attach(registry: ImageStore, repository: str, content: bytes) -> str:
    """Put a manifest that refers to an image, and whose blobs are there; returns its digest. Repeatable."""
    manifest = json.loads(content)
    described: Json = descriptor(MANIFEST_TYPE, content) | {
        key: manifest[key] for key in ("artifactType", "annotations") if manifest.get(key)
    }
    if not registry.put_referrer(repository, content):
        _list_referrer(registry, repository, fallback_tag(manifest["subject"]["digest"]), described)
    return str(described["digest"])


def referrers_of(registry: ImageStore, repository: str, digest: str) -> tuple[str, ...]:
    """Return the digests of what refers to an image, whoever keeps the list."""
    listed = descriptor_digests(registry.fetch_manifest(repository, fallback_tag(digest)) or {})
    return tuple(dict.fromkeys((*registry.referrers(repository, digest), *listed)))


def referrer_manifest(subject: bytes, *, artifact_type: str, content: bytes, annotations: Mapping[str, str]) -> bytes:
    """The manifest of an artifact that has one file and refers to an image."""
    manifest: Json = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": artifact_type,
        "config": descriptor(EMPTY_TYPE, _EMPTY),
        "layers": [descriptor(artifact_type, content)],
        "subject": descriptor(MANIFEST_TYPE, subject),
    }
    return canonical_json(manifest | ({"annotations": dict(annotations)} if annotations else {}))


def fallback_tag(digest: str) -> str:
    """The tag of the list of an image's referrers: ``sha256-<hex>``."""
    return digest.replace(":", "-")


def with_referrer(index: Mapping[str, Any] | None, described: Mapping[str, Any]) -> Json | None:
    """An index with one more entry, None where it has it already. Pure.

    Raises:
        ValueError: when ``index`` is not an index.
    """
    entries = [] if index is None else index.get("manifests")
    if not isinstance(entries, list):
        raise ValueError("no list of manifests")  # noqa: TRY004  # of the registry's data, not of our arguments
    if any(isinstance(entry, dict) and entry.get("digest") == described["digest"] for entry in entries):
        return None
    kept = dict(index or {"schemaVersion": 2, "mediaType": INDEX_TYPE})
    return kept | {"manifests": [*entries, dict(described)]}


def _list_referrer(registry: ImageStore, repository: str, tag: str, described: Json) -> None:
    try:
        index = with_referrer(registry.fetch_manifest(repository, tag), described)
    except ValueError as error:
        raise RegistryRefused(
            f"{repository}:{tag} should be an index of an image's referrers, but is not; remove that tag"
        ) from error
    if index is not None:
        registry.put_manifest(repository, canonical_json(index), tag=tag, media_type=INDEX_TYPE)
