"""The request that a process be ended, and its answer, on the wire."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import StateInvalid
from device_agent.gpu_state.ending import (
    LONGEST,
    MOST_PID,
    Ended,
    EndRequest,
    dump_end_request,
    dump_ended,
    parse_end_request,
    parse_ended,
)
from device_agent.gpu_state.requests import dump_error

CARD = "GPU-5f1c0a2b-93a4-4b0e-8d0f-2f6c1a7e4d10"
REQUEST = EndRequest(card=CARD, uid="0a1b2c3d", pid=4711, start=123456)
_WORDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:/+-]{0,100}", fullmatch=True)
_PIDS = st.integers(min_value=1, max_value=MOST_PID)
_STARTS = st.integers(min_value=0, max_value=2**53)


def _line(**changed: Any) -> bytes:
    return json.dumps({"version": 1, "request": "end", **REQUEST._asdict(), **changed}).encode()


@given(st.builds(EndRequest, card=_WORDS, uid=_WORDS, pid=_PIDS, start=_STARTS))
def test_a_request_is_read_as_it_was_written(request_: EndRequest) -> None:
    """One line, with all by which a process is known."""
    line = dump_end_request(request_)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert parse_end_request(line) == request_


@given(st.builds(Ended, pid=_PIDS, start=_STARTS, why=st.text()))
def test_an_answer_is_read_as_it_was_written(ended: Ended) -> None:
    """Whatever the reason says, it is one printable line of a few hundred characters."""
    line = dump_ended(ended)
    read = parse_ended(line.rstrip(b"\n"))
    assert (read.pid, read.start) == (ended.pid, ended.start)
    assert parse_ended(dump_ended(read)) == read


def test_the_longest_answer_is_read() -> None:
    """A reason of characters that JSON writes with twelve bytes each."""
    ended = Ended(pid=MOST_PID, start=2**53, why="\U0001f4be" * 1000)
    assert len(parse_ended(dump_ended(ended)).why) == 500


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"[1]", id="a list"),
        pytest.param(_line(version=2), id="another version"),
        pytest.param(_line(request="follow"), id="another request"),
        pytest.param(_line(signal=15), id="a signal of one's own choice"),
        pytest.param(b'{"version":1,"request":"end","card":"GPU-1","uid":"a","pid":4711}', id="no start"),
        pytest.param(_line(card=""), id="no card"),
        pytest.param(_line(uid=""), id="no pod"),
        pytest.param(_line(uid="a b"), id="no word"),
        pytest.param(_line(pid=0), id="process 0"),
        pytest.param(_line(pid=-4711), id="a group of processes"),
        pytest.param(_line(pid="4711"), id="a number in quotes"),
        pytest.param(_line(pid=True), id="true"),
        pytest.param(_line(pid=MOST_PID + 1), id="more than any PID"),
        pytest.param(_line(start=1.5), id="half a tick"),
        pytest.param(_line() + b" " * LONGEST, id="too long"),
    ],
)
def test_no_other_request_is_taken(line: bytes) -> None:
    """Every field is checked, and there is no other one."""
    with pytest.raises(StateInvalid):
        parse_end_request(line)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"version":1,"ended":{"pid":1,"start":1}}', id="no reason"),
        pytest.param(b'{"version":1,"ended":{"pid":1,"start":1,"why":"a\\nb"}}', id="two lines"),
        pytest.param(b'{"version":1,"ended":null}', id="null"),
        pytest.param(b'{"version":1,"ended":{"pid":1,"start":1,"why":""},"more":1}', id="a field more"),
    ],
)
def test_no_other_answer_is_taken(line: bytes) -> None:
    """The agent believes the container nvml no more than it the agent."""
    with pytest.raises(StateInvalid):
        parse_ended(line)


def test_an_error_is_read_as_one() -> None:
    """As from a container nvml that does not know the request."""
    with pytest.raises(StateInvalid, match="the container nvml answered with an error: a request is one of"):
        parse_ended(dump_error("a request is one of follow").rstrip(b"\n"))
