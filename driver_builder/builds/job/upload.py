"""The result of a build Job, as one artifact in the driver's repository: pushed by its pod, fetched by the controller.

The artifact has no tag: it is found only by its digest, and the registry's garbage collection removes it.
Files are uploaded in pieces, because no response of a registry is read without a bound.

The result may be anything: its commands ran as root in the folder. Nothing in there is followed or run.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from driver_builder.archives.image_archive import MANIFEST_TYPE, canonical_json, descriptor
from driver_builder.archives.image_files import MAX_IMAGE
from driver_builder.base.errors import RegistryRefused
from driver_builder.builds.kernel_metadata import COMPILER, MAX_LINE, SYMVERS
from driver_builder.modules.symvers import MAX_SYMVERS
from driver_builder.registry.referrers import EMPTY_TYPE
from driver_builder.registry.registry import RegistryClient

ARTIFACT_TYPE = "application/vnd.driverwright.build.v1"
PIECE_TYPE = "application/vnd.driverwright.build.piece.v1"
TITLE = "org.opencontainers.image.title"
IMAGE = "image.tar"
LIMITS: Mapping[str, int] = {IMAGE: MAX_IMAGE + (64 << 20), SYMVERS: MAX_SYMVERS, COMPILER: MAX_LINE}
"""The files, and how many bytes of each are read: those of an image are its layers and metadata."""
FILES = tuple(LIMITS)
PIECE_BYTES = 8 << 20
_EMPTY = b"{}"

Json = dict[str, Any]


def push_build(registry: RegistryClient, repository: str, folder: Path) -> str:
    """Push those of FILES that exist in ``folder``; returns the digest.

    Raises:
        RegistryUnavailable, RegistryRefused: as for every push.
    """
    layers: list[Json] = []
    for name in FILES:
        for piece in _pieces(folder / name):
            described = descriptor(PIECE_TYPE, piece)
            registry.upload(repository, described["digest"], piece)
            layers.append(described | {"annotations": {TITLE: name}})
    config = descriptor(EMPTY_TYPE, _EMPTY)
    registry.upload(repository, config["digest"], _EMPTY)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": ARTIFACT_TYPE,
        "config": config,
        "layers": layers,
    }
    return registry.put_manifest(repository, canonical_json(manifest))


def fetch_build(registry: RegistryClient, repository: str, digest: str, directory: Path) -> None:
    """Fetch what was pushed into ``directory``.

    Raises:
        RegistryUnavailable, RegistryRefused: as for every read; refused also when the digest is of something else.
    """
    manifest = registry.fetch_manifest(repository, digest)
    if manifest is None or manifest.get("artifactType") != ARTIFACT_TYPE:
        raise RegistryRefused(f"{repository}@{digest} does not exist, or is not a build's upload")
    for name in FILES:
        (directory / name).unlink(missing_ok=True)
    for layer in manifest["layers"]:
        name = layer["annotations"][TITLE]
        if name in FILES:
            with (directory / name).open("ab") as file:
                file.write(registry.fetch_blob(repository, layer["digest"]))
                if file.tell() > LIMITS[name] + PIECE_BYTES:
                    raise RegistryRefused(f"{repository}@{digest}: {name} has more than {LIMITS[name]} bytes")


def _pieces(path: Path) -> Iterator[bytes]:
    """Read a file in pieces; nothing if it is missing or is not a regular file."""
    file = _opened(path)
    if file is not None:
        with file:
            while piece := file.read(PIECE_BYTES):
                yield piece


def _opened(path: Path) -> BinaryIO | None:
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(number).st_mode):
        return os.fdopen(number, "rb")
    os.close(number)
    return None
