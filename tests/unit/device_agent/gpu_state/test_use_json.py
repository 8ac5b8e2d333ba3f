"""The lines of use: what is written is read again, and nothing else is read."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import StateInvalid
from device_agent.gpu_state import use_json
from device_agent.gpu_state.requests import dump_error
from device_agent.gpu_state.use import (
    MOST_DEVICES,
    MOST_IN_ALL,
    MOST_POD_LIMITS,
    MOST_PODS,
    MOST_PROCESSES,
    MOST_XID_COUNTS,
    VALUES,
    CardUse,
    KeptLimit,
    ProcessUse,
    Use,
    XidCount,
)
from device_agent.gpu_state.use_json import LONGEST_USE, dump_use, parse_use
from kube_api.text import MAX_MESSAGE
from tests.unit.device_agent.gpu_state.examples import assert_refused

UID = "11e5bd563c424dbfa1c17b1c0dbb3d6e"
PROCESS = ProcessUse(4711, 123456, UID, "team-a/train-0", 1 << 30, 37.5)
CARD = CardUse(
    id="GPU-1",
    pci="0000:3b:00.0",
    driver="nvidia",
    index=0,
    name="NVIDIA H200",
    values={"sm_clock_mhz": 1980, "power_w": 312.7, "temperature_c": -3},
    processes=(PROCESS, PROCESS._replace(pid=4712, memory=None, busy=None)),
)
MIG = CARD._replace(id="MIG-1", parent="GPU-1", profile="1g.18gb+me", gi=7, values={}, processes=())
USE = Use("a1b2", 12.5, (CARD, MIG), (XidCount("GPU-1", 79, 2), XidCount("", 31, 1)), ("team-a/train-0",), "",
          kept=(KeptLimit("GPU-1", "team-a/train-0", 2**30),), refused={"GPU-2": "no limits"},
          unread=("team-a/train-0",))  # fmt: skip


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(USE, id="cards with processes"),
        pytest.param(Use("a1b2", 0.0), id="nothing"),
        pytest.param(USE._replace(pods=None, processes="the pod has no hostPID"), id="no processes, and why"),
    ],
)
def test_what_is_written_is_read_again(use: Use) -> None:
    """Each use is one line, and the same value after it was read."""
    line = dump_use(use)
    assert b"\n" not in line
    assert parse_use(line) == use


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.binary(max_size=200) | JSON.map(lambda plain: json.dumps({"version": 1, "use": plain}).encode()))
def test_any_bytes_are_a_use_or_an_error_of_ours(line: bytes) -> None:
    """Whatever a peer sends, nothing else is raised."""
    with pytest.raises(StateInvalid):
        parse_use(line)


@given(st.sampled_from(Use._fields), JSON)
def test_any_json_in_a_field_is_a_use_or_an_error_of_ours(field: str, value: object) -> None:
    """Each value of each type is read, or refused with a message."""
    try:
        parse_use(changed(field, to=value))
    except StateInvalid as error:
        assert str(error).isprintable()  # noqa: PT017 - either is right


def changed(*place: str | int, to: Any) -> bytes:
    """Write the use of the examples with another value at one place."""
    plain = json.loads(dump_use(USE))
    inner = plain["use"]
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = to
    return json.dumps(plain).encode()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param(b"{}", "the version is not 1: None", id="without a version"),
        pytest.param(b'{"version":1,"state":{}}', "a line has no use", id="something else"),
        pytest.param(b" " * (LONGEST_USE + 1), f"at most {LONGEST_USE} are allowed", id="too long"),
        pytest.param(dump_error("no")[:-1], "answered with an error: no", id="an error of the peer"),
        pytest.param(changed("more", to=1), "the use is not an object with session, at", id="a field too many"),
        pytest.param(changed("at", to=-1), "the use.at is not a number of seconds", id="a time before the boot"),
        pytest.param(changed("pods", to=["a"]), "the use.pods[0] is not NAMESPACE/NAME", id="a pod that is none"),
        pytest.param(changed("pods", to=["a/b"] * (MOST_PODS + 1)), "is not a list of at most 1024", id="many pods"),
        pytest.param(changed("processes", to="\x1b[31m"), "is not a short printable text", id="a control sequence"),
        pytest.param(changed("cards", to=[None] * (MOST_DEVICES + 1)), "a list of at most 256", id="many cards"),
        pytest.param(changed("cards", 1, "id", to="GPU-1"), "two cards of the use have one id", id="an id twice"),
        pytest.param(changed("cards", 0, "id", to="GPU 1"), "cards[0].id is not a short word", id="an id with a blank"),
        pytest.param(changed("cards", 0, "values", to=[]), "not an object of known values", id="values in a list"),
        pytest.param(changed("cards", 0, "values", "fan", to=1), "not an object of known values", id="another value"),
        pytest.param(changed("cards", 0, "values", "power_w", to=True), "is not a number", id="true as a value"),
        pytest.param(changed("cards", 0, "values", "power_w", to=None), "is not a number", id="null as a value"),
        pytest.param(changed("cards", 0, "values", "power_w", to=2**60), "is not a number", id="a sentinel"),
        pytest.param(changed("cards", 0, "values", "power_w", to=float("nan")), "NaN is no number", id="not a number"),
        pytest.param(changed("cards", 0, "processes", 0, "pid", to=0), "pid is not an integer", id="no process"),
        pytest.param(
            changed("cards", 0, "processes", 0, "memory", to=-1), "memory is not an integer", id="less memory"
        ),
        pytest.param(changed("cards", 0, "processes", 0, "busy", to=101), "busy is not a number", id="too busy"),
        pytest.param(changed("cards", 0, "processes", 0, "pod", to=""), "pod is not NAMESPACE/NAME", id="in no pod"),
        pytest.param(changed("kept", 0, "pod", to=""), "kept[0].pod is not NAMESPACE/NAME", id="a limit of no pod"),
        pytest.param(changed("kept", to=[{}] * (MOST_POD_LIMITS + 1)), "a list of at most 1024", id="many limits"),
        pytest.param(changed("refused", to=[]), "refused is not an object of at most 256", id="refusals in a list"),
        pytest.param(changed("refused", "GPU 3", to="x"), "refused is not a short word", id="a refusal of no card"),
        pytest.param(changed("refused", "GPU-2", to="\n"), "is not a short printable text", id="a break in a reason"),
        pytest.param(changed("xids", 0, "count", to=0), "count is not an integer", id="an event that was not"),
    ],
)
def test_a_line_that_is_no_use_is_refused(line: bytes, message: str) -> None:
    """The message says where and what; it is printable and short."""
    assert_refused(parse_use, line, message)


def longest() -> Use:
    """Make a use with as much of all as there may be, and pods with the longest names."""
    pod = "n" * 63 + "/" + ".".join(["p" * 63] * 3) + "." + "p" * 61
    values = {name: 1234567.12345 + number for number, name in enumerate(VALUES)}
    process = ProcessUse(2**22, 2**40, UID, pod, 2**37, 12.5)
    card = CARD._replace(name="x" * 100, parent="GPU-" + "0" * 36, values=values, processes=(process,) * 8)
    cards = tuple(card._replace(id=f"MIG-{n:036}") for n in range(MOST_DEVICES))
    xids = tuple(XidCount(f"GPU-{n:036}", 79, 2**40) for n in range(MOST_XID_COUNTS))
    kept = tuple(KeptLimit(f"GPU-{n:036}", pod, 2**40) for n in range(MOST_POD_LIMITS))
    refused = {f"GPU-{n:036}": "x" * MAX_MESSAGE for n in range(MOST_DEVICES)}
    pods = (pod,) * MOST_PODS
    return Use("a1b2", 1e6 + 1 / 3, cards, xids, pods, kept=kept, refused=refused, unread=pods)


def test_the_largest_use_fits_into_a_line() -> None:
    """All cards, processes and pods that there may be."""
    use = longest()
    assert sum(len(card.processes) for card in use.cards) == MOST_IN_ALL
    assert len(dump_use(use)) < LONGEST_USE
    assert parse_use(dump_use(use)) == use


@pytest.mark.parametrize(
    ("processes", "message"),
    [
        pytest.param((MOST_PROCESSES + 1, 0), "is not a list of at most 1024", id="of a card"),
        pytest.param((MOST_PROCESSES, 1), "more than 2048 processes", id="of all"),
    ],
)
def test_processes_are_bounded(processes: tuple[int, int], message: str) -> None:
    """Of a card, and of all together."""
    cards = (CARD, MIG, MIG._replace(id="MIG-2"))
    counts = (processes[0], MOST_IN_ALL - MOST_PROCESSES, processes[1])
    full = tuple(card._replace(processes=(PROCESS,) * count) for card, count in zip(cards, counts, strict=True))
    with pytest.raises(StateInvalid, match=message):
        parse_use(dump_use(USE._replace(cards=full)))


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        pytest.param(Use, "_USE", id="use"),
        pytest.param(CardUse, "CARD_USE", id="card"),
        pytest.param(ProcessUse, "_PROCESS", id="process"),
        pytest.param(XidCount, "_XID", id="Xid count"),
    ],
)
def test_each_field_is_checked(kind: Any, check: str) -> None:
    """A field that is added to a value has to be in its table as well."""
    with pytest.raises(StateInvalid, match=f"is not an object with {', '.join(kind._fields)}"):
        getattr(use_json, check)(None, "it")
