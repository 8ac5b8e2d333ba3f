"""Flags from the auxiliary vector, on every machine that reports them there."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfd_worker.cpu.hwcap import parse_hwcap

MACHINES = ("aarch64", "armv7l", "ppc64le", "s390x")


def auxv(hwcap: int, hwcap2: int, layout: str = "<QQ") -> bytes:
    """Make an auxiliary vector with a page size before and an end after."""
    entries = ((6, 4096), (16, hwcap), (26, hwcap2), (0, 0))
    return b"".join(struct.pack(layout, *entry) for entry in entries)


@pytest.mark.parametrize(
    ("machine", "vector", "flags"),
    [
        ("aarch64", auxv(1 << 0 | 1 << 22, 1 << 1 | 1 << 33), {"FP", "SVE", "SVE2", "SVEEBF16"}),
        ("armv7l", auxv(1 << 3 | 1 << 12, 1 << 4, "<II"), {"26BIT", "NEON", "CRC32"}),
        (
            "ppc64le",
            auxv(1 << 31 | 1 << 7 | 1 << 1, 1 << 31 | 1 << 17),
            {"PPC32", "VSX", "TRUE_LE", "ARCH_2_07", "MMA"},
        ),
        ("s390x", auxv(1 << 11 | 1 << 22, 0, ">QQ"), {"VX", "SIE"}),
        ("riscv64", auxv(1, 1), set()),
    ],
)
def test_bits_have_names(machine: str, vector: bytes, flags: set[str]) -> None:
    """Word size and byte order are those of the machine."""
    assert parse_hwcap(vector, machine) == flags


@given(st.binary(), st.sampled_from(MACHINES))
def test_any_vector_is_read(vector: bytes, machine: str) -> None:
    """Half an entry at the end is passed over."""
    assert all(parse_hwcap(vector, machine))
