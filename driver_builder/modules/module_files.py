"""The files below ``/lib/modules/<kernel>``: names and compression of modules, and the indexes that depmod makes.

Place in the flow: ``verify`` reads these from an image before it looks into the modules.

Sources of the formats: kmod's ``tools/depmod.c`` and modules.dep(5); the suffixes are those that kmod knows.
"""

import gzip
import lzma
import zlib
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import PurePosixPath
from typing import IO, cast

from driver_builder.archives.bounded_tar import read_whole
from driver_builder.archives.image_layers import MAX_FILE
from driver_builder.base.errors import InvalidModule

MODULE_SUFFIXES = (".ko", ".ko.gz", ".ko.xz", ".ko.zst")
SIZE_LIMIT = MAX_FILE
"""Bytes of an unpacked module."""
MAX_PACKED = 64 << 20
"""Bytes of a compressed module: it is in memory beside the unpacked one."""

_OPEN: Mapping[str, Callable[[IO[bytes]], IO[bytes]]] = {
    ".gz": lambda file: cast(IO[bytes], gzip.GzipFile(fileobj=file)),
    ".xz": lzma.open,
}


def module_name(path: str) -> str:
    """``drm_kms`` for ``kernel/drivers/drm-kms.ko.xz``: the name in /proc/modules; empty when it is no module file."""
    base = PurePosixPath(path).name
    suffix = next((suffix for suffix in MODULE_SUFFIXES if base.endswith(suffix)), None)
    return base.removesuffix(suffix).replace("-", "_") if suffix else ""


def size_limit(path: str) -> int:
    """How many bytes of a module file are read."""
    return MAX_PACKED if PurePosixPath(path).suffix in _OPEN else MAX_FILE


def unpack_module(content: bytes, path: str, *, limit: int = SIZE_LIMIT) -> bytes:
    """The plain ELF file of a ``.ko``, ``.ko.gz`` or ``.ko.xz``, at most ``limit`` bytes.

    zstd is not supported: Python has it since 3.14 only.

    Raises:
        InvalidModule: when it is damaged, larger than the limit, or compressed with zstd.
    """
    suffix = PurePosixPath(path).suffix
    if suffix == ".zst":
        raise InvalidModule("it is compressed with zstd, which is not read here; install it as .ko or .ko.xz")
    if suffix not in _OPEN:
        return content
    try:
        with _OPEN[suffix](BytesIO(content)) as packed:
            plain = read_whole(packed, limit)
    except (lzma.LZMAError, EOFError, OSError, zlib.error) as error:
        raise InvalidModule(f"it cannot be decompressed: {error}; compress it again, or install it as .ko") from error
    if plain is None:
        raise InvalidModule(f"it decompresses to more than {limit} bytes: strip its debug data")
    return plain


def parse_modules_dep(text: str) -> dict[str, tuple[str, ...]]:
    """modules.dep: per line a module's path, a colon, and the paths of what it needs, all relative to the file."""
    lines = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {path.strip(): tuple(needed.split()) for path, _, needed in lines}


def parse_modules_alias(text: str) -> frozenset[tuple[str, str]]:
    """modules.alias: per line the word ``alias``, a pattern and a module's name; returns pattern and name of each."""
    lines = (line.removeprefix("alias ").rsplit(" ", 1) for line in text.splitlines() if line.startswith("alias "))
    return frozenset((words[0].strip(), words[1]) for words in lines if len(words) > 1)
