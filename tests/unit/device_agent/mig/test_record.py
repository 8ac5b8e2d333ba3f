"""The annotation of a change is read strictly: a wrong one would make a half layout the one before."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import StateInvalid
from device_agent.mig.record import (
    BETWEEN,
    CHANGING,
    IDLE,
    LONGEST_RECORD,
    STEPS,
    CardBefore,
    PlacedInstance,
    Record,
    dump_record,
    may_be_under_way,
    parse_record,
)  # fmt: skip

PLAIN: dict[str, Any] = {
    "asked": "a", "applied": "b", "step": CHANGING, "message": "",
    "before": {"GPU-0": {"mode": 1, "instances": [{"profile": "3g.20gb", "start": 4, "compute": [2, 1]}]}},
}  # fmt: skip
THREE = PLAIN["before"]["GPU-0"]["instances"]
LATE = {"profile": "3g", "start": 8, "compute": []}


def card(mode: int, *instances: object) -> dict[str, Any]:
    """Make a change of the record: what one card was."""
    return {"before": {"GPU-0": {"mode": mode, "instances": list(instances)}}}


CARDS = st.builds(
    lambda starts: CardBefore(1, tuple(PlacedInstance("1g.5gb", start, (1,)) for start in sorted(starts))),
    st.sets(st.integers(0, 7)),
) | st.just(CardBefore(0))


@given(
    before=st.dictionaries(st.sampled_from(["GPU-0", "GPU-1", "GPU-2"]), CARDS, min_size=1),
    step=st.sampled_from([one for one in STEPS if one != IDLE]),
    message=st.text(max_size=700),
    asked=st.text(max_size=80),
)
def test_what_is_written_is_read(before: dict[str, CardBefore], step: str, message: str, asked: str) -> None:
    """Texts are made printable; to write what was read changes nothing."""
    text = dump_record(Record(asked=asked, applied="x", step=step, before=before, message=message))
    found = parse_record(text)
    assert (found.before, found.step) == (before, step)
    assert dump_record(found) == text


def test_the_largest_record_fits() -> None:
    """64 cards with eight instances each, whose messages and keys are as long as they may be."""
    card = CardBefore(1, tuple(PlacedInstance("1g.10gb+me", start, (1,)) for start in range(8)))
    before = {f"GPU-{number:08x}-0000-4000-8000-000000000000": card for number in range(64)}
    text = dump_record(Record(asked="a" * 63, applied="b" * 63, step=BETWEEN, before=before, message="m" * 900))
    assert len(text) <= LONGEST_RECORD
    assert parse_record(text).before == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"step": "changed"}, "it.step is not one of"),
        ({"before": None}, "before is missing in step changing"),
        ({"before": {}}, "it.before is not an object of 1 to 64 cards"),
        ({"step": IDLE}, "before is there in step none"),
        ({"more": 1}, "it is not an object with"),
        ({"asked": 7}, "it.asked is not a short printable text"),
        ({"message": "a\nb"}, "it.message is not a short printable text"),
        (card(2), "it.before.GPU-0.mode is not an integer from 0 to 1"),
        ({"before": {"": {"mode": 0, "instances": []}}}, "it.before is empty"),
        ({"before": {"GPU-0": {"mode": 1}}}, "it.before.GPU-0 is not an object with mode, instances"),
        (card(0, *THREE), "that no card can have"),
        (card(1, *THREE, *THREE), "that no card can have"),
        (card(1, LATE), "start is not an"),
    ],
)  # fmt: skip
def test_a_record_that_is_wrong(change: dict[str, Any], words: str) -> None:
    """The message says where and why."""
    with pytest.raises(StateInvalid, match=words.replace("(", r"\(")):
        parse_record(json.dumps(PLAIN | change))


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", "{", "[" * 9000, "x" * (LONGEST_RECORD + 1)])
def test_what_is_no_record(text: str) -> None:
    """Whatever somebody writes there."""
    with pytest.raises(StateInvalid):
        parse_record(text)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(None, False, id="no annotation"),
        pytest.param(dump_record(Record(asked="a", applied="a")), False, id="nothing before"),
        pytest.param(json.dumps(json.loads(dump_record(Record(asked="a"))), indent=1), False, id="written by hand"),
        pytest.param(dump_record(Record(step=CHANGING, before={"GPU-1": CardBefore(mode=0)})), True, id="a card"),
        pytest.param('{"before":null', True, id="cut off"),
    ],
)
def test_a_change_may_be_under_way(content: str | None, *, expected: bool) -> None:
    """However the annotation is spelled; one that cannot be read may be of a change."""
    assert may_be_under_way(content) is expected
