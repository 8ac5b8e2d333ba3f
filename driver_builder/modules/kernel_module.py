"""What a kernel module file says about itself, read without a kernel and without running anything.

Place in the flow: ``verify`` compares this with the target's Module.symvers before an image is pushed.

Sources of the formats: the kernel's ``scripts/mod/modpost.c`` (what is written), ``kernel/module/`` (what is read) and
``include/linux/export-internal.h`` (exports).
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from driver_builder.base.errors import InvalidModule
from driver_builder.modules import vermagic
from driver_builder.modules.module_elf import GLOBAL, UNDEFINED, WEAK, ModuleElf, Symbol, read_elf
from driver_builder.modules.module_files import module_name, unpack_module
from driver_builder.modules.module_signature import ModuleSignature, read_signatures
from driver_builder.modules.symvers import ExportedSymbol

MODVERSION_INFO_SIZE = 64
"""``struct modversion_info``: an unsigned long, then the name, padded with zeros to 64 bytes in all."""

NOT_IMPORTED = frozenset({"_GLOBAL_OFFSET_TABLE_", ".TOC."})
"""Undefined symbols that the kernel's module loader provides itself, or ignores."""

GPL_COMPATIBLE = frozenset(
    {"GPL", "GPL v2", "GPL and additional rights", "Dual BSD/GPL", "Dual MIT/GPL", "Dual MPL/GPL"}
)
"""Source: ``license_is_gpl_compatible`` in the kernel's ``include/linux/license.h``; every other word taints."""

_KSYMTAB, _CRC, _NAMESPACE = "__ksymtab_", "__crc_", "__kstrtabns_"
_GPL_SECTIONS = ("__ksymtab_gpl", "___ksymtab_gpl+")
_NOTE_HEADER = 12
_GNU = b"GNU\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelModule:
    """One kernel module, as its file describes it.

    ``name`` has underscores, as in /proc/modules; ``architecture`` is the ELF machine (``EM_X86_64``); ``depends`` are
    the modules it needs, ``aliases`` what it binds to (``pci:v00001234d...``), ``namespaces`` those of its imports.
    ``signatures`` has one entry per signer, none where it is not signed.
    ``parameters`` maps a name to its type as modinfo prints it. ``crcs`` maps each imported symbol to the CRC it was
    built with (empty for a module built without MODVERSIONS); ``undefined`` are the symbols that must exist at load
    time, ``weak`` those that may be missing. ``exports`` is what it offers to other modules.
    """

    name: str
    vermagic: str
    srcversion: str
    build_id: str
    license: str
    version: str
    architecture: str
    signatures: tuple[ModuleSignature, ...]
    depends: tuple[str, ...]
    aliases: tuple[str, ...]
    namespaces: tuple[str, ...]
    parameters: Mapping[str, str]
    crcs: Mapping[str, int]
    undefined: frozenset[str]
    weak: frozenset[str]
    exports: Mapping[str, ExportedSymbol]

    @property
    def kernel_version(self) -> str:
        """The release in the version magic: its first word."""
        return vermagic.release_of(self.vermagic)

    @property
    def identity(self) -> str:
        """What identifies this build: srcversion, or the build id if the kernel makes no srcversion."""
        return self.srcversion or self.build_id

    @property
    def is_gpl_compatible(self) -> bool:
        """Whether the kernel gives it symbols that are exported for GPL modules only."""
        return self.license in GPL_COMPATIBLE


def parse_kernel_module(content: bytes, path: str) -> KernelModule:
    """Read a ``.ko``, ``.ko.gz`` or ``.ko.xz``; ``path`` gives the compression and stands in messages.

    Raises:
        InvalidModule: when the content is damaged, compressed with zstd, or no kernel module.
    """
    try:
        plain = unpack_module(content, path)
        size, signatures = read_signatures(plain)
        return _read(read_elf(plain, size), module_name(path), signatures)
    except InvalidModule as error:
        raise InvalidModule(f"module file {path}: {error}") from error


def _read(elf: ModuleElf, file_name: str, signatures: tuple[ModuleSignature, ...]) -> KernelModule:
    facts = parse_modinfo(elf.section(".modinfo"))
    if "vermagic" not in facts:
        raise InvalidModule("it has no version magic: it is not a complete kernel module")
    name = (_first(facts, "name") or file_name).replace("-", "_")
    symbols = elf.symbols()
    return KernelModule(
        name=name,
        vermagic=_first(facts, "vermagic"),
        srcversion=_first(facts, "srcversion"),
        build_id=parse_build_id(elf.section(".note.gnu.build-id"), little_endian=elf.is_little_endian),
        license=_first(facts, "license"),
        version=_first(facts, "version"),
        architecture=elf.machine,
        signatures=signatures,
        depends=tuple(name.replace("-", "_") for name in _first(facts, "depends").split(",") if name),
        aliases=tuple(facts.get("alias", ())),
        namespaces=tuple(facts.get("import_ns", ())),
        parameters=MappingProxyType(dict(_split(parameter, ":") for parameter in facts.get("parmtype", ()))),
        crcs=MappingProxyType(_imported_crcs(elf)),
        undefined=_imports(symbols, GLOBAL),
        weak=_imports(symbols, WEAK),
        exports=MappingProxyType(_exports(elf, symbols, name)),
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


def parse_build_id(section: bytes, *, little_endian: bool) -> str:
    """An ELF note: three words (sizes of name and content, type), ``GNU`` and the digest; empty if it is another."""
    if len(section) < _NOTE_HEADER + len(_GNU) or section[_NOTE_HEADER : _NOTE_HEADER + len(_GNU)] != _GNU:
        return ""
    _, size, _ = struct.unpack_from("<III" if little_endian else ">III", section)
    return section[_NOTE_HEADER + len(_GNU) :][:size].hex()


def _imports(symbols: list[Symbol], binding: int) -> frozenset[str]:
    undefined = (symbol.name for symbol in symbols if symbol.section == UNDEFINED and symbol.binding == binding)
    return frozenset(undefined) - NOT_IMPORTED - {""}


def _imported_crcs(elf: ModuleElf) -> dict[str, int]:
    little = elf.is_little_endian
    crcs = parse_versions(elf.section("__versions"), long_size=elf.long_size, little_endian=little)
    names, extended = elf.section("__version_ext_names"), elf.section("__version_ext_crcs")
    return crcs | parse_extended_versions(extended, names, little_endian=little)


def parse_versions(section: bytes, *, long_size: int, little_endian: bool) -> dict[str, int]:
    """``__versions``: 64-byte entries, an unsigned long of ``long_size`` bytes (the CRC) and a zero-padded name.

    Raises:
        InvalidModule: when the section's size is not a multiple of an entry.
    """
    if len(section) % MODVERSION_INFO_SIZE:
        raise InvalidModule(f"section __versions has {len(section)} bytes, no multiple of {MODVERSION_INFO_SIZE}")
    order = "<" if little_endian else ">"
    entry = struct.Struct(f"{order}{'Q' if long_size == 8 else 'I'}{MODVERSION_INFO_SIZE - long_size}s")
    return {_name(name.split(b"\0")[0]): crc & 0xFFFFFFFF for crc, name in entry.iter_unpack(section)}


def parse_extended_versions(crcs: bytes, names: bytes, *, little_endian: bool) -> dict[str, int]:
    """``__version_ext_crcs`` (32-bit words) and ``__version_ext_names`` (zero-ended names), one for one (since 6.14).

    Raises:
        InvalidModule: when one has more entries than the other.
    """
    texts = [_name(name) for name in names.split(b"\0") if name]
    if len(crcs) != len(texts) * 4:
        raise InvalidModule(f"__version_ext_crcs has {len(crcs)} bytes for {len(texts)} names in __version_ext_names")
    words = [word for (word,) in struct.iter_unpack("<I" if little_endian else ">I", crcs)]
    return dict(zip(texts, words, strict=True))


def _name(raw: bytes) -> str:
    return raw.decode(errors="replace")


def _exports(elf: ModuleElf, symbols: list[Symbol], owner: str) -> dict[str, ExportedSymbol]:
    """Exported symbols: each has a ``__ksymtab_X``, in a section that says who may use it.

    ``__crc_X`` is its CRC itself, or marks where the CRC lies; ``__kstrtabns_X`` marks its namespace.
    """
    marks = {symbol.name: symbol for symbol in symbols if symbol.name.startswith((_CRC, _NAMESPACE))}
    exported = {symbol.name.removeprefix(_KSYMTAB): symbol for symbol in symbols if symbol.name.startswith(_KSYMTAB)}
    return {
        name: ExportedSymbol(
            crc=elf.word_at(marks[_CRC + name]) if _CRC + name in marks else 0,
            owner=owner,
            namespace=elf.text_at(marks[_NAMESPACE + name]) if _NAMESPACE + name in marks else "",
            is_gpl_only=_section_name(elf, entry).startswith(_GPL_SECTIONS),
        )
        for name, entry in exported.items()
    }


def _section_name(elf: ModuleElf, symbol: Symbol) -> str:
    return elf.sections[symbol.section].name if symbol.section < len(elf.sections) else ""
