"""The request that a process be ended, and its answer, on the wire."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import StateInvalid
from device_agent.gpu_state.ending import (
    ENDED,
    MOST_PID,
    Ended,
    EndRequest,
)
from device_agent.gpu_state.requests import END, Request, dump_request, parse_request

CARD = "GPU-5f1c0a2b-93a4-4b0e-8d0f-2f6c1a7e4d10"
REQUEST = EndRequest(card=CARD, uid="0a1b2c3d", pid=4711, start=123456, at=99.5)
_WORDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:/+-]{0,100}", fullmatch=True)
_PIDS = st.integers(min_value=1, max_value=MOST_PID)
_STARTS = st.integers(min_value=0, max_value=2**53)
_TIMES = st.floats(min_value=0, max_value=2**40)


def _line(**changed: Any) -> bytes:
    return json.dumps({"version": 1, "request": "end", "process": {**REQUEST._asdict(), **changed}}).encode()


@given(st.builds(EndRequest, card=_WORDS, uid=_WORDS, pid=_PIDS, start=_STARTS, at=_TIMES))
def test_a_request_is_read_as_it_was_written(process: EndRequest) -> None:
    """One line, with all by which a process is known."""
    line = dump_request(END, process=process)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert parse_request(line) == Request(END, process=process)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"[1]", id="a list"),
        pytest.param(_line().replace(b"1", b"2", 1), id="another version"),
        pytest.param(_line().replace(b"end", b"follow"), id="another request"),
        pytest.param(_line()[:-1] + b',"pods":[]}', id="pods as well"),
        pytest.param(_line(signal=15), id="a signal of one's own choice"),
        pytest.param(
            b'{"version":1,"request":"end","process":{"card":"GPU-1","uid":"a","pid":4711,"at":1}}', id="no start"
        ),
        pytest.param(_line(card=""), id="no card"),
        pytest.param(_line(uid=""), id="no pod"),
        pytest.param(_line(uid="a b"), id="no word"),
        pytest.param(_line(pid=0), id="process 0"),
        pytest.param(_line(pid=-4711), id="a group of processes"),
        pytest.param(_line(pid="4711"), id="a number in quotes"),
        pytest.param(_line(pid=True), id="true"),
        pytest.param(_line(pid=MOST_PID + 1), id="more than any PID"),
        pytest.param(_line(start=1.5), id="half a tick"),
        pytest.param(_line(at=-1.0), id="before the boot"),
    ],
)
def test_no_other_request_is_taken(line: bytes) -> None:
    """Every field is checked, and there is no other one."""
    with pytest.raises(StateInvalid):
        parse_request(line)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(None, id="null"),
        pytest.param({"pid": 1, "start": 1, "at": 1}, id="no reason"),
        pytest.param({"pid": 1, "start": 1, "at": 1, "why": "a\nb"}, id="two lines"),
        pytest.param({"pid": 1, "start": 1, "at": 1, "why": "", "more": 1}, id="a field more"),
    ],
)
def test_no_other_answer_is_taken(answer: object) -> None:
    """The agent believes the container nvml no more than it the agent."""
    with pytest.raises(StateInvalid):
        ENDED(answer, "ended")


def test_an_answer_is_read() -> None:
    """With its reason, or without one where the process was ended."""
    assert ENDED({"pid": 7, "start": 8, "at": 9.5, "why": ""}, "ended") == Ended(7, 8, 9.5)
