"""Who made the CPU: x86, arm64, s390x."""

from pathlib import Path

import pytest

from nfd_worker.cpu.cpu_model import (
    arm64_model,
    decode_midr,
    hypervisor_name,
    midr_of_cpuinfo,
    parse_cpuinfo,
    s390x_model,
    x86_attributes,
    x86_model,
    x86_model_of_cpuinfo,
)
from nfd_worker.cpu.cpuid import parse_dump
from tests.support.nfd_worker.trees import HOSTS, host

S390X = """vendor_id       : IBM/S390
# processors    : 2
features\t: esan3 zarch
processor 0: version = 00,  identification = 0133E8,  machine = 2964
processor 1: version = 00,  identification = 0133E8,  machine = 2964
"""

ARM = """processor\t: 0
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

processor\t: 1
CPU implementer\t: 0x42
"""


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        ("KVMKVMKVM", "kvm"),
        ("Microsoft Hv", "msvm"),
        ("TCGTCGTCGTCG", "qemu"),
        ("My Own Hv!", "My_Own_Hv"),
        ("", "unknown"),
    ],
)
def test_hypervisors_have_names(signature: str, name: str) -> None:
    """Known hypervisors get upstream's names; an unknown one keeps its own."""
    assert hypervisor_name(signature) == name


def test_an_x86_cpu_reports_its_model() -> None:
    """The model of a CPU recorded under KVM is read from /proc/cpuinfo."""
    cpuid = parse_dump((HOSTS / "intel-gpu-server/recorded/cpuid.txt").read_text())
    assert x86_model(cpuid) == {"vendor_id": "Intel", "family": "6", "id": "167", "hypervisor": "kvm"}


def test_cpuinfo_stands_in_for_it() -> None:
    """Without CPUID the model is read from /proc/cpuinfo, which does not name the hypervisor."""
    fields = {"vendor_id": "AuthenticAMD", "cpu family": "25", "model": "1"}
    expected = {"vendor_id": "AMD", "family": "25", "id": "1", "hypervisor": "none"}
    assert x86_model_of_cpuinfo(fields, frozenset()) == expected
    assert x86_model_of_cpuinfo(fields, frozenset({"HYPERVISOR"})) == {**expected, "hypervisor": "unknown"}
    assert x86_model_of_cpuinfo({}, frozenset())["vendor_id"] == "VendorUnknown"


def test_an_arm64_cpu_is_named_by_its_midr(tmp_path: Path) -> None:
    """From sysfs, and else from /proc/cpuinfo: both say the same."""
    flags = frozenset({"CPUID"})
    expected = {"vendor_id": "ARM", "family": "63", "id": str(0xD0C1)}
    midr = "sys/devices/system/cpu/cpu0/regs/identification/midr_el1"
    assert arm64_model(host(tmp_path, {midr: "0x00000000413fd0c1\n"}), flags, "") == expected
    assert arm64_model(host(tmp_path / "old", {}), flags, ARM) == expected
    assert arm64_model(host(tmp_path / "old", {}), frozenset(), ARM)["vendor_id"] == "VendorUnknown"
    assert decode_midr(0x99000000)["vendor_id"] == "VendorUnknown"


@pytest.mark.parametrize(
    ("midr", "vendor"),
    [
        pytest.param(0x481FD010, "HiSilicon", id="Kunpeng 920"),
        pytest.param(0x6D0FD490, "Microsoft", id="Cobalt 100"),
        pytest.param(0x610F0250, "Apple", id="M1"),
        pytest.param(0x703F6620, "Phytium", id="FT-2000"),
        pytest.param(0xC00FAC30, "Ampere", id="AmpereOne"),
        pytest.param(0x539F0010, "Samsung", id="Exynos"),
        pytest.param(0x66015261, "Faraday", id="FA526"),
    ],
)
def test_the_implementer_of_an_arm_cpu_is_named(midr: int, vendor: str) -> None:
    """As far as the kernel has a name for it."""
    assert decode_midr(midr)["vendor_id"] == vendor


def test_what_is_no_number_in_cpuinfo_makes_an_unknown_cpu() -> None:
    """One bad line takes the vendor, and not the flags of the CPU."""
    assert decode_midr(midr_of_cpuinfo({"CPU implementer": "?", "CPU part": ""}))["vendor_id"] == "VendorUnknown"


@pytest.mark.parametrize("signature", ["  Shanghai  ", "Shanghai"], ids=["CPUID", "/proc/cpuinfo"])
def test_an_x86_vendor_is_named_with_and_without_its_blanks(signature: str) -> None:
    """The kernel's text may lack the blanks at the ends of what CPUID says."""
    made = x86_attributes(vendor_signature=signature, family="7", model="59", hypervisor="none")
    assert made["vendor_id"] == "Zhaoxin"


def test_a_mainframe_reports_its_model_and_hypervisor(tmp_path: Path) -> None:
    """From two files of /proc."""
    sysinfo = "Manufacturer:         IBM\nVM00 Control Program: z/VM    7.2.0\n"
    expected = {"vendor_id": "IBM_S390", "family": "0133E8", "id": "2964"}
    assert s390x_model(host(tmp_path, {"proc/sysinfo": sysinfo}), S390X) == {**expected, "hypervisor": "z_VM_7.2.0"}
    assert s390x_model(host(tmp_path / "lpar", {}), S390X) == {**expected, "hypervisor": "none"}
    unknown = {"vendor_id": "VendorUnknown", "family": "0", "id": "0", "hypervisor": "none"}
    assert s390x_model(host(tmp_path / "lpar", {}), "") == unknown


def test_only_the_first_processor_of_cpuinfo_counts() -> None:
    """Empty lines separate them; leading ones do not."""
    assert parse_cpuinfo(f"\n{ARM}")["CPU implementer"] == "0x41"
