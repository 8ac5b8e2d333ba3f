"""What was given and the kubelet has not shown yet: podresources has a pod's devices some time after Allocate. Pure."""

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

from device_agent.allocations.given import Given

SECONDS = 60.0
"""After so long the kubelet shows a container's devices, or never: podresources leaves init containers out."""

Key = tuple[str, str]
"""Resource and id."""


PENDING = math.inf
"""When a device was given that is being given: the minute begins with the answer, which may wait for a disk."""


class Start(NamedTuple):
    """When a device was given, in seconds of the boot clock, and how many shares its unit had then."""

    at: float
    shares: int


Recent = Mapping[Key, Start]


def started(recent: Recent, resource: str, shares: Mapping[str, int], now: float) -> Recent:
    """Count devices as given now, or :data:`PENDING`: id -> shares of its unit."""
    return {**recent, **{(resource, name): Start(now, count) for name, count in shares.items()}}


def still_recent(recent: Recent, shown: Collection[Key], asked_at: float) -> Recent:
    """Leave out what podresources has ``shown`` to a question of that time, and what was given long before it.

    An answer to an earlier question may show the container that had the device before.
    """
    return {
        key: start
        for key, start in recent.items()
        if start.at >= asked_at or (key not in shown and asked_at - start.at < SECONDS)
    }


def recent_of(given: Given) -> Recent:
    """Return what was given on this boot, as far as it is known when."""
    return {key: Start(one.at, one.shares) for key, one in given.items() if one.at is not None}
