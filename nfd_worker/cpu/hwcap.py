"""CPU flags of arm, arm64, ppc64le and s390x: the kernel reports them in the auxiliary vector of every process.

Names are those of Node Feature Discovery (most are the kernel's HWCAP_* names); bits are those of the kernel's
``arch/*/include/uapi/asm/hwcap.h`` and ``cputable.h``.
"""

import struct
from collections.abc import Mapping

AUXV = "proc/self/auxv"

_AT_HWCAP = 16
_AT_HWCAP2 = 26

_Names = Mapping[int, str]


def _upwards(names: str) -> _Names:
    return dict(enumerate(names.split()))


def _downwards(names: str) -> _Names:
    """PowerPC numbers its features from the highest bit."""
    return {31 - number: name for number, name in enumerate(names.split())}


TABLES: Mapping[str, tuple[_Names, _Names]] = {
    "aarch64": (
        _upwards(
            "FP ASIMD EVTSTRM AES PMULL SHA1 SHA2 CRC32 ATOMICS FPHP ASIMDHP CPUID ASIMDRDM JSCVT FCMA LRCPC DCPOP SHA3"
            " SM3 SM4 ASIMDDP SHA512 SVE ASIMDFHM DIT USCAT ILRCPC FLAGM SSBS SB PACA PACG"
        ),
        _upwards(
            "DCPODP SVE2 SVEAES SVEPMULL SVEBITPERM SVESHA3 SVESM4 FLAGM2 FRINT SVEI8MM SVEF32MM SVEF64MM SVEBF16 I8MM"
            " BF16 DGH RNG BTI MTE ECV AFP RPRES MTE3 SME SMEI16I64 SMEF64F64 SMEI8I32 SMEF16F32 SMEB16F32 SMEF32F32"
            " SMEFA64 WFXT EBF16 SVEEBF16"
        ),
    ),
    "arm": (
        _upwards(
            "SWP HALF THUMB 26BIT FASTMUL FPA VFP EDSP JAVA IWMMXT CRUNCH THUMBEE NEON VFPv3 VFPv3D16 TLS VFPv4 IDIVA"
            " IDIVT VFPD32 LPAE EVTSTRM"
        ),
        _upwards("AES PMULL SHA1 SHA2 CRC32"),
    ),
    "s390x": (
        _upwards(
            "ESAN3 ZARCH STFLE MSA LDISP EIMM DFP EDAT ETF3EH HIGHGPRS TE VX VXD VXE GS VXE2 VXP SORT DFLT VXP2 NNPA"
            " PCIMIO SIE"
        ),
        {},
    ),
    "ppc64le": (
        {
            **_downwards(
                "PPC32 PPC64 PPC601 ALTIVEC FPU MMU 4xxMAC UCACHE SPE EFPFLOAT EFPDOUBLE NOTB POWER4 POWER5 POWER5+"
                " CELLBE BOOKE SMT IC_SNOOP ARCH_2_05 PA6T DFP POWER6X ARCH_2_06 VSX ARCHPMU"
            ),
            1: "TRUE_LE",
            0: "PPCLE",
        },
        _downwards(
            "ARCH_2_07 HTM DSCR EBB ISEL TAR VCRYPTO HTM-NOSC ARCH_3_00 IEEE128 DARN SCV HTM-NO-SUSPEND ARCH_3_1 MMA"
        ),
    ),
}

_WORDS = {"s390x": ">QQ", "arm": "<II"}
"""Layout of an entry where it is not two little-endian words of 64 bits."""


def parse_hwcap(auxv: bytes, machine: str) -> frozenset[str]:
    """Name the CPU flags in an auxiliary vector, as ``/proc/self/auxv`` has it; none on a machine without a table."""
    family = "arm" if machine.startswith("armv") else machine
    if family not in TABLES:
        return frozenset()
    layout = struct.Struct(_WORDS.get(family, "<QQ"))
    whole = len(auxv) - len(auxv) % layout.size
    words: dict[int, int] = dict(layout.iter_unpack(auxv[:whole]))
    first, second = TABLES[family]
    return _named(words.get(_AT_HWCAP, 0), first) | _named(words.get(_AT_HWCAP2, 0), second)


def _named(word: int, names: _Names) -> frozenset[str]:
    return frozenset(name for bit, name in names.items() if word >> bit & 1)
