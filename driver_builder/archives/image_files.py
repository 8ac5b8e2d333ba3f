"""The files of an image's layers, as a container sees them, with only one of them in memory at a time.

Place in the flow: ``image_archive`` passes them to ``verify`` and ``sbom``. The layers come from a build or a
registry: they are read within bounds.

Source: the OCI image specification 1.0 on layers: what a layer hides of those below it.
"""

import hashlib
import posixpath
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import IO, NamedTuple

from driver_builder.archives.image_layers import MAX_FILE, Layer, absolute, invalid_image, opened_layer, whole_file

MAX_IMAGE = 4 << 30
"""Bytes of an image's layers, unpacked: as much as a Job may upload."""
_CHUNK = 1 << 20
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"


@dataclass(frozen=True, slots=True)
class ImageFile:
    """A file in an image: ``size`` in bytes. Its content can be read once."""

    path: str
    size: int
    _content: IO[bytes] = field(repr=False)

    def read(self, limit: int = MAX_FILE) -> bytes:
        """All of its content.

        Raises:
            VerificationFailed: IMAGE_INVALID, it has more than ``limit`` bytes.
        """
        return whole_file(self.path, self.size, self._content, limit)

    def sha256(self) -> str:
        """The digest of its content, in hex."""
        digest = hashlib.sha256()
        while piece := self._content.read(_CHUNK):
            digest.update(piece)
        return digest.hexdigest()


class _Place(NamedTuple):
    """Where a file's content is: the layer, the number of its member, and its size in bytes."""

    layer: int
    number: int
    size: int


def files_of(layers: Sequence[Layer], folder: str) -> Iterator[ImageFile]:
    """The regular files at and below ``folder``, each to be read before the next one is requested.

    Raises:
        VerificationFailed: IMAGE_INVALID, a layer is damaged or exceeds a limit.
    """
    visible = _visible(layers, folder)
    if sum(place.size for place in visible.values()) > MAX_IMAGE:
        raise invalid_image(f"the files of the image below {folder} have more than {MAX_IMAGE} bytes")
    for number, layer in enumerate(layers):
        paths: dict[int, list[str]] = {}
        for path, place in visible.items():
            if place.layer == number:
                paths.setdefault(place.number, []).append(path)
        if paths:
            yield from _files_in(layer, paths)


def _files_in(layer: Layer, paths: Mapping[int, Sequence[str]]) -> Iterator[ImageFile]:
    """The files of one layer; ``paths`` are those of each member, several if there are hard links."""
    with opened_layer(layer) as tar:
        for number, member in enumerate(tar):
            names = paths.get(number, ())
            if len(names) == 1:
                yield ImageFile(names[0], member.size, tar.open(member))
            elif names:
                content = ImageFile(names[0], member.size, tar.open(member)).read()
                yield from (ImageFile(name, len(content), BytesIO(content)) for name in names)


def _visible(layers: Sequence[Layer], folder: str) -> dict[str, _Place]:
    """Where the content of each file is that a container sees below ``folder``."""
    seen: dict[str, _Place] = {}
    for number, layer in enumerate(layers):
        changes, added = _Changes(), dict[str, _Place]()
        with opened_layer(layer) as tar:
            for path, place in _files(changes, tar, number):
                if _is_below(path, folder):
                    added[path] = place
        seen = {path: place for path, place in seen.items() if not changes.hide(path)} | added
    return seen


def _files(changes: "_Changes", tar: Iterable[tarfile.TarInfo], layer: int) -> Iterator[tuple[str, _Place]]:
    """The regular files and the hard links of a layer; a link names a member that came before it."""
    places: dict[str, _Place] = {}
    for number, (path, member) in changes.follow(tar):
        if member.isreg():
            places[path] = _Place(layer, number, member.size)
        elif member.islnk():
            target = absolute(member.linkname)
            if target not in places:
                raise invalid_image(f"{path} in the image is a link to {target}, which is not in its layer")
            places[path] = places[target]
        else:
            continue
        yield path, places[path]


class _Changes:
    """What one layer hides of the layers below it.

    A whiteout ``.wh.NAME`` hides NAME and all below it, ``.wh..wh..opq`` all below its directory; a file hides what was
    at its path, also a directory; a directory hides a file, never what lies in a directory of its name.
    """

    def __init__(self) -> None:
        self.whole: set[str] = set()
        self.contents: set[str] = set()
        self.only: set[str] = set()

    def follow(self, tar: Iterable[tarfile.TarInfo]) -> Iterator[tuple[int, tuple[str, tarfile.TarInfo]]]:
        """Yield the members that are not whiteouts, numbered and with absolute paths; remember what each one hides."""
        for number, member in enumerate(tar):
            path = absolute(member.name)
            folder, name = posixpath.split(path)
            if name == _OPAQUE:
                self.contents.add(folder)
            elif name.startswith(_WHITEOUT):
                self.whole.add(posixpath.join(folder, name.removeprefix(_WHITEOUT)))
            else:
                (self.only if member.isdir() else self.whole).add(path)
                yield number, (path, member)

    def hide(self, path: str) -> bool:
        """Whether this layer hides the file at ``path`` of a lower layer."""
        above = set(_folders(path))
        return path in self.whole | self.only or not above.isdisjoint(self.whole | self.contents)


def _folders(path: str) -> Iterator[str]:
    while path != "/":
        path = posixpath.dirname(path)
        yield path


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
