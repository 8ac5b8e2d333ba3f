"""The lines of a state: what is written is read again, and nothing else is read."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import StateInvalid
from device_agent.gpu_state import state_json
from device_agent.gpu_state.mig_change import FAILED
from device_agent.gpu_state.state import (
    MOST_CARDS,
    MOST_GPU_INSTANCES,
    MOST_XIDS,
    CardState,
    GpuInstanceState,
    InstanceState,
    MigChanged,
    MigProfileState,
    NodeState,
    State,
    XidEvent,
)
from device_agent.gpu_state.state_json import LONGEST_LINE, dump_state, parse_state
from tests.unit.device_agent.gpu_state.examples import CARD, STATE, assert_refused, states


@given(states)
def test_what_is_written_is_read_again(state: State) -> None:
    """Each state is one line, and the same value after it was read."""
    line = dump_state(state)
    assert b"\n" not in line
    assert parse_state(line) == state


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes_are_a_state_or_an_error_of_ours(line: bytes) -> None:
    """Whatever a peer sends, nothing else is raised."""
    with pytest.raises(StateInvalid):
        parse_state(line)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(State._fields), JSON)
def test_any_json_in_a_field_is_a_state_or_an_error_of_ours(field: str, value: object) -> None:
    """Each value of each type is read, or refused with a message."""
    plain = json.loads(dump_state(STATE))
    plain[field] = value
    try:
        parse_state(json.dumps(plain).encode())
    except StateInvalid as error:
        assert str(error).isprintable()  # noqa: PT017 - either is right


def changed(*place: str | int, to: Any) -> bytes:
    """Write the state of the examples with another value at one place."""
    plain = json.loads(dump_state(STATE))
    inner = plain
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = to
    return json.dumps(plain).encode()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param(b"", "is not JSON", id="empty"),
        pytest.param(b"{", "is not JSON", id="half a line"),
        pytest.param(b"\xff\xfe", "is not JSON", id="not UTF-8"),
        pytest.param(b"[" * 100_000, "is not JSON", id="nested without end"),
        pytest.param(b"[]", "is not an object", id="a list"),
        pytest.param(b"{}", "the version is not 1: None", id="without a version"),
        pytest.param(changed("version", to=2), "the version is not 1: 2; use one image", id="another version"),
        pytest.param(changed("version", to=True), "the version is not 1: True", id="a version of another type"),
        pytest.param(b" " * (LONGEST_LINE + 1), "at most 1048576 are allowed", id="too long"),
        pytest.param(b'{"version":1,"error":"no\\u001b[31m"}', "with an error: no", id="an error of the peer"),
        pytest.param(changed("more", to=1), "is not an object with session, boot", id="a field too many"),
        pytest.param(changed("session", to=7), "the state.session is not a short word: 7", id="a word that is none"),
        pytest.param(changed("session", to="a b"), "the state.session is not a short word", id="a word with a blank"),
        pytest.param(changed("session", to="a" * 129), "the state.session is not a short word", id="a long word"),
        pytest.param(changed("status", to="well"), "is not one of ok, absent, failed: 'well'", id="another status"),
        pytest.param(changed("status", to=["ok"]), "is not one of ok, absent, failed", id="a status in a list"),
        pytest.param(changed("reason", to="a\x1b[31m"), "is not a short printable text", id="a control sequence"),
        pytest.param(changed("reason", to="\ud800"), "is not a short printable text", id="half of a character"),
        pytest.param(changed("reason", to="x" * 501), "is not a short printable text", id="a long reason"),
        pytest.param(changed("cards", to={}), "the state.cards is not a list of at most 64", id="cards not in a list"),
        pytest.param(changed("cards", to=[None] * (MOST_CARDS + 1)), "is not a list of at most 64", id="many cards"),
        pytest.param(changed("cards", 0, to=[]), "the state.cards[0] is not an object with index", id="no card"),
        pytest.param(changed("cards", 0, "index", to=64), "is not an integer from 0 to 63: 64", id="a high index"),
        pytest.param(changed("cards", 0, "index", to=1), "two cards of the state have one index", id="an index twice"),
        pytest.param(changed("cards", 0, "index", to=True), "index is not an integer", id="a boolean as index"),
        pytest.param(changed("cards", 0, "minor", to=-1), "cards[0].minor is not an integer", id="a negative minor"),
        pytest.param(changed("cards", 0, "mig_mode", to=2), "is not an integer from 0 to 1", id="another MIG mode"),
        pytest.param(changed("cards", 0, "row_remap_failed", to=0), "is not true or false: 0", id="0 as a boolean"),
        pytest.param(changed("cards", 0, "memory_mib", to=1e3), "memory_mib is not an integer", id="a float"),
        pytest.param(changed("cards", 0, "memory_mib", to=2**60), "memory_mib is not an integer", id="a huge number"),
        pytest.param(changed("cards", 0, "links", 0, to=["GPU-2"]), "is not a UUID and a number", id="half a link"),
        pytest.param(changed("cards", 0, "instances", 0, "gi", to=None), "gi is not an integer", id="no instance"),
        pytest.param(
            changed("cards", 0, "pci_id", to="0x20B010DE"), "is not device and vendor", id="a PCI id in capitals"
        ),
        pytest.param(
            changed("cards", 0, "mig_pending", to=2), "is not an integer from 0 to 1", id="another mode to come"
        ),
        pytest.param(
            changed("cards", 0, "gpu_instances", to=[None] * (MOST_GPU_INSTANCES + 1)), "at most 8", id="many instances"
        ),
        pytest.param(
            changed("cards", 0, "gpu_instances", 0, "start", to=8), "is not an integer from 0 to 7", id="slice 8"
        ),
        pytest.param(changed("cards", 0, "gpu_instances", 0, "profile", to=""), "profile is empty", id="no profile"),
        pytest.param(
            changed("cards", 0, "gpu_instances", 0, "compute", to=[0]), "is not an integer from 1 to 8", id="no compute"
        ),
        pytest.param(changed("cards", 0, "mig_profiles", 0, "starts", to=4), "is not a list", id="a start in no list"),
        pytest.param(changed("mig_changes", to=[None] * (MOST_CARDS + 1)), "at most 64", id="many changes"),
        pytest.param(changed("mig_changes", 0, "outcome", to="ok"), "is not one of done, in-use", id="another outcome"),
        pytest.param(changed("mig_changes", 0, "id", to=0), "is not an integer from 1", id="a change without an id"),
        pytest.param(changed("mig_changes", 0, "card", to=""), "card is empty", id="a change of no card"),
        pytest.param(
            changed("mig_changes", 0, "why", to="a\n"), "is not a short printable text", id="lines of a change"
        ),
        pytest.param(changed("xids", to=[None] * (MOST_XIDS + 1)), "is not a list of at most 256", id="many events"),
        pytest.param(changed("xids", 0, "at", to=float("nan")), "NaN is no number of JSON", id="no time"),
        pytest.param(changed("xids", 0, "at", to=True), "at is not a number of seconds", id="a boolean as time"),
        pytest.param(changed("xids", 0, "xid", to=2**32), "xid is not an integer", id="a high Xid"),
        pytest.param(changed("nodes", 0, "path", to="/etc/x"), "is not a path below /dev", id="another path"),
        pytest.param(changed("nodes", 0, "path", to="/dev/../x"), "is not a path below /dev", id="a path out of /dev"),
        pytest.param(changed("nodes", 0, "major", to=4096), "major is not an integer", id="a high major"),
    ],
)
def test_a_line_that_is_no_state_is_refused(line: bytes, message: str) -> None:
    """The message says where and what; it is printable and short."""
    assert_refused(parse_state, line, message)


def test_a_state_of_many_cards_fits_into_a_line() -> None:
    """16 cards with 15 peers and 7 instances each, their device nodes, and all events that are kept."""
    links = tuple((f"GPU-{n:036}", 18) for n in range(15))
    instance = InstanceState("MIG-" + "0" * 36, "1g.10gb+me", 13, 0, 9856)
    one, profile = GpuInstanceState(13, "1g.10gb+me", 6, 1, (1,)), MigProfileState("1g.10gb+me", tuple(range(7)), 1, 7)
    card = CARD._replace(why="x" * 500, fabric="x" * 500, links=links, instances=(instance,) * 7)
    card = card._replace(gpu_instances=(one,) * 7, mig_profiles=(profile,) * 10)
    nodes = tuple(NodeState(f"/dev/nvidia-caps/nvidia-cap{n}", 238, n, "x" * 200) for n in range(300))
    xids = tuple(XidEvent(n, 1e6, "GPU-" + "0" * 36, 79, 13, 0) for n in range(1, MOST_XIDS + 1))
    changes = tuple(MigChanged(2**53, f"GPU-{n:036}", FAILED, "x" * 500, 1e6) for n in range(16))
    cards = tuple(card._replace(index=n) for n in range(16))
    state = STATE._replace(cards=cards, nodes=nodes, xids=xids, mig_changes=changes)
    line = dump_state(state)
    assert len(line) < LONGEST_LINE / 4
    assert parse_state(line) == state


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        pytest.param(State, "_STATE", id="state"),
        pytest.param(CardState, "CARD", id="card"),
        pytest.param(InstanceState, "_INSTANCE", id="instance"),
        pytest.param(GpuInstanceState, "_GPU_INSTANCE", id="GPU instance"),
        pytest.param(MigProfileState, "_PROFILE", id="profile"),
        pytest.param(XidEvent, "_XID", id="event"),
        pytest.param(NodeState, "_NODE", id="node"),
    ],
)
def test_each_field_is_checked(kind: Any, check: str) -> None:
    """A field that is added to a value has to be in its table as well."""
    with pytest.raises(StateInvalid, match=f"is not an object with {', '.join(kind._fields)}"):
        getattr(state_json, check)(None, "it")
