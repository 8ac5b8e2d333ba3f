"""The page ``/who``: which container has which device of the agent's, since when, and how much it uses. Pure."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from device_agent.gpu_state.use import Use
from device_agent.usage.attribution import NOBODY, Allocated, CardView, card_views, cards_by_device

if TYPE_CHECKING:
    from device_agent.allocations.given import Given

VERSION = 1


class Clock(NamedTuple):
    """Now: in seconds of the boot clock, and since 1970."""

    boot: float
    unix: float


class Known(NamedTuple):
    """What the page is made of.

    ``held``: None where it is not known who has what. ``use``: None where nothing is known of now.
    ``given``: what was given, and when. ``problems``: what is not known, for people.
    """

    held: Sequence[Allocated] | None
    use: Use | None = None
    given: "Given" = MappingProxyType({})
    problems: tuple[str, ...] = ()


def who_page(known: Known, now: Clock) -> str:
    """Write the page, as ``device-agent who`` reads it: memory in bytes, ``since`` since 1970; null: not known."""
    views = {view.card.id: view for view in card_views(known.use, known.held or ())} if known.use is not None else {}
    find = cards_by_device(known.use.cards if known.use is not None else ())
    rows = [
        {
            "device": one.device,
            "resource": one.resource,
            "namespace": one.holder.namespace,
            "pod": one.holder.name,
            "container": one.holder.container,
            "since": _since(known.given, one, now),
            **_use([views[card] for card in sorted(find(one))], one),
        }
        for one in known.held or ()
    ]
    plain = {"version": VERSION, "now": now.unix, "isKnown": known.held is not None, "devices": rows}
    return f"{json.dumps({**plain, 'problems': known.problems}, separators=(',', ':'))}\n"


def _since(given: "Given", one: Allocated, now: Clock) -> float | None:
    allocation = given.get((one.resource, one.device))
    if allocation is None or allocation.at is None:
        return None
    return round(now.unix - (now.boot - allocation.at), 3)


def _use(views: Sequence[CardView], one: Allocated) -> Mapping[str, Any]:
    """Say what the pod of a device uses of its cards together: of a card that is its own, all that is used."""
    memory, busy = zip(*(_use_of(view, one) for view in views), strict=True) if views else ((), ())
    return {
        "memoryBytes": None if None in memory or not memory else int(sum(memory)),
        "busyPercent": None if None in busy or not busy else round(sum(busy) / len(busy), 1),
    }


def _use_of(view: CardView, one: Allocated) -> tuple[float | None, float | None]:
    if view.owner != NOBODY:
        return view.card.values.get("memory_used"), view.card.values.get("busy_percent")
    pod = (one.holder.namespace, one.holder.name)
    mine = (use for use in view.pods if (use.owner.namespace, use.owner.pod) == pod)
    return next(((use.memory, use.busy) for use in mine), (None, None))
