"""What a kernel exports to modules: its Module.symvers as values.

Place in the flow: a build leaves this text beside the image; ``verify`` compares modules with it.

Source of the format: the kernel's ``scripts/mod/modpost.c`` (``write_dump``), ``Documentation/kbuild/modules.rst``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from driver_builder.base.errors import InvalidSymvers

BUILT_IN = "vmlinux"
"""The owner of what the kernel image itself exports."""

MAX_SYMVERS = 16 << 20
"""Bytes of a Module.symvers. Debian's for 6.12 have 1 MB and 15,000 symbols."""
MAX_SYMBOLS = 150_000

_CRC = re.compile(r"(?:0x)?[0-9a-fA-F]{1,16}")
_EXPORT = "EXPORT_"
_RELEASE = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")
_NAMESPACE_FIRST, _NAMESPACE_LAST = (5, 4), (5, 6)
"""The kernels that first had namespaces, and that first wrote them in the last column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedSymbol:
    """One symbol that modules may use.

    ``crc`` is 0 where it was built without one, ``owner`` the name of the module that exports it (``vmlinux``: the
    kernel), ``namespace`` what an importing module must name. ``is_gpl_only``: only for GPL-compatible modules.
    """

    crc: int
    owner: str = BUILT_IN
    namespace: str = ""
    is_gpl_only: bool = False


Symvers = Mapping[str, ExportedSymbol]


def parse_module_symvers(text: str) -> dict[str, ExportedSymbol]:
    """Module.symvers: per line, tab-separated, CRC in hex, symbol, owner, export type and namespace.

    Kernels before 5.4 write no namespace, 5.4 and 5.5 write it before the owner.

    Raises:
        InvalidSymvers: names the first line that cannot be read.
    """
    if len(text) > MAX_SYMVERS or text.count("\n") > MAX_SYMBOLS:
        raise InvalidSymvers(f"it has more than {MAX_SYMVERS} characters or {MAX_SYMBOLS} lines, the limits")
    numbered = ((number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip())
    return dict(_parse_line(number, line) for number, line in numbered)


def render_module_symvers(symvers: Symvers, kernel_version: str) -> str:
    """Write symbols in the form that the modpost of a kernel reads, sorted by name."""
    match = _RELEASE.match(kernel_version)
    series = (int(match[1]), int(match[2])) if match else _NAMESPACE_LAST
    lines = []
    for name, symbol in sorted(symvers.items()):
        export = "EXPORT_SYMBOL_GPL" if symbol.is_gpl_only else "EXPORT_SYMBOL"
        fields = [f"{symbol.crc:#010x}", name, symbol.owner, export, symbol.namespace]
        if series < _NAMESPACE_FIRST:
            fields = fields[:4]
        elif series < _NAMESPACE_LAST:
            fields = [*fields[:2], symbol.namespace, *fields[2:4]]
        lines.append("\t".join(fields) + "\n")
    return "".join(lines)


def has_crcs(symvers: Symvers) -> bool:
    """Whether the kernel was built with CONFIG_MODVERSIONS: without it every CRC is 0."""
    return any(symbol.crc for symbol in symvers.values())


def owner_names(symvers: Symvers) -> frozenset[str]:
    """The modules that export something, by name; ``vmlinux`` among them."""
    return frozenset(symbol.owner for symbol in symvers.values())


def _parse_line(number: int, line: str) -> tuple[str, ExportedSymbol]:
    fields = line.rstrip("\r").split("\t")
    if len(fields) > 4 and fields[4].startswith(_EXPORT):
        fields = [*fields[:2], fields[3], fields[4], fields[2]]
    if len(fields) < 3 or not fields[1] or not _CRC.fullmatch(fields[0]):
        raise InvalidSymvers(f"line {number} of Module.symvers is not 'CRC<tab>symbol<tab>owner...': {line[:80]!r}")
    crc, symbol, owner, export, namespace = (*fields[:5], "", "")[:5]
    return symbol, ExportedSymbol(
        crc=int(crc, 16) & 0xFFFFFFFF,
        owner=owner.rpartition("/")[2].replace("-", "_"),
        namespace=namespace,
        is_gpl_only="GPL" in export,
    )
