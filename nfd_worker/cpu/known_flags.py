"""All flags that ``cpu.cpuid`` can have, on any architecture: for settings and rules that name one that no CPU has."""

from functools import cache

from nfd_worker.cpu import cpuid_flags, hwcap
from nfd_worker.cpu.cpuid_flags import LEVELS, x86_64_level_flags

_CPUID_TABLES = (
    cpuid_flags.ALWAYS, cpuid_flags.WITH_AVX, cpuid_flags.WITH_AVX512_STATE, cpuid_flags.WITH_XSAVE,
    cpuid_flags.WITH_SGX, cpuid_flags.WITH_AVX10, cpuid_flags.WITH_SVM, cpuid_flags.WITH_IBS, cpuid_flags.ON_AMD,
)  # fmt: skip


@cache
def known_flags() -> frozenset[str]:
    """Name every flag of the tables, and those that need more than a bit."""
    of_cpuid = (name for tables in _CPUID_TABLES for table in tables for name in table.names.values())
    of_vectors = (name for vectors in hwcap.TABLES.values() for names in vectors for name in names.values())
    return frozenset({*of_cpuid, *of_vectors, *cpuid_flags.COMPUTED, *x86_64_level_flags(len(LEVELS))})


def flag_of_kernel(name: str) -> str | None:
    """Return the flag that the kernel calls this in /proc/cpuinfo: ``sse4_1`` is SSE4; None without one."""
    flag = cpuid_flags.KERNEL_NAMES.get(name.lower(), name.upper())
    return flag if flag in known_flags() else None
