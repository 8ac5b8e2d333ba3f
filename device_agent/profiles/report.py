"""What nfd-worker is to know of a profile that is in force: how each resource is shared, and how MIG is used. Pure."""

from collections.abc import Iterable
from itertools import islice

from device_agent.profiles.apply import names_before_sharing
from device_agent.profiles.profile import Profile, Shared
from device_agent.profiles.strategy import Sorted
from device_resources.gpu_sharing import (
    MOST_RESOURCES,
    NONE,
    TIME_SLICING,
    GpuSharing,
    SharedResource,
    format_sharing,
    has_labels,
)
from device_resources.nvidia import MigStrategy


def report_of(profile: Profile, cards: Sorted, default: MigStrategy) -> bytes:
    """Write the file of :func:`sharing_of`."""
    return format_sharing(sharing_of(profile, cards, default)).encode()


def sharing_of(profile: Profile, cards: Sorted, default: MigStrategy) -> GpuSharing:
    """Say how these cards are shared by a profile that fits them; ``default`` as in :func:`apply`.

    As NVIDIA's labels do, the first entry of a resource speaks for all of its devices, also where it shares some of
    them only. A resource whose name is too long for keys of labels is left out.
    """
    strategy = profile.mig_strategy or default
    names = islice(filter(has_labels, names_before_sharing(profile, cards, strategy)), MOST_RESOURCES)
    return GpuSharing(strategy.value, {name: _shared(name, profile.shared) for name in names})


def _shared(name: str, entries: Iterable[Shared]) -> SharedResource:
    entry = next((entry for entry in entries if entry.name == name), None)
    if entry is None:
        return SharedResource()
    strategy = TIME_SLICING if entry.replicas > 1 else NONE
    return SharedResource(entry.replicas, strategy, is_renamed=entry.becomes != name)
