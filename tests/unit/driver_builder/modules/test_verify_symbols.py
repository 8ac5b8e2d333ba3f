"""Which symbols a kernel would refuse to which module."""

from dataclasses import replace

import pytest

from driver_builder.base.errors import VerificationFailed
from driver_builder.base.reasons import Reason
from driver_builder.modules.kernel_module import KernelModule
from driver_builder.modules.symvers import ExportedSymbol, parse_module_symvers
from driver_builder.modules.verify_symbols import (
    Mismatch,
    check_exports,
    check_symbols,
    fits,
    gpl_only_imports,
    lacking_namespaces,
    tainted_modules,
)
from tests.support.driver_builder.kernel_modules import HELPER_MODULE, PROBE_MODULE, SYMVERS_47, SYMVERS_55, a_module

HELPER_CRCS = {name: ExportedSymbol(crc=crc) for name, crc in HELPER_MODULE.crcs.items()}
F = Reason


@pytest.mark.parametrize(
    ("symvers", "expected"),
    [
        pytest.param(HELPER_CRCS, [], id="its own kernel"),
        pytest.param(
            HELPER_CRCS | {"__fentry__": ExportedSymbol(crc=1)},
            [Mismatch(symbol="__fentry__", expected=1, found=0xBDFB6DBB)],
            id="changed symbol",
        ),
        pytest.param(
            {name: symbol for name, symbol in HELPER_CRCS.items() if name != "__fentry__"},
            [Mismatch(symbol="__fentry__", expected=None, found=0xBDFB6DBB)],
            id="removed symbol",
        ),
        pytest.param({name: ExportedSymbol(crc=0) for name in HELPER_CRCS}, [], id="kernel without MODVERSIONS"),
    ],
)
def test_fitting_is_a_question_of_symbols_only(symvers: dict[str, ExportedSymbol], expected: list[Mismatch]) -> None:
    """The preflight asks the same of a kernel that runs nowhere yet."""
    assert fits(HELPER_MODULE, symvers) == expected


def test_a_weak_symbol_may_be_missing() -> None:
    """The kernel leaves an unresolved weak symbol empty and loads the module."""
    assert fits(replace(HELPER_MODULE, weak=frozenset({"optional"})), HELPER_CRCS) == []


def test_the_cloud_kernels_of_two_abis_differ_in_what_the_probe_uses() -> None:
    """The data behind these tests: real lines of two Debian kernels."""
    changed = {mismatch.symbol for mismatch in fits(PROBE_MODULE, parse_module_symvers(SYMVERS_47))}
    assert {"module_layout", "_dev_info", "dw_helper_double"} <= changed
    assert "__fentry__" not in changed


@pytest.mark.parametrize(
    ("namespace", "imported", "is_lacking"),
    [
        pytest.param("", (), False, id="no namespace"),
        pytest.param("NS", ("OTHER", "NS"), False, id="imported"),
        pytest.param("NS", (), True, id="not imported"),
        pytest.param("NS", ("NS_TOO",), True, id="another one imported"),
        pytest.param("module:kvm,a-driver", (), False, id="for modules of this name"),
        pytest.param("module:a-*", (), False, id="for modules of such names"),
        pytest.param("module:b*,kvm", (), True, id="for modules of other names"),
        pytest.param("module:kvm", ("module:kvm",), True, id="not to be imported"),
    ],
)
@pytest.mark.parametrize("binding", ["undefined", "weak"])
def test_a_namespace_must_be_imported(
    namespace: str, imported: tuple[str, ...], is_lacking: bool, binding: str
) -> None:
    """Or be open to modules of that name, where - and _ are the same."""
    module = a_module("a_driver", namespaces=imported, **{binding: frozenset({"f", "unknown"})})
    symvers = {"f": ExportedSymbol(crc=0, namespace=namespace)}
    assert lacking_namespaces(module, symvers) == ({"f": namespace} if is_lacking else {})


def stack(*licenses: str) -> list[KernelModule]:
    """Modules m0, m1...: each uses a symbol of the one before it."""
    return [
        a_module(
            f"m{number}",
            license=license_,
            undefined=frozenset({f"f{number - 1}", "for_gpl"} if number else {"for_gpl"}),
        )
        for number, license_ in enumerate(licenses)
    ]


SYMBOLS = {
    "for_gpl": ExportedSymbol(crc=0, is_gpl_only=True),
    **{f"f{number}": ExportedSymbol(crc=0, owner=f"m{number}") for number in range(3)},
}


@pytest.mark.parametrize(
    ("licenses", "expected"),
    [
        pytest.param(("GPL", "GPL"), {}, id="none"),
        pytest.param(("GPL", "X"), {"m1": "m1"}, id="who is used is not tainted"),
        pytest.param(("X", "GPL", "GPL"), {"m0": "m0", "m1": "m0", "m2": "m0"}, id="who uses it is, and so on"),
        pytest.param(("X", "Y"), {"m0": "m0", "m1": "m1"}, id="each by its own license"),
    ],
)
def test_a_proprietary_module_taints_those_on_top(licenses: tuple[str, ...], expected: dict[str, str]) -> None:
    """Since 5.9: the trick of a GPL module between the kernel and a proprietary one."""
    assert tainted_modules(stack(*licenses), SYMBOLS) == expected


def test_gpl_only_imports_are_those_that_must_exist() -> None:
    """A weak one stays empty."""
    module = a_module("m", undefined=frozenset({"for_gpl", "f0"}), weak=frozenset({"for_gpl_too"}))
    symvers = SYMBOLS | {"for_gpl_too": ExportedSymbol(crc=0, is_gpl_only=True)}
    assert gpl_only_imports(module, symvers) == ["for_gpl"]


@pytest.mark.parametrize(
    ("modules", "reason", "message"),
    [
        pytest.param(
            [a_module("m", undefined=frozenset({"gone"}))],
            F.MISSING_SYMBOL,
            r"module m imports symbols that kernel 6\.1 does not offer: gone ",
            id="missing",
        ),
        pytest.param(
            [a_module("m", undefined=frozenset({"crc"}), crcs={"crc": 0x2A})],
            F.WRONG_SYMBOL_CRC,
            r"module m was .*: crc \(expected 0x00000007, found 0x0000002a\)",
            id="CRC",
        ),
        pytest.param(
            [a_module("m", undefined=frozenset({"spaced"}))],
            F.MISSING_NAMESPACE,
            r"module m uses .* kernel 6\.1 refuses: spaced \(namespace NS\)",
            id="namespace",
        ),
        pytest.param(
            stack("X"),
            F.GPL_ONLY_SYMBOL,
            "module m0 has license 'X', and imports symbols .* GPL-compatible modules only: for_gpl",
            id="license",
        ),
        pytest.param(
            [replace(stack("X")[0], undefined=frozenset(), license=""), stack("X", "GPL")[1]],
            F.GPL_ONLY_SYMBOL,
            "module m1 uses module m0, which has license 'none', and imports",
            id="license of another",
        ),
    ],
)
def test_what_is_refused_has_a_reason(modules: list[KernelModule], reason: Reason, message: str) -> None:
    """Module, symbol and both values are named."""
    symvers = SYMBOLS | {"crc": ExportedSymbol(crc=7), "spaced": ExportedSymbol(crc=0, namespace="NS")}
    with pytest.raises(VerificationFailed, match=message) as caught:
        check_symbols(modules, symvers, "6.1")
    assert caught.value.reason is reason


def test_a_proprietary_module_may_use_what_is_for_all() -> None:
    """As the drivers of some vendors do."""
    check_symbols([a_module("m", license="X", undefined=frozenset({"f0"}))], SYMBOLS, "6.1")


def test_a_stack_of_real_modules_fits() -> None:
    """dw_probe uses a GPL-only symbol of dw_helper's in a namespace."""
    symvers = parse_module_symvers(SYMVERS_55) | dict(HELPER_MODULE.exports)
    check_symbols([HELPER_MODULE, PROBE_MODULE], symvers, "6.1.0-55-cloud-amd64")


def exporting(name: str, *symbols: str) -> KernelModule:
    """A module that exports these."""
    return a_module(name, exports={symbol: ExportedSymbol(crc=0, owner=name) for symbol in symbols})


def test_a_module_of_the_kernel_may_be_replaced() -> None:
    """A driver's newer build of drm exports what the kernel's drm does."""
    check_exports([exporting("drm", "drm_open")], {"drm_open": ExportedSymbol(crc=0, owner="drm")}, "6.1")


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        pytest.param(
            [exporting("m", "printk")], r"module m exports printk, which kernel 6\.1 itself exports", id="built in"
        ),
        pytest.param(
            [exporting("a", *"fghijkl"), exporting("b", *"fghijkl")],
            "module b exports f, g, h, i, j and 2 more, which module a exports already: the kernel would reject",
            id="another module of the image",
        ),
    ],
)
def test_what_is_exported_already_cannot_be_exported_again(modules: list[KernelModule], message: str) -> None:
    """The kernel refuses the second module."""
    with pytest.raises(VerificationFailed, match=message) as caught:
        check_exports(modules, {"printk": ExportedSymbol(crc=0)}, "6.1")
    assert caught.value.reason is F.DUPLICATE_SYMBOL
