"""The request that a process of a pod be ended, and its answer, as lines. What is read is checked, and bounded.

Whoever asks names all by which the process is known; the container ``nvml`` compares each of it before it acts
(:mod:`device_agent.nvml_container.ending`).
"""

import json
from typing import Any, NamedTuple

from device_agent.errors import StateInvalid
from device_agent.gpu_state.checks import MOST, Check, integer, record, text, word
from device_agent.gpu_state.state_json import VERSION, parse_object
from kube_api.text import printable

END = "end"
LONGEST = 1 << 13
"""Bytes of a request or an answer, without its newline; a reason of 500 characters may have 6000 in JSON."""
MOST_PID = 1 << 22
"""The kernel's own limit of ``pid_max``."""


class EndRequest(NamedTuple):
    """End this process, if it still is the one that was seen.

    ``card``: the UUID of the card whose memory it has. ``uid``: its pod's UID, as
    :func:`device_agent.users.pods.plain_uid` writes it. ``pid``, ``start``: as of
    :class:`device_agent.gpu_state.use.ProcessUse`.
    """

    card: str
    uid: str
    pid: int
    start: int


class Ended(NamedTuple):
    """What became of a request for this process. ``why``: why it was not ended; empty: it was."""

    pid: int
    start: int
    why: str = ""


def _name(value: object, place: str) -> str:
    if not (found := word(value, place)):
        raise StateInvalid(f"{place} is empty")
    return found


_PROCESS: dict[str, Check[Any]] = {"pid": integer(least=1, most=MOST_PID), "start": integer(most=MOST)}
_REQUEST = record(EndRequest, {"card": _name, "uid": _name, **_PROCESS})
_ENDED = record(Ended, {**_PROCESS, "why": text})


def dump_end_request(request: EndRequest) -> bytes:
    """Write a request as a line."""
    return _line({"request": END, **request._asdict()})


def parse_end_request(line: bytes) -> EndRequest:
    """Read a client's line.

    Raises:
        StateInvalid: it is no such request, or one of its fields is wrong.
    """
    plain = parse_object(line, LONGEST)
    if plain.get("request") != END:
        raise StateInvalid(f"the request is not {END}")
    return _REQUEST(_rest(plain, "version", "request"), "the request")


def dump_ended(ended: Ended) -> bytes:
    """Write an answer as a line."""
    return _line({"ended": ended._replace(why=printable(ended.why))._asdict()})


def parse_ended(line: bytes) -> Ended:
    """Read an answer of the container ``nvml``.

    Raises:
        StateInvalid: it is none, or one of its fields is wrong; or it is an error, whose text the message has.
    """
    plain = parse_object(line, LONGEST)
    if plain.keys() == {"version", "error"}:
        raise StateInvalid(f"the container nvml answered with an error: {printable(str(plain['error']), 200)}")
    if plain.keys() != {"version", "ended"}:
        raise StateInvalid("the answer has not just a version and ended")
    return _ENDED(plain["ended"], "ended")


def _rest(plain: dict[str, Any], *without: str) -> dict[str, Any]:
    return {name: value for name, value in plain.items() if name not in without}


def _line(plain: dict[str, Any]) -> bytes:
    return json.dumps({"version": VERSION, **plain}, separators=(",", ":")).encode() + b"\n"
