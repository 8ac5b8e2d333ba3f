"""From CPUID leaves to flag names: the names of klauspost/cpuid, which Node Feature Discovery publishes.

Tables of (leaf, subleaf, register) -> {bit: flag}; what needs more than its bit stands in the functions below them.
Bits are those of the Intel SDM volume 2A, *CPUID*, and the AMD APM volume 3, appendix E; names and conditions follow
klauspost/cpuid 2.4.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from nfd_worker.cpu.cpuid import Cpuid

INTEL = "GenuineIntel"
AMD = ("AuthenticAMD", "AMDisbetter!")


class Table(NamedTuple):
    """The flags in one register of one leaf."""

    leaf: int
    subleaf: int
    register: str
    names: Mapping[int, str]


def _names(first_bit: int, names: str) -> Mapping[int, str]:
    """Number names upwards from a bit."""
    return dict(enumerate(names.split(), first_bit))


ALWAYS = (
    Table(1, 0, "edx", {0: "X87", 8: "CMPXCHG8", 11: "SYSEE", 15: "CMOV", 23: "MMX", 24: "FXSR", 25: "SSE",
                        26: "SSE2"}),
    Table(1, 0, "edx", {25: "FXSROPT"}),  # the library reads this AMD flag from Intel's SSE bit, too
    Table(1, 0, "ecx", {0: "SSE3", 1: "CLMUL", 5: "VMX", 9: "SSSE3", 13: "CX16", 19: "SSE4", 20: "SSE42", 22: "MOVBE",
                        23: "POPCNT", 25: "AESNI", 26: "XSAVE", 27: "OSXSAVE", 29: "F16C", 30: "RDRAND",
                        31: "HYPERVISOR"}),
    Table(7, 0, "ebx", {2: "SGX", 3: "BMI1", 4: "HLE", 9: "ERMS", 11: "RTM", 14: "MPX", 18: "RDSEED", 19: "ADX",
                        29: "SHA"}),
    Table(7, 0, "ecx", {5: "WAITPKG", 7: "CETSS", 8: "GFNI", 9: "VAES", 10: "VPCLMULQDQ", 13: "TME", 23: "KEYLOCKER",
                        25: "CLDEMOTE", 27: "MOVDIRI", 28: "MOVDIR64B", 29: "ENQCMD", 30: "SGXLC"}),
    Table(7, 0, "edx", {4: "FSRM", 9: "SRBDS_CTRL", 10: "MD_CLEAR", 11: "RTM_ALWAYS_ABORT", 14: "SERIALIZE",
                        15: "HYBRID_CPU", 16: "TSXLDTRK", 18: "PCONFIG", 20: "CETIBT", 26: "IBPB", 27: "STIBP",
                        28: "FLUSH_L1D", 29: "IA32_ARCH_CAP", 30: "IA32_CORE_CAP", 31: "SPEC_CTRL_SSBD"}),
    Table(7, 1, "eax", {1: "SM3_X86", 2: "SM4_X86", 7: "CMPCCXADD", 10: "MOVSB_ZL", 11: "STOSB_SHORT",
                        12: "CMPSB_SCADBS_SHORT", 22: "HRESET", 23: "AVXIFMA", 26: "LAM"}),
    Table(7, 1, "edx", {4: "AVXVNNIINT8", 5: "AVXNECONVERT", 6: "AMXTRANSPOSE", 7: "AMXTF32", 8: "AMXCOMPLEX",
                        10: "AVXVNNIINT16", 14: "PREFETCHI", 19: "AVX10", 21: "APX_F"}),
    Table(7, 2, "edx", {0: "PSFD", 1: "IDPRED_CTRL", 2: "RRSBA_CTRL", 4: "BHI_CTRL", 5: "MCDT_NO"}),
    Table(0x80000001, 0, "ecx", {0: "LAHF", 2: "SVM", 5: "LZCNT", 6: "SSE4A", 10: "IBS", 22: "TOPEXT"}),
    Table(0x80000001, 0, "ecx", {5: "POPCNT"}),  # the LZCNT bit is AMD's ABM, which comprises POPCNT
    Table(0x80000001, 0, "edx", {11: "SYSCALL", 20: "NX", 22: "MMXEXT", 23: "MMX", 24: "FXSR", 25: "FXSROPT",
                                 27: "RDTSCP", 30: "AMD3DNOWEXT", 31: "AMD3DNOW"}),
    Table(0x80000007, 0, "ebx", _names(0, "MCAOVERFLOW SUCCOR HWA")),
    Table(0x80000007, 0, "edx", {9: "CPBOOST"}),
    Table(0x80000008, 0, "ebx", {0: "CLZERO", 1: "MSRIRC", 3: "INVLPGB", 4: "RDPRU", 8: "MCOMMIT", 9: "WBNOINVD",
                                 12: "IBPB", 13: "INT_WBINVD", 14: "IBRS", 15: "STIBP", 17: "STIBP_ALWAYSON",
                                 18: "IBRS_PREFERRED", 19: "IBRS_PROVIDES_SMP", 20: "EFER_LMSLE_UNS",
                                 21: "TLB_FLUSH_NESTED", 23: "PPIN", 24: "SPEC_CTRL_SSBD", 27: "CPPC", 28: "PSFD"}),
    Table(0x8000001A, 0, "eax", _names(0, "FP128 MOVU FP256")),
)  # fmt: skip

WITH_AVX = (
    Table(7, 0, "ebx", {5: "AVX2"}),
    Table(7, 1, "eax", {4: "AVXVNNI"}),
    Table(0x80000001, 0, "ecx", {11: "XOP", 16: "FMA4"}),
)

WITH_AVX512_STATE = (
    Table(7, 0, "ebx", {16: "AVX512F", 17: "AVX512DQ", 21: "AVX512IFMA", 26: "AVX512PF", 27: "AVX512ER",
                        28: "AVX512CD", 30: "AVX512BW", 31: "AVX512VL"}),
    Table(7, 0, "ecx", {1: "AVX512VBMI", 3: "AMXFP8", 6: "AVX512VBMI2", 11: "AVX512VNNI", 12: "AVX512BITALG",
                        14: "AVX512VPOPCNTDQ"}),
    Table(7, 0, "edx", {8: "AVX512VP2INTERSECT", 22: "AMXBF16", 23: "AVX512FP16", 24: "AMXTILE", 25: "AMXINT8"}),
    Table(7, 1, "eax", {5: "AVX512BF16", 19: "WRMSRNS", 21: "AMXFP16", 27: "MSRLIST"}),
)  # fmt: skip

WITH_XSAVE = (Table(0xD, 1, "eax", _names(0, "XSAVEOPT XSAVEC XGETBV1 XSAVES")),)
WITH_SGX = (Table(0x12, 0, "eax", {12: "SGXPQC"}),)
WITH_AVX10 = (Table(0x24, 0, "ebx", _names(16, "AVX10_128 AVX10_256 AVX10_512")),)
WITH_SVM = (
    Table(0x8000000A, 0, "edx", {**_names(0, "SVMNP LBRVIRT SVML NRIPS TSCRATEMSR VMCBCLEAN SVMFBASID SVMDA"),
                                 10: "SVMPF", 12: "SVMPFT"}),
)  # fmt: skip
WITH_IBS = (
    Table(0x8000001B, 0, "eax", _names(0, "IBSFFV IBSFETCHSAM IBSOPSAM IBSRDWROPCNT IBSOPCNT IBSBRNTRGT IBSOPCNTEXT"
                                          " IBSRIPINVALIDCHK IBS_OPFUSE IBS_FETCH_CTLX IBS_OPDATA4 IBS_ZEN4")),
)  # fmt: skip
ON_AMD = (
    Table(0x8000001F, 0, "eax", {0: "SME", 1: "SEV", 2: "MSR_PAGEFLUSH", 3: "SEV_ES", 4: "SEV_SNP", 5: "VMPL",
                                 10: "SME_COHERENT", 11: "SEV_64BIT", 12: "SEV_RESTRICTED", 13: "SEV_ALTERNATIVE",
                                 14: "SEV_DEBUGSWAP", 15: "IBS_PREVENTHOST", 16: "VTE", 24: "VMSA_REGPROT"}),
    Table(0x80000021, 0, "eax", {5: "TSA_VERW_CLEAR", 23: "AVX512BMM", 27: "SBPB", 28: "IBPB_BRTYPE", 29: "SRSO_NO",
                                 30: "SRSO_USER_KERNEL_NO", 31: "SRSO_MSR_FIX"}),
    Table(0x80000021, 0, "ecx", {1: "TSA_L1_NO", 2: "TSA_SQ_NO"}),
)  # fmt: skip

COMPUTED = ("AVX", "AVXSLOW", "BMI2", "FMA3", "HTT", "KEYLOCKERW", "TDX_GUEST")
"""Flags that need more than their bit."""


def find_flags(cpuid: Cpuid) -> frozenset[str]:
    """Name all flags of this CPU, with X86_64_V1 up to its microarchitecture level (x86-64 psABI)."""
    flags = set(_read(cpuid, ALWAYS))
    flags.update(_leaf_1_extras(cpuid, flags))
    gates = (
        (WITH_AVX, "AVX" in flags),
        (WITH_AVX512_STATE, "OSXSAVE" in flags and cpuid.xcr0 & 0xE6 == 0xE6),
        (WITH_XSAVE, "XSAVE" in flags),
        (WITH_SGX, "SGX" in flags),
        (WITH_AVX10, "AVX10" in flags),
        (WITH_SVM, "SVM" in flags),
        (WITH_IBS, "IBS" in flags),
        (ON_AMD, cpuid.vendor_signature in AMD),
    )
    for tables, is_open in gates:
        if is_open:
            flags.update(_read(cpuid, tables))
    flags.update(_leaf_7_extras(cpuid, flags))
    flags.update(_tsa_extras(cpuid))
    if _is_tdx_guest(cpuid):
        flags.add("TDX_GUEST")
    return frozenset(flags).union(x86_64_level_flags(x86_64_level(flags)))


def avx10_version(cpuid: Cpuid) -> int:
    """Read the AVX10 level; 0 without AVX10."""
    return cpuid.leaf(0x24).ebx & 0xFF if cpuid.leaf(7, 1).edx >> 19 & 1 else 0


LEVELS = (
    frozenset({"CMOV", "CMPXCHG8", "X87", "FXSR", "MMX", "SSE", "SSE2"}),
    frozenset({"CX16", "LAHF", "POPCNT", "SSE3", "SSE4", "SSE42", "SSSE3"}),
    frozenset({"AVX", "AVX2", "BMI1", "BMI2", "F16C", "FMA3", "LZCNT", "MOVBE", "OSXSAVE"}),
    frozenset({"AVX512F", "AVX512BW", "AVX512CD", "AVX512DQ", "AVX512VL"}),
)


def x86_64_level(flags: set[str] | frozenset[str]) -> int:
    """Find the highest x86-64 microarchitecture level whose flags, and those of all levels below, are there; else 0."""
    if not flags & {"SYSEE", "SYSCALL"}:
        return 0
    for level, needed in enumerate(LEVELS):
        if not needed <= flags:
            return level
    return len(LEVELS)


def x86_64_level_flags(level: int) -> frozenset[str]:
    """Name a level and all below it."""
    return frozenset(f"X86_64_V{number}" for number in range(1, level + 1))


def threads_per_core(cpuid: Cpuid) -> int:
    """Count the hardware threads of a core, as far as Intel and AMD CPUs report them."""
    is_amd = cpuid.vendor_signature in AMD
    if cpuid.max_leaf < 4 or not (is_amd or cpuid.vendor_signature == INTEL):
        return 1
    if cpuid.max_leaf >= 0xB:
        threads = cpuid.leaf(0xB).ebx & 0xFFFF
        return threads or (_threads_of_zen(cpuid) if is_amd else 1)
    logical = cpuid.leaf(1).ebx >> 16 & 0xFF
    cores = (cpuid.leaf(4).eax >> 26) + 1
    return 1 if is_amd or logical <= 1 else logical // cores


def _threads_of_zen(cpuid: Cpuid) -> int:
    if cpuid.family_and_model[0] < 0x17 or not _has_htt_bit(cpuid):
        return 1
    return (cpuid.leaf(0x8000001E).ebx >> 8 & 0xFF) + 1 if cpuid.max_extended_leaf >= 0x8000001E else 2


def _read(cpuid: Cpuid, tables: tuple[Table, ...]) -> Iterator[str]:
    for table in tables:
        value = getattr(cpuid.leaf(table.leaf, table.subleaf), table.register)
        yield from (name for bit, name in table.names.items() if value >> bit & 1)


def _has_htt_bit(cpuid: Cpuid) -> bool:
    return bool(cpuid.leaf(1).edx >> 28 & 1)


def _leaf_1_extras(cpuid: Cpuid, flags: set[str]) -> Iterator[str]:
    ecx = cpuid.leaf(1).ecx
    if {"XSAVE", "OSXSAVE"} <= flags and ecx >> 28 & 1 and cpuid.xcr0 & 6 == 6:
        yield "AVX"
        if _is_avx_slow(cpuid):
            yield "AVXSLOW"
    if "OSXSAVE" in flags and ecx >> 12 & 1:
        yield "FMA3"
    if _has_htt_bit(cpuid) and threads_per_core(cpuid) > 1:
        yield "HTT"


def _is_avx_slow(cpuid: Cpuid) -> bool:
    """Return whether 256 bit operations are split in two: before Haswell and before Zen 2."""
    family, model = cpuid.family_and_model
    if cpuid.vendor_signature == INTEL:
        return family == 6 and model < 60
    return cpuid.vendor_signature in AMD and (family < 23 or (family == 23 and model < 49))


def _leaf_7_extras(cpuid: Cpuid, flags: set[str]) -> Iterator[str]:
    if "BMI1" in flags and cpuid.leaf(7).ebx >> 8 & 1:
        yield "BMI2"
    if "KEYLOCKER" in flags and cpuid.leaf(0x19).ebx & 0b101 == 0b101:
        yield "KEYLOCKERW"


def _tsa_extras(cpuid: Cpuid) -> tuple[str, ...]:
    """AMD CPUs that Transient Scheduler Attacks do not concern, but whose CPUID is too old to say so (AMD-SB-7029)."""
    family, model = cpuid.family_and_model
    is_unaffected = family < 0x19 or (family == 0x1A and (model <= 0x4F or 0x60 <= model <= 0x7F))
    return ("TSA_L1_NO", "TSA_SQ_NO") if cpuid.vendor_signature in AMD and is_unaffected else ()


def _is_tdx_guest(cpuid: Cpuid) -> bool:
    """It is in Intel's own leaf, except below Hyper-V, which hides that leaf and has one of its own."""
    if cpuid.max_leaf >= 0x20 and cpuid.leaf(0x4000000C).ebx == 0xBE3:
        return True
    _, ebx, ecx, edx = cpuid.leaf(0x21)
    return (ebx, edx, ecx) == (0x65746E49, 0x5844546C, 0x20202020)  # "Inte" "lTDX" "    "


# --- /proc/cpuinfo ----------------------------------------------------------------------------------------------------

KERNEL_NAMES = dict(re.findall(r"(\w+)=(\w+)", """
    fpu=X87 cx8=CMPXCHG8 sep=SYSEE pni=SSE3 pclmulqdq=CLMUL sse4_1=SSE4 sse4_2=SSE42 aes=AESNI fma=FMA3 abm=LZCNT
    lahf_lm=LAHF fxsr_opt=FXSROPT 3dnow=AMD3DNOW 3dnowext=AMD3DNOWEXT topoext=TOPEXT cpb=CPBOOST sha_ni=SHA
    user_shstk=CETSS ibt=CETIBT sgx_lc=SGXLC arch_capabilities=IA32_ARCH_CAP core_capabilities=IA32_CORE_CAP
    ssbd=SPEC_CTRL_SSBD sm3=SM3_X86 sm4=SM4_X86 fzrm=MOVSB_ZL fsrs=STOSB_SHORT fsrc=CMPSB_SCADBS_SHORT
    overflow_recov=MCAOVERFLOW irperf=MSRIRC intel_ppin=PPIN amd_ppin=PPIN amd_psfd=PSFD npt=SVMNP lbrv=LBRVIRT
    svm_lock=SVML nrip_save=NRIPS tsc_scale=TSCRATEMSR vmcb_clean=VMCBCLEAN flushbyasid=SVMFBASID
    decodeassists=SVMDA pausefilter=SVMPF pfthreshold=SVMPFT apx=APX_F
    avx512_bf16=AVX512BF16 avx512_bitalg=AVX512BITALG avx512_fp16=AVX512FP16 avx512_vbmi2=AVX512VBMI2
    avx512_vnni=AVX512VNNI avx512_vp2intersect=AVX512VP2INTERSECT avx512_vpopcntdq=AVX512VPOPCNTDQ
    avx_ifma=AVXIFMA avx_ne_convert=AVXNECONVERT avx_vnni=AVXVNNI avx_vnni_int16=AVXVNNIINT16
    avx_vnni_int8=AVXVNNIINT8 amx_bf16=AMXBF16 amx_complex=AMXCOMPLEX amx_fp16=AMXFP16 amx_int8=AMXINT8
    amx_tile=AMXTILE
"""))  # fmt: skip
"""The kernel's name (arch/x86/include/asm/cpufeatures.h) where it is not ours in lower case."""

_LIBRARY_NAMES = frozenset(
    name
    for tables in (ALWAYS, WITH_AVX, WITH_AVX512_STATE, WITH_XSAVE, WITH_SVM, ON_AMD)
    for table in tables
    for name in table.names.values()
) | {"AVX", "BMI2", "TDX_GUEST"}


def flags_of_cpuinfo(kernel_flags: frozenset[str]) -> frozenset[str]:
    """Translate the ``flags`` of /proc/cpuinfo: the kernel's view, where nothing lets us ask the CPU itself."""
    flags = {KERNEL_NAMES.get(name, name.upper()) for name in kernel_flags} & _LIBRARY_NAMES.union(
        KERNEL_NAMES.values()
    )
    if "SSE" in flags:
        flags.add("FXSROPT")
    if "XSAVE" in flags:
        flags.add("OSXSAVE")  # the kernel clears xsave when it does not use it
    return frozenset(flags | x86_64_level_flags(x86_64_level(flags)))
