"""The lines in which the use of cards travels. What is read is checked field by field, and bounded."""

import json
from typing import Any

from device_agent.errors import StateInvalid
from device_agent.gpu_state.checks import (
    Check,
    flag,
    integer,
    number,
    optional,
    pod,
    record,
    seconds,
    several,
    text,
    word,
)
from device_agent.gpu_state.ending import ENDED, MOST_ENDED
from device_agent.gpu_state.limits import KEPT, check_refused
from device_agent.gpu_state.state_json import VERSION, parse_answer
from device_agent.gpu_state.use import (
    MOST_DEVICES,
    MOST_IN_ALL,
    MOST_PODS,
    MOST_PROCESSES,
    MOST_XID_COUNTS,
    VALUES,
    CardUse,
    ProcessUse,
    Use,
    XidCount,
)
from kube_api.text import printable

LONGEST_USE = 1 << 22
"""Bytes of a line, without its newline."""

_NUMBER = integer()
_VALUE, _PERCENT = number(), number(0, 100)


def _values(value: object, place: str) -> dict[str, float]:
    if type(value) is not dict or not value.keys() <= frozenset(VALUES):
        raise StateInvalid(f"{place} is not an object of known values: {printable(repr(value), 80)}")
    return {name: _VALUE(one, f"{place}.{name}") for name, one in value.items()}


_PROCESS = record(
    ProcessUse,
    {
        "pid": integer(least=1, most=2**31 - 1),
        "start": _NUMBER,
        "uid": word,
        "pod": pod,
        "memory": optional(_NUMBER),
        "busy": optional(_PERCENT),
    },
)
CARD_USE: Check[CardUse] = record(
    CardUse,
    {
        "id": word,
        "pci": word,
        "driver": word,
        "index": integer(most=2**20 - 1),
        "name": text,
        "parent": word,
        "profile": word,
        "gi": optional(_NUMBER),
        "values": _values,
        "processes": several(_PROCESS, MOST_PROCESSES),
        "is_unread": flag,
    },
)
_PODS = several(pod, MOST_PODS)
_XID = record(XidCount, {"uuid": word, "xid": integer(most=2**32 - 1), "count": integer(least=1)})
_USE = record(
    Use,
    {
        "session": word,
        "at": seconds,
        "cards": several(CARD_USE, MOST_DEVICES),
        "xids": several(_XID, MOST_XID_COUNTS),
        "pods": optional(_PODS),
        "processes": text,
        "ended": several(ENDED, MOST_ENDED),
        "kept": KEPT,
        "refused": check_refused,
        "unread": _PODS,
    },
)


def check_use(value: object) -> Use:
    """Make a value of what came as JSON.

    Raises:
        StateInvalid: it is none; the message says where and why.
    """
    use = _USE(value, "the use")
    if len({card.id for card in use.cards}) != len(use.cards):
        raise StateInvalid("two cards of the use have one id")
    if sum(len(card.processes) for card in use.cards) > MOST_IN_ALL:
        raise StateInvalid(f"the use has more than {MOST_IN_ALL} processes")
    return use


def dump_use(use: Use) -> bytes:
    """Write the use of cards as one line, without its newline."""
    lists = {name: [one._asdict() for one in getattr(use, name)] for name in ("xids", "ended", "kept")}
    plain = {**use._asdict(), **lists, "cards": [plain_card_use(one) for one in use.cards]}
    return json.dumps({"version": VERSION, "use": plain}, separators=(",", ":")).encode()


def plain_card_use(card: CardUse) -> dict[str, Any]:
    """Make what JSON can write of a card."""
    return {**card._asdict(), "values": dict(card.values), "processes": [one._asdict() for one in card.processes]}


def parse_use(line: bytes) -> Use:
    """Read a line that a follower of use gets.

    Raises:
        StateInvalid: it is no use of this version, or too long; or it is an error, whose text the message has.
    """
    plain = parse_answer(line, LONGEST_USE)
    if plain.keys() != {"version", "use"}:
        raise StateInvalid("a line has no use")
    return check_use(plain["use"])
