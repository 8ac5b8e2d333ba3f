"""The lines in which a state travels. What is read is checked field by field, and bounded."""

import json
from collections.abc import Iterable
from typing import Any

from device_agent.errors import StateInvalid
from device_agent.gpu_state.checks import (
    Check,
    flag,
    integer,
    name,
    one_of,
    optional,
    path,
    pci_id,
    record,
    seconds,
    several,
    text,
    word,
)
from device_agent.gpu_state.mig_change import MIG_CHANGES
from device_agent.gpu_state.state import (
    ABSENT,
    FAILED,
    MOST_CARDS,
    MOST_GPU_INSTANCES,
    MOST_INSTANCES,
    MOST_NODES,
    MOST_PROFILES,
    MOST_SLICES,
    MOST_XIDS,
    OK,
    CardState,
    GpuInstanceState,
    InstanceState,
    MigProfileState,
    NodeState,
    State,
    XidEvent,
)
from kube_api.text import printable

VERSION = 1

LONGEST_LINE = 1 << 20
"""Bytes of a state, without its newline."""

_MOST_U32 = 2**32 - 1
_NUMBER, _MINOR = integer(), integer(most=2**20 - 1)


def _link(value: object, place: str) -> tuple[str, int]:
    if type(value) is not list or len(value) != 2:
        raise StateInvalid(f"{place} is not a UUID and a number of links")
    return word(value[0], f"{place}[0]"), _NUMBER(value[1], f"{place}[1]")


_INSTANCE = record(InstanceState, {"uuid": word, "profile": word, "gi": _NUMBER, "ci": _NUMBER, "memory_mib": _NUMBER})
_START, _SIZE = integer(most=MOST_SLICES - 1), integer(least=1, most=MOST_SLICES)
_GPU_INSTANCE = record(
    GpuInstanceState,
    {"gi": _NUMBER, "profile": name, "start": _START, "size": _SIZE, "compute": several(_SIZE, MOST_SLICES)},
)
_PROFILE = record(MigProfileState, {"name": name, "starts": several(_START, MOST_SLICES), "size": _SIZE, "most": _SIZE})
CARD: Check[CardState] = record(
    CardState,
    {
        "index": integer(most=MOST_CARDS - 1),
        "uuid": word,
        "name": text,
        "pci": word,
        "minor": optional(_MINOR),
        "memory_mib": optional(_NUMBER),
        "mig_mode": optional(integer(most=1)),
        "links": several(_link, MOST_CARDS),
        "why": text,
        "error": integer(most=_MOST_U32),
        "recovery_action": optional(integer(most=_MOST_U32)),
        "row_remap_failed": flag,
        "fabric": text,
        "numa_node": optional(_NUMBER),
        "instances": several(_INSTANCE, MOST_INSTANCES),
        "pci_id": pci_id,
        "mig_pending": optional(integer(most=1)),
        "gpu_instances": several(_GPU_INSTANCE, MOST_GPU_INSTANCES),
        "mig_profiles": several(_PROFILE, MOST_PROFILES),
    },
)
_XID = record(
    XidEvent,
    {
        "number": integer(least=1),
        "at": seconds,
        "uuid": word,
        "xid": integer(most=_MOST_U32),
        "gi": optional(_NUMBER),
        "ci": optional(_NUMBER),
    },
)
_NODE = record(
    NodeState, {"path": path, "major": integer(most=2**12 - 1), "minor": _MINOR, "why": text, "capability": word}
)
CARDS: Check[tuple[CardState, ...]] = several(CARD, MOST_CARDS)
NODES: Check[tuple[NodeState, ...]] = several(_NODE, MOST_NODES)
"""The checks of parts, for those who get them alone."""
_STATE = record(
    State,
    {
        "session": word,
        "boot": word,
        "load": word,
        "status": one_of(OK, ABSENT, FAILED),
        "reason": text,
        "driver": word,
        "cards": CARDS,
        "xids": several(_XID, MOST_XIDS),
        "nodes": NODES,
        "read_at": seconds,
        "mig_changes": MIG_CHANGES,
    },
)


def dump_state(state: State) -> bytes:
    """Write a state as one line, without its newline."""
    lists = {field: _plain(getattr(state, field)) for field in ("nodes", "xids", "mig_changes")}
    plain = {"version": VERSION, **state._asdict(), **lists, "cards": [plain_card(one) for one in state.cards]}
    return json.dumps(plain, separators=(",", ":")).encode()


def plain_card(card: CardState) -> dict[str, Any]:
    """Make what JSON can write of a card."""
    lists = {field: _plain(getattr(card, field)) for field in ("instances", "gpu_instances", "mig_profiles")}
    return {**card._asdict(), **lists}


def _plain(many: Iterable[Any]) -> list[dict[str, Any]]:
    return [one._asdict() for one in many]


def parse_state(line: bytes) -> State:
    """Read a line of the container ``nvml``.

    Raises:
        StateInvalid: it is no state of this version, or too long; or it is an error, whose text the message has.
    """
    plain = parse_answer(line, LONGEST_LINE)
    state = _STATE({field: value for field, value in plain.items() if field != "version"}, "the state")
    if len({card.index for card in state.cards}) != len(state.cards):
        raise StateInvalid("two cards of the state have one index")
    return state


def parse_answer(line: bytes, most: int) -> dict[str, Any]:
    """Read a line of at most so many bytes that a client gets.

    Raises:
        StateInvalid: it is none; or it is an error, whose text the message has.
    """
    plain = parse_object(line, most)
    if plain.keys() == {"version", "error"}:
        raise StateInvalid(f"the container nvml answered with an error: {printable(str(plain['error']), 200)}")
    return plain


def parse_object(line: bytes, most: int) -> dict[str, Any]:
    """Read a line of at most so many bytes as an object of this version of the protocol.

    Raises:
        StateInvalid: it is none.
    """
    if len(line) > most:
        raise StateInvalid(f"a line has {len(line)} bytes; at most {most} are allowed")
    try:
        plain = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise StateInvalid(f"a line is not JSON: {printable(str(error), 80)}") from error
    if type(plain) is not dict:
        raise StateInvalid("a line is not an object of JSON")
    version = plain.get("version")
    if type(version) is not int or version != VERSION:
        raise StateInvalid(f"the version is not {VERSION}: {printable(repr(version), 40)}; use one image for the pod")
    return plain


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number of JSON")
