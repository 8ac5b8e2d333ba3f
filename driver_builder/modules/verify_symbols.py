"""Whether a kernel gives a module every symbol that it imports, and takes those that it exports.

Place in the flow: ``verify`` asks it of a built image.
Pure over values: modules and the symbols that kernel and modules export.

Sources of what the kernel does: ``resolve_symbol``, ``verify_namespace_is_imported``, ``inherit_taint`` and
``verify_exported_symbols`` in ``kernel/module/main.c``, ``check_version`` in ``kernel/module/version.c``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from driver_builder.base.errors import VerificationFailed
from driver_builder.base.reasons import Reason
from driver_builder.modules.kernel_module import KernelModule
from driver_builder.modules.symvers import BUILT_IN, Symvers
from kube_api.text import first_few

_SHOWN = 5
_MODULE_NAMESPACE = "module:"


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


def lacking_namespaces(module: KernelModule, symvers: Symvers) -> dict[str, str]:
    """Symbol to namespace, of the imports whose namespace the module does not name.

    Kernels refuse these, but for those built with CONFIG_MODULE_ALLOW_MISSING_NAMESPACE_IMPORTS, which only warn; no
    distribution with a template here sets it, and a Module.symvers does not say.
    """
    imports = sorted((module.undefined | module.weak) & symvers.keys())
    spaces = {symbol: symvers[symbol].namespace for symbol in imports}
    return {symbol: space for symbol, space in spaces.items() if space and not _is_open(space, module)}


def _is_open(namespace: str, module: KernelModule) -> bool:
    """``module:a,b-*`` (since 6.16) is open to modules of these names, any other namespace to those that import it."""
    if not namespace.startswith(_MODULE_NAMESPACE):
        return namespace in module.namespaces
    patterns = namespace.removeprefix(_MODULE_NAMESPACE).replace("-", "_").split(",")
    return any(
        module.name.startswith(pattern[:-1]) if pattern.endswith("*") else module.name == pattern
        for pattern in patterns
        if pattern
    )


def gpl_only_imports(module: KernelModule, symvers: Symvers) -> list[str]:
    """The imports that the kernel gives to GPL-compatible modules only."""
    return [symbol for symbol in sorted(module.undefined & symvers.keys()) if symvers[symbol].is_gpl_only]


def tainted_modules(modules: Sequence[KernelModule], symvers: Symvers) -> dict[str, str]:
    """The modules that count as proprietary, each with the one whose license makes it so.

    A module whose license is not GPL-compatible, and (since 5.9) every module that uses a symbol of such a one.
    """
    tainted = {module.name: module.name for module in modules if not module.is_gpl_compatible}
    while True:
        inherited = {
            module.name: tainted[owner]
            for module in modules
            for owner in sorted({symvers[symbol].owner for symbol in module.undefined & symvers.keys()})
            if module.name not in tainted and owner in tainted
        }
        if not inherited:
            return tainted
        tainted |= inherited


def check_symbols(modules: Sequence[KernelModule], symvers: Symvers, kernel: str) -> None:
    """Check all imports of all modules; ``symvers`` has what the kernel exports and what these modules do.

    Raises:
        VerificationFailed: with the first class of failure of the first module that has one.
    """
    tainted = tainted_modules(modules, symvers)
    licenses = {module.name: module.license for module in modules}
    for module in modules:
        _check_crcs(module, symvers, kernel)
        _check_namespaces(module, symvers, kernel)
        if module.name in tainted:
            _check_license(module, symvers, tainted[module.name], licenses)


def check_exports(modules: Iterable[KernelModule], symvers: Symvers, kernel: str) -> None:
    """No module may export what the kernel itself or another module beside it exports: the second is not loaded.

    What a module of the kernel exports may be exported again: an image's module may replace it.

    Raises:
        VerificationFailed: DUPLICATE_SYMBOL.
    """
    owners = {name: f"kernel {kernel} itself" for name, symbol in symvers.items() if symbol.owner == BUILT_IN}
    for module in modules:
        doubled = sorted(module.exports.keys() & owners.keys())
        if doubled:
            raise VerificationFailed(
                Reason.DUPLICATE_SYMBOL,
                f"module {module.name} exports {_shown(doubled)}, which {owners[doubled[0]]} exports already:"
                " the kernel would reject the module",
            )
        owners |= dict.fromkeys(module.exports, f"module {module.name}")


def _check_crcs(module: KernelModule, symvers: Symvers, kernel: str) -> None:
    mismatches = fits(module, symvers)
    missing = [mismatch for mismatch in mismatches if mismatch.expected is None]
    if missing:
        raise VerificationFailed(
            Reason.MISSING_SYMBOL,
            f"module {module.name} imports symbols that kernel {kernel} does not offer: {_shown(missing)}",
        )
    if mismatches:
        raise VerificationFailed(
            Reason.WRONG_SYMBOL_CRC,
            f"module {module.name} was built against declarations that differ from those of kernel {kernel}:"
            f" {_shown(mismatches)}",
        )


def _check_namespaces(module: KernelModule, symvers: Symvers, kernel: str) -> None:
    lacking = lacking_namespaces(module, symvers)
    if lacking:
        symbols = [f"{symbol} (namespace {space})" for symbol, space in lacking.items()]
        raise VerificationFailed(
            Reason.MISSING_NAMESPACE,
            f"module {module.name} uses symbols of namespaces that it does not import, which kernel {kernel} refuses:"
            f" {_shown(symbols)}",
        )


def _check_license(module: KernelModule, symvers: Symvers, culprit: str, licenses: dict[str, str]) -> None:
    refused = gpl_only_imports(module, symvers)
    if not refused:
        return
    named = f"has license {licenses[culprit] or 'none'!r}"
    reason = named if culprit == module.name else f"uses module {culprit}, which {named}"
    raise VerificationFailed(
        Reason.GPL_ONLY_SYMBOL,
        f"module {module.name} {reason}, and imports symbols that the kernel gives to GPL-compatible modules only:"
        f" {_shown(refused)}",
    )


def _shown(items: Sequence[object]) -> str:
    return first_few(items, _SHOWN)
