"""The images of one registry in an OCI image layout: what ``RegistryClient`` does over the network, in a folder.

Place in the flow: ``driver-builder build --oci-dir`` runs the same pipeline into it as into a registry, and ``bundle``
copies between both. An image is in the layout's list once its tag is set; what refers to it is listed without a name,
and found by its ``subject``.
"""

import json
from pathlib import Path
from typing import Any

from driver_builder.archives.image_archive import MANIFEST_TYPE, sha256
from driver_builder.base.errors import RegistryRefused
from driver_builder.model.image_state import Absent, ImageState, Present
from driver_builder.model.images import ImageRef
from driver_builder.registry.image_store import Manifest
from driver_builder.registry.oci_layout import REF_NAME, Json, OciLayout, ref_name
from driver_builder.registry.registry import as_state, clean_labels, index_digests, json_object
from driver_builder.registry.registry_transport import MAX_ANSWER, MAX_DOCUMENT


class LayoutRegistry:
    """An ``ImageStore``: the images that ``layout`` has of the registry ``host``."""

    def __init__(self, layout: OciLayout, host: str) -> None:
        self._layout = layout
        self._host = host

    def inspect(self, repository: str, reference: str, *, architecture: str = "") -> ImageState:
        """Return whether an image is there, with the labels of its config."""
        image = ImageRef(self._host, repository, reference)
        return as_state(image, lambda: self._inspect(repository, reference, architecture))

    def manifest(self, repository: str, reference: str) -> Manifest | None:
        """Read the manifest or index of a tag or digest, None where there is none."""
        digest = reference if reference.startswith("sha256:") else self._digest(repository, reference)
        content = self._layout.read(digest, MAX_DOCUMENT) if digest else None
        if content is None:
            return None
        document = json_object(content)
        if document.get("schemaVersion") != 2:
            raise RegistryRefused(f"{digest} in {self._layout.folder} is not a manifest")
        return Manifest(content=content, media_type=str(document.get("mediaType") or MANIFEST_TYPE), document=document)

    def fetch_manifest(self, repository: str, reference: str) -> dict[str, Any] | None:
        """Read it as a document."""
        found = self.manifest(repository, reference)
        return None if found is None else dict(found.document)

    def tag(self, repository: str, digest: str, tag: str) -> None:
        """Let a tag name a manifest that is there."""
        found = self.manifest(repository, digest)
        if found is None:
            raise RegistryRefused(f"cannot tag {repository}@{digest} as {tag}: {self._layout.folder} does not have it")
        self._put_named(repository, tag, found.content, found.media_type)

    def referrers(self, repository: str, digest: str) -> tuple[str, ...]:
        """Return the digests of what refers to an image."""
        return tuple(
            entry["digest"]
            for entry in self._layout.entries()
            if not ref_name(entry) and self._subject(repository, entry) == digest
        )

    def fetch_blob(self, repository: str, digest: str, *, limit: int = MAX_ANSWER) -> bytes:
        """Read a blob."""
        content = self._layout.read(digest, limit)
        if content is None:
            raise RegistryRefused(f"{self._layout.folder} lacks {digest} of {repository}")
        return content

    def has_blob(self, repository: str, digest: str) -> bool:  # noqa: ARG002 - of the protocol
        """Return whether a blob is there."""
        return self._layout.has(digest)

    def whole_blob(self, repository: str, digest: str) -> bytes | Path:  # noqa: ARG002 - of the protocol
        """Return the file of a blob, after a look at its content."""
        return self._layout.file(digest)

    def upload(self, repository: str, digest: str, body: bytes | Path) -> None:  # noqa: ARG002 - of the protocol
        """Add a blob."""
        self._layout.write(digest, body)

    def put_manifest(self, repository: str, content: bytes, *, tag: str = "", media_type: str = MANIFEST_TYPE) -> str:
        """Add a manifest, under ``tag`` or by its digest alone."""
        digest = sha256(content)
        self._layout.write(digest, content)
        if tag:
            self._put_named(repository, tag, content, media_type)
        return digest

    def put_referrer(self, repository: str, content: bytes) -> bool:  # noqa: ARG002 - of the protocol
        """Add a manifest that has a ``subject``; the list keeps it."""
        self._layout.write(sha256(content), content)
        manifest = json.loads(content)
        kind = {"artifactType": manifest["artifactType"]} if "artifactType" in manifest else {}
        self._layout.put_entry(_described(content, MANIFEST_TYPE) | kind)
        return True

    def _inspect(self, repository: str, reference: str, architecture: str) -> ImageState:
        found = self.manifest(repository, reference)
        if found is None:
            return Absent()
        document = dict(found.document)
        if "manifests" in document:
            own = index_digests(document).get(architecture)
            document = (self.fetch_manifest(repository, own) if own else None) or {}
        digest = json_object(document.get("config")).get("digest")
        config = json_object(self.fetch_blob(repository, digest, limit=MAX_DOCUMENT)) if digest else {}
        labels = json_object(json_object(config.get("config")).get("Labels"))
        return Present(digest=found.digest, labels=clean_labels(labels))

    def _put_named(self, repository: str, tag: str, content: bytes, media_type: str) -> None:
        named = {"annotations": {REF_NAME: self._name(repository, tag)}}
        self._layout.put_entry(_described(content, media_type) | named)

    def _name(self, repository: str, tag: str) -> str:
        """Return the name in the layout's list of what a tag names."""
        return str(ImageRef(self._host, repository, tag))

    def _digest(self, repository: str, tag: str) -> str:
        name = self._name(repository, tag)
        return next((entry["digest"] for entry in self._layout.entries() if ref_name(entry) == name), "")

    def _subject(self, repository: str, entry: Json) -> str:
        found = self.manifest(repository, entry["digest"])
        return str(json_object(found.document.get("subject")).get("digest", "")) if found else ""


def _described(content: bytes, media_type: str) -> Json:
    return {"mediaType": media_type, "digest": sha256(content), "size": len(content)}
