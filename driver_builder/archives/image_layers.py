"""Layers of an image as files on disk: stored, or changed file by file.

Place in the flow: ``image_archive`` stores the layers that a builder left; ``module_signer`` changes one of them.

The same content always has the same bytes: members keep their order, owners and times, and the compression has no time
stamp.
"""

import gzip
import hashlib
import io
import posixpath
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from driver_builder.archives.bounded_tar import BoundedTar, TarTooLarge, bounded_tar, read_whole
from driver_builder.base.errors import VerificationFailed
from driver_builder.base.reasons import Reason

MAX_FILE = 192 << 20
"""Bytes of a file that is read into memory, such as a module. The largest known one is ``nvidia.ko`` 535 with its debug
data, 185 MB (11 MB without); it has to fit into the controller's 512 MiB."""
MAX_CHANGED = 96 << 20
"""Bytes of a file that is changed: it is in memory three times."""

_COMPRESSION = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer on disk: ``path`` is a gzip'd tar, ``digest`` and ``size`` (bytes) its own, ``diff_id`` the tar's."""

    path: Path
    diff_id: str
    digest: str
    size: int


Change = Callable[[str, bytes], bytes]
"""A regular file's absolute path and content to its new content."""


def store_layer(chunks: Iterable[bytes], path: Path) -> Layer:
    """Keep a plain tar, given in parts, as a layer at ``path``."""
    with _tar_file(path) as tar:
        for chunk in chunks:
            tar.write(chunk)
    return tar.layer(path)


def changed_layer(layer: Layer, path: Path, *, chosen: Callable[[str], bool], change: Change) -> Layer:
    """A layer with its ``chosen`` files changed, written to ``path``; the layer itself when it has none of them.

    Both are given a regular file's absolute path.
    """
    with opened_layer(layer) as tar:
        if not any(member.isreg() and chosen(absolute(member.name)) for member in tar):
            return layer
    with opened_layer(layer) as source, _tar_file(path) as plain, _tar_stream(plain) as target:
        for member in source:
            file = source.open(member) if member.isreg() else None
            if file is not None and chosen(absolute(member.name)):
                content = whole_file(absolute(member.name), member.size, file, MAX_CHANGED)
                _add(target, member, change(absolute(member.name), content))
            else:
                target.addfile(member, file)
    return plain.layer(path)


@contextmanager
def opened_layer(layer: Layer) -> Iterator[BoundedTar]:
    """The members of a layer.

    Raises:
        VerificationFailed: IMAGE_INVALID, when it is damaged, or has more members or larger ones than are read.
    """
    try:
        with gzip.open(layer.path) as plain, bounded_tar(cast(IO[bytes], plain)) as tar:
            yield tar
    except TarTooLarge as error:
        raise invalid_image(f"a layer of the image cannot be read: {error}") from error
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise invalid_image(f"a layer of the image is damaged: {error}") from error


def whole_file(path: str, size: int, file: IO[bytes], limit: int) -> bytes:
    """The content of a file in an image, which says that it has ``size`` bytes.

    Raises:
        VerificationFailed: IMAGE_INVALID, when it has more than ``limit`` bytes.
    """
    content = read_whole(file, limit)
    if content is None:
        raise invalid_image(f"{path} has {size} bytes; the limit for such a file is {limit}")
    return content


def invalid_image(message: str) -> VerificationFailed:
    """What to raise for an image that cannot be used."""
    return VerificationFailed(Reason.IMAGE_INVALID, message)


def absolute(path: str) -> str:
    """The path of a layer's member, as a container sees it."""
    return "/" + posixpath.normpath(f"/{path}").lstrip("/")


class _TarFile:
    """Takes a plain tar: digests it and writes it compressed."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed = packed
        self._diff_id = hashlib.sha256()

    def write(self, chunk: bytes) -> int:
        """Take the next bytes."""
        self._diff_id.update(chunk)
        return self._packed.write(chunk)

    def layer(self, path: Path) -> Layer:
        """What was written, once its file is closed."""
        return Layer(
            path=path,
            diff_id=f"sha256:{self._diff_id.hexdigest()}",
            digest=_file_digest(path),
            size=path.stat().st_size,
        )


@contextmanager
def _tar_file(path: Path) -> Iterator["_TarFile"]:
    with path.open("wb") as file, gzip.GzipFile("", "wb", compresslevel=_COMPRESSION, fileobj=file, mtime=0) as packed:
        yield _TarFile(cast(IO[bytes], packed))


def _tar_stream(plain: "_TarFile") -> tarfile.TarFile:
    return tarfile.open(fileobj=cast(IO[bytes], plain), mode="w|", format=tarfile.PAX_FORMAT)


def _add(tar: tarfile.TarFile, info: tarfile.TarInfo, content: bytes) -> None:
    info.size = len(content)
    # Where a size stands here, as of files beyond eight gigabytes, it would be believed.
    info.pax_headers = {name: value for name, value in info.pax_headers.items() if name != "size"}
    tar.addfile(info, io.BytesIO(content))


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
