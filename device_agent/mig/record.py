"""The annotation ``driverwright.io/mig``: how far a change is, and what was there before it. Pure.

It is the only memory of a change: whatever is killed, the next step follows from it and from the cards::

    {"asked":"all-1g.5gb","applied":"","step":"changing","before":{"GPU-5f1c0a2b-...":{"mode":0,"instances":[]}},"message":""}
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from device_agent.errors import StateInvalid
from device_agent.gpu_state.checks import Check, integer, name, one_of, record, several, text
from device_agent.gpu_state.state import MOST_CARDS, MOST_GPU_INSTANCES, MOST_SLICES
from kube_api.text import bounded_message, printable

IDLE, DRAINING, CHANGING, REBOOTING, RESTORING, BETWEEN = (
    "", "draining", "changing", "rebooting", "restoring", "between",
)  # fmt: skip
"""What :attr:`Record.step` is: nothing is under way; pods leave; cards are changed; a boot has to switch a mode; what
was before is made again; neither could be made, and both are tried again."""
STEPS = (IDLE, DRAINING, CHANGING, REBOOTING, RESTORING, BETWEEN)

LONGEST_RECORD = 1 << 16
"""Characters. Eight instances on each of 64 cards take less."""
_LONGEST_KEY = 63


class PlacedInstance(NamedTuple):
    """A GPU instance: its first memory slice, and the slices of its compute instances, largest first."""

    profile: str
    start: int
    compute: tuple[int, ...]


class CardBefore(NamedTuple):
    """How a card was before a change. ``mode``: MIG mode, 0 or 1."""

    mode: int
    instances: tuple[PlacedInstance, ...] = ()


Before = Mapping[str, CardBefore]
"""UUID of a card that is changed -> how it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The annotation. ``asked``: the key that the step is about. ``applied``: the one that was reached last; or none.

    ``before``: of the cards that may be no more as they were; empty when nothing is under way.
    ``message``: why it failed, or what is waited for.
    """

    asked: str = ""
    applied: str = ""
    step: str = IDLE
    before: Before = field(default_factory=dict)
    message: str = ""


_INSTANCE = record(
    PlacedInstance,
    {
        "profile": name,
        "start": integer(most=MOST_SLICES - 1),
        "compute": several(integer(least=1, most=MOST_SLICES), MOST_SLICES),
    },
)
_CARD = record(CardBefore, {"mode": integer(most=1), "instances": several(_INSTANCE, MOST_GPU_INSTANCES)})


def _before(value: object, place: str) -> Before:
    if value is None:
        return {}
    if type(value) is not dict or not 0 < len(value) <= MOST_CARDS:
        raise StateInvalid(f"{place} is not an object of 1 to {MOST_CARDS} cards: {printable(repr(value), 80)}")
    cards = {name(uuid, place): _CARD(card, f"{place}.{printable(uuid, 80)}") for uuid, card in value.items()}
    for uuid, card in cards.items():
        if (card.instances and not card.mode) or len({one.start for one in card.instances}) < len(card.instances):
            raise StateInvalid(f"{place}.{uuid} has instances that no card can have")
    return cards


_RECORD: Check[Record] = record(
    Record,
    {"asked": text, "applied": text, "step": one_of(*STEPS), "before": _before, "message": text},
)


def parse_record(content: str) -> Record:
    """Read the annotation.

    Raises:
        StateInvalid: it is not one of ours; the message says where and why.
    """
    if len(content) > LONGEST_RECORD:
        raise StateInvalid(f"it has more than {LONGEST_RECORD} characters")
    try:
        plain = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise StateInvalid("it is not JSON") from error
    found = _RECORD(plain, "it")
    if found.step != DRAINING and bool(found.before) is (found.step == IDLE):
        raise StateInvalid(f"before is {'there' if found.before else 'missing'} in step {found.step or 'none'}")
    return found


def may_be_under_way(content: str | None) -> bool:
    """Return whether cards may be changed just now, by the annotation; of one that cannot be read nobody knows."""
    try:
        return content is not None and bool(parse_record(content).before)
    except StateInvalid:
        return True


def dump_record(content: Record) -> str:
    """Write the annotation; twice is the same as once."""
    before = {
        uuid: {"mode": card.mode, "instances": [one._asdict() for one in card.instances]}
        for uuid, card in sorted(content.before.items())
    }
    plain = {
        "asked": printable(content.asked, _LONGEST_KEY),
        "applied": printable(content.applied, _LONGEST_KEY),
        "step": content.step,
        "before": before or None,
        "message": bounded_message(content.message),
    }
    return json.dumps(plain, separators=(",", ":"))
