"""Whether modules of one kernel may be used on another one: real modules, real kernels."""

from dataclasses import replace

import pytest

from driver_builder.base.reasons import Reason
from driver_builder.modules.kernel_module import KernelModule
from driver_builder.modules.reuse import NotReusable, Reusable, reusable
from tests.support.driver_builder.kernel_modules import (
    HELPER_MODULE,
    MAGIC,
    PROBE_MODULE,
    SYMVERS_47,
    SYMVERS_55,
    SYMVERS_56,
    a_module,
)

MODULES = (HELPER_MODULE, PROBE_MODULE)
F = Reason
NEW = MAGIC.replace("-55-", "-56-")


def test_the_next_abi_of_debian_takes_the_same_modules() -> None:
    """6.1.0-56 exports all that these modules import with the CRCs of 6.1.0-55, for which they were built."""
    assert reusable(MODULES, SYMVERS_56, kernel="6.1.0-56-cloud-amd64", magic=NEW) == Reusable(compared=11)


def test_a_magic_that_nobody_knows_is_not_compared() -> None:
    """Without a known version magic its words are not compared: the CRCs decide."""
    assert reusable(MODULES, SYMVERS_56, kernel="6.1.0-56-cloud-amd64") == Reusable(compared=11)


def without_crcs(text: str, symbol: str = "") -> str:
    """The same lines without CRCs, or without that of one symbol."""
    lines = text.splitlines()
    return "\n".join("0x00000000" + line[10:] if f"\t{symbol}" in line else line for line in lines)


@pytest.mark.parametrize(
    ("modules", "symvers", "magic", "reason", "message"),
    [
        pytest.param(
            MODULES,
            SYMVERS_47,
            NEW,
            F.WRONG_SYMBOL_CRC,
            "dw_helper was .* module_layout (expected 0xca916cb2, found 0xa351f379)",
            id="another ABI",
        ),
        pytest.param(
            MODULES,
            SYMVERS_56.replace("param_ops_int", "param_ops_long"),
            NEW,
            F.MISSING_SYMBOL,
            "dw_probe imports symbols that kernel new does not offer: param_ops_int",
            id="a symbol is gone",
        ),
        pytest.param(
            MODULES,
            SYMVERS_56,
            NEW.replace("preempt", "preempt_rt"),
            F.WRONG_VERMAGIC,
            "dw_helper lacks preempt_rt (CONFIG_PREEMPT_RT) and has preempt (CONFIG_PREEMPT_BUILD), unlike",
            id="another configuration",
        ),
        pytest.param(
            MODULES, without_crcs(SYMVERS_56), NEW, F.WRONG_SYMBOL_CRC, "kernel new was built without", id="no CRCs"
        ),
        pytest.param(
            MODULES,
            without_crcs(SYMVERS_56, "_dev_info"),
            NEW,
            F.WRONG_SYMBOL_CRC,
            "dw_probe imports _dev_info, which has no CRC in kernel new",
            id="a symbol without a CRC",
        ),
        pytest.param(
            (replace(HELPER_MODULE, crcs={}),),
            SYMVERS_56,
            NEW,
            F.WRONG_VERMAGIC,
            "without MODVERSIONS",
            id="unversioned",
        ),
        pytest.param(
            (replace(HELPER_MODULE, vermagic="6.1 SMP"),),
            SYMVERS_56,
            "",
            F.WRONG_VERMAGIC,
            "it loads on 6.1 only",
            id="word",
        ),
        pytest.param(
            (PROBE_MODULE,), SYMVERS_55, "", F.MISSING_SYMBOL, "dw_helper_double", id="not all modules of the image"
        ),
        pytest.param(
            (*MODULES, a_module("m", crcs={"module_layout": 0xA351F379}, depends=("gone",))),
            SYMVERS_56,
            NEW,
            F.DEPENDENCY_MISSING,
            "module m depends on gone",
            id="a module that the new kernel does not have",
        ),
        pytest.param((), SYMVERS_56, NEW, F.MODULE_MISSING, "no modules", id="nothing"),
        pytest.param(MODULES, "404", NEW, F.WRONG_SYMBOL_CRC, "line 1 of Module.symvers", id="no symvers"),
    ],
)
def test_what_speaks_against_it_is_named(
    modules: tuple[KernelModule, ...], symvers: str, magic: str, reason: Reason, message: str
) -> None:
    """The first thing, with its class."""
    answer = reusable(modules, symvers, kernel="new", magic=magic)
    assert isinstance(answer, NotReusable)
    assert answer.reason is reason
    assert all(part in answer.message for part in message.split(".*"))
