"""The feature sources: what each can find, and which of it becomes a label.

A source has two functions. ``discover(host, settings)`` reads the host and parses what it read into Features; it raises
HostReadError when it could not read, and leaves out what this node does not have. ``labels(features, settings)`` is
pure: label names without the prefix ``feature.node.kubernetes.io/<source>-``.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from nfd_worker.errors import HostReadError
from nfd_worker.features import Failed, Features
from nfd_worker.host import Host
from nfd_worker.sources import cpu, kernel, pci, system
from nfd_worker.sources.settings import SourceSettings


class Source(NamedTuple):
    """One place where features come from."""

    discover: Callable[[Host, SourceSettings], Features]
    labels: Callable[[Features, SourceSettings], Mapping[str, str]]


SOURCES: Mapping[str, Source] = {
    "cpu": Source(cpu.discover, cpu.labels),
    "kernel": Source(kernel.discover, kernel.labels),
    "pci": Source(pci.discover, pci.labels),
    "system": Source(system.discover, system.labels),
}
"""All sources in the order in which they run; later labels overwrite earlier ones."""

NOT_YET_BUILT = frozenset({"custom", "fake", "local", "memory", "network", "storage", "usb"})
"""Sources of Node Feature Discovery that this worker does not have yet: their settings are accepted and do nothing."""


def discover(name: str, host: Host, settings: SourceSettings) -> Features | Failed:
    """Run one source; a failed read is a value, and not an absent feature."""
    try:
        return SOURCES[name].discover(host, settings)
    except HostReadError as error:
        return Failed(str(error))
