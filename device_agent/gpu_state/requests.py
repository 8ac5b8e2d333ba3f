"""What the container ``nvml`` can be asked: a closed set, without a path and without a command."""

import json

from device_agent.errors import StateInvalid
from device_agent.gpu_state.state_json import VERSION, parse_object

FOLLOW = "follow"
"""Send the state at once, whenever it changes, and at least every ten seconds."""
MAKE_NODES = "make-nodes"
"""Make what is missing in ``/dev``, from now on."""
LOOK = "look"
"""Read the inventory now."""

REQUESTS = (FOLLOW, MAKE_NODES, LOOK)

LONGEST_REQUEST = 4096
"""Bytes of a request, without its newline."""


def dump_request(request: str) -> bytes:
    """Write a request as a line."""
    return json.dumps({"version": VERSION, "request": request}, separators=(",", ":")).encode() + b"\n"


def dump_error(message: str) -> bytes:
    """Write the answer to what is no request, as a line; the connection ends after it."""
    return json.dumps({"version": VERSION, "error": message}, separators=(",", ":")).encode() + b"\n"


def parse_request(line: bytes) -> str:
    """Read a client's line; returns one of :data:`REQUESTS`.

    Raises:
        StateInvalid: it is none of them.
    """
    plain = parse_object(line, LONGEST_REQUEST)
    request = plain.get("request")
    if plain.keys() != {"version", "request"} or type(request) is not str or request not in REQUESTS:
        raise StateInvalid(f"a request is one of {', '.join(REQUESTS)}, with a version and nothing else")
    return request
