"""Decides which process is ended, from samples of use as they come. Pure, and level-based.

A pod is over its limit as long as every sample that says something of it says so. After the grace one process is
chosen, and the grace begins anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from device_agent.gpu_state.use import ProcessUse
from device_agent.memory_limits.accounts import Account
from device_agent.usage.attribution import FRESH_SECONDS
from device_resources.memory_limits import MemorySettings

HOLDERS_SECONDS = 7.0
"""How old what podresources said may be for a decision. It is asked every five seconds, and takes a moment."""
LONGEST_GAP = 60.0
"""Seconds between two samples of a pod after which nobody can say what it used in between: the grace begins anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What was known at a moment. ``at``: of the use, in seconds of CLOCK_BOOTTIME.

    ``accounts``: None while podresources cannot be asked: nobody can say who has which card.
    ``held_at``: from before podresources was asked for what these were made of, by the same clock.
    """

    at: float
    accounts: tuple[Account, ...] | None
    held_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """A pod is over its limit on a card. ``since``: of this grace; ``seen``: when it was seen last.

    ``is_reported``: a dry run has reported it.
    """

    uid: str
    since: float
    seen: float
    is_reported: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What is remembered of samples: when the last one was taken, and by card and pod who is over its limit."""

    at: float = -1.0
    excesses: Mapping[tuple[str, str], Excess]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """This process is to be ended, or would be (``is_dry_run``), as its pod uses more of a card than it may."""

    account: Account
    process: ProcessUse
    is_dry_run: bool


NOTHING = Watched(excesses={})


def watch(
    before: Watched, sample: Sample | None, now: float, settings: MemorySettings, own_pod: str = ""
) -> tuple[Watched, tuple[Ending, ...]]:
    """Take a sample, and return what is remembered and what is to be done.

    A sample that is missing, old, or was taken before interrupts nothing and decides nothing. Without podresources all
    that was seen is forgotten.

    Nobody is ended by what podresources said long ago, or was asked for before the excess began: until then the name
    may have been another pod's, with other devices. A pod that is within its limit by that is so all the same.

    Args:
        before: what is remembered.
        sample: None: there is none.
        now: seconds of CLOCK_BOOTTIME.
        settings: what an admin says.
        own_pod: the UID of the agent's own pod, of which no process is chosen.
    """
    if sample is None:
        return before, ()
    if sample.accounts is None:
        return NOTHING, ()
    if now - sample.at > FRESH_SECONDS or sample.at <= before.at:
        return before, ()
    known = {(account.card, account.pod): account for account in sample.accounts}
    excesses = {
        key: excess
        for key, account in known.items()
        if (excess := _next(before.excesses.get(key), account, sample.at)) is not None
    }
    endings: list[Ending] = []
    for key in sorted(excesses, key=lambda key: (excesses[key].since, key)):
        if now - sample.held_at > HOLDERS_SECONDS or not _is_due(excesses[key], sample, settings.grace_seconds):
            continue
        process = _largest(known[key], own_pod)
        if process is None or (settings.dry_run and excesses[key].is_reported):
            continue
        endings.append(Ending(account=known[key], process=process, is_dry_run=settings.dry_run))
        excesses |= _after(key, excesses, sample.at, is_dry_run=settings.dry_run)
    return Watched(at=sample.at, excesses=excesses), tuple(endings)


def undone(after: Watched, before: Watched, pod: str) -> Watched:
    """Return what is remembered after an ending that did not come about: its pod's grace has not begun anew."""
    excesses = {
        key: before.excesses[key] if key[1] == pod and key in before.excesses else excess
        for key, excess in after.excesses.items()
    }
    return replace(after, excesses=excesses)


def _is_due(excess: Excess, sample: Sample, grace: float) -> bool:
    """Return whether a pod is over its limit now, and was for the whole grace."""
    return excess.seen == sample.at and sample.at - excess.since >= grace and sample.held_at >= excess.since


def _next(excess: Excess | None, account: Account, at: float) -> Excess | None:
    """Return how a pod's excess goes on; None if it is not over its limit. What is not known changes nothing."""
    if account.used is None:
        return excess
    if account.limit is None or account.used <= account.limit:
        return None
    if excess is None or excess.uid != account.uid or at - excess.seen > LONGEST_GAP:
        return Excess(uid=account.uid, since=at, seen=at)
    return replace(excess, seen=at)


def _largest(account: Account, own_pod: str) -> ProcessUse | None:
    """Return the pod's process with most memory, of equal ones that with the lowest PID; None if none may be ended."""
    if not account.uid or account.uid == own_pod:
        return None
    able = [one for one in account.processes if one.pid > 1 and one.uid == account.uid and one.memory]
    return max(able, key=lambda one: (one.memory or 0, -one.pid), default=None)


def _after(
    key: tuple[str, str], excesses: Mapping[tuple[str, str], Excess], at: float, *, is_dry_run: bool
) -> dict[tuple[str, str], Excess]:
    """Begin the grace of a pod anew, on all of its cards: one process often has memory of several."""
    if is_dry_run:
        return {key: replace(excesses[key], is_reported=True)}
    return {one: replace(excess, since=at) for one, excess in excesses.items() if one[1] == key[1]}
