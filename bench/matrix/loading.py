"""Tries built modules on a running kernel: one boot in QEMU for all drivers, each with what it needs of that kernel.

The root file system in memory holds busybox, the drivers' modules, and from the kernel's own tree the modules that
these depend on. The edu device is there; other hardware is not. On a kernel that a driver was not built for its modules
are tried in the same way, so that a refusal is the kernel's alone.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.matrix.results import Verdict
from driver_builder.base.errors import VerificationFailed
from driver_builder.base.reasons import Reason
from driver_builder.modules import vermagic
from driver_builder.modules.kernel_module import KernelModule, parse_kernel_module
from driver_builder.modules.symvers import has_crcs, owner_names, parse_module_symvers
from driver_builder.modules.verify_files import check_depends
from driver_builder.modules.verify_symbols import check_exports, check_symbols
from testbed.guest import cpio
from testbed.guest.initramfs import load_order, parse_modules_dep, read_module
from testbed.guest.initramfs import module_name as name_of_file
from testbed.guest.script import Section, run_script
from testbed.kernels import KernelPackage

_BUSYBOX = Path("/bin/busybox")
_APPLETS = ("sh", "dmesg", "insmod", "mount", "poweroff")
_NO_DEVICE = 19
"""ENODEV, with which busybox's insmod ends when the module's own init found no hardware."""
_TIMEOUT = 600.0
_TELLING = re.compile(
    r"disagrees about version of symbol|Unknown symbol|section size must match|version magic|Unknown parameter"
)
_STAMP = re.compile(r"^\[ *\d+\.\d+\] ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A driver's modules, as kept on disk; ``parameters`` by module."""

    driver: str
    key: str
    folder: Path
    parameters: Mapping[str, tuple[str, ...]]

    def modules(self) -> dict[str, KernelModule]:
        """Parse all modules, by name."""
        found = (parse_kernel_module(path.read_bytes(), path.name) for path in sorted(self.folder.glob("*.ko")))
        return {module.name: module for module in found}

    def file(self, module: str) -> Path:
        """Return the file of a module; its name may have - where the module's has _."""
        return next(path for path in self.folder.glob("*.ko") if name_of_file(path.name) == module)


def try_on(kernel: KernelPackage, candidates: Sequence[Candidate], folder: Path) -> dict[str, tuple[Verdict, str]]:
    """Boot a kernel, insert every driver's modules, and return for each driver what the kernel did, in its words."""
    dependencies = parse_modules_dep((kernel.modules / "modules.dep").read_text())
    soft = parse_softdeps(
        (kernel.modules / "modules.softdep").read_text(), (kernel.modules / "modules.alias").read_text()
    )
    entries, sections = _base(), {}
    for number, candidate in enumerate(candidates):
        own = candidate.modules()
        needed = needed_files(dependencies, soft, [name for module in own.values() for name in module.depends])
        entries += [cpio.file(f"kernel/{path}", read_module(kernel.modules / path)) for path in needed]
        entries += [cpio.file(f"{number}/{name}.ko", candidate.file(name).read_bytes()) for name in own]
        sections[f"driver{number}"] = script(number, needed, own, candidate.parameters)
    ran = run_script(
        kernel.vmlinuz, _once(entries), sections, folder, devices=("edu",), memory_mib=512, timeout=_TIMEOUT
    )
    return {
        candidate.driver: judge(ran.sections.get(f"driver{number}"), ran.console)
        for number, candidate in enumerate(candidates)
    }


def parse_softdeps(softdeps: str, aliases: str) -> dict[str, list[str]]:
    """Return module -> what it asks to be loaded before it, from modules.softdep and modules.alias.

    Where a kernel has no modprobe to call, nobody else does that: libcrc32c asks for "crc32c", which several provide.
    """
    providers: dict[str, list[str]] = {}
    for words in (line.split() for line in aliases.splitlines() if line.startswith("alias ")):
        providers.setdefault(words[1], []).append(words[2])
    found = re.findall(r"^softdep (\S+) .*?\bpre: ([^:]*?)(?: post:.*)?$", softdeps, re.MULTILINE)
    return {
        module: [name for word in names.split() for name in providers.get(word, [word.replace("-", "_")])]
        for module, names in found
    }


def needed_files(
    dependencies: Mapping[str, Sequence[str]], soft: Mapping[str, Sequence[str]], wanted: Sequence[str]
) -> list[str]:
    """Return the kernel's own files to be inserted for the wanted modules, in order."""
    order = load_order(dependencies, wanted)
    before = [name for path in order for name in soft.get(name_of_file(path), ())]
    return list(dict.fromkeys([*load_order(dependencies, before), *order]))


def refused_by_us(candidate: Candidate, kernel: KernelPackage) -> str:
    """Say what verification has against the modules on that kernel, whatever release they name; empty if nothing.

    As the kernel does, it compares the words of the version magic and, with MODVERSIONS, CRCs in place of the release.
    """
    modules, symbols = tuple(candidate.modules().values()), parse_module_symvers(kernel.symvers.read_text())
    any_file = next(path for path in sorted(kernel.modules.rglob("*.ko*")) if path.suffix in (".ko", ".xz"))
    magic = parse_kernel_module(any_file.read_bytes(), any_file.name).vermagic
    for module in modules:
        if words := vermagic.difference(module.vermagic, magic):
            return f"{Reason.WRONG_VERMAGIC}: module {module.name} {words}"
        if not has_crcs(symbols) and module.kernel_version != kernel.release:
            return f"{Reason.WRONG_VERMAGIC}: module {module.name} is for {module.kernel_version}"
    exported = {name: symbol for module in modules for name, symbol in module.exports.items()}
    try:
        check_exports(modules, symbols, kernel.release)
        check_symbols(modules, symbols | exported, kernel.release)
        check_depends(modules, {*owner_names(symbols), *(module.name for module in modules)}, kernel.release)
    except VerificationFailed as error:
        return f"{error.reason}: {error}"
    return ""


def script(
    number: int, needed: Sequence[str], own: Mapping[str, KernelModule], parameters: Mapping[str, tuple[str, ...]]
) -> str:
    """Write the shell for one driver: what it needs of the kernel, then its own modules up to the first that fails."""
    order = load_order(
        {name: [need for need in module.depends if need in own] for name, module in own.items()}, list(own)
    )
    inserts = [shlex.join(["insmod", f"/{number}/{name}.ko", *parameters.get(name, ())]) for name in order]
    return "; ".join([
        *(f"insmod /kernel/{path} 2>/dev/null" for path in needed),
        "dmesg -c >/dev/null",
        f"{' && '.join(inserts)}",
        "code=$?",
        "dmesg -c",
        "exit $code",
    ])  # fmt: skip


def judge(section: Section | None, console: str) -> tuple[Verdict, str]:
    """Read what became of a driver, and the words that tell it best."""
    if section is None:
        return Verdict.DIED, console.strip().rpartition("\n")[2]
    lines = [_STAMP.sub("", line).strip() for line in section.output.splitlines()]
    said = [line.removeprefix("insmod: ") for line in lines if line.startswith("insmod: ")]
    telling = list(dict.fromkeys(line for line in lines if _TELLING.search(line)))
    words = "; ".join([*said[:1], *telling[:1]])
    if section.code == 0:
        return Verdict.LOADED, ""
    return (Verdict.NEEDS_HARDWARE if section.code == _NO_DEVICE else Verdict.REFUSED), words


def _base() -> list[cpio.Entry]:
    return [
        cpio.program("bin/busybox", _BUSYBOX.read_bytes()),
        *(cpio.link(f"bin/{applet}", "busybox") for applet in _APPLETS),
    ]


def _once(entries: Sequence[cpio.Entry]) -> list[cpio.Entry]:
    return list({entry.path: entry for entry in entries}.values())
