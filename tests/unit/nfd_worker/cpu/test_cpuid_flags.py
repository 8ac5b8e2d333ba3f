"""Flag names: conditions that are more than a bit, levels, and the kernel's names for the same."""

import os
import re
from pathlib import Path

import pytest

from nfd_worker.cpu.cpuid import Cpuid, Registers, this_cpu
from nfd_worker.cpu.cpuid_flags import (
    LEVELS,
    avx10_version,
    find_flags,
    flags_of_cpuinfo,
    threads_per_core,
    x86_64_level,
)
from tests.support.nfd_worker.trees import HOSTS

INTEL = (0x756E6547, 0x6C65746E, 0x49656E69)
AMD = (0x68747541, 0x444D4163, 0x69746E65)
OTHER = (0x6F656C46, 0x20202020, 0x20202020)

AVX_BITS = 1 << 26 | 1 << 27 | 1 << 28
HTT_BIT = 1 << 28


def cpu(
    leaves: dict[tuple[int, int], Registers] | None = None,
    *,
    vendor: tuple[int, int, int] = INTEL,
    family: int = 6,
    model: int = 0x8F,
    max_leaf: int = 0x24,
    xcr0: int = 0xE7,
) -> Cpuid:
    """Make a CPU of some leaves; leaf 1 gets its family and model."""
    base = min(family, 0xF)
    signature = base << 8 | (family - base) << 20 | (model & 0xF) << 4 | model >> 4 << 16
    ebx, ecx, edx = vendor
    given = dict(leaves or {})
    given[0, 0] = Registers(max_leaf, ebx, ecx, edx)
    given[1, 0] = given.get((1, 0), Registers())._replace(eax=signature)
    given[0x80000000, 0] = Registers(0x80000021)
    return Cpuid(lambda leaf, subleaf: given.get((leaf, subleaf), Registers()), xcr0=xcr0, way="test")


@pytest.mark.parametrize(
    ("made", "present", "absent"),
    [
        pytest.param(cpu({(1, 0): Registers(ecx=AVX_BITS)}), {"AVX", "XSAVE", "OSXSAVE"}, {"AVXSLOW"}, id="AVX"),
        pytest.param(cpu({(1, 0): Registers(ecx=AVX_BITS)}, xcr0=3), {"XSAVE"}, {"AVX"}, id="AVX state not saved"),
        pytest.param(cpu({(1, 0): Registers(ecx=AVX_BITS)}, model=58), {"AVXSLOW"}, set(), id="before Haswell"),
        pytest.param(
            cpu({(1, 0): Registers(ecx=AVX_BITS)}, vendor=AMD, family=23, model=1), {"AVXSLOW"}, set(), id="Zen"
        ),
        pytest.param(
            cpu({(1, 0): Registers(ecx=AVX_BITS)}, vendor=AMD, family=25, model=1), {"AVX"}, {"AVXSLOW"}, id="Zen 3"
        ),
        pytest.param(cpu({(1, 0): Registers(ecx=1)}), {"SSE3"}, {"XSAVE", "OSXSAVE"}, id="SSE3 is not XSAVE"),
        pytest.param(cpu({(1, 0): Registers(ecx=1 << 12)}), set(), {"FMA3"}, id="FMA3 needs OSXSAVE"),
        pytest.param(cpu({(1, 0): Registers(ecx=1 << 12 | 1 << 27)}), {"FMA3"}, set(), id="FMA3"),
        pytest.param(cpu({(7, 0): Registers(ebx=1 << 5)}), set(), {"AVX2"}, id="AVX2 needs AVX"),
        pytest.param(cpu({(7, 0): Registers(ebx=1 << 8)}), set(), {"BMI2"}, id="BMI2 needs BMI1"),
        pytest.param(cpu({(7, 0): Registers(ebx=1 << 8 | 1 << 3)}), {"BMI1", "BMI2"}, set(), id="BMI1 and BMI2"),
        pytest.param(
            cpu({(1, 0): Registers(ecx=AVX_BITS), (7, 0): Registers(ebx=1 << 16)}), {"AVX512F"}, set(), id="AVX-512"
        ),
        pytest.param(
            cpu({(1, 0): Registers(ecx=AVX_BITS), (7, 0): Registers(ebx=1 << 16)}, xcr0=7),
            {"AVX"},
            {"AVX512F"},
            id="AVX-512 state not saved",
        ),
        pytest.param(
            cpu({(1, 0): Registers(edx=1 << 25)}), {"SSE", "FXSROPT"}, set(), id="FXSROPT follows the SSE bit"
        ),
        pytest.param(cpu({(0x80000001, 0): Registers(ecx=1 << 5)}), {"LZCNT", "POPCNT"}, set(), id="ABM is both"),
        pytest.param(
            cpu({(7, 0): Registers(ecx=1 << 23), (0x19, 0): Registers(ebx=5)}), {"KEYLOCKERW"}, set(), id="key locker"
        ),
        pytest.param(cpu({(0x8000000A, 0): Registers(edx=1)}), set(), {"SVMNP"}, id="SVM details need SVM"),
        pytest.param(
            cpu({(0x80000001, 0): Registers(ecx=4), (0x8000000A, 0): Registers(edx=1)}),
            {"SVM", "SVMNP"},
            set(),
            id="SVM",
        ),
        pytest.param(
            cpu({(0x80000001, 0): Registers(ecx=1 << 10), (0x8000001B, 0): Registers(eax=1)}),
            {"IBS", "IBSFFV"},
            set(),
            id="IBS",
        ),
        pytest.param(cpu({(0x8000001F, 0): Registers(eax=2)}), set(), {"SEV"}, id="SEV is AMD's"),
        pytest.param(cpu({(0x8000001F, 0): Registers(eax=2)}, vendor=AMD), {"SEV"}, set(), id="SEV"),
        pytest.param(cpu(vendor=AMD, family=0x17), {"TSA_L1_NO", "TSA_SQ_NO"}, set(), id="Zen 2 has no TSA"),
        pytest.param(cpu(vendor=AMD, family=0x19), set(), {"TSA_L1_NO"}, id="Zen 3 says it itself"),
        pytest.param(cpu(vendor=AMD, family=0x1A, model=0x44), {"TSA_L1_NO"}, set(), id="Zen 5 has no TSA"),
        pytest.param(cpu(vendor=AMD, family=0x1A, model=0x50), set(), {"TSA_L1_NO"}, id="later Zen 5 says it itself"),
        pytest.param(
            cpu({(0x21, 0): Registers(0, 0x65746E49, 0x20202020, 0x5844546C)}), {"TDX_GUEST"}, set(), id="TDX guest"
        ),
        pytest.param(cpu({(0x4000000C, 0): Registers(ebx=0xBE3)}), {"TDX_GUEST"}, set(), id="TDX guest below Hyper-V"),
        pytest.param(
            cpu({(0x4000000C, 0): Registers(ebx=0xBE3)}, max_leaf=0x1F), set(), {"TDX_GUEST"}, id="too old for TDX"
        ),
        pytest.param(cpu({(0x24, 0): Registers(ebx=0x70001)}), set(), {"AVX10_512"}, id="AVX10 leaf without AVX10"),
        pytest.param(
            cpu({(7, 1): Registers(edx=1 << 19), (0x24, 0): Registers(ebx=0x70001)}),
            {"AVX10", "AVX10_128", "AVX10_512"},
            set(),
            id="AVX10",
        ),
    ],
)
def test_conditions(made: Cpuid, present: set[str], absent: set[str]) -> None:
    """Flags that depend on more than one bit are set only when all conditions hold."""
    flags = find_flags(made)
    assert present <= flags
    assert not absent & flags


@pytest.mark.parametrize(
    ("made", "threads"),
    [
        pytest.param(cpu({(0xB, 0): Registers(ebx=2)}), 2, id="leaf 0xB"),
        pytest.param(cpu(), 1, id="leaf 0xB says nothing"),
        pytest.param(cpu(vendor=OTHER), 1, id="other vendor"),
        pytest.param(cpu(max_leaf=3), 1, id="too old"),
        pytest.param(cpu({(1, 0): Registers(ebx=8 << 16), (4, 0): Registers(3 << 26)}, max_leaf=7), 2, id="leaf 4"),
        pytest.param(cpu({(1, 0): Registers(ebx=8 << 16)}, max_leaf=7, vendor=AMD), 1, id="old AMD"),
        pytest.param(
            cpu({(1, 0): Registers(edx=HTT_BIT), (0x8000001E, 0): Registers(ebx=1 << 8)}, vendor=AMD, family=0x19),
            2,
            id="Zen",
        ),
        pytest.param(cpu(vendor=AMD, family=0x19), 1, id="Zen without HTT"),
        pytest.param(cpu({(1, 0): Registers(edx=HTT_BIT)}, vendor=AMD, family=0x15), 1, id="before Zen"),
    ],
)
def test_threads_of_a_core(made: Cpuid, threads: int) -> None:
    """The number of threads of a core is read from Intel's and AMD's leaves."""
    assert threads_per_core(made) == threads


def test_htt_means_more_than_one_thread() -> None:
    """The HTT bit alone only says that a package may have several processors."""
    assert "HTT" not in find_flags(cpu({(1, 0): Registers(edx=HTT_BIT), (0xB, 0): Registers(ebx=1)}))
    assert "HTT" in find_flags(cpu({(1, 0): Registers(edx=HTT_BIT), (0xB, 0): Registers(ebx=2)}))


def test_the_avx10_version_is_a_number() -> None:
    """The AVX10 version is a number, and 0 without AVX10."""
    leaf = {(0x24, 0): Registers(ebx=0x70002)}
    assert avx10_version(cpu({**leaf, (7, 1): Registers(edx=1 << 19)})) == 2
    assert avx10_version(cpu(leaf)) == 0


@pytest.mark.parametrize("level", range(len(LEVELS) + 1))
def test_a_level_needs_all_flags_of_all_levels_below(level: int) -> None:
    """An x86-64 level needs the flags of all lower levels, and its system calls."""
    flags = set().union(*LEVELS[:level])
    assert x86_64_level(flags | {"SYSCALL"}) == level
    assert x86_64_level(flags | {"SYSEE"}) == level
    assert x86_64_level(flags) == 0
    above = set().union(*LEVELS[1:])
    assert x86_64_level(above | {"SYSCALL"}) == 0


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="CPUID is an instruction of x86")
def test_what_the_kernel_uses_the_cpu_has() -> None:
    """The kernel's flags, translated, are a part of what CPUID says; it hides some and makes up none that we name."""
    match = re.search(r"^flags\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    assert match
    kernel = flags_of_cpuinfo(frozenset(match[1].split()))
    with this_cpu("") as this:
        assert this is not None
        missing = kernel - find_flags(this)
    # These the kernel derives from other bits than CPUID's own of that name (synthetic, or of the other vendor).
    assert missing <= {"IBPB", "IBRS", "STIBP", "SPEC_CTRL_SSBD", "MD_CLEAR", "CPPC", "PPIN"}
    assert len(kernel) > 30


def test_kernel_names_are_translated() -> None:
    """The names differ more often than not."""
    kernel = (
        "fpu cx8 sep cmov mmx fxsr sse sse2 syscall pni sse4_1 sse4_2 ssse3 cx16 lahf_lm popcnt aes ht lm bogus xsave"
    )
    flags = flags_of_cpuinfo(frozenset(kernel.split()))
    assert {"X87", "SYSEE", "SSE3", "SSE4", "SSE42", "AESNI", "OSXSAVE", "X86_64_V2"} <= flags
    assert not {"HTT", "LM", "BOGUS", "SEP", "X86_64_V3"} & flags


def test_the_recorded_cpu_has_known_flags() -> None:
    """A real Intel CPU with AMX and AVX10, recorded below KVM."""
    from nfd_worker.cpu.cpuid import parse_dump

    flags = find_flags(parse_dump((HOSTS / "intel-gpu-server/recorded/cpuid.txt").read_text()))
    assert {"AMXTILE", "AMXBF16", "AVX512FP16", "AVX10_512", "X86_64_V4", "HYPERVISOR", "RTM"} <= flags
    assert not {"AVXSLOW", "SVM", "HTT", "TDX_GUEST", "SGX", "TSA_L1_NO"} & flags
