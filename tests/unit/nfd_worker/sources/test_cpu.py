"""Source cpu: power management, topology, cache allocation, and what becomes a label."""

from pathlib import Path

import pytest

from feature_rules.features import Features
from nfd_worker.cpu.cpuid import Cpuid, Registers
from nfd_worker.host import Host
from nfd_worker.sources import discover
from nfd_worker.sources.cpu import (
    discover_cstate,
    discover_pstate,
    discover_rdt,
    discover_sst,
    discover_topology,
    filter_cpuid,
    labels,
    rdt_of_cpuid,
    sgx_epc_bytes,
)
from nfd_worker.sources.settings import CpuSettings, SourceSettings
from tests.support.nfd_worker.trees import host, recorded

X86 = {"proc/sys/kernel/arch": "x86_64\n"}
CPUIDLE = "sys/devices/system/cpu/cpuidle/current_driver"
MAX_CSTATE = "sys/module/intel_idle/parameters/max_cstate"
PSTATE = "sys/devices/system/cpu/intel_pstate"
POLICY = "sys/devices/system/cpu/cpufreq/policy"


def cpuid(leaves: dict[tuple[int, int], Registers]) -> Cpuid:
    """Make a CPU of some leaves."""
    given = {(0, 0): Registers(0x24), **leaves}
    return Cpuid(lambda leaf, subleaf: given.get((leaf, subleaf), Registers()), xcr0=0, way="test")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, {}),
        ({CPUIDLE: "acpi_idle\n", MAX_CSTATE: "9\n"}, {}),
        ({CPUIDLE: "intel_idle\n"}, {}),
        ({CPUIDLE: "intel_idle\n", MAX_CSTATE: "9\n"}, {"enabled": "true"}),
        ({CPUIDLE: "intel_idle\n", MAX_CSTATE: "0\n"}, {"enabled": "false"}),
    ],
    ids=["no driver", "other driver", "no parameter", "on", "off"],
)
def test_cstate(tmp_path: Path, files: dict[str, str], expected: dict[str, str]) -> None:
    """The C-state flag is reported only with the intel_idle driver."""
    assert discover_cstate(host(tmp_path, files)) == expected


def policy(number: int, governor: str, cpus: str = "0\n") -> dict[str, str]:
    """Make a cpufreq policy."""
    return {f"{POLICY}{number}/scaling_governor": f"{governor}\n", f"{POLICY}{number}/affected_cpus": cpus}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, {}),
        ({f"{PSTATE}/status": "off\n"}, {}),
        (
            {f"{PSTATE}/status": "passive\n", f"{PSTATE}/no_turbo": "1\n", **policy(0, "x")},
            {"status": "passive", "turbo": "false"},
        ),
        (
            {f"{PSTATE}/status": "active\n", **policy(0, "powersave"), **policy(1, "powersave")},
            {"status": "active", "scaling_governor": "powersave"},
        ),
        ({f"{PSTATE}/status": "active\n", **policy(0, "powersave"), **policy(1, "performance")}, {"status": "active"}),
        (
            {f"{PSTATE}/status": "active\n", **policy(0, "powersave"), **policy(1, "performance", "\n")},
            {"status": "active", "scaling_governor": "powersave"},
        ),
        ({f"{PSTATE}/status": "active\n", f"{POLICY}0/affected_cpus": "0\n"}, {"status": "active"}),
    ],
    ids=["no driver", "off", "passive", "one governor", "two governors", "a policy without CPUs", "a governor missing"],
)
def test_pstate(tmp_path: Path, files: dict[str, str], expected: dict[str, str]) -> None:
    """The governor is a feature where all present CPUs have the same."""
    assert discover_pstate(host(tmp_path, files)) == expected


def topology(number: int, siblings: str, socket: str = "0") -> dict[str, str]:
    """Make a CPU."""
    path = f"sys/bus/cpu/devices/cpu{number}/topology"
    return {f"{path}/thread_siblings_list": f"{siblings}\n", f"{path}/physical_package_id": f"{socket}\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, {}),
        (topology(0, "0"), {"hardware_multithreading": "false", "socket_count": "1"}),
        ({**topology(0, "0-1"), **topology(2, "2-3", "1")}, {"hardware_multithreading": "true", "socket_count": "2"}),
        (
            {**topology(0, "0,2"), "sys/bus/cpu/devices/cpu1/online": "0\n"},
            {"hardware_multithreading": "true", "socket_count": "1"},
        ),
        (
            {**topology(0, "0"), "sys/devices/cpu_atom/cpus": "0\n", "sys/devices/cpu_core/cpus": "1\n"},
            {"hardware_multithreading": "false", "socket_count": "1", "cpu_atom": "true", "cpu_core": "true"},
        ),
        (
            {**topology(0, "0"), "sys/devices/cpu_atom/cpus": "\n", "sys/devices/cpu_core/cpus": "0\n"},
            {"hardware_multithreading": "false", "socket_count": "1", "cpu_core": "true"},
        ),
    ],
    ids=["not reported", "one thread", "two sockets", "an offline CPU", "two types of cores", "one type switched off"],
)
def test_topology(tmp_path: Path, files: dict[str, str], expected: dict[str, str]) -> None:
    """A CPU that is offline does not hide the others."""
    assert discover_topology(host(tmp_path, files)) == expected


def test_resource_director_technology_is_read_from_its_leaves() -> None:
    """Monitoring and allocation each have a gate in leaf 7."""
    everything = cpuid({
        (7, 0): Registers(ebx=1 << 12 | 1 << 15), (0xF, 0): Registers(edx=2), (0xF, 1): Registers(edx=7),
        (0x10, 0): Registers(ebx=0b1110),
    })  # fmt: skip
    parts = ("RDTMON", "RDTCMT", "RDTMBM", "RDTL3CA", "RDTL2CA", "RDTMBA")
    assert rdt_of_cpuid(everything) == dict.fromkeys(parts, "true")
    assert rdt_of_cpuid(cpuid({(0x10, 0): Registers(ebx=0b1110)})) == {}
    assert rdt_of_cpuid(cpuid({(7, 0): Registers(ebx=1 << 12), (0xF, 1): Registers(edx=2)})) == {}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param({"RDTL3CA": "true"}, {"RDTL3CA": "true", "RDTL3CA_NUM_CLOSID": "15"}, id="L3 allocation"),
        pytest.param({"RDTMBA": "true"}, {"RDTMBA": "true"}, id="without"),
    ],
)
def test_classes_of_service_are_counted_without_the_default(
    tmp_path: Path, parts: dict[str, str], expected: dict[str, str]
) -> None:
    """RDT classes of service are counted only where the L3 cache can be allocated."""
    assert discover_rdt(host(tmp_path, {"sys/fs/resctrl/info/L3/num_closids": "16\n"}), parts) == expected


@pytest.mark.parametrize(
    ("nominal", "bases", "expected"),
    [
        pytest.param(2100, ("2100000", "2500000"), {"bf.enabled": "true"}, id="a core above nominal"),
        pytest.param(2100, ("2100000", "2100999"), {}, id="rounded down to nominal"),
        pytest.param(0, ("2500000",), {}, id="no nominal frequency known"),
        pytest.param(2100, (), {}, id="no base frequencies known"),
    ],
)
def test_speed_select_is_a_base_above_nominal(
    tmp_path: Path, nominal: int, bases: tuple[str, ...], expected: dict[str, str]
) -> None:
    """CPUID names the nominal frequency, sysfs that of each core."""
    files = {f"sys/bus/cpu/devices/cpu{n}/cpufreq/base_frequency": f"{base}\n" for n, base in enumerate(bases)}
    assert discover_sst(host(tmp_path, files), nominal) == expected


def test_the_enclave_page_cache_is_the_sum_of_its_sections() -> None:
    """The sections of the enclave page cache are added up to the first invalid one."""
    section = Registers(0x70000001, 0, 0x5D800001, 0)
    two = {(0x12, 2): section, (0x12, 3): Registers(1, 0, 0x1000, 1), (0x12, 5): section}
    assert sgx_epc_bytes(cpuid(two)) == 0x5D800000 + 0x1000 + (1 << 32)
    assert sgx_epc_bytes(cpuid({})) == 0


def test_a_whitelist_alone_decides() -> None:
    """With a whitelist the blacklist is ignored."""
    flags = frozenset({"SSE2", "AVX2"})
    assert filter_cpuid(flags, CpuSettings()) == {"AVX2"}
    assert filter_cpuid(flags, CpuSettings(cpuid_whitelist=("SSE2",))) == {"SSE2"}
    assert filter_cpuid(flags, CpuSettings(cpuid_blacklist=())) == flags


@pytest.mark.parametrize("content", ["\n", "many\n"], ids=["empty", "a word"])
def test_a_number_that_is_none_takes_only_itself(tmp_path: Path, content: str) -> None:
    """An invalid number in one file leaves flags, model and topology as they are."""
    whole = features(host(tmp_path / "without", X86))
    found = features(host(tmp_path / "with", {**X86, CPUIDLE: "intel_idle\n", MAX_CSTATE: content}))
    assert found.attributes["cpu.cstate"] == {}
    assert found == whole


def features(it: Host) -> Features:
    """Discover, which must succeed."""
    found = discover("cpu", it, SourceSettings())
    assert isinstance(found, Features)
    return found


def test_amounts_are_no_labels(tmp_path: Path) -> None:
    """Features with amounts do not become labels, because they change."""
    it = host(tmp_path, {
        **X86, "sys/module/kvm_amd/parameters/sev": "Y\n", "sys/fs/cgroup/misc.capacity": "sev 410\nsev_es 99\n",
    })  # fmt: skip
    found = features(it)
    assert found.attributes["cpu.security"] == {"sev.enabled": "true", "sev.asids": "410"}
    assert labels(found, SourceSettings())["security.sev.enabled"] == "true"
    assert not any("asids" in name for name in labels(found, SourceSettings()))


def test_a_machine_that_does_not_report_what_it_is_has_no_flags(tmp_path: Path) -> None:
    """A recorded tree of an unknown machine is not filled up with this one's CPU."""
    found = features(host(tmp_path, {}))
    assert found.flags["cpu.cpuid"] == frozenset()
    assert found.attributes["cpu.model"] == {}
    assert labels(found, SourceSettings()) == {}


def test_a_mainframe_has_flags_and_secure_execution(tmp_path: Path) -> None:
    """Flags are read from the big-endian auxiliary vector of s390x."""
    word = (1 << 11).to_bytes(8, "big")
    it = host(tmp_path, {
        "proc/sys/kernel/arch": "s390x\n", "proc/self/auxv": (16).to_bytes(8, "big") + word,
        "proc/cpuinfo": "vendor_id : IBM/S390\n", "sys/firmware/uv/prot_virt_host": "1\n",
    })  # fmt: skip
    made = labels(features(it), SourceSettings())
    assert made["cpuid.VX"] == "true"
    assert made["model.vendor_id"] == "IBM_S390"
    assert made["security.se.enabled"] == "true"


def test_power_has_its_coprocessor(tmp_path: Path) -> None:
    """A label of ppc64le alone, whose model nobody decodes."""
    it = host(tmp_path, {"proc/sys/kernel/arch": "ppc64le\n", "sys/devices/vio/ibm,compression-v1/nx_gzip_caps/x": ""})
    assert labels(features(it), SourceSettings()) == {
        "coprocessor.nx_gzip": "true", "model.vendor_id": "VendorUnknown", "model.family": "0", "model.id": "0",
    }  # fmt: skip


def test_this_machine_can_be_read() -> None:
    """The source reads the machine that runs the tests without a failure."""
    assert features(Host("/")).flags["cpu.cpuid"]


def test_recorded_arm64_flags_come_from_its_auxiliary_vector() -> None:
    """A recorded arm64 host gives arm64 flags on any machine."""
    assert {"ASIMD", "ATOMICS", "CRC32"} <= features(recorded("arm64-cloud")).flags["cpu.cpuid"]
