"""How much memory of a card a pod may use. Pure."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from device_agent.allocations.given import Allocation
from device_agent.devices.model import unit_of
from device_resources.memory_limits import DefaultLimit, MemorySettings


class Part(NamedTuple):
    """A device that a pod has of a card: a share of it, or all of it.

    ``replicas``: how many shares the card had when this one was given; 1: it was given whole, 0: not known.
    """

    resource: str
    replicas: int


def part_of(resource: str, device: str, allocation: Allocation | None) -> Part:
    """Say what a device is, by its id and by what is remembered of when it was given (None: nothing)."""
    if unit_of(device) == device:
        return Part(resource, 1)
    return Part(resource, allocation.shares if allocation is not None else 0)


def limit_of(parts: Iterable[Part], total: int | None, settings: MemorySettings) -> int | None:
    """Return how many bytes of a card a pod may use in all; None: as many as there are.

    Each device counts for itself: ``limits`` says what one device of a resource is worth, as its share is one part of
    the card. So who requests two has twice as much in both ways, and two containers of a pod have what two pods would.
    If a device has no limit, the pod has none: one who has a card whole has all of it.

    Args:
        parts: the pod's devices of this card.
        total: the card's memory in bytes; None: not known.
        settings: what an admin says.
    """
    limits = [_limit(part, total, settings) for part in parts]
    known = [limit for limit in limits if limit is not None]
    return sum(known) if known and len(known) == len(limits) else None


def is_unknown(parts: Collection[Part], total: int | None, settings: MemorySettings) -> bool:
    """Return whether a pod would have a limit if more was known: of the card, or of when its devices were given."""
    known = [part if part.replicas else part._replace(replicas=2) for part in parts]
    return limit_of(parts, total, settings) is None and limit_of(known, total or 1, settings) is not None


def _limit(part: Part, total: int | None, settings: MemorySettings) -> int | None:
    if part.replicas == 1:
        return None
    if part.resource in settings.limits:
        return settings.limits[part.resource]
    if settings.default is DefaultLimit.NONE or not part.replicas or not total:
        return None
    return -(-total // part.replicas)  # rounded up: all shares together are never less than the card
