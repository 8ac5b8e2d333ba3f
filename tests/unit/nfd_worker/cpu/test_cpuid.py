"""CPUID: every way to ask gives the same answer, and dumps stand in for CPUs that are not here."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from nfd_worker.cpu import cpuid as module
from nfd_worker.cpu.cpuid import NOTHING, Cpuid, Registers, parse_dump, this_cpu
from nfd_worker.cpu.cpuid_flags import find_flags

on_x86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="CPUID is an instruction of x86")

LEAVES_OF_GLIBC = [(1, 0), (7, 0), (7, 1), (0xD, 1), (0x80000001, 0), (0x80000007, 0), (0x80000008, 0)]


def refuse() -> int:
    """Stand in for a mapping that is not allowed."""
    raise PermissionError(13, "Permission denied")


def kernel_vendor() -> str:
    """Read the vendor that the kernel shows."""
    match = re.search(r"vendor_id\s*: (\w+)", Path("/proc/cpuinfo").read_text())
    assert match
    return match[1]


@on_x86
def test_memfd_and_anonymous_page_give_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to run the CPUID code give the same answers."""

    def all_leaves(cpu: Cpuid | None) -> list[Registers]:
        assert cpu is not None
        # Bits 31:24 of EBX of leaf 1 and leaf 0xB name the processor that happens to run us.
        return [cpu.leaf(leaf) for leaf in (0, 7, 0x80000001, 0x80000008)] + [Registers(cpu.xcr0)]

    with this_cpu("") as first:
        assert first is not None
        assert first.way == "memfd"
        answers = all_leaves(first)
    monkeypatch.setattr(module, "_map_memfd", refuse)
    with this_cpu("") as second:
        assert second is not None
        assert second.way == "anonymous page"
        assert all_leaves(second) == answers


@on_x86
def test_glibcs_copy_agrees_on_the_leaves_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the way that no W^X rule closes."""
    with this_cpu("") as cpu:
        assert cpu is not None
        asked = {leaf: cpu.leaf(*leaf) for leaf in LEAVES_OF_GLIBC}
        flags = find_flags(cpu)
    for way in ("_map_memfd", "_map_anonymous"):
        monkeypatch.setattr(module, way, refuse)
    with this_cpu(kernel_vendor()) as copy:
        if copy is None:
            pytest.skip("this C library keeps no copy")
        assert copy.way == "glibc"
        assert copy.vendor_signature == kernel_vendor()
        for leaf, registers in asked.items():
            ours = registers._replace(ebx=registers.ebx & 0xFFFFFF) if leaf == (1, 0) else registers
            theirs = copy.leaf(*leaf)
            assert (theirs._replace(ebx=theirs.ebx & 0xFFFFFF) if leaf == (1, 0) else theirs) == ours
        assert "X86_64_V2" in find_flags(copy)
        assert {flag for flag in flags if flag.startswith("X86_64")} == {
            flag for flag in find_flags(copy) if flag.startswith("X86_64")
        }


@on_x86
def test_where_nothing_is_allowed_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where CPUID is not allowed nothing is reported, so that /proc/cpuinfo is used."""
    closed: Callable[[str], None] = lambda _: None  # noqa: E731 - one expression
    for way in ("_map_memfd", "_map_anonymous"):
        monkeypatch.setattr(module, way, refuse)
    monkeypatch.setattr(module, "_cpuid_from_glibc", closed)
    with this_cpu("") as cpu:
        assert cpu is None


@on_x86
def test_the_cpus_we_may_run_on_stay_the_same() -> None:
    """The CPU affinity is restored after the block."""
    before = os.sched_getaffinity(0)
    with this_cpu(""):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before


@on_x86
def test_the_kernel_reads_the_same_through_its_device() -> None:
    """/dev/cpu/0/cpuid is a second opinion, where root may read it."""
    try:
        device = os.open("/dev/cpu/0/cpuid", os.O_RDONLY)
    except OSError:
        pytest.skip("needs root and the cpuid device")
    try:
        with this_cpu("") as cpu:
            assert cpu is not None
            for leaf, subleaf in ((0, 0), (7, 0), (7, 1), (0x80000001, 0)):
                raw = os.pread(device, 16, leaf | subleaf << 32)
                words = (int.from_bytes(raw[start : start + 4], "little") for start in range(0, 16, 4))
                assert cpu.leaf(leaf, subleaf) == Registers(*words)
    finally:
        os.close(device)


DUMP = """CPU:
   0x00000000 0x00: eax=0x00000007 ebx=0x756e6547 ecx=0x6c65746e edx=0x49656e69
   0x00000001 0x00: eax=0x000906ea ebx=0x00100800 ecx=0x00000000 edx=0x00000000
   0x0000000d 0x00: eax=0x00000007 ebx=0x00000340 ecx=0x00000340 edx=0x00000000
   0x00000016 0x00: eax=0x00000e10 ebx=0x00001194 ecx=0x00000064 edx=0x00000000
"""


def test_a_dump_is_a_cpu() -> None:
    """XCR0 is what leaf 0xD supports unless the dump says otherwise; leaves above the highest are nothing."""
    cpu = parse_dump(DUMP)
    assert cpu.vendor_signature == "GenuineIntel"
    assert cpu.family_and_model == (6, 0x9E)
    assert cpu.xcr0 == 7
    assert cpu.leaf(0x16) == NOTHING
    assert cpu.leaf(0x80000001) == NOTHING
    assert parse_dump(f"{DUMP}xcr0=0x3\n").xcr0 == 3
