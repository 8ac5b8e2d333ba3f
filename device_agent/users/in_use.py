"""Which devices are in use, of all that says so. Pure."""

from collections.abc import Collection
from dataclasses import dataclass, field

from device_agent.allocations.given import Given
from device_agent.allocations.recent import SECONDS, Key, Recent
from device_agent.profiles.transition import Held, held_before
from device_agent.users.pod_resources import Holders


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the kubelet and the node said. ``asked_at``: when the first of them was asked, in seconds of the boot clock.

    ``shown``: resource and id of what podresources lists. ``recorded``: of what the checkpoint has for pods that exist.
    Either is None where it cannot be read; ``why`` says why. ``holders``: of what is shown, the containers.
    """

    asked_at: float
    shown: Collection[Key] | None = None
    recorded: Collection[Key] | None = None
    why: str = ""
    holders: Holders = field(default_factory=dict, compare=False)


def in_use(seen: Seen, given: Given | None, recent: Recent) -> frozenset[Held] | None:
    """Return what containers have, or may be about to have; None where one of the sources is not known.

    ``given``: all that was given, which says how many shares there were; None: not read yet.
    ``recent``: what was given and podresources has not shown yet. It counts until 60 s before ``seen`` was asked: an
    older answer could lack it.
    """
    if seen.shown is None or seen.recorded is None or given is None:
        return None
    late = {key: start for key, start in recent.items() if seen.asked_at - start.at < SECONDS}
    return frozenset(
        Held(resource=key[0], id=key[1], shares=_shares(key, given, recent))
        for key in {*seen.shown, *seen.recorded, *(late.keys() - _past(late, given))}
    )


def _past(late: Recent, given: Given) -> set[Key]:
    """Return what had ended before its unit was given in another way, however late that was.

    An agent that starts again knows no more that the kubelet has shown it, and when it was shown no more.
    """
    newest = held_before(held_in(given))
    last = {(resource, one.id) for resource, devices in newest.items() for one in devices}
    return {key for key, start in late.items() if key in given and given[key].at == start.at and key not in last}


def _shares(key: Key, given: Given, recent: Recent) -> int:
    """Return of how many shares a device is, in what it was given last; 0: not known."""
    if key in recent:
        return recent[key].shares
    return given[key].shares if key in given else 0


def held_in(given: Given) -> list[Held]:
    """Return all that was given, the newest last."""
    return [Held(resource=resource, id=name, shares=one.shares) for (resource, name), one in given.items()]
