"""Does the module inside a built image fit the kernel it was built for? Asked before anything is pushed.

Place in the flow: after a builder, before ``registry``. Pure over values: an image on disk and the text of the target's
Module.symvers go in, the verified modules come out, or a :class:`VerificationFailed` that says what does not fit.

vermagic alone proves little: in a kernel with MODVERSIONS its release is not compared when the module carries CRCs
(``kernel/module/version.c``: ``same_magic``). So the CRC of every imported symbol is compared as well.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from driver_builder.build import BuildRequest
from driver_builder.errors import VerificationFailed, VerificationFailure
from driver_builder.image_archive import ImageArchive
from driver_builder.kernel_module import (
    ExportedSymbol,
    InvalidModule,
    KernelModule,
    Symvers,
    module_name,
    parse_kernel_module,
    parse_module_symvers,
)

MACHINES = {
    "386": "EM_386",
    "amd64": "EM_X86_64",
    "arm": "EM_ARM",
    "arm64": "EM_AARCH64",
    "loong64": "EM_LOONGARCH",
    "ppc64le": "EM_PPC64",
    "riscv64": "EM_RISCV",
    "s390x": "EM_S390",
}
"""Kubernetes' word for an architecture to the machine in an ELF header."""

DEVICE_BUSES = frozenset({"bcma", "pci", "ssb", "usb", "virtio", "vmbus", "xen"})
"""Buses that announce their devices: a module with such an alias (``pci:v...``) waits for one. The templates' list too.

Devices of other buses (platform, i2c, acpi) are often made by the modules themselves, or by firmware that names many.
"""

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedModule:
    """A module that fits: its absolute ``path`` in the image, and what the loaded module must show in /sys/module.

    ``needs_device`` is true where it binds to devices of a bus: loaded alone, it does nothing yet.
    """

    name: str
    path: str
    srcversion: str
    build_id: str
    vermagic: str
    needs_device: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """One imported symbol that the kernel will not give to the module.

    ``expected`` is the kernel's CRC, None if it has no such symbol; ``found`` the module's, None where it has none.
    """

    symbol: str
    expected: int | None
    found: int | None

    def __str__(self) -> str:
        if self.expected is None:
            return f"{self.symbol} (exported neither by the kernel nor by a module of the image)"
        found = "no CRC" if self.found is None else f"{self.found:#010x}"
        return f"{self.symbol} (expected {self.expected:#010x}, found {found})"


def verify(image: ImageArchive, *, request: BuildRequest, module_symvers: str) -> tuple[VerifiedModule, ...]:
    """Check every module below ``/lib/modules/<kernel>`` and return those of the request, in load order.

    Raises:
        VerificationFailed: with the first class of failure that was found; the message names module and symbols.
    """
    kernel = request.target.kernel_version
    folder = f"/lib/modules/{kernel}"
    files = image.read_files(folder)
    modules = {path: _parse(content, path) for path, content in sorted(files.items()) if module_name(path)}
    paths = _paths_by_name(modules)
    _check_complete(request, paths, folder)
    symvers = _all_symbols(module_symvers, modules.values())
    for module in modules.values():
        _check_build(module, kernel, request.target.architecture)
        _check_symbols(module, symvers, kernel)
    _check_dependencies(files.get(f"{folder}/modules.dep"), modules, folder)
    return tuple(_verified(paths[spec.name], modules[paths[spec.name]]) for spec in request.modules)


def fits(module: KernelModule, symvers: Symvers) -> list[Mismatch]:
    """The imports of ``module`` that a kernel with these exported symbols would refuse; empty when it fits.

    Missing symbols come first. A symbol without a CRC in the kernel (0) is not compared: the kernel does not either.
    """
    missing = [
        Mismatch(symbol=symbol, expected=None, found=module.crcs.get(symbol))
        for symbol in sorted(module.undefined - symvers.keys())
    ]
    known = sorted((module.undefined | module.crcs.keys()) & symvers.keys())
    return missing + [
        Mismatch(symbol=symbol, expected=symvers[symbol].crc, found=module.crcs.get(symbol))
        for symbol in known
        if symvers[symbol].crc and symvers[symbol].crc != module.crcs.get(symbol)
    ]


def needs_device(aliases: Sequence[str]) -> bool:
    """Whether an alias is of a bus: ``pci:v...`` is, ``platform:x``, ``devname:x`` and ``fs-x`` are not."""
    return any(":" in alias and alias.partition(":")[0] in DEVICE_BUSES for alias in aliases)


def _verified(path: str, module: KernelModule) -> VerifiedModule:
    return VerifiedModule(
        name=module.name,
        path=path,
        srcversion=module.srcversion,
        build_id=module.build_id,
        vermagic=module.vermagic,
        needs_device=needs_device(module.aliases),
    )


def _parse(content: bytes, path: str) -> KernelModule:
    try:
        return parse_kernel_module(content, path)
    except InvalidModule as error:
        raise VerificationFailed(VerificationFailure.IMAGE_INVALID, str(error)) from error


def _paths_by_name(modules: Mapping[str, KernelModule]) -> dict[str, str]:
    paths: dict[str, str] = {}
    for path, module in modules.items():
        if module.name in paths:
            raise VerificationFailed(
                VerificationFailure.IMAGE_INVALID,
                f"module {module.name} is in the image twice: {paths[module.name]} and {path}; install it once",
            )
        paths[module.name] = path
    return paths


def _check_complete(request: BuildRequest, paths: Mapping[str, str], folder: str) -> None:
    missing = [spec.name for spec in request.modules if spec.name not in paths]
    if missing:
        found = ", ".join(sorted(paths)) or "no module at all"
        raise VerificationFailed(
            VerificationFailure.MODULE_MISSING,
            f"the image has no module {', '.join(missing)} below {folder} (found {found});"
            " name the modules as their files are named, with _ for -",
        )


def _all_symbols(module_symvers: str, modules: Iterable[KernelModule]) -> dict[str, ExportedSymbol]:
    """What the kernel exports, and over it what the image's own modules do: they may replace modules of the kernel."""
    try:
        symbols = parse_module_symvers(module_symvers)
    except ValueError as error:
        raise VerificationFailed(
            VerificationFailure.IMAGE_INVALID, f"the Module.symvers that the build left cannot be read: {error}"
        ) from error
    exported = ((name, crc) for module in modules for name, crc in module.exports.items())
    return symbols | {name: ExportedSymbol(crc or 0, "") for name, crc in exported}


def _check_build(module: KernelModule, kernel: str, architecture: str) -> None:
    if module.kernel_version != kernel:
        raise VerificationFailed(
            VerificationFailure.WRONG_VERMAGIC,
            f"module {module.name} was built for kernel {module.kernel_version}, not for {kernel}"
            f" (vermagic {module.vermagic.strip()!r}); build against the headers of {kernel}",
        )
    expected = MACHINES.get(architecture)
    if module.architecture != expected:
        raise VerificationFailed(
            VerificationFailure.WRONG_ARCHITECTURE,
            f"module {module.name} is for {module.architecture}, but {architecture} needs {expected}",
        )
    if not module.identity:
        raise VerificationFailed(
            VerificationFailure.NO_IDENTITY,
            f"module {module.name} has neither srcversion nor build id, so the loaded module could not be told from"
            " another one; add MODULE_VERSION to its source",
        )


def _check_symbols(module: KernelModule, symvers: Symvers, kernel: str) -> None:
    mismatches = fits(module, symvers)
    if not mismatches:
        return
    is_missing = mismatches[0].expected is None
    same = [mismatch for mismatch in mismatches if (mismatch.expected is None) == is_missing]
    shown = ", ".join(str(mismatch) for mismatch in same[:_SHOWN])
    more = f" and {len(same) - _SHOWN} more" if len(same) > _SHOWN else ""
    if is_missing:
        raise VerificationFailed(
            VerificationFailure.MISSING_SYMBOL,
            f"module {module.name} imports symbols that kernel {kernel} does not offer: {shown}{more}",
        )
    raise VerificationFailed(
        VerificationFailure.WRONG_SYMBOL_CRC,
        f"module {module.name} was built against other declarations than those of kernel {kernel}: {shown}{more}",
    )


def _check_dependencies(modules_dep: bytes | None, modules: Mapping[str, KernelModule], folder: str) -> None:
    """modules.dep must list each module, and with it those modules of the image that it depends on."""
    if modules_dep is None:
        raise VerificationFailed(
            VerificationFailure.IMAGE_INVALID, f"the image has no {folder}/modules.dep; run depmod -b in the template"
        )
    dependencies = parse_modules_dep(modules_dep.decode(errors="replace"))
    present = {module.name for module in modules.values()}
    for path, module in modules.items():
        listed = dependencies.get(str(PurePosixPath(path).relative_to(folder)))
        if listed is None:
            raise _dependency_failure(f"does not list {path}", folder)
        lacking = (set(module.depends) & present) - {module_name(entry) for entry in listed}
        if lacking:
            raise _dependency_failure(f"does not give {', '.join(sorted(lacking))} as needed by {path}", folder)
        absent = [entry for entry in listed if f"{folder}/{entry}" not in modules]
        if absent:
            raise _dependency_failure(f"names {', '.join(absent)}, which the image does not have", folder)


def _dependency_failure(problem: str, folder: str) -> VerificationFailed:
    return VerificationFailed(
        VerificationFailure.IMAGE_INVALID,
        f"{folder}/modules.dep {problem}; run depmod -b after all modules are installed",
    )


def parse_modules_dep(text: str) -> dict[str, tuple[str, ...]]:
    """modules.dep: per line a module's path, a colon, and the paths of what it needs, all relative to the file."""
    lines = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {path.strip(): tuple(needed.split()) for path, _, needed in lines}
