"""Images of a fleet in a real registry: of one small layer each, with the labels that the product writes.

Nothing is built: the controller asks a registry for an image's manifest and labels, and no kubelet pulls here.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import requests

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.model.image_state import ImageState, Present
from driver_builder.model.images import ImageRef
from tests.support.driver_builder.model_parts import ModelRegistries

Json = dict[str, Any]

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_LAYER = b"driverwright: a layer that nobody unpacks"


class Registries(ModelRegistries):
    """The model's registries, which know each image under the digest that it will have in a real one."""

    def inspect(
        self,
        namespace: str,
        settings: RegistrySettings,
        image: ImageRef,
        architecture: str = "",
        *,
        signed_by: str | None = None,
    ) -> ImageState:
        """Give what the real registry is going to."""
        state = super().inspect(namespace, settings, image, architecture, signed_by=signed_by)
        if not isinstance(state, Present):
            return state
        manifest, _ = image_of(self.images[image])
        return Present(digest=_digest(manifest), labels=state.labels, is_signed=state.is_signed)


def image_of(labels: Mapping[str, str]) -> tuple[bytes, bytes]:
    """Make an image's manifest and its config."""
    config = _json({
        "architecture": "amd64", "os": "linux", "config": {"Labels": dict(labels)},
        "rootfs": {"type": "layers", "diff_ids": [_digest(_LAYER)]},
    })  # fmt: skip
    described = _described("application/vnd.oci.image.config.v1+json", config)
    layer = _described("application/vnd.oci.image.layer.v1.tar", _LAYER)
    document = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": described, "layers": [layer]}
    return _json(document), config


def push(images: Mapping[ImageRef, Mapping[str, str]], done: Callable[[float], object]) -> None:
    """Push all images of a fleet; ``done`` is told the percentage."""
    with requests.Session() as session:
        known: set[str] = set()
        for number, (image, labels) in enumerate(images.items()):
            repository = f"http://{image.host}/v2/{image.repository}"
            manifest, config = image_of(labels)
            if repository not in known:
                _push_blob(session, repository, _LAYER)
                known.add(repository)
            _push_blob(session, repository, config)
            headers = {"Content-Type": MANIFEST_TYPE}
            address = f"{repository}/manifests/{image.reference}"
            session.put(address, data=manifest, headers=headers, timeout=30).raise_for_status()
            done(100 * (number + 1) / len(images))


def _push_blob(session: requests.Session, repository: str, content: bytes) -> None:
    begun = session.post(f"{repository}/blobs/uploads/", timeout=30)
    begun.raise_for_status()
    address = requests.compat.urljoin(repository, begun.headers["Location"])
    separator = "&" if "?" in address else "?"
    session.put(f"{address}{separator}digest={_digest(content)}", data=content, timeout=30).raise_for_status()


def _described(kind: str, content: bytes) -> Json:
    return {"mediaType": kind, "digest": _digest(content), "size": len(content)}


def _json(document: Json) -> bytes:
    return json.dumps(document).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
