"""The lines of the child to its supervisor. They are checked like others: the driver's library may write anywhere."""

import json
from typing import NamedTuple

from device_agent.errors import StateInvalid
from device_agent.gpu_state.checks import Check, integer, one_of, optional, record, text, word
from device_agent.gpu_state.state import ABSENT, FAILED, OK, CardState, NodeState
from device_agent.gpu_state.state_json import CARDS, NODES, VERSION, parse_object, plain_card
from device_agent.gpu_state.use import Use
from device_agent.gpu_state.use_json import LONGEST_USE, check_use, dump_use

LONGEST_MESSAGE = LONGEST_USE
"""Bytes of a line, without its newline."""


class Look(NamedTuple):
    """One inventory; the fields are those of :class:`device_agent.gpu_state.state.State`."""

    status: str
    reason: str = ""
    driver: str = ""
    cards: tuple[CardState, ...] = ()
    nodes: tuple[NodeState, ...] = ()


class XidSeen(NamedTuple):
    """One Xid error, at the time when the line is read."""

    uuid: str
    xid: int
    gi: int | None = None
    ci: int | None = None


_LOOK: Check[Look] = record(
    Look, {"status": one_of(OK, ABSENT, FAILED), "reason": text, "driver": word, "cards": CARDS, "nodes": NODES}
)
_INSTANCE_ID = optional(integer())
_XID: Check[XidSeen] = record(
    XidSeen, {"uuid": word, "xid": integer(most=2**32 - 1), "gi": _INSTANCE_ID, "ci": _INSTANCE_ID}
)


def dump_message(message: Look | XidSeen | Use) -> bytes:
    """Write a message as a line. The use of cards is without session and Xid counts: those are the supervisor's."""
    if isinstance(message, Use):
        return dump_use(message) + b"\n"
    if isinstance(message, XidSeen):
        return _line({"xid": message._asdict()})
    cards, nodes = [plain_card(one) for one in message.cards], [one._asdict() for one in message.nodes]
    return _line({"look": {**message._asdict(), "cards": cards, "nodes": nodes}})


def _line(plain: dict[str, object]) -> bytes:
    return json.dumps({"version": VERSION, **plain}, separators=(",", ":")).encode() + b"\n"


def parse_message(line: bytes) -> Look | XidSeen | Use:
    """Read a line of the child, without its newline.

    Raises:
        StateInvalid: it is no message.
    """
    plain = parse_object(line, LONGEST_MESSAGE)
    match list(plain):
        case ["version", "look"]:
            return _LOOK(plain["look"], "the inventory")
        case ["version", "xid"]:
            return _XID(plain["xid"], "the Xid event")
        case ["version", "use"]:
            return check_use(plain["use"])
    raise StateInvalid("a line is neither an inventory nor an Xid event nor a use of cards")
