"""What can be set per source, with the defaults of Node Feature Discovery (keys: :mod:`nfd_worker.config.config`)."""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

CPUID_BLACKLIST = (
    "AVX10", "BMI1", "BMI2", "CLMUL", "CMOV", "CX16", "ERMS", "F16C", "HTT", "LZCNT", "MMX", "MMXEXT", "NX", "POPCNT",
    "RDRAND", "RDSEED", "RDTSCP", "SGX", "SGXLC", "SSE", "SSE2", "SSE3", "SSE4", "SSE42", "SSSE3", "TDX_GUEST",
)  # fmt: skip

_CLASS_CODE = re.compile(r"(?:0x)?([0-9a-f]{0,6})")


def class_prefix(entry: str, digits: int) -> str | None:
    """Read the beginning of a device class: of ``0x0302`` and ``030200`` the same as ``0302``; None for no class code.

    ``digits``: how many the class of a device has; what an entry has beyond them does not count.
    """
    found = _CLASS_CODE.fullmatch(entry.strip().lower())
    return None if found is None else found[1][:digits]


def class_prefixes(whitelist: Iterable[str], digits: int) -> tuple[str, ...]:
    """Read a whitelist of classes; an entry that is no class code matches nothing."""
    prefixes = (class_prefix(entry, digits) for entry in whitelist)
    return tuple(prefix for prefix in prefixes if prefix is not None)


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
    ``config_opts``: option names, with or without ``CONFIG_``.
    """

    kconfig_file: str = ""
    config_opts: tuple[str, ...] = ("NO_HZ", "NO_HZ_IDLE", "NO_HZ_FULL", "PREEMPT")


class PciSettings(NamedTuple):
    """Which PCI devices become labels, and what of them the label says.

    ``device_class_whitelist``: beginnings of the four-digit class, as :func:`class_prefix` reads them.
    ``device_label_fields``: some of class, vendor, device, subsystem_vendor, subsystem_device.
    """

    device_class_whitelist: tuple[str, ...] = ("03", "0b40", "12")
    device_label_fields: tuple[str, ...] = ("class", "vendor")


class UsbSettings(NamedTuple):
    """Which USB devices become labels, and what of them the label says.

    ``device_class_whitelist``: beginnings of the two-digit class, as :func:`class_prefix` reads them: video,
    miscellaneous, application specific, vendor specific.
    ``device_label_fields``: some of class, vendor, device, serial.
    """

    device_class_whitelist: tuple[str, ...] = ("0e", "ef", "fe", "ff")
    device_label_fields: tuple[str, ...] = ("class", "vendor", "device")


MIG_STRATEGIES = ("none", "single", "mixed")


class GpuSettings(NamedTuple):
    """How GPUs that are cut into MIG devices are labelled.

    ``mig_strategy``: one of :data:`MIG_STRATEGIES`, the same as that of NVIDIA's device plugin on this node. With
    ``single`` the ``gpu`` labels describe the MIG devices, which must all be alike; with ``mixed`` each profile has
    labels of its own.
    """

    mig_strategy: str = "none"


class FakeSettings(NamedTuple):
    """What the source ``fake`` pretends to have found; the defaults are those of Node Feature Discovery.

    ``instance_features``: the attributes of each instance, its ``name`` among them.
    """

    labels: Mapping[str, str] = MappingProxyType(
        {"fakefeature1": "true", "fakefeature2": "true", "fakefeature3": "true"}
    )
    flag_features: tuple[str, ...] = ("flag_1", "flag_2", "flag_3")
    attribute_features: Mapping[str, str] = MappingProxyType({"attr_1": "true", "attr_2": "false", "attr_3": "10"})
    instance_features: tuple[Mapping[str, str], ...] = (
        MappingProxyType(
            {"name": "instance_1", "attr_1": "true", "attr_2": "false", "attr_3": "10", "attr_4": "foobar"}
        ),
        MappingProxyType({"name": "instance_2", "attr_1": "true", "attr_2": "true", "attr_3": "100"}),
        MappingProxyType({"name": "instance_3"}),
    )


class LocalSettings(NamedTuple):
    """``clock``: gives the time, in seconds since 1970; expired features of files are left out by it."""

    clock: Callable[[], float] = time.time


class SystemSettings(NamedTuple):
    """``node_name``: the Node object's name, from the pod; empty when unknown."""

    node_name: str = ""


class SourceSettings(NamedTuple):
    """The settings of all sources.

    ``upstream_hardware_labels``: whether hardware is labelled as Node Feature Discovery does, by a file's being there:
    ``storage-nonrotationaldisk`` for a loop device or a CD drive, ``sriov.capable`` for a device that allows no virtual
    functions, ``memory-numa`` for the memory of a GPU, ``memory-nv.dax`` for a region without one.
    """

    cpu: CpuSettings = CpuSettings()
    kernel: KernelSettings = KernelSettings()
    pci: PciSettings = PciSettings()
    system: SystemSettings = SystemSettings()
    usb: UsbSettings = UsbSettings()
    fake: FakeSettings = FakeSettings()
    gpu: GpuSettings = GpuSettings()
    local: LocalSettings = LocalSettings()
    upstream_hardware_labels: bool = False
