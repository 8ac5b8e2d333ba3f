"""The feature sources: what each can find, and which of it becomes a label.

A source has two functions. ``discover(host, settings)`` reads the host and parses what it read into Features; it raises
HostReadError when it could not read, and leaves out what this node does not have. ``labels(features, settings)`` is
pure: label names without the prefix ``feature.node.kubernetes.io/<source>-``.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from feature_rules.features import Failed, Features
from kube_api.names import FEATURE_LABEL_PREFIX
from nfd_worker.errors import HostReadError
from nfd_worker.host import Host
from nfd_worker.sources import cpu, fake, gpu, kernel, local, memory, network, pci, storage, system, usb
from nfd_worker.sources.settings import SourceSettings


class Source(NamedTuple):
    """One place where features come from.

    ``uevents``: what the kernel announces when a feature can have changed, as subsystem -> actions; empty where it
    announces nothing. :mod:`nfd_worker.watch.uevents` listens to those of all sources; the interval finds the rest.
    ``prefixes``: how the keys of its labels begin; none where they may have any name.
    ``is_default``: whether it runs by default.
    ``labels_need_features``: False where the settings alone make the labels, whether features are read or not.
    """

    discover: Callable[[Host, SourceSettings], Features]
    labels: Callable[[Features, SourceSettings], Mapping[str, str]]
    uevents: Mapping[str, frozenset[str]]
    prefixes: tuple[str, ...] = ()
    is_default: bool = True
    labels_need_features: bool = True


def _prefix(source: str) -> tuple[str, ...]:
    return (f"{FEATURE_LABEL_PREFIX}/{source}-",)


_NVIDIA_LABELS = tuple(f"nvidia.com/{part}" for part in ("cuda.", "gpu.", "mig-", "mig.", "vgpu."))

_COMES_OR_GOES = frozenset({"add", "remove"})
_OR_IS_BOUND = _COMES_OR_GOES | {"bind", "unbind"}
_PCI = {"pci": _OR_IS_BOUND | {"change"}}
_MODULES = {"module": _COMES_OR_GOES}
# A block device sends "change" with every medium that is inserted.
_DISKS = {"block": _COMES_OR_GOES}

SOURCES: Mapping[str, Source] = {
    "cpu": Source(cpu.discover, cpu.labels, {}, _prefix("cpu")),
    "fake": Source(fake.discover, fake.labels, {}, _prefix("fake"), is_default=False, labels_need_features=False),
    "gpu": Source(gpu.discover, gpu.labels, _PCI | _MODULES, _NVIDIA_LABELS),
    "kernel": Source(kernel.discover, kernel.labels, _MODULES, _prefix("kernel")),
    "memory": Source(memory.discover, memory.labels, {}, _prefix("memory")),
    "network": Source(network.discover, network.labels, {"net": _COMES_OR_GOES | {"move"}}, _prefix("network")),
    "pci": Source(pci.discover, pci.labels, _PCI, _prefix("pci")),
    "storage": Source(storage.discover, storage.labels, _DISKS, _prefix("storage")),
    "system": Source(system.discover, system.labels, {}, _prefix("system")),
    "usb": Source(usb.discover, usb.labels, {"usb": _OR_IS_BOUND}, _prefix("usb")),
    "local": Source(local.discover, local.labels, {}),
}
"""All sources in the order in which they run; later labels overwrite earlier ones."""


def discover(name: str, host: Host, settings: SourceSettings) -> Features | Failed:
    """Run one source; a failed read is a value, and not an absent feature."""
    try:
        return SOURCES[name].discover(host, settings)
    except HostReadError as error:
        return Failed(str(error))
