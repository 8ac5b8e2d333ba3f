"""The lines between child and supervisor."""

import pytest
from hypothesis import given

from device_agent.errors import StateInvalid
from device_agent.gpu_state.state import OK, State
from device_agent.gpu_state.use import CardUse, Use
from device_agent.nvml_container.messages import Doing, Look, XidSeen, dump_message, parse_message
from tests.unit.device_agent.gpu_state.examples import states


@given(states)
def test_an_inventory_is_read_as_it_was_written(state: State) -> None:
    """Whatever is in it."""
    look = Look(state.status, state.reason, state.driver, state.cards, state.nodes, state.mig_changes)
    line = dump_message(look)
    assert line.endswith(b"\n")
    assert b"\n" not in line[:-1]
    assert parse_message(line[:-1]) == look


@pytest.mark.parametrize(
    "seen", [pytest.param(XidSeen("GPU-1", 79), id="card"), pytest.param(XidSeen("", 31, 7, 0), id="instance")]
)
def test_an_event_is_read_as_it_was_written(seen: XidSeen) -> None:
    """With and without an instance."""
    assert parse_message(dump_message(seen).rstrip(b"\n")) == seen


def test_a_step_is_read_as_it_was_written() -> None:
    """A printable line."""
    doing = Doing("creating 3g.20gb at slice 4 of GPU-1, for change 7")
    assert parse_message(dump_message(doing).rstrip(b"\n")) == doing


def test_a_use_of_cards_is_read_as_it_was_written() -> None:
    """It is checked as what clients get."""
    use = Use("", 12.5, (CardUse("GPU-1", "0000:3b:00.0", "nvidia", 0),), pods=("a/b",), processes="none")
    line = dump_message(use)
    assert line.endswith(b"\n")
    assert parse_message(line[:-1]) == use
    with pytest.raises(StateInvalid, match="two cards"):
        parse_message(dump_message(use._replace(cards=use.cards * 2))[:-1])


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"version":1}', id="nothing"),
        pytest.param(b'{"version":1,"look":{}}', id="an empty inventory"),
        pytest.param(b'{"version":1,"xid":[]}', id="an event in a list"),
        pytest.param(b'{"version":2,"look":{}}', id="another version"),
        pytest.param(dump_message(Look(OK)).replace(b'"ok"', b'"well"'), id="another status"),
        pytest.param(dump_message(XidSeen("GPU-1", 79)).replace(b"79", b"-1"), id="a negative Xid"),
        pytest.param(dump_message(XidSeen("GPU-1", 79)).replace(b"GPU-1", b"GPU 1"), id="a UUID with a blank"),
        pytest.param(dump_message(Doing("a")).replace(b'"a"', b'"\\n"'), id="two lines of a step"),
        pytest.param(b'{"version":1,"doing":"a"}', id="a step that is a text"),
    ],
)
def test_anything_else_is_refused(line: bytes) -> None:
    """The driver's library may have written it."""
    with pytest.raises(StateInvalid):
        parse_message(line)
