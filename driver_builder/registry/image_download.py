"""Downloads an image from a registry to files on disk: the reverse of a push.

Place in the flow: ``exported_symbols`` takes the modules of a driver that another one depends on. Everything is
compared with its digest, so the result is what was verified and pushed.
"""

import gzip
import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

from driver_builder.archives.image_archive import ImageArchive, sha256
from driver_builder.archives.image_files import MAX_IMAGE
from driver_builder.archives.image_layers import Layer
from driver_builder.base.errors import RegistryRefused
from driver_builder.registry.image_store import ImageStore

_CHUNK = 1 << 20


def download(registry: ImageStore, repository: str, digest: str, directory: Path) -> ImageArchive:
    """Fetch the image of one platform; its layers go to ``directory``, which the caller removes.

    Raises:
        RegistryUnavailable: worth trying again.
        RegistryRefused: there is no such image, or it has no gzip'd layers.
    """
    directory.mkdir(parents=True, exist_ok=True)
    manifest = registry.fetch_manifest(repository, digest)
    if manifest is None:
        raise RegistryRefused(f"there is no {repository}@{digest}")
    try:
        return _image(registry, repository, manifest, directory)
    except (ValueError, KeyError, TypeError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise RegistryRefused(f"{repository}@{digest} is not an image with gzip'd layers: {error!r}") from error


def _image(registry: ImageStore, repository: str, manifest: dict[str, Any], directory: Path) -> ImageArchive:
    config = json.loads(registry.fetch_blob(repository, manifest["config"]["digest"]))
    layers = []
    left = MAX_IMAGE
    for number, described in enumerate(manifest["layers"]):
        content = registry.fetch_blob(repository, described["digest"])
        layer, size = _layer(content, directory / f"fetched-{number}.tar.gz", left)
        layers.append(layer)
        left -= size
    if [layer.diff_id for layer in layers] != config["rootfs"]["diff_ids"]:
        raise ValueError("its layers are not those that its config names")
    return ImageArchive(config=config, layers=tuple(layers))


def _layer(content: bytes, path: Path, limit: int) -> tuple[Layer, int]:
    """A layer, and how many bytes it has unpacked, which are ``limit`` at most."""
    path.write_bytes(content)
    diff_id, size = hashlib.sha256(), 0
    with gzip.open(path) as plain:
        while chunk := plain.read(_CHUNK):
            diff_id.update(chunk)
            size += len(chunk)
            if size > limit:
                raise ValueError(f"its layers have more than {MAX_IMAGE} bytes")
    layer = Layer(path=path, diff_id=f"sha256:{diff_id.hexdigest()}", digest=sha256(content), size=len(content))
    return layer, size
