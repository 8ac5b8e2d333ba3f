"""What the container nvml can be asked."""

import pytest

from device_agent.errors import StateInvalid
from device_agent.gpu_state.requests import LONGEST_REQUEST, REQUESTS, dump_error, dump_request, parse_request
from device_agent.gpu_state.state_json import parse_state


@pytest.mark.parametrize("request_", [pytest.param(one, id=one) for one in REQUESTS])
def test_a_request_is_read_as_it_was_written(request_: str) -> None:
    """Each of the closed set."""
    assert parse_request(dump_request(request_).rstrip(b"\n")) == request_


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"follow", id="a word"),
        pytest.param(b'{"version":1}', id="nothing asked"),
        pytest.param(b'{"version":1,"request":"reset"}', id="another request"),
        pytest.param(b'{"version":1,"request":["follow"]}', id="a list"),
        pytest.param(b'{"version":1,"request":"make-nodes","path":"/dev/sda"}', id="a path"),
        pytest.param(b'{"version":2,"request":"follow"}', id="another version"),
        pytest.param(b'{"version":1,"request":"follow"}' + b" " * LONGEST_REQUEST, id="too long"),
    ],
)
def test_anything_else_is_refused(line: bytes) -> None:
    """No path and no command comes over the socket."""
    with pytest.raises(StateInvalid):
        parse_request(line)


def test_an_error_is_read_as_one() -> None:
    """A client that asks for the wrong thing gets its reason where it expects a state."""
    with pytest.raises(StateInvalid, match="the container nvml answered with an error: a request is one of"):
        parse_state(dump_error("a request is one of follow").rstrip(b"\n"))
