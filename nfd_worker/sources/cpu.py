"""Source ``cpu``: CPUID flags, model, topology, power management, cache allocation, confidential computing.

The flags and the model come from the CPU itself (:mod:`nfd_worker.cpu.cpuid`) or from what the kernel hands every
process (:mod:`nfd_worker.cpu.hwcap`); the rest stands in sysfs.
"""

import logging
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from feature_rules.features import Attributes, Features, Flags
from nfd_worker.cpu import cpu_model, hwcap
from nfd_worker.cpu.cpu_security import discover_security
from nfd_worker.cpu.cpuid import Cpuid, parse_dump, this_cpu
from nfd_worker.cpu.cpuid_flags import avx10_version, find_flags, flags_of_cpuinfo
from nfd_worker.host import Host
from nfd_worker.sources.settings import CpuSettings, SourceSettings

log = logging.getLogger(__name__)

CPUID_DUMP = "recorded/cpuid.txt"
"""Where a recorded host tree keeps what its CPU answered (see :func:`nfd_worker.cpu.cpuid.parse_dump`)."""

_CPUS = "sys/bus/cpu/devices"
_INTEL_PSTATE = "sys/devices/system/cpu/intel_pstate"

_NO_LABEL = frozenset({"tdx.total_keys", "sgx.epc", "sev.encrypted_state_ids", "sev.asids"})
"""Attributes of cpu.security that are amounts; they never become labels."""


_CORE_TYPES = ("cpu_atom", "cpu_core")
"""Performance monitors that only a CPU with two types of cores has, one for each type (Linux 5.16)."""

_TOPOLOGY_LABELS = ("hardware_multithreading", *_CORE_TYPES)


class _Identity(NamedTuple):
    """What the CPU reports of itself; only CPUID has more than flags and model."""

    flags: Flags
    model: Attributes
    avx10_version: int = 0
    rdt: Attributes = MappingProxyType({})
    nominal_mhz: int = 0
    sgx_epc_bytes: int = 0


def discover(host: Host, _settings: SourceSettings) -> Features:
    """Read all that is known of the CPU."""
    identity = _identify(host)
    is_x86 = host.machine == "x86_64"
    attributes: dict[str, Attributes] = {
        "cpu.model": identity.model,
        "cpu.security": discover_security(host, identity.flags, sgx_epc_bytes=identity.sgx_epc_bytes),
        "cpu.topology": discover_topology(host),
        "cpu.rdt": discover_rdt(host, identity.rdt),
        "cpu.sst": discover_sst(host, identity.nominal_mhz),
        "cpu.cstate": discover_cstate(host) if is_x86 else {},
        "cpu.pstate": discover_pstate(host) if is_x86 else {},
        "cpu.coprocessor": {"nx_gzip": "true"} if host.has("sys/devices/vio/ibm,compression-v1/nx_gzip_caps") else {},
    }
    if identity.avx10_version:
        attributes["cpu.cpuid"] = {"AVX10_VERSION": str(identity.avx10_version)}
    return Features(flags={"cpu.cpuid": identity.flags}, attributes=attributes)


def labels(features: Features, settings: SourceSettings) -> dict[str, str]:
    """Label what Node Feature Discovery labels; the CPUID flags pass the filter first."""
    attributes = features.attributes
    found = {f"cpuid.{flag}": "true" for flag in filter_cpuid(features.flags["cpu.cpuid"], settings.cpu)}
    found |= _prefixed("cpuid.", attributes.get("cpu.cpuid", {}))
    found |= _prefixed("model.", attributes["cpu.model"])
    found |= _prefixed("cstate.", attributes["cpu.cstate"])
    found |= _prefixed("pstate.", attributes["cpu.pstate"])
    found |= _prefixed("power.sst_", attributes["cpu.sst"])
    found |= _prefixed("coprocessor.", attributes["cpu.coprocessor"])
    security = attributes["cpu.security"]
    found |= _prefixed("security.", {name: value for name, value in security.items() if name not in _NO_LABEL})
    topology = attributes["cpu.topology"]
    return found | {name: topology[name] for name in _TOPOLOGY_LABELS if name in topology}


def filter_cpuid(flags: Flags, settings: CpuSettings) -> Flags:
    """Choose the flags that become labels."""
    if settings.cpuid_whitelist:
        return flags.intersection(settings.cpuid_whitelist)
    return flags.difference(settings.cpuid_blacklist)


def discover_cstate(host: Host) -> dict[str, str]:
    """Return whether the CPU may sleep deeper than C0; only where the intel_idle driver is in charge."""
    driver = host.find("sys/devices/system/cpu/cpuidle/current_driver")
    deepest = host.find_int("sys/module/intel_idle/parameters/max_cstate")
    if driver is None or driver.strip() != "intel_idle" or deepest is None:
        return {}
    return {"enabled": _bool(deepest > 0)}


def discover_pstate(host: Host) -> dict[str, str]:
    """Read the state of the intel_pstate driver; the governor only where all CPUs have the same."""
    status = (host.find(f"{_INTEL_PSTATE}/status") or "").strip()
    if status in ("", "off"):
        return {}
    found = {"status": status}
    no_turbo = host.find(f"{_INTEL_PSTATE}/no_turbo")
    if no_turbo is not None:
        found["turbo"] = _bool(no_turbo.startswith("0"))
    governor = _common_governor(host) if status == "active" else ""
    if governor:
        found["scaling_governor"] = governor
    return found


def discover_topology(host: Host) -> dict[str, str]:
    """Count sockets, find out whether cores have several threads, and name the types of cores where there are two.

    Empty where the kernel does not report it. A CPU that is offline has no topology directory, and does not count.
    """
    sockets: set[str] = set()
    is_multithreaded = False
    for cpu in host.entries(_CPUS):
        socket = host.find(f"{_CPUS}/{cpu}/topology/physical_package_id")
        if socket is None:
            continue
        sockets.add(socket.strip())
        # One is enough: a server has hundreds of CPUs.
        is_multithreaded = is_multithreaded or _has_siblings(host, cpu)
    if not sockets:
        return {}
    types = dict.fromkeys((name for name in _CORE_TYPES if _has_cores(host, name)), "true")
    return {"hardware_multithreading": _bool(is_multithreaded), "socket_count": str(len(sockets)), **types}


def rdt_of_cpuid(cpuid: Cpuid) -> dict[str, str]:
    """Name the parts of Resource Director Technology: leaf 0xF monitors, leaf 0x10 allocates."""
    features = cpuid.leaf(7).ebx
    found: list[str] = []
    if features >> 12 & 1:
        found += ["RDTMON"] if cpuid.leaf(0xF).edx >> 1 & 1 else []
        events = cpuid.leaf(0xF, 1).edx
        found += ["RDTCMT"] if events & 1 else []
        found += ["RDTMBM"] if events & 0b110 == 0b110 else []
    if features >> 15 & 1:
        allocation = cpuid.leaf(0x10).ebx
        found += [name for bit, name in ((1, "RDTL3CA"), (2, "RDTL2CA"), (3, "RDTMBA")) if allocation >> bit & 1]
    return dict.fromkeys(found, "true")


def discover_rdt(host: Host, parts: Attributes) -> Attributes:
    """Add to the parts how many classes of service resctrl has for the L3 cache, without the default group."""
    classes = host.find_int("sys/fs/resctrl/info/L3/num_closids") if "RDTL3CA" in parts else None
    return parts if classes is None else {**parts, "RDTL3CA_NUM_CLOSID": str(classes - 1)}


def discover_sst(host: Host, nominal_mhz: int) -> dict[str, str]:
    """Return whether Speed Select Base Frequency is in force: some core's base is above what CPUID calls nominal."""
    if nominal_mhz <= 0:
        return {}
    frequencies = (host.find_int(f"{_CPUS}/{cpu}/cpufreq/base_frequency") for cpu in host.entries(_CPUS))
    return {"bf.enabled": "true"} if any(khz // 1000 > nominal_mhz for khz in frequencies if khz is not None) else {}


def sgx_epc_bytes(cpuid: Cpuid) -> int:
    """Add up the sections of the Enclave Page Cache: leaf 0x12, from subleaf 2 on, until one is not valid."""
    total = 0
    for subleaf in range(2, 10):
        eax, _, ecx, edx = cpuid.leaf(0x12, subleaf)
        if eax & 0xF != 1:
            break
        total += (ecx & 0xFFFFF000) | (edx & 0xFFFFF) << 32
    return total


def _identify(host: Host) -> _Identity:
    cpuinfo = host.find_start("proc/cpuinfo") or ""
    if host.machine == "x86_64":
        return _identify_x86(host, cpuinfo)
    flags = hwcap.parse_hwcap(host.read_bytes(hwcap.AUXV), host.machine) if host.has(hwcap.AUXV) else frozenset()
    match host.machine:
        case "aarch64":
            return _Identity(flags, cpu_model.arm64_model(host, flags, cpuinfo))
        case "s390x":
            return _Identity(flags, cpu_model.s390x_model(host, cpuinfo))
    return _Identity(flags, cpu_model.UNKNOWN_MODEL if host.machine else {})


def _identify_x86(host: Host, cpuinfo: str) -> _Identity:
    fields = cpu_model.parse_cpuinfo(cpuinfo)
    recorded = host.find(CPUID_DUMP)
    if recorded is not None:
        return _identity_of_cpuid(parse_dump(recorded))
    reported = _ask_this_cpu(*(fields.get(name, "") for name in _IDENTIFYING)) if host.is_live else None
    if reported is not None:
        return reported
    log.debug("cpu: flags from /proc/cpuinfo, the kernel's view")
    flags = flags_of_cpuinfo(frozenset(fields.get("flags", "").split()))
    return _Identity(flags, cpu_model.x86_model_of_cpuinfo(fields, flags))


_IDENTIFYING = ("vendor_id", "cpu family", "model", "stepping", "microcode", "flags")
"""Fields of /proc/cpuinfo. A CPU answers as before while they stay the same: below a hypervisor asking is slow."""


@lru_cache(maxsize=1)
def _ask_this_cpu(vendor_id: str, *_others: str) -> _Identity | None:
    with this_cpu(vendor_id) as cpuid:
        if cpuid is None:
            return None
        log.debug("cpu: read through %s", cpuid.way)
        return _identity_of_cpuid(cpuid)


def _identity_of_cpuid(cpuid: Cpuid) -> _Identity:
    flags = find_flags(cpuid)
    return _Identity(
        flags=flags,
        model=cpu_model.x86_model(cpuid),
        avx10_version=avx10_version(cpuid),
        rdt=rdt_of_cpuid(cpuid),
        nominal_mhz=cpuid.leaf(0x16).eax & 0xFFFF,
        sgx_epc_bytes=sgx_epc_bytes(cpuid) if "SGX" in flags else 0,
    )


def _common_governor(host: Host) -> str:
    policies = "sys/devices/system/cpu/cpufreq"
    governors = {
        (host.find(f"{policies}/{policy}/scaling_governor") or "").strip()
        for policy in host.entries(policies)
        if policy.startswith("policy") and (host.find(f"{policies}/{policy}/affected_cpus") or "").strip()
    }
    return governors.pop() if len(governors) == 1 else ""


def _has_cores(host: Host, core_type: str) -> bool:
    """Return whether CPUs of a type are online; the monitor stays when firmware has switched them off."""
    return bool((host.find(f"sys/devices/{core_type}/cpus") or "").strip())


def _has_siblings(host: Host, cpu: str) -> bool:
    siblings = host.find(f"{_CPUS}/{cpu}/topology/thread_siblings_list") or ""
    return "," in siblings or "-" in siblings


def _prefixed(prefix: str, attributes: Mapping[str, str]) -> dict[str, str]:
    return {prefix + name: value for name, value in attributes.items()}


def _bool(value: bool) -> str:
    return "true" if value else "false"
