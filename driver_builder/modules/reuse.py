"""May modules that were built for one kernel be used on another one, without a build? Pure.

Place in the flow: ``reuse_image`` asks it of the images of other kernels before anything is built, ``verify`` of the
image that is made of one. This answers the question for modules that are known, and another kernel's Module.symvers.

A kernel with MODVERSIONS takes a module of another release when the CRC of every symbol that it imports is its own, and
when their version magics differ in the release only (``same_magic`` in the kernel's ``kernel/module/version.c``).
RHEL's weak-modules and SUSE's kernel module packages go by the same. A CRC covers the types that a symbol's declaration
reaches; it says nothing of inline functions, macros, constants and behaviour. So it must be possible to forbid it.

What using an image for another kernel needs beside a new tag is in :mod:`driver_builder.builds.pipeline.reuse_image`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from driver_builder.base.errors import InvalidSymvers, VerificationFailed
from driver_builder.base.reasons import Reason
from driver_builder.modules import vermagic
from driver_builder.modules.kernel_module import KernelModule
from driver_builder.modules.symvers import ExportedSymbol, Symvers, has_crcs, owner_names, parse_module_symvers
from driver_builder.modules.verify_files import check_depends
from driver_builder.modules.verify_symbols import check_exports, check_symbols


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where an image's modules come from that were not built for its own kernel.

    ``kernel`` is the release they were built for, ``magic`` the version magic of the image's own kernel.
    """

    kernel: str
    magic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reusable:
    """The modules may be used. ``compared`` is the number of CRCs that agree."""

    compared: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReusable:
    """The modules must be built anew; ``message`` names the first thing that is against their use."""

    reason: Reason
    message: str


def reusable(
    modules: Sequence[KernelModule], module_symvers: str, *, kernel: str, magic: str = ""
) -> Reusable | NotReusable:
    """Decide whether ``modules`` (all of an image) may be used on ``kernel``, the release of that Module.symvers.

    ``magic`` is the version magic of any module that was built for that kernel. Without one its words (SMP, preempt...)
    are not compared; the kernel compares them when it loads the modules.
    """
    try:
        check_reuse(modules, parse_module_symvers(module_symvers), kernel=kernel, magic=magic)
    except InvalidSymvers as error:
        return NotReusable(reason=Reason.WRONG_SYMBOL_CRC, message=str(error))
    except VerificationFailed as error:
        return NotReusable(reason=error.reason, message=str(error))
    return Reusable(compared=sum(len(module.crcs) for module in modules))


def check_reuse(
    modules: Sequence[KernelModule], symbols: dict[str, ExportedSymbol], *, kernel: str, magic: str = ""
) -> None:
    """Check what :func:`reusable` decides.

    Raises:
        VerificationFailed: with the first thing that speaks against it.
    """
    _check_magic(modules, kernel, magic)
    _check_crcs(modules, symbols, kernel)


def _check_magic(modules: Sequence[KernelModule], kernel: str, magic: str) -> None:
    if not modules:
        raise VerificationFailed(Reason.MODULE_MISSING, "the image has no modules")
    for module in modules:
        if vermagic.MODVERSIONS not in vermagic.words_of(module.vermagic) or not module.crcs:
            raise VerificationFailed(
                Reason.WRONG_VERMAGIC,
                f"module {module.name} was built without MODVERSIONS: it loads on {module.kernel_version} only",
            )
        difference = vermagic.difference(module.vermagic, magic or modules[0].vermagic)
        if difference:
            raise VerificationFailed(
                Reason.WRONG_VERMAGIC,
                f"the version magic of module {module.name} {difference}, unlike that of kernel {kernel}",
            )


def _check_crcs(modules: Sequence[KernelModule], symbols: dict[str, ExportedSymbol], kernel: str) -> None:
    if not has_crcs(symbols):
        raise VerificationFailed(
            Reason.WRONG_SYMBOL_CRC,
            f"kernel {kernel} was built without MODVERSIONS: nothing can be compared",
        )
    exported = {name: symbol for module in modules for name, symbol in module.exports.items()}
    check_exports(modules, symbols, kernel)
    check_symbols(modules, symbols | exported, kernel)
    check_depends(modules, {*owner_names(symbols), *(module.name for module in modules)}, kernel)
    for module in modules:
        _check_proven(module, symbols | exported, kernel)


def _check_proven(module: KernelModule, symbols: Symvers, kernel: str) -> None:
    """A kernel does not compare a symbol that has no CRC; here nothing else speaks for it."""
    unproven = sorted(symbol for symbol in module.undefined if not symbols[symbol].crc)
    if unproven:
        raise VerificationFailed(
            Reason.WRONG_SYMBOL_CRC,
            f"module {module.name} imports {unproven[0]}, which has no CRC in kernel {kernel}: it cannot be compared",
        )
