"""The sections and symbols of a module file, read within its bounds.

Place in the flow: ``kernel_module`` asks this for the parts of a ``.ko``. pyelftools reads the header; the two tables
are read here, since a driver may have a hundred thousand symbols, and since a damaged table must neither name bytes
outside of the file nor take longer than a whole one.

Sources of the format: the System V ABI, chapter 4, and ``elf_validity_cache_copy`` in the kernel's
``kernel/module/main.c``, which refuses the same.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple

from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile

from driver_builder.base.errors import InvalidModule

UNDEFINED = 0
ABSOLUTE = 0xFFF1
GLOBAL, WEAK = 1, 2

_SYMBOL_TABLE, _NO_BITS = 2, 8
_NAME_LIMIT = 4096
"""The kernel's own limit (KSYM_NAME_LEN) is 512."""
_SECTION_NAME_LIMIT = 512
MAX_SECTION = 4 << 20
"""Bytes of a section that becomes texts or numbers: ``__versions`` for 65,536 imports."""
MAX_SYMBOLS = 1 << 19
"""A driver may have a hundred thousand."""
MAX_SYMBOL_NAMES = 32 << 20
"""Bytes of the names of all symbols, and characters: 64 for each."""
_SECTION_HEADERS = {32: "IIIIIIIIII", 64: "IIQQQQIIQQ"}
_SYMBOLS = {32: "IIIBBH", 64: "IBBHQQ"}
_FOREIGN = (
    *(ELFError, ConstructError, AssertionError, OverflowError, MemoryError, RecursionError),
    *(AttributeError, LookupError, TypeError, ValueError, struct.error),
)
"""What pyelftools may raise for damaged headers."""


class Section(NamedTuple):
    """One section: ``kind`` and ``link`` as in its header, ``content`` without a copy (empty where it has none)."""

    name: str
    kind: int
    link: int
    entry_size: int
    content: memoryview


class Symbol(NamedTuple):
    """One symbol: ``section`` is an index, :data:`UNDEFINED` or :data:`ABSOLUTE`; ``value`` an offset in it."""

    name: str
    binding: int
    section: int
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleElf:
    """A relocatable ELF file. ``machine`` is a word such as ``EM_X86_64``, ``long_size`` in bytes."""

    machine: str
    long_size: int
    is_little_endian: bool
    sections: tuple[Section, ...]

    @property
    def byte_order(self) -> str:
        """The character that :mod:`struct` has for it."""
        return "<" if self.is_little_endian else ">"

    def section(self, name: str) -> bytes:
        """The content of the section of that name; empty when none exists.

        Raises:
            InvalidModule: when it has more than MAX_SECTION bytes.
        """
        content = next((section.content for section in self.sections if section.name == name), memoryview(b""))
        return _bounded(content, MAX_SECTION, f"section {name}")

    def symbols(self) -> list[Symbol]:
        """All symbols.

        Raises:
            InvalidModule: when there is no symbol table, or one that leaves the file.
        """
        table = next((section for section in self.sections if section.kind == _SYMBOL_TABLE), None)
        if table is None:
            raise InvalidModule("the symbol table was stripped: use strip --strip-debug, not strip")
        entry = struct.Struct(self.byte_order + _SYMBOLS[self.long_size * 8])
        if table.entry_size != entry.size or len(table.content) % entry.size or table.link >= len(self.sections):
            raise InvalidModule("the symbol table is damaged")
        if len(table.content) // entry.size > MAX_SYMBOLS:
            raise InvalidModule(f"it has more than {MAX_SYMBOLS} symbols, the limit")
        names = _bounded(self.sections[table.link].content, MAX_SYMBOL_NAMES, "the table of symbol names")
        symbols, size = [], 0
        for fields in entry.iter_unpack(table.content):
            symbols.append(_symbol(fields, names, self.long_size))
            size += len(symbols[-1].name)
            if size > MAX_SYMBOL_NAMES:
                raise InvalidModule(f"the names of its symbols have more than {MAX_SYMBOL_NAMES} characters")
        return symbols

    def text_at(self, symbol: Symbol) -> str:
        """The zero-ended text that a symbol marks; empty when it marks none."""
        if not UNDEFINED < symbol.section < len(self.sections):
            return ""
        content = self.sections[symbol.section].content
        text, end, _ = bytes(content[symbol.value : symbol.value + _NAME_LIMIT]).partition(b"\0")
        if not end and symbol.value:
            raise InvalidModule("it is not a readable ELF file: a name in it has no end")
        return text.decode(errors="replace")

    def word_at(self, symbol: Symbol) -> int:
        """The 32-bit word that a symbol marks, or that an absolute symbol is; 0 when it is not one."""
        if symbol.section == ABSOLUTE:
            return symbol.value & 0xFFFFFFFF
        if symbol.section >= len(self.sections):
            return 0
        content = self.sections[symbol.section].content[symbol.value : symbol.value + 4]
        return int.from_bytes(content, "little" if self.is_little_endian else "big")


def read_elf(content: bytes, size: int | None = None) -> ModuleElf:
    """Read header and sections; ``size`` is how many bytes belong to the file (None: all), what follows is a signature.

    Raises:
        InvalidModule: when it is not a relocatable ELF file, or names bytes that it does not have.
    """
    try:
        elf: Any = ELFFile(BytesIO(content))
        header, bits = elf.header, elf.elfclass
        machine, kind, little = str(header["e_machine"]), header["e_type"], elf.little_endian
        offset, count = header["e_shoff"], header["e_shnum"]
        width, names = header["e_shentsize"], header["e_shstrndx"]
    except _FOREIGN as error:
        raise InvalidModule(f"it is not a readable ELF file: {str(error) or type(error).__name__}") from error
    plain = memoryview(content)[:size]
    entry = struct.Struct(("<" if little else ">") + _SECTION_HEADERS[bits])
    if kind != "ET_REL":
        raise InvalidModule(f"it is not a relocatable ELF file but {kind}")
    if width != entry.size or names >= count or offset + count * width > len(plain):
        raise InvalidModule("it is not a readable ELF file: its section table is damaged or cut off")
    headers = list(entry.iter_unpack(plain[offset : offset + count * width]))
    sections = tuple(_sections(plain, headers, names))
    return ModuleElf(machine=machine, long_size=bits // 8, is_little_endian=little, sections=sections)


def _sections(content: memoryview, headers: list[tuple[int, ...]], names_index: int) -> Iterator[Section]:
    names = _bounded(_content(content, headers[names_index]), MAX_SECTION, "the table of section names")
    for header in headers:
        yield Section(
            _text(names, header[0], _SECTION_NAME_LIMIT), header[1], header[6], header[9], _content(content, header)
        )


def _bounded(content: memoryview, limit: int, what: str) -> bytes:
    if len(content) > limit:
        raise InvalidModule(f"{what} has {len(content)} bytes; the limit is {limit}")
    return bytes(content)


def _content(content: memoryview, header: tuple[int, ...]) -> memoryview:
    kind, offset, size = header[1], header[4], header[5]
    if kind == _NO_BITS:
        return memoryview(b"")
    if offset + size > len(content):
        raise InvalidModule("it is not a readable ELF file: a section lies outside of it, it was cut off or damaged")
    return content[offset : offset + size]


def _symbol(fields: tuple[int, ...], names: bytes, long_size: int) -> Symbol:
    if long_size == 8:  # the two classes order their fields differently
        name, info, _, section, value, _ = fields
    else:
        name, value, _, info, _, section = fields
    return Symbol(_text(names, name), info >> 4, section, value)


def _text(table: bytes, start: int, limit: int = _NAME_LIMIT) -> str:
    end = table.find(b"\0", start, start + limit)
    if end < 0 and start:
        raise InvalidModule("it is not a readable ELF file: a name in it has no end")
    return table[start:end].decode(errors="replace") if end > 0 else ""
