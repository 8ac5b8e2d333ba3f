"""What a soak does, from its seed alone: bursts of faults, with changes of the world in between. Pure.

How fast the parts are differs from run to run; which faults, changes and restarts there are, on what and in which
order, does not.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from tests.support.soak.faults import Exchange, Fault, PlannedFault


class Link(StrEnum):
    """Who the controller speaks to."""

    API = "API server"
    REGISTRY = "registry"
    ENGINE = "engine"


class Act(StrEnum):
    """What happens to the world, or to the controller beside its exchanges."""

    EDIT = "edit the driver"
    COSMETIC = "edit what no node has"
    REBUILD = "request a rebuild"
    JOIN = "a node joins"
    LEAVE = "a node leaves"
    REBOOT = "a node reboots"
    MOVE = "a node boots another kernel"
    LATE_BOOT = "a node reboots, and does not report"
    DRIFT = "a node loses the module"
    NODE_REBUILD = "a node requests a rebuild"
    DELETE = "the driver is deleted, and comes back"
    KILL = "SIGKILL"
    PAUSE = "SIGSTOP, SIGCONT"
    TAKE_OVER = "a second controller, and the first is stopped"
    CLOCK = "the clock jumps"
    FULL_DISK = "full disk"
    DROP = "all connections break"
    OUTAGE = "nobody answers"


FAULTS = frozenset({Act.KILL, Act.PAUSE, Act.TAKE_OVER, Act.CLOCK, Act.FULL_DISK, Act.DROP, Act.OUTAGE})
"""Acts that count as faults; the others change the world."""

RESTARTS = frozenset({Act.KILL, Act.TAKE_OVER})
"""Acts that end a controller's process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An act, ``after`` so many seconds. ``draw`` chooses what it is done to, ``link`` whose connections."""

    act: Act
    after: float
    draw: int
    link: Link = Link.API

    def __str__(self) -> str:
        where = f" ({self.link})" if self.act in (Act.DROP, Act.OUTAGE) else ""
        return f"+{self.after:.1f} s {self.act}{where} [{self.draw}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Faults of exchanges by link, and steps beside them; ``restarts`` says whether a controller's process may end."""

    number: int
    faults: Mapping[Link, tuple[PlannedFault, ...]]
    steps: tuple[Step, ...]
    restarts: bool = True

    def __str__(self) -> str:
        steps = [str(step) for step in self.steps]
        faults = [f"{link}: {fault}" for link, some in self.faults.items() for fault in some]
        return "\n  ".join((f"burst {self.number}:", *steps, *faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is in a burst."""

    exchanges: int
    worlds: int
    troubles: int
    gap: float
    """Seconds between two steps at most."""
    world_acts: tuple[Act, ...] = (
        Act.COSMETIC, Act.REBUILD, Act.NODE_REBUILD, Act.DELETE,
        Act.JOIN, Act.LEAVE, Act.REBOOT, Act.LATE_BOOT, Act.MOVE, Act.DRIFT,
    )  # fmt: skip
    trouble_acts: tuple[Act, ...] = (Act.KILL, Act.PAUSE, Act.TAKE_OVER, Act.CLOCK, Act.FULL_DISK, Act.DROP, Act.OUTAGE)


_CALLS = frozenset({Exchange.READ, Exchange.LIST, Exchange.WRITE})
_WATCH, _LEASE = frozenset({Exchange.WATCH}), frozenset({Exchange.LEASE})
_BUILD, _SAVE = frozenset({Exchange.BUILD}), frozenset({Exchange.SAVE})
_MANIFEST, _CONFIG = frozenset({Exchange.MANIFEST}), frozenset({Exchange.CONFIG})
_CONTENT = _MANIFEST | _CONFIG
_ENGINE = _CALLS | _BUILD | _SAVE
_CUTS = (Fault.CUT_BEFORE, Fault.CUT_MIDWAY, Fault.CUT_AFTER)
_REFUSALS = (Fault.TOO_MANY, Fault.SERVER_ERROR, Fault.UNAVAILABLE)

DECKS: Mapping[Link, tuple[tuple[Fault, frozenset[Exchange]], ...]] = {
    Link.API: (
        *((fault, _CALLS) for fault in (*_CUTS, *_REFUSALS, Fault.TRUNCATE, Fault.CORRUPT, Fault.DELAY, Fault.DRIP)),
        (Fault.UNAUTHORIZED, _CALLS),
        (Fault.UNAUTHORIZED, _WATCH),
        (Fault.GONE, _WATCH),
        (Fault.GONE, frozenset({Exchange.LIST})),
        (Fault.TRUNCATE, _WATCH),
        (Fault.CORRUPT, _WATCH),
        (Fault.DRIP, _WATCH),
        (Fault.UNAVAILABLE, _WATCH),
        (Fault.SILENCE, _WATCH),
        (Fault.CUT_AFTER, _LEASE),
        (Fault.DELAY, _LEASE),
        (Fault.SERVER_ERROR, _LEASE),
    ),
    Link.REGISTRY: (
        *((fault, _CALLS) for fault in (*_CUTS, *_REFUSALS, Fault.TRUNCATE, Fault.CORRUPT, Fault.DELAY, Fault.DRIP)),
        (Fault.OTHER_DIGEST, _CALLS),
        (Fault.UNAUTHORIZED, _CALLS),
        (Fault.OTHER_CONTENT, _MANIFEST),
        (Fault.OTHER_CONTENT, _CONFIG),
    ),
    Link.ENGINE: (
        *((fault, _ENGINE) for fault in (*_CUTS, Fault.TRUNCATE, Fault.DELAY, Fault.DRIP)),
        (Fault.SERVER_ERROR, _ENGINE),
        (Fault.UNAVAILABLE, _ENGINE),
        (Fault.TRUNCATE, _BUILD),
        (Fault.CORRUPT, _BUILD),
        (Fault.CORRUPT, _SAVE),
        (Fault.TRUNCATE, _SAVE),
    ),
}  # fmt: skip
"""Every fault that a link may have, with the exchanges that it makes sense for."""

_SHARES = {Link.API: 5, Link.REGISTRY: 3, Link.ENGINE: 2}
_MOST_SKIPPED = {Link.API: 4, Link.REGISTRY: 6, Link.ENGINE: 5}
LIES = (
    PlannedFault(fault=Fault.OTHER_CONTENT, on=_MANIFEST),
    # Not of the same image: whoever believed the one would not believe the other.
    PlannedFault(fault=Fault.OTHER_CONTENT, on=_CONFIG, skip=1),
)
"""What a registry says first of images that a driver finds there when it comes back: nothing remembers them."""
_ORDER = {Act.COSMETIC: -2, Act.DRIFT: -1, Act.DELETE: 1}
"""What no node has is edited while all is quiet: nothing else could hide what comes of it. A module is lost while a pod
holds it. What is deleted is not edited, and not deleted again."""
DRAWN = 1 << 16
MILDEST = 0
"""A draw: the shortest pause and the shortest outage, in which nobody loses the Lease."""


def burst(seed: int, number: int, size: Size, *, restarts: bool = True) -> Burst:
    """Make a burst; without ``restarts`` a controller's process has no reason to end in it."""
    chance = random.Random(f"{seed}/{number}")  # noqa: S311 - to be repeated
    deal = [link for link, share in _SHARES.items() for _ in range(share)]
    dealt = [deal[at % len(deal)] for at in range((number + 1) * size.exchanges)]
    before = dealt[: number * size.exchanges]
    faults = {link: tuple(_dealt(seed, link, range(before.count(link), dealt.count(link)), chance)) for link in Link}
    if not restarts:
        faults = {link: tuple(item for item in some if item.on != _LEASE) for link, some in faults.items()}
    troubles = _acts(seed, number, size.trouble_acts, size.troubles)
    # Every burst has something to be built, or nobody would speak to engine and registry.
    worlds = [Act.EDIT, *_acts(seed + 1, number, size.world_acts, size.worlds - 1)]
    acts = [act for act in troubles if restarts or act not in RESTARTS] + worlds
    chance.shuffle(acts)
    acts.sort(key=lambda act: _ORDER.get(act, 0))
    if Act.DELETE in acts:
        # It may be gone before it would be deleted again.
        del acts[acts.index(Act.DELETE) + 1 :]
    steps = tuple(
        Step(
            act=act,
            after=round(chance.uniform(0.2, size.gap), 1),
            draw=chance.randrange(DRAWN) if restarts or act not in FAULTS else MILDEST,
            link=chance.choice(list(Link)),
        )
        for act in acts
    )
    return Burst(number=number, faults=faults, steps=steps, restarts=restarts)


def _dealt(seed: int, link: Link, turns: range, chance: random.Random) -> Iterator[PlannedFault]:
    """Deal from a shuffled deck, and shuffle it again when it is used up: no kind is left out for long."""
    deck = DECKS[link]
    for at in turns:
        shuffled = list(deck)
        random.Random(f"{seed}/{link}/{at // len(deck)}").shuffle(shuffled)  # noqa: S311
        fault, exchanges = shuffled[at % len(deck)]
        yield PlannedFault(
            fault=fault, on=exchanges, skip=chance.randrange(2 if exchanges <= _CONTENT else _MOST_SKIPPED[link])
        )


def _acts(seed: int, number: int, acts: tuple[Act, ...], count: int) -> list[Act]:
    """Take the next acts of an endless row in which each comes once before any comes again."""
    rows = []
    for turn in range(((number + 1) * count) // max(1, len(acts)) + 1):
        row = list(acts)
        random.Random(f"{seed}/{turn}").shuffle(row)  # noqa: S311
        rows.append(row)
    return list(chain.from_iterable(rows))[number * count : (number + 1) * count]
