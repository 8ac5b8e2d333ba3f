"""Who made the CPU, which one it is, and below which hypervisor it runs: the attributes of ``cpu.model``."""

import re
from collections.abc import Mapping

from nfd_worker.cpu.cpuid import Cpuid, words_as_text
from nfd_worker.host import Host

UNKNOWN_VENDOR = "VendorUnknown"

UNKNOWN_MODEL: Mapping[str, str] = {"vendor_id": UNKNOWN_VENDOR, "family": "0", "id": "0"}
"""What Node Feature Discovery says of a CPU that it does not recognise, such as IBM Power."""

X86_VENDORS: Mapping[str, str] = {
    "GenuineIntel": "Intel",
    "AuthenticAMD": "AMD",
    "AMDisbetter!": "AMD",
    "HygonGenuine": "Hygon",
    "CentaurHauls": "VIA",
    "VIA VIA VIA": "VIA",
    "TransmetaCPU": "Transmeta",
    "GenuineTMx86": "Transmeta",
    "Geode by NSC": "NSC",
    "Vortex86 SoC": "SiS",
    "SiS SiS SiS": "SiS",
    "RiseRiseRise": "SiS",
    "Genuine  RDC": "RDC",
    "Shanghai": "Zhaoxin",
}
"""What CPUID says, without blanks at the ends, which /proc/cpuinfo lacks."""

HYPERVISORS: Mapping[str, str] = {
    "KVMKVMKVM": "kvm",
    "Linux KVM Hv": "kvm",
    "Microsoft Hv": "msvm",
    "VMwareVMware": "vmware",
    "XenVMMXenVMM": "xenhvm",
    "TCGTCGTCGTCG": "qemu",
    "bhyve bhyve ": "bhyve",
    "ACRNACRNACRN": "acrn",
    "QNXQVMBSQG": "qnx",
    "SRESRESRESRE": "sre",
    "Apple VZ": "apple",
}

ARM_IMPLEMENTERS: Mapping[int, str] = {
    0x41: "ARM", 0x42: "Broadcom", 0x43: "Cavium", 0x44: "DEC", 0x46: "Fujitsu", 0x48: "HiSilicon", 0x49: "Infineon",
    0x4D: "Motorola", 0x4E: "NVIDIA", 0x50: "AMCC", 0x51: "Qualcomm", 0x53: "Samsung", 0x56: "Marvell", 0x61: "Apple",
    0x66: "Faraday", 0x69: "Intel", 0x6D: "Microsoft", 0x70: "Phytium", 0xC0: "Ampere",
}  # fmt: skip
"""MIDR_EL1 bits 31:24 (Arm Architecture Reference Manual; Linux, arch/arm64/include/asm/cputype.h)."""

_MIDR = "sys/devices/system/cpu/cpu0/regs/identification/midr_el1"


def x86_model(cpuid: Cpuid) -> dict[str, str]:
    """Read the model of an x86 CPU from the CPU itself."""
    family, model = cpuid.family_and_model
    has_hypervisor = bool(cpuid.leaf(1).ecx >> 31 & 1)
    return x86_attributes(
        vendor_signature=cpuid.vendor_signature,
        family=str(family),
        model=str(model),
        hypervisor=hypervisor_name(_hypervisor_signature(cpuid)) if has_hypervisor else "none",
    )


def x86_model_of_cpuinfo(fields: Mapping[str, str], flags: frozenset[str]) -> dict[str, str]:
    """Read the model of an x86 CPU from the first processor of /proc/cpuinfo, which does not name the hypervisor."""
    return x86_attributes(
        vendor_signature=fields.get("vendor_id", ""),
        family=fields.get("cpu family", "0"),
        model=fields.get("model", "0"),
        hypervisor="unknown" if "HYPERVISOR" in flags else "none",
    )


def x86_attributes(*, vendor_signature: str, family: str, model: str, hypervisor: str) -> dict[str, str]:
    """Put the four attributes together; family and model are decimal."""
    vendor = X86_VENDORS.get(vendor_signature.strip(), UNKNOWN_VENDOR)
    return {"vendor_id": vendor, "family": family, "id": model, "hypervisor": hypervisor}


def hypervisor_name(signature: str) -> str:
    """Name a hypervisor by its signature; an unknown one keeps its signature, as far as a label value can hold it."""
    return HYPERVISORS.get(signature) or sanitise(signature) or "unknown"


def arm64_model(host: Host, flags: frozenset[str], cpuinfo: str) -> Mapping[str, str]:
    """Decode MIDR_EL1: from sysfs (Linux 4.7), else put together from /proc/cpuinfo."""
    if "CPUID" not in flags:
        return UNKNOWN_MODEL
    reported = host.find_int(_MIDR)
    return decode_midr(midr_of_cpuinfo(parse_cpuinfo(cpuinfo)) if reported is None else reported)


def decode_midr(midr: int) -> dict[str, str]:
    """Split MIDR_EL1 the way the published labels do: family is bits 23:16, id is bits 15:0."""
    vendor = ARM_IMPLEMENTERS.get(midr >> 24 & 0xFF, UNKNOWN_VENDOR)
    return {"vendor_id": vendor, "family": str(midr >> 16 & 0xFF), "id": str(midr & 0xFFFF)}


def midr_of_cpuinfo(fields: Mapping[str, str]) -> int:
    """Put MIDR_EL1 together from its parts in /proc/cpuinfo; architecture is 0xf on all arm64 CPUs.

    A part that is missing or no number is 0: it makes an unknown CPU, and takes no flags.
    """

    def number(name: str) -> int:
        try:
            return int(fields.get(name, "0"), 0)
        except ValueError:
            return 0

    variant, part = number("CPU variant"), number("CPU part")
    return number("CPU implementer") << 24 | variant << 20 | 0xF << 16 | part << 4 | number("CPU revision")


def s390x_model(host: Host, cpuinfo: str) -> dict[str, str]:
    """Read the model of a mainframe from /proc/cpuinfo, and its hypervisor from /proc/sysinfo."""
    identification = re.search(r"identification = (\w+)", cpuinfo)
    machine = re.search(r"machine = (\w+)", cpuinfo)
    control_program = re.search(r"^.*Control Program:[ \t]*(\S.*)$", host.find("proc/sysinfo") or "", re.MULTILINE)
    return {
        "vendor_id": sanitise(parse_cpuinfo(cpuinfo).get("vendor_id", "")) or UNKNOWN_VENDOR,
        "family": identification[1] if identification else "0",
        "id": machine[1] if machine else "0",
        "hypervisor": sanitise(control_program[1]) if control_program else "none",
    }


def parse_cpuinfo(text: str) -> dict[str, str]:
    """Read the fields of the first processor in /proc/cpuinfo, which ends at the first empty line."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if not colon and fields:
            break
        if colon:
            fields.setdefault(name.strip(), value.strip())
    return fields


def sanitise(text: str) -> str:
    """Make a label value of a name: each run of other characters becomes one ``_``."""
    return re.sub(r"[^-A-Za-z0-9_.]+", "_", text.strip()).strip("-_.")


def _hypervisor_signature(cpuid: Cpuid) -> str:
    _, ebx, ecx, edx = cpuid.leaf(0x40000000)
    return words_as_text(ebx, ecx, edx)
