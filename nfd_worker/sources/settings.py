"""What can be set per source, with the defaults of Node Feature Discovery (keys: :mod:`nfd_worker.config`)."""

from typing import NamedTuple

CPUID_BLACKLIST = (
    "AVX10", "BMI1", "BMI2", "CLMUL", "CMOV", "CX16", "ERMS", "F16C", "HTT", "LZCNT", "MMX", "MMXEXT", "NX", "POPCNT",
    "RDRAND", "RDSEED", "RDTSCP", "SGX", "SGXLC", "SSE", "SSE2", "SSE3", "SSE4", "SSE42", "SSSE3", "TDX_GUEST",
)  # fmt: skip


class CpuSettings(NamedTuple):
    """Which CPUID flags become labels; the features are always complete.

    ``cpuid_blacklist``: flags without a label.
    ``cpuid_whitelist``: if not empty it alone decides.
    """

    cpuid_blacklist: tuple[str, ...] = CPUID_BLACKLIST
    cpuid_whitelist: tuple[str, ...] = ()


class KernelSettings(NamedTuple):
    """Where the kernel's configuration is, and which of its options become labels.

    ``kconfig_file``: tried before all other places; a path of the host; empty for none.
    ``config_opts``: option names without ``CONFIG_``.
    """

    kconfig_file: str = ""
    config_opts: tuple[str, ...] = ("NO_HZ", "NO_HZ_IDLE", "NO_HZ_FULL", "PREEMPT")


class PciSettings(NamedTuple):
    """Which PCI devices become labels, and what of them the label says.

    ``device_class_whitelist``: beginnings of the four-digit class, lower case.
    ``device_label_fields``: some of class, vendor, device, subsystem_vendor, subsystem_device.
    """

    device_class_whitelist: tuple[str, ...] = ("03", "0b40", "12")
    device_label_fields: tuple[str, ...] = ("class", "vendor")


class SystemSettings(NamedTuple):
    """``node_name``: the Node object's name, told by the pod; empty when unknown."""

    node_name: str = ""


class SourceSettings(NamedTuple):
    """The settings of all sources."""

    cpu: CpuSettings = CpuSettings()
    kernel: KernelSettings = KernelSettings()
    pci: PciSettings = PciSettings()
    system: SystemSettings = SystemSettings()
