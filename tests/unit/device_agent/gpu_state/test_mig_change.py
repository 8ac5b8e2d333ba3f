"""The request that a card's MIG instances be changed, and its answer, on the wire."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import StateInvalid
from device_agent.gpu_state.mig_change import CHANGED, DONE, MigChange, NewInstance
from device_agent.gpu_state.requests import CHANGE_MIG, LONGEST_REQUEST, Request, dump_request, parse_request
from device_agent.gpu_state.state import MOST_GPU_INSTANCES, MOST_SLICES, MigChanged
from tests.unit.device_agent.gpu_state.examples import words

CARD = "GPU-5f1c0a2b-93a4-4b0e-8d0f-2f6c1a7e4d10"
CHANGE = MigChange(
    id=7,
    card=CARD,
    mode=1,
    destroy=(3,),
    create=(NewInstance("3g.20gb", 4, (2, 1)),),
    at=99.5,
    seen=((3, "2g.10gb", 4), (9, "1g.5gb", 0)),
)
ANSWER = {"id": 7, "card": CARD, "outcome": "done", "why": "", "at": 9.5}


def _line(**changed: Any) -> bytes:
    plain = json.loads(dump_request(CHANGE_MIG, change=CHANGE))
    return json.dumps({**plain, "change": {**plain["change"], **changed}}).encode()


_ids = st.integers(min_value=0, max_value=2**53)
_starts = st.integers(min_value=0, max_value=MOST_SLICES - 1)
_compute = st.lists(st.integers(min_value=1, max_value=MOST_SLICES), max_size=MOST_SLICES).map(tuple)
_new = st.lists(st.builds(NewInstance, words, _starts, _compute), max_size=MOST_GPU_INSTANCES).map(tuple)


@st.composite
def _changes(draw: st.DrawFn) -> MigChange:
    ids = draw(st.lists(_ids, max_size=MOST_GPU_INSTANCES, unique=True))
    mode = draw(st.integers(min_value=0, max_value=1))
    return MigChange(
        id=draw(st.integers(min_value=1, max_value=2**53)),
        card=draw(words),
        mode=mode,
        destroy=tuple(one for one in ids if draw(st.booleans())),
        create=draw(_new) if mode else (),
        at=draw(st.floats(min_value=0, max_value=2**40)),
        seen=tuple((one, draw(words), draw(_starts)) for one in ids),
    )


@given(_changes())
def test_a_request_is_read_as_it_was_written(change: MigChange) -> None:
    """One line, with all that the asker saw and wants."""
    line = dump_request(CHANGE_MIG, change=change)
    assert line.count(b"\n") == 1
    assert len(line) < LONGEST_REQUEST
    assert parse_request(line.rstrip(b"\n")) == Request(CHANGE_MIG, change=change)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"version":1,"request":"change-mig"}', id="no change"),
        pytest.param(b'{"version":1,"request":"change-mig","change":null}', id="null"),
        pytest.param(_line()[:-1] + b',"pods":[]}', id="pods as well"),
        pytest.param(_line(force=True), id="a field more"),
        pytest.param(_line(id=0), id="no id"),
        pytest.param(_line(id=2**53 + 1), id="an endless id"),
        pytest.param(_line(card=""), id="no card"),
        pytest.param(_line(card="../../etc"), id="a path"),
        pytest.param(_line(mode=2), id="a mode that there is not"),
        pytest.param(_line(mode=True), id="true as a mode"),
        pytest.param(_line(mode=0), id="instances without MIG mode"),
        pytest.param(_line(destroy=[3, 3]), id="an instance twice"),
        pytest.param(_line(destroy=[4]), id="an instance that was not seen"),
        pytest.param(_line(destroy=[-1]), id="a negative instance"),
        pytest.param(_line(destroy="all"), id="a word"),
        pytest.param(_line(create=[{"profile": "", "start": 0, "compute": []}]), id="no profile"),
        pytest.param(_line(create=[{"profile": "3g.20gb", "start": 8, "compute": []}]), id="slice 8"),
        pytest.param(_line(create=[{"profile": "3g.20gb", "start": 0, "compute": [0]}]), id="no compute slice"),
        pytest.param(_line(create=[{"profile": "3g.20gb", "start": 0, "compute": [1] * 9}]), id="too many parts"),
        pytest.param(_line(create=[{"profile": "3g.20gb", "start": 0}]), id="no compute"),
        pytest.param(_line(create=[["3g.20gb", 0, []]] * 9), id="too many instances"),
        pytest.param(_line(at=-1.0), id="before the boot"),
        pytest.param(_line(seen=[[3, "2g.10gb"]]), id="seen without a place"),
        pytest.param(_line(seen=[{"gi": 3}]), id="seen as an object"),
    ],
)
def test_no_other_request_is_taken(line: bytes) -> None:
    """Every field is checked, there is no other one, and what contradicts itself is refused before anything is done."""
    with pytest.raises(StateInvalid):
        parse_request(line)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(None, id="null"),
        pytest.param({**ANSWER, "outcome": "well"}, id="another outcome"),
        pytest.param({**ANSWER, "why": "a\nb"}, id="two lines"),
        pytest.param({**ANSWER, "id": -1}, id="a negative id"),
        pytest.param({**ANSWER, "more": 1}, id="a field more"),
    ],
)
def test_no_other_answer_is_taken(answer: object) -> None:
    """The agent believes the container nvml no more than it the agent."""
    with pytest.raises(StateInvalid):
        CHANGED(answer, "changed")


def test_an_answer_is_read() -> None:
    """With its outcome; a reason where it is not done."""
    assert CHANGED(ANSWER, "changed") == MigChanged(7, CARD, DONE, "", 9.5)
