"""Ask the CPU itself: the CPUID instruction from Python, without a C extension.

/proc/cpuinfo shows what the kernel uses; Node Feature Discovery labels what the CPU has, and the two differ. Three ways
lead there, tried in this order, because no single one is open everywhere:

1. a memfd with the machine code, mapped read + execute: passes W^X rules (systemd's MemoryDenyWriteExecute, SELinux)
2. an anonymous page, written and then turned read + execute: where memfds may not be executed
3. glibc's copy of what it asked at start-up (``__x86_get_cpuid_feature_leaf``, glibc 2.33): a few leaves only

The leaves are described in the Intel SDM volume 2A, *CPUID*, and the AMD APM volume 3, appendix E.
"""

import ctypes
import logging
import mmap
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

log = logging.getLogger(__name__)

_EXTENDED = 0x80000000
_HYPERVISOR = 0x40000000


class Registers(NamedTuple):
    """What one leaf answers; each 32 bits."""

    eax: int = 0
    ebx: int = 0
    ecx: int = 0
    edx: int = 0


NOTHING = Registers()

ReadLeaf = Callable[[int, int], Registers]
"""(leaf, subleaf) -> registers."""


class Cpuid:
    """The CPUID leaves of one CPU, and XCR0: the register states that the operating system saves."""

    def __init__(self, read: ReadLeaf, *, xcr0: int, way: str) -> None:
        self._read = read
        self._seen: dict[tuple[int, int], Registers] = {}
        self.xcr0 = xcr0
        self.way = way
        self.max_leaf = read(0, 0).eax
        self.max_extended_leaf = read(_EXTENDED, 0).eax

    def leaf(self, leaf: int, subleaf: int = 0) -> Registers:
        """Read a leaf; all zero above the highest one, where Intel CPUs would answer with some other leaf."""
        if not self._has(leaf):
            return NOTHING
        # Below a hypervisor each CPUID is a trip out of the guest, 20 to 70 microseconds.
        if (leaf, subleaf) not in self._seen:
            self._seen[leaf, subleaf] = self._read(leaf, subleaf)
        return self._seen[leaf, subleaf]

    def _has(self, leaf: int) -> bool:
        if leaf >= _EXTENDED:
            return leaf <= self.max_extended_leaf
        return leaf <= self.max_leaf or leaf >= _HYPERVISOR

    @property
    def vendor_signature(self) -> str:
        """``GenuineIntel``, ``AuthenticAMD``: twelve characters."""
        _, ebx, ecx, edx = self.leaf(0)
        return words_as_text(ebx, edx, ecx)

    @property
    def family_and_model(self) -> tuple[int, int]:
        """The display family and model, extended parts added in."""
        eax = self.leaf(1).eax
        family, model = eax >> 8 & 0xF, eax >> 4 & 0xF
        if family in (0x6, 0xF):
            model += eax >> 12 & 0xF0
        if family == 0xF:
            family += eax >> 20 & 0xFF
        return family, model


def words_as_text(*words: int) -> str:
    """Turn registers into the text they spell, without trailing NULs."""
    raw = b"".join(word.to_bytes(4, "little") for word in words)
    return raw.rstrip(b"\0").decode("latin-1")


# --- a recorded answer ------------------------------------------------------------------------------------------------

_DUMP_LINE = re.compile(r"^\s*0x([0-9a-f]+) 0x([0-9a-f]+): eax=0x([0-9a-f]+) ebx=0x([0-9a-f]+) ecx=0x([0-9a-f]+)"
                        r" edx=0x([0-9a-f]+)", re.MULTILINE)  # fmt: skip
_DUMP_XCR0 = re.compile(r"^\s*xcr0=0x([0-9a-f]+)", re.MULTILINE)


def parse_dump(text: str) -> Cpuid:
    """Read a recorded CPU, as ``cpuid -1 -r`` prints it (Todd Allen's tool), with an optional line ``xcr0=0x7``.

    Without that line XCR0 is what the CPU supports (leaf 0xD): Linux turns all of it on by default.
    """
    leaves: dict[tuple[int, int], Registers] = {}
    for match in _DUMP_LINE.finditer(text):
        leaf, subleaf, *registers = (int(word, 16) for word in match.groups())
        leaves[leaf, subleaf] = Registers(*registers)
    reported = _DUMP_XCR0.search(text)
    xcr0 = int(reported[1], 16) if reported else leaves.get((0xD, 0), NOTHING).eax
    return Cpuid(lambda leaf, subleaf: leaves.get((leaf, subleaf), NOTHING), xcr0=xcr0, way="recorded dump")


# --- this CPU ---------------------------------------------------------------------------------------------------------


@contextmanager
def this_cpu(vendor_signature: str) -> Iterator[Cpuid | None]:
    """Open the CPU this process runs on; None when nothing lets us ask it.

    The process stays on one CPU while the block runs, so that all leaves of a hybrid part come from the same core.
    ``vendor_signature`` (of /proc/cpuinfo) stands in for leaf 0 where only glibc's copy is to be had.
    """
    with _pinned_to_one_cpu():
        for way, map_code in (("memfd", _map_memfd), ("anonymous page", _map_anonymous)):
            try:
                code = map_code()
            except OSError as error:
                log.debug("CPUID through a %s is not allowed here: %s", way, error)
                continue
            try:
                yield _cpuid_from_code(code, way)
            finally:
                _libc().munmap(ctypes.c_void_p(code), mmap.PAGESIZE)
            return
        yield _cpuid_from_glibc(vendor_signature)


# void cpuid(uint32_t leaf /* edi */, uint32_t subleaf /* esi */, uint32_t registers[4] /* rdx */)
_CPUID_CODE = bytes.fromhex(
    "f30f1efa"  # endbr64
    "53"  # push rbx: callee-saved, and cpuid overwrites it
    "4989d0"  # mov r8, rdx: so is rdx
    "89f8"  # mov eax, edi
    "89f1"  # mov ecx, esi
    "0fa2"  # cpuid
    "418900"  # mov [r8], eax
    "41895804"  # mov [r8+4], ebx
    "41894808"  # mov [r8+8], ecx
    "4189500c"  # mov [r8+12], edx
    "5b"  # pop rbx
    "c3"  # ret
)

# uint64_t xgetbv(void): XCR0. May only run where OSXSAVE (leaf 1, ECX bit 27) is set.
_XGETBV_CODE = bytes.fromhex(
    "f30f1efa"  # endbr64
    "31c9"  # xor ecx, ecx
    "0f01d0"  # xgetbv
    "48c1e220"  # shl rdx, 32
    "4809d0"  # or rax, rdx
    "c3"  # ret
)
_XGETBV_OFFSET = 64
_CODE = _CPUID_CODE.ljust(_XGETBV_OFFSET, b"\xcc") + _XGETBV_CODE

_MAP_FAILED = ctypes.c_void_p(-1).value
_MFD_NOEXEC_SEAL = 0x8
"""Linux 6.3; without it (or its opposite) the kernel warns. It forbids chmod +x, not an executable mapping."""


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    return libc


def _mmap(protection: int, flags: int, descriptor: int = -1) -> int:
    address = _libc().mmap(None, mmap.PAGESIZE, protection, flags, descriptor, 0)
    if address == _MAP_FAILED:
        raise _last_error()
    return int(address)


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


def _map_memfd() -> int:
    try:
        descriptor = os.memfd_create("cpuid", os.MFD_CLOEXEC | _MFD_NOEXEC_SEAL)
    except OSError:
        descriptor = os.memfd_create("cpuid", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, _CODE)
        return _mmap(mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE, descriptor)
    finally:
        os.close(descriptor)


def _map_anonymous() -> int:
    address = _mmap(mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    ctypes.memmove(address, _CODE, len(_CODE))
    if _libc().mprotect(ctypes.c_void_p(address), mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC):
        error = _last_error()
        _libc().munmap(ctypes.c_void_p(address), mmap.PAGESIZE)
        raise error
    return address


def _cpuid_from_code(code: int, way: str) -> Cpuid:
    registers = (ctypes.c_uint32 * 4)()
    function = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)(code)

    def read(leaf: int, subleaf: int) -> Registers:
        function(leaf, subleaf, ctypes.addressof(registers))
        return Registers(*registers)

    has_osxsave = read(1, 0).ecx >> 27 & 1
    xgetbv = ctypes.CFUNCTYPE(ctypes.c_uint64)(code + _XGETBV_OFFSET)
    return Cpuid(read, xcr0=xgetbv() if has_osxsave else 0, way=way)


@contextmanager
def _pinned_to_one_cpu() -> Iterator[None]:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
    except OSError:
        # Some seccomp filters refuse it. Then the leaves come from whatever core runs us: wrong on hybrid parts alone.
        yield
        return
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


# --- glibc's copy -----------------------------------------------------------------------------------------------------

_GLIBC_LEAVES: Mapping[tuple[int, int], int] = {
    (1, 0): 0, (7, 0): 1, (0x80000001, 0): 2, (0xD, 1): 3, (0x80000007, 0): 4, (0x80000008, 0): 5, (7, 1): 6,
    (0x19, 0): 7, (0x14, 0): 8,
}  # fmt: skip
"""Index of each leaf in glibc's ``enum`` of <sys/platform/x86.h>."""

_ACTIVE = 4
"""Each glibc leaf is four words of the CPU and then four of what is also usable."""


def _cpuid_from_glibc(vendor_signature: str) -> Cpuid | None:
    try:
        get_leaf = ctypes.CDLL(None).__x86_get_cpuid_feature_leaf
    except AttributeError:
        log.debug("CPUID through glibc: this C library keeps no copy")
        return None
    get_leaf.restype = ctypes.POINTER(ctypes.c_uint32 * 8)
    vendor = vendor_signature.encode("latin-1", "replace").ljust(12, b"\0")
    ebx, edx, ecx = (int.from_bytes(vendor[start : start + 4], "little") for start in (0, 4, 8))
    made_up = {(0, 0): Registers(0x19, ebx, ecx, edx), (_EXTENDED, 0): Registers(0x80000008)}

    def read(leaf: int, subleaf: int) -> Registers:
        if (leaf, subleaf) not in _GLIBC_LEAVES:
            return made_up.get((leaf, subleaf), NOTHING)
        return Registers(*get_leaf(_GLIBC_LEAVES[leaf, subleaf]).contents[:_ACTIVE])

    avx = get_leaf(_GLIBC_LEAVES[1, 0]).contents[_ACTIVE + 2] >> 28 & 1
    avx512 = get_leaf(_GLIBC_LEAVES[7, 0]).contents[_ACTIVE + 1] >> 16 & 1
    return Cpuid(read, xcr0=0x7 * avx | 0xE0 * avx512, way="glibc")
