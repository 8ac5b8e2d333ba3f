"""Real and made-up kernel modules for the tests of what may be loaded where."""

from dataclasses import replace
from pathlib import Path

from driver_builder.modules.kernel_module import KernelModule, parse_kernel_module

MODULES = Path(__file__).parents[2] / "data" / "modules"
PROBE = (MODULES / "dw_probe.ko").read_bytes()
HELPER = (MODULES / "dw_helper.ko").read_bytes()
PROBE_MODULE = parse_kernel_module(PROBE, "dw_probe.ko")
HELPER_MODULE = parse_kernel_module(HELPER, "dw_helper.ko")

SYMVERS_47 = (MODULES / "6.1.0-47-cloud-amd64.symvers").read_text()
SYMVERS_55 = (MODULES / "6.1.0-55-cloud-amd64.symvers").read_text()
"""The lines that matter of the Module.symvers of two Debian kernels; both modules were built for the second."""

MAGIC = "6.1.0-55-cloud-amd64 SMP preempt mod_unload modversions "

_BARE = replace(
    HELPER_MODULE, name="bare", undefined=frozenset(), crcs={}, exports={}, depends=(), aliases=(), namespaces=()
)


def a_module(name: str, **changes: object) -> KernelModule:
    """A GPL module that imports, exports and needs nothing but what ``changes`` says."""
    return replace(_BARE, name=name, **changes)  # type: ignore[arg-type]
