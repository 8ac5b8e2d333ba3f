"""What the container ``nvml`` can be asked: a closed set, without a path and without a command."""

import json
from typing import NamedTuple

from device_agent.errors import StateInvalid
from device_agent.gpu_state.checks import optional, pod, several
from device_agent.gpu_state.ending import END_REQUEST, EndRequest
from device_agent.gpu_state.limits import PodLimit, check_limits
from device_agent.gpu_state.mig_change import MigChange, check_change, plain_change
from device_agent.gpu_state.state_json import VERSION, parse_object
from device_agent.gpu_state.use import MOST_POD_LIMITS, MOST_PODS

FOLLOW = "follow"
"""Send the state at once, whenever it changes, and at least every ten seconds."""
MAKE_NODES = "make-nodes"
"""Make what is missing in ``/dev``, from now on."""
LOOK = "look"
"""Read the inventory now."""
FOLLOW_USE = "follow-use"
"""Send about every three seconds how cards are used, and by which processes of :attr:`Request.pods`.

Have drivers keep :attr:`Request.limits`, too."""
LEAVE_USE = "leave-use"
"""Send no more of it."""
END = "end"
"""End :attr:`Request.process`, if it still is what that says. What became of it is said with the use of cards."""

CHANGE_MIG = "change-mig"
"""Change the MIG instances of a card as :attr:`Request.change` says. What became of it is said with the state."""

REQUESTS = (FOLLOW, MAKE_NODES, LOOK, FOLLOW_USE, LEAVE_USE, END, CHANGE_MIG)

LONGEST_REQUEST = 1 << 20
"""Bytes of a request, without its newline."""

_PODS = optional(several(pod, MOST_PODS))
_LIMITS = optional(check_limits)
_MOST_COMMAS = MOST_PODS + len(PodLimit._fields) * MOST_POD_LIMITS + 4
_MORE = {FOLLOW_USE: ("pods", "limits"), END: ("process",), CHANGE_MIG: ("change",)}
"""What requests have besides."""


class Request(NamedTuple):
    """One request.

    ``pods``: of FOLLOW_USE alone, as NAMESPACE/NAME; None: cards alone, without processes. ``process``: of END alone.
    ``limits``: of FOLLOW_USE alone: all that drivers are to keep from now on; None: nothing is said of them, and what
    was set stays. ``change``: of CHANGE_MIG alone.
    """

    name: str
    pods: tuple[str, ...] | None = None
    process: EndRequest | None = None
    limits: tuple[PodLimit, ...] | None = None
    change: MigChange | None = None


def dump_request(
    name: str,
    pods: tuple[str, ...] | None = None,
    process: EndRequest | None = None,
    limits: tuple[PodLimit, ...] | None = None,
    change: MigChange | None = None,
) -> bytes:
    """Write a request as a line."""
    plain: dict[str, object] = {"version": VERSION, "request": name}
    if name == FOLLOW_USE:
        plain["pods"] = pods
        plain["limits"] = None if limits is None else [one._asdict() for one in limits]
    if process is not None:
        plain["process"] = process._asdict()
    if change is not None:
        plain["change"] = plain_change(change)
    return json.dumps(plain, separators=(",", ":")).encode() + b"\n"


def dump_error(message: str) -> bytes:
    """Write the answer to what is no request, as a line; the connection ends after it."""
    return json.dumps({"version": VERSION, "error": message}, separators=(",", ":")).encode() + b"\n"


def parse_request(line: bytes) -> Request:
    """Read a client's line.

    Raises:
        StateInvalid: it is none of :data:`REQUESTS`.
    """
    # Each value of a list needs memory of its own, many times its text's: they are counted before they are made.
    if len(line) <= LONGEST_REQUEST and line.count(b",") > _MOST_COMMAS:
        raise StateInvalid(f"a request has at most {MOST_PODS} pods and {MOST_POD_LIMITS} limits")
    plain = parse_object(line, LONGEST_REQUEST)
    name = plain.get("request")
    if type(name) is not str or name not in REQUESTS or plain.keys() != {"version", "request", *_MORE.get(name, ())}:
        raise StateInvalid(
            f"a request is one of {', '.join(REQUESTS)}, with a version and nothing else, except pods and "
            f"limits of {FOLLOW_USE}, the process of {END}, and the change of {CHANGE_MIG}"
        )
    if name == END:
        return Request(name, process=END_REQUEST(plain["process"], "process"))
    if name == CHANGE_MIG:
        return Request(name, change=check_change(plain["change"], "change"))
    return Request(name, _PODS(plain.get("pods"), "pods"), limits=_LIMITS(plain.get("limits"), "limits"))
