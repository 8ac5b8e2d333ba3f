"""A folder with an OCI image layout: blobs by their digests, and the list of what is in it.

Place in the flow: ``layout_registry`` keeps images in one as in a registry. A blob and the list are written under a
temporary name and renamed, so that whoever is killed leaves what was there before.

Source: the OCI image specification 1.1, image-layout.md. The names in ``org.opencontainers.image.ref.name`` are whole
references (``host/repository:tag``), which its grammar allows: a layout has the images of several repositories.
"""

import fcntl
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import Any

from driver_builder.archives.image_archive import INDEX_TYPE, canonical_json, sha256
from driver_builder.base.errors import ConfigurationError, RegistryFull, RegistryRefused, RegistryUnavailable
from driver_builder.registry.registry_transport import MAX_DOCUMENT

REF_NAME = "org.opencontainers.image.ref.name"
VERSION = "1.0.0"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MARK, _INDEX, _BLOBS = "oci-layout", "index.json", "blobs/sha256"
_UNFINISHED = ".unfinished-"
_CHUNK = 1 << 20
_MAX_INDEX = 64 << 20

Json = dict[str, Any]


class OciLayout:
    """The layout in ``folder``. Made by :func:`opened_layout` or :func:`read_layout`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def entries(self) -> list[Json]:
        """Return the descriptors in the list, in its order.

        Raises:
            RegistryRefused: the list cannot be read.
        """
        try:
            content = _read(self.folder / _INDEX, _MAX_INDEX)
            entries = json.loads(content)["manifests"] if content is not None else None
        except (ValueError, KeyError, TypeError, RecursionError):
            entries = None
        if not isinstance(entries, list) or not all(map(_is_descriptor, entries)):
            raise RegistryRefused(f"{self.folder / _INDEX} is not the index of an OCI image layout")
        return entries

    def put_entry(self, entry: Json) -> None:
        """List a blob, in the place of the one with the same name, or of itself.

        Raises:
            RegistryUnavailable: the list cannot be written.
        """
        kept = [other for other in self.entries() if _identity(other) != _identity(entry)]
        self._write_index([*kept, entry])

    def has(self, digest: str) -> bool:
        """Return whether a blob is there."""
        return self._path(digest).is_file()

    def size(self, digest: str) -> int:
        """Return the bytes of a blob that is there."""
        return self._path(digest).stat().st_size

    def read(self, digest: str, limit: int) -> bytes | None:
        """Read a blob, None where it is not there.

        Raises:
            RegistryRefused: it is another content than its digest says, or more than ``limit`` bytes.
        """
        content = _read(self._path(digest), limit)
        if content is not None and sha256(content) != digest:
            raise self._damaged(digest)
        return content

    def file(self, digest: str) -> Path:
        """Return the file of a blob, after a look at its content.

        Raises:
            RegistryRefused: it is not there, or is another content than its digest says.
        """
        path = self._path(digest)
        try:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise RegistryRefused(f"{self.folder} lacks the blob {digest}: {error}") from error
        if f"sha256:{found}" != digest:
            raise self._damaged(digest)
        return path

    def write(self, digest: str, body: bytes | Path) -> None:
        """Add a blob; one that is there already stays.

        Raises:
            RegistryRefused: the content has another digest.
            RegistryUnavailable: it cannot be written.
        """
        if self.has(digest):
            return
        found = hashlib.sha256()
        with self._whole(self._path(digest)) as file:
            for chunk in _chunks(body):
                found.update(chunk)
                file.write(chunk)
            if f"sha256:{found.hexdigest()}" != digest:
                raise RegistryRefused(f"the content for {self.folder} has another digest than {digest}")

    def _write_index(self, entries: list[Json]) -> None:
        index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": entries}
        with self._whole(self.folder / _INDEX) as file:
            file.write(canonical_json(index) + b"\n")

    def _prepare(self) -> None:
        """Make the folder a layout, and remove what a killed process left."""
        for left in self.folder.glob(f"{_UNFINISHED}*"):
            left.unlink()
        if not (self.folder / _MARK).exists():
            with self._whole(self.folder / _MARK) as file:
                file.write(canonical_json({"imageLayoutVersion": VERSION}) + b"\n")
        (self.folder / _BLOBS).mkdir(parents=True, exist_ok=True)
        if not (self.folder / _INDEX).exists():
            self._write_index([])

    @contextmanager
    def _whole(self, path: Path) -> Iterator[Any]:
        """Give a file that has its name once it is whole."""
        try:
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=_UNFINISHED, delete=False) as file:
                try:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                    Path(file.name).chmod(0o644)
                    Path(file.name).rename(path)
                except BaseException:
                    Path(file.name).unlink()
                    raise
        except OSError as error:
            kind = RegistryFull if error.errno in (ENOSPC, EDQUOT) else RegistryUnavailable
            raise kind(f"{path} cannot be written: {error}") from error

    def _path(self, digest: str) -> Path:
        if not DIGEST.fullmatch(digest):
            raise RegistryRefused(f"{digest!r} is not a sha256 digest")
        return self.folder / _BLOBS / digest.removeprefix("sha256:")

    def _damaged(self, digest: str) -> RegistryRefused:
        return RegistryRefused(f"{self.folder} is damaged: {self._path(digest).name} has another content")


@contextmanager
def opened_layout(folder: Path) -> Iterator[OciLayout]:
    """Give a layout to write to, alone; a folder that does not exist yet, or is empty, becomes one.

    Raises:
        ConfigurationError: the folder has something else, or another process writes to it.
    """
    layout = OciLayout(folder)
    try:
        if folder.exists() and not all(item.name.startswith(_UNFINISHED) for item in folder.iterdir()):
            _check(folder)
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be written: {error}") from error
    try:
        _take(lock, folder)
        layout._prepare()
        yield layout
    finally:
        os.close(lock)


def _take(lock: int, folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigurationError(f"another process writes to {folder}: wait for its end") from error


def read_layout(folder: Path) -> OciLayout:
    """Give a layout to read.

    Raises:
        ConfigurationError: there is none.
    """
    _check(folder)
    return OciLayout(folder)


def _check(folder: Path) -> None:
    try:
        mark = json.loads((folder / _MARK).read_bytes())
    except (OSError, ValueError):
        raise ConfigurationError(f"{folder} is not an OCI image layout: it has no file {_MARK}") from None
    if not isinstance(mark, dict) or mark.get("imageLayoutVersion") != VERSION:
        raise ConfigurationError(f"{folder / _MARK}: only layouts of version {VERSION} are known")


def _identity(entry: Json) -> tuple[str, str]:
    """What an entry replaces: the one of its name; without a name, itself."""
    name = ref_name(entry)
    return (name, "") if name else ("", entry["digest"])


def ref_name(entry: Json) -> str:
    """The reference of an entry, empty for what is not tagged."""
    annotations = entry.get("annotations")
    name = annotations.get(REF_NAME) if isinstance(annotations, dict) else None
    return name if isinstance(name, str) else ""


def _is_descriptor(entry: object) -> bool:
    digest = entry.get("digest") if isinstance(entry, dict) else None
    return isinstance(digest, str) and DIGEST.fullmatch(digest) is not None


def _chunks(body: bytes | Path) -> Iterable[bytes]:
    if isinstance(body, bytes):
        yield body
        return
    with body.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _read(path: Path, limit: int = MAX_DOCUMENT) -> bytes | None:
    try:
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RegistryRefused(f"{path} cannot be read: {error}") from error
    if len(content) > limit:
        raise RegistryRefused(f"{path} has more than {limit} bytes")
    return content
