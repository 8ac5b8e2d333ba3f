"""The lines of the child to its supervisor. They are checked like others: the driver's library may write anywhere."""

import json
from typing import NamedTuple

from device_agent.errors import StateInvalid
from device_agent.gpu_state.checks import Check, integer, one_of, optional, record, text, word
from device_agent.gpu_state.mig_change import MIG_CHANGES
from device_agent.gpu_state.state import ABSENT, FAILED, OK, CardState, MigChanged, NodeState
from device_agent.gpu_state.state_json import CARDS, NODES, VERSION, parse_object, plain_card
from device_agent.gpu_state.use import Use
from device_agent.gpu_state.use_json import LONGEST_USE, check_use, dump_use

LONGEST_MESSAGE = LONGEST_USE
"""Bytes of a line, without its newline."""


class Look(NamedTuple):
    """One inventory; the fields are those of :class:`device_agent.gpu_state.state.State`.

    ``mig_changes``: answers since the inventory before, of an inventory that is OK.
    """

    status: str
    reason: str = ""
    driver: str = ""
    cards: tuple[CardState, ...] = ()
    nodes: tuple[NodeState, ...] = ()
    mig_changes: tuple[MigChanged, ...] = ()


class Doing(NamedTuple):
    """A step of a change of MIG begins; it may take as long as an answer of NVML's."""

    step: str


class XidSeen(NamedTuple):
    """One Xid error, at the time when the line is read."""

    uuid: str
    xid: int
    gi: int | None = None
    ci: int | None = None


_LOOK: Check[Look] = record(
    Look,
    {
        "status": one_of(OK, ABSENT, FAILED),
        "reason": text,
        "driver": word,
        "cards": CARDS,
        "nodes": NODES,
        "mig_changes": MIG_CHANGES,
    },
)
_DOING: Check[Doing] = record(Doing, {"step": text})
_INSTANCE_ID = optional(integer())
_XID: Check[XidSeen] = record(
    XidSeen, {"uuid": word, "xid": integer(most=2**32 - 1), "gi": _INSTANCE_ID, "ci": _INSTANCE_ID}
)


Message = Look | XidSeen | Use | Doing


def dump_message(message: Message) -> bytes:
    """Write a message as a line. The use of cards is without session and Xid counts: those are the supervisor's."""
    if isinstance(message, Use):
        return dump_use(message) + b"\n"
    if isinstance(message, XidSeen):
        return _line({"xid": message._asdict()})
    if isinstance(message, Doing):
        return _line({"doing": message._asdict()})
    lists = {field: [one._asdict() for one in getattr(message, field)] for field in ("nodes", "mig_changes")}
    return _line({"look": {**message._asdict(), **lists, "cards": [plain_card(one) for one in message.cards]}})


def _line(plain: dict[str, object]) -> bytes:
    return json.dumps({"version": VERSION, **plain}, separators=(",", ":")).encode() + b"\n"


def parse_message(line: bytes) -> Message:
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
        case ["version", "doing"]:
            return _DOING(plain["doing"], "the step")
    raise StateInvalid("a line is neither an inventory nor an Xid event nor a use of cards nor a step")
