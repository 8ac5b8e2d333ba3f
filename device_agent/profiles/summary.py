"""What a profile would offer, as lines of a table: on a node with known cards, or on any node. Pure."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from device_agent.profiles.apply import apply
from device_agent.profiles.profile import Profile
from device_agent.profiles.strategy import Sorted
from device_resources.nvidia import FULL_CARD, MigStrategy
from device_resources.resource import NVIDIA_DOMAIN


class Line(NamedTuple):
    """Devices of a resource that have one number of shares. ``units``: how many; None: that depends on the node."""

    resource: str
    units: int | None
    shares: int

    @property
    def total(self) -> int | None:
        """Return how many the kubelet would count."""
        return None if self.units is None else self.units * self.shares


def lines_of(profile: Profile, cards: Sorted | None) -> list[Line]:
    """Summarize a profile, on a node with these cards or on any node.

    Raises:
        ProfileRefused: it does not fit the cards.
    """
    found = _of_any_node(profile) if cards is None else _of_node(profile, cards)
    return sorted(set(found), key=lambda line: (line.resource, line.shares, line.units or 0))


def _of_node(profile: Profile, cards: Sorted) -> Iterator[Line]:
    offered = apply(profile, cards, MigStrategy.NONE)
    for (resource, shares), units in Counter((one.resource, one.shares) for one in offered).items():
        yield Line(resource, units, shares)
    yield from (line for line in _shared(profile) if not line.resource.startswith(NVIDIA_DOMAIN))


def _of_any_node(profile: Profile) -> Iterator[Line]:
    """Name what the profile itself names; which cards and instances a node has is not known."""
    all_shared = {entry.name for entry in profile.shared if entry.devices is None}
    yield from (Line(name, None, 1) for name in sorted(_names(profile) - all_shared))
    yield from _shared(profile)


def _names(profile: Profile) -> set[str]:
    names = {one.name for one in (*profile.gpus, *profile.migs)}
    is_complete = any(one.pattern == "*" for one in profile.gpus) and profile.mig_strategy is not MigStrategy.SINGLE
    return names if is_complete else names | {FULL_CARD}


def _shared(profile: Profile) -> Iterator[Line]:
    for entry in profile.shared:
        units = len(entry.devices) if isinstance(entry.devices, tuple) else entry.devices
        yield Line(entry.becomes, units, entry.replicas)
