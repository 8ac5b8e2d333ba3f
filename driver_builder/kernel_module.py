"""What a kernel module file says about itself, read without a kernel and without running anything.

Place in the flow: ``verify`` compares this with the target's Module.symvers before an image is pushed; the preflight of
a coming kernel compares the same values with another Module.symvers.

Sources of the formats: the kernel's ``scripts/mod/modpost.c`` (what is written), ``kernel/module/`` (what is read),
``include/linux/module_signature.h`` and ``Documentation/kbuild/modules.rst`` (Module.symvers).
"""

import gzip
import lzma
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile

SIGNATURE_MARKER = b"~Module signature appended~\n"
MODULE_SUFFIXES = (".ko", ".ko.gz", ".ko.xz", ".ko.zst")
MODVERSION_INFO_SIZE = 64
"""``struct modversion_info``: an unsigned long, then the name, padded with zeros to 64 bytes in all."""


_UNREADABLE = (
    *(ELFError, ConstructError, struct.error, AssertionError, OverflowError, MemoryError),
    *(UnicodeDecodeError, AttributeError, LookupError, TypeError),
)
"""pyelftools meets damaged files with whatever its parsing happens to trip over."""


class InvalidModule(ValueError):
    """The bytes are no kernel module that can be read here; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelModule:
    """One kernel module, as its file describes it.

    ``name`` has underscores, as in /proc/modules; ``architecture`` is the ELF machine (``EM_X86_64``); ``depends`` are
    the modules it needs, ``aliases`` what it binds to (``pci:v00001234d...``), ``namespaces`` those of its imports.
    ``parameters`` maps a name to its type as modinfo prints it. ``crcs`` maps each imported symbol to the CRC it was
    built with (empty for a module built without MODVERSIONS); ``undefined`` are the symbols that must exist at load
    time, ``weak`` those that may be missing. ``exports`` maps what it offers to other modules to its CRC, None where
    the file carries none.
    """

    name: str
    vermagic: str
    srcversion: str
    build_id: str
    license: str
    version: str
    architecture: str
    is_signed: bool
    depends: tuple[str, ...]
    aliases: tuple[str, ...]
    namespaces: tuple[str, ...]
    parameters: Mapping[str, str]
    crcs: Mapping[str, int]
    undefined: frozenset[str]
    weak: frozenset[str]
    exports: Mapping[str, int | None]

    @property
    def kernel_version(self) -> str:
        """The release in the version magic: its first word."""
        return self.vermagic.partition(" ")[0]

    @property
    def identity(self) -> str:
        """What tells this build from another one: srcversion, or the build id where the kernel makes no srcversion."""
        return self.srcversion or self.build_id


@dataclass(frozen=True, slots=True)
class ExportedSymbol:
    """One line of Module.symvers. ``crc`` is 0 where the kernel was built without a CRC for it."""

    crc: int
    namespace: str


Symvers = Mapping[str, ExportedSymbol]


def module_name(path: str) -> str:
    """``drm_kms`` for ``kernel/drivers/drm-kms.ko.xz``: the name in /proc/modules; empty when it is no module file."""
    base = PurePosixPath(path).name
    suffix = next((suffix for suffix in MODULE_SUFFIXES if base.endswith(suffix)), None)
    return base.removesuffix(suffix).replace("-", "_") if suffix else ""


def parse_module_symvers(text: str) -> dict[str, ExportedSymbol]:
    """Module.symvers: per line, tab-separated, CRC in hex, symbol, owner, export type and (since 5.4) namespace.

    Raises:
        ValueError: names the first line that is none.
    """
    symbols = {}
    for number, line in enumerate(text.split("\n"), start=1):
        fields = line.split("\t")
        if not line.strip():
            continue
        try:
            crc = int(fields[0], 16)
            symbols[fields[1]] = ExportedSymbol(crc, fields[4] if len(fields) > 4 else "")
        except (ValueError, IndexError):
            raise ValueError(
                f"line {number} of Module.symvers is no 'CRC<tab>symbol<tab>owner...': {line[:80]!r}"
            ) from None
    return symbols


def parse_kernel_module(content: bytes, path: str) -> KernelModule:
    """Read a ``.ko``, ``.ko.gz`` or ``.ko.xz``; ``path`` gives the compression and stands in messages.

    Raises:
        InvalidModule: when the content is damaged, compressed with zstd, or no kernel module.
    """
    plain = _decompressed(content, path)
    try:
        return _read_elf(ELFFile(BytesIO(plain)), path, is_signed=plain.endswith(SIGNATURE_MARKER))
    except _UNREADABLE as error:
        raise InvalidModule(f"{path} is no readable ELF file: {error}") from error


def _decompressed(content: bytes, path: str) -> bytes:
    if path.endswith(".zst"):
        raise InvalidModule(f"{path} is compressed with zstd, which is not read here; install it as .ko or .ko.xz")
    try:
        if path.endswith(".xz"):
            return lzma.decompress(content)
        return gzip.decompress(content) if path.endswith(".gz") else content
    except (lzma.LZMAError, EOFError, OSError, zlib.error) as error:
        raise InvalidModule(f"{path} cannot be decompressed: {error}") from error


def _read_elf(elf: Any, path: str, *, is_signed: bool) -> KernelModule:
    facts = parse_modinfo(_section(elf, ".modinfo"))
    if "vermagic" not in facts:
        raise InvalidModule(f"{path} has no version magic: it is no finished kernel module")
    symbols = list(_symbols(elf))
    undefined = [(name, bind) for name, bind, section, _ in symbols if section == "SHN_UNDEF" and name]
    return KernelModule(
        name=_first(facts, "name") or module_name(path),
        vermagic=_first(facts, "vermagic"),
        srcversion=_first(facts, "srcversion"),
        build_id=_build_id(elf),
        license=_first(facts, "license"),
        version=_first(facts, "version"),
        architecture=elf["e_machine"],
        is_signed=is_signed,
        depends=tuple(name for name in _first(facts, "depends").split(",") if name),
        aliases=tuple(facts.get("alias", ())),
        namespaces=tuple(facts.get("import_ns", ())),
        parameters=MappingProxyType(dict(_split(parameter, ":") for parameter in facts.get("parmtype", ()))),
        crcs=MappingProxyType(_imported_crcs(elf)),
        undefined=frozenset(name for name, bind in undefined if bind == "STB_GLOBAL"),
        weak=frozenset(name for name, bind in undefined if bind == "STB_WEAK"),
        exports=MappingProxyType(_exports(elf, symbols)),
    )


def parse_modinfo(section: bytes) -> dict[str, list[str]]:
    """The ``.modinfo`` section: ``key=value`` strings, each ended (and padded) by zero bytes; keys may repeat."""
    facts: dict[str, list[str]] = {}
    for entry in section.split(b"\0"):
        key, equals, value = entry.decode(errors="replace").partition("=")
        if equals:
            facts.setdefault(key, []).append(value)
    return facts


def _first(facts: Mapping[str, list[str]], key: str) -> str:
    return facts.get(key, [""])[0]


def _split(text: str, separator: str) -> tuple[str, str]:
    before, _, after = text.partition(separator)
    return before, after


def _section(elf: Any, name: str) -> bytes:
    section = elf.get_section_by_name(name)
    return section.data() if section else b""


def _symbols(elf: Any) -> Iterator[tuple[str, str, str | int, int]]:
    """Name, binding, section (index, or SHN_UNDEF and the like) and value of each symbol."""
    table = elf.get_section_by_name(".symtab")
    if table is None:
        raise InvalidModule("the symbol table was stripped: use strip --strip-debug, not strip")
    for symbol in table.iter_symbols():
        yield symbol.name, symbol["st_info"]["bind"], symbol["st_shndx"], symbol["st_value"]


def _build_id(elf: Any) -> str:
    section = elf.get_section_by_name(".note.gnu.build-id")
    notes = section.iter_notes() if section else ()
    return next((note["n_desc"] for note in notes if note["n_type"] == "NT_GNU_BUILD_ID"), "")


def _imported_crcs(elf: Any) -> dict[str, int]:
    long_size, little = elf.elfclass // 8, elf.little_endian
    crcs = parse_versions(_section(elf, "__versions"), long_size=long_size, little_endian=little)
    names, extended = _section(elf, "__version_ext_names"), _section(elf, "__version_ext_crcs")
    return crcs | parse_extended_versions(extended, names, little_endian=little)


def parse_versions(section: bytes, *, long_size: int, little_endian: bool) -> dict[str, int]:
    """``__versions``: 64-byte entries, an unsigned long of ``long_size`` bytes (the CRC) and a zero-padded name.

    Raises:
        InvalidModule: when the section's size is no multiple of an entry.
    """
    if len(section) % MODVERSION_INFO_SIZE:
        raise InvalidModule(f"section __versions has {len(section)} bytes, no multiple of {MODVERSION_INFO_SIZE}")
    order = "<" if little_endian else ">"
    entry = struct.Struct(f"{order}{'Q' if long_size == 8 else 'I'}{MODVERSION_INFO_SIZE - long_size}s")
    return {name.split(b"\0")[0].decode(): crc & 0xFFFFFFFF for crc, name in entry.iter_unpack(section)}


def parse_extended_versions(crcs: bytes, names: bytes, *, little_endian: bool) -> dict[str, int]:
    """``__version_ext_crcs`` (32-bit words) and ``__version_ext_names`` (zero-ended names), one for one (since 6.14).

    Raises:
        InvalidModule: when one has more entries than the other.
    """
    words = [word for (word,) in struct.iter_unpack("<I" if little_endian else ">I", crcs)]
    texts = [name.decode() for name in names.split(b"\0") if name]
    if len(words) != len(texts):
        raise InvalidModule(f"__version_ext_crcs has {len(words)} entries, __version_ext_names {len(texts)}")
    return dict(zip(texts, words, strict=True))


def _exports(elf: Any, symbols: list[tuple[str, str, str | int, int]]) -> dict[str, int | None]:
    """Exported symbols: each has a ``__ksymtab_X``; ``__crc_X`` is its CRC itself, or marks where the CRC lies."""
    crcs: dict[str, int | None] = {
        name.removeprefix("__ksymtab_"): None for name, *_ in symbols if name.startswith("__ksymtab_")
    }
    for name, _, section, value in symbols:
        exported = name.removeprefix("__crc_")
        if name.startswith("__crc_") and exported in crcs:
            crcs[exported] = value & 0xFFFFFFFF if section == "SHN_ABS" else _word(elf, section, value)
    return crcs


def _word(elf: Any, section: str | int, offset: int) -> int | None:
    if not isinstance(section, int):
        return None
    content = elf.get_section(section).data()[offset : offset + 4]
    return int.from_bytes(content, "little" if elf.little_endian else "big")
