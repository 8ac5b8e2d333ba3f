"""When a guest's kernel has which version of the driver's module, as the guest itself sees it ten times a second."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from testbed.guest.guest import Guest

_WATCHED, _SEEN = "/run/watched-{module}", "/run/seen-of-{module}"
# Builtins of the shell alone, but for the pause: an emulated processor has better things to do.
_LOOK = (
    "was=start; while [ -e {watched} ]; do now=; state=; "
    "read -r state </sys/module/{module}/initstate && read -r now </sys/module/{module}/srcversion; "
    '[ "$state" = live ] || now=; '
    '[ "$now" = "$was" ] || {{ read -r up rest </proc/uptime; echo "$up $now"; was=$now; }}; '
    "sleep 0.1; done >{seen} 2>/dev/null &"
)


@dataclass(slots=True)
class Watched:
    """What was seen on each guest: since which second of its uptime which version is live; empty while none is."""

    changes: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    booted_at: dict[str, float] = field(default_factory=dict)
    """By this machine's monotonic clock."""

    def versions(self, guest: str) -> list[str]:
        """Return the versions that a guest had, one after the other."""
        return [version for _, version in self.changes[guest]]

    def seconds_without(self, guest: str) -> float:
        """Return for how long a guest had no module, while another state came after that."""
        return sum(until - since for since, until in self.away(guest))

    def away(self, guest: str) -> list[tuple[float, float]]:
        """Return from when to when a guest had no module, by this machine's monotonic clock."""
        changes, booted_at = pairwise(self.changes[guest]), self.booted_at[guest]
        return [(booted_at + since, booted_at + until) for (since, version), (until, _) in changes if not version]


@contextmanager
def watched(*guests: Guest, module: str = "edudrv") -> Iterator[Watched]:
    """Watch a module of guests meanwhile; what was seen is there at the end."""
    seen, watched, kept = Watched(), _WATCHED.format(module=module), _SEEN.format(module=module)
    for guest in guests:
        guest.check(f"touch {watched}; {_LOOK.format(module=module, watched=watched, seen=kept)}")
    try:
        yield seen
    finally:
        for guest in guests:
            seen.changes[guest.name] = _parse(guest.check(f"rm -f {watched}; cat {kept}"))
            asked = time.monotonic()
            uptime = float(guest.check("cat /proc/uptime").split()[0])
            seen.booted_at[guest.name] = (asked + time.monotonic()) / 2 - uptime


def _parse(text: str) -> list[tuple[float, str]]:
    found = (line.partition(" ") for line in text.splitlines())
    return [(float(uptime), version) for uptime, _, version in found]
