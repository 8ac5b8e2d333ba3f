"""Where images are: a registry, or a folder with an OCI image layout. The methods that both have.

Place in the flow: ``pipeline`` pushes to one, ``image_copy`` copies from one to the other.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from driver_builder.archives.image_archive import MANIFEST_TYPE, ImageArchive, sha256
from driver_builder.model.image_state import ImageState
from driver_builder.registry.registry_transport import MAX_ANSWER


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A manifest or an index: its bytes, and what is read of them."""

    content: bytes = field(repr=False)
    media_type: str
    document: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """``sha256:...`` of the bytes."""
        return sha256(self.content)


class ImageStore(Protocol):
    """Keeps images, by repository. The methods are described in ``RegistryClient``.

    Every method but ``inspect`` raises RegistryUnavailable (worth trying again) or RegistryRefused.
    """

    def inspect(self, repository: str, reference: str, *, architecture: str = "") -> ImageState:
        """Return what is known of an image; never raises."""

    def tag(self, repository: str, digest: str, tag: str) -> None:
        """Let a tag name an image that is there."""

    def manifest(self, repository: str, reference: str) -> Manifest | None:
        """Read the manifest or index of a tag or digest."""

    def fetch_manifest(self, repository: str, reference: str) -> dict[str, Any] | None:
        """Read it as a document."""

    def referrers(self, repository: str, digest: str) -> tuple[str, ...]:
        """Return the digests of what refers to an image."""

    def fetch_blob(self, repository: str, digest: str, *, limit: int = MAX_ANSWER) -> bytes:
        """Read a blob."""

    def has_blob(self, repository: str, digest: str) -> bool:
        """Return whether a blob is there."""

    def whole_blob(self, repository: str, digest: str) -> bytes | Path:
        """Return a blob of any size, checked against its digest, or its file."""

    def upload(self, repository: str, digest: str, body: bytes | Path) -> None:
        """Add a blob."""

    def put_manifest(self, repository: str, content: bytes, *, tag: str = "", media_type: str = MANIFEST_TYPE) -> str:
        """Add a manifest whose blobs are there."""

    def put_referrer(self, repository: str, content: bytes) -> bool:
        """Add a manifest that has a ``subject``."""


def push_image(
    store: ImageStore, repository: str, image: ImageArchive, *, check: Callable[[], None] = lambda: None
) -> str:
    """Add what a store lacks of an image and return its digest; no tag names it yet.

    ``check`` is called before each part, and raises to end the push.

    Raises:
        RegistryUnavailable, RegistryRefused: what was added by then stays.
    """
    for layer in image.layers:
        check()
        store.upload(repository, layer.digest, layer.path)
    check()
    manifest = json.loads(image.manifest_bytes)
    store.upload(repository, manifest["config"]["digest"], image.config_bytes)
    return store.put_manifest(repository, image.manifest_bytes)
