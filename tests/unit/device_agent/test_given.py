"""What devices were when they were given is compared with what they are, and survives as text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.allocations.given import (
    LONGEST_IDENTITY,
    MAX_GIVEN,
    Allocation,
    Given,
    Identity,
    check_start,
    dump_given,
    parse_given,
    with_new,
)
from device_agent.errors import AllocationRefused, FileInvalid, StartRefused

GPU = "nvidia.com/gpu"
FIRST, SECOND = ("/dev/nvidia0 195:0",), ("/dev/nvidia1 195:1",)
WAS_FIRST, WAS_SECOND = Allocation(identity=FIRST), Allocation(identity=SECOND, shares=4, at=7.5)
KNOWN: Given = {(GPU, "GPU-1"): WAS_SECOND}
BOOT = "boot-1"

_TEXT = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=40)
_ALLOCATIONS = st.builds(
    Allocation,
    identity=st.lists(_TEXT, min_size=1, max_size=5).map(tuple),
    shares=st.integers(0, 4096),
    at=st.none() | st.floats(0, 1e11),
)
_GIVEN = st.dictionaries(st.tuples(_TEXT, _TEXT), _ALLOCATIONS, max_size=20)


def test_a_device_that_is_what_it_was_may_start() -> None:
    """Nothing is raised."""
    check_start(GPU, "GPU-1", KNOWN, SECOND)


@pytest.mark.parametrize(
    ("resource", "name", "now", "message"),
    [
        pytest.param(
            GPU, "GPU-1", FIRST,
            "device GPU-1 of nvidia.com/gpu was given as /dev/nvidia1 195:1, and is /dev/nvidia0 195:0 now: "
            "delete the pod: it gets its devices anew", id="another path",
        ),
        pytest.param(
            GPU, "GPU-1", (*SECOND, "/dev/nvidia-caps/nvidia-cap1 511:1"),
            "device GPU-1 of nvidia.com/gpu was given as /dev/nvidia1 195:1, and is /dev/nvidia1 195:1, "
            "/dev/nvidia-caps/nvidia-cap1 511:1 now: delete the pod: it gets its devices anew", id="more files",
        ),
        pytest.param(
            GPU, "GPU-1", (),
            "device GPU-1 of nvidia.com/gpu was given as /dev/nvidia1 195:1, and it is not known what it is now: "
            "the start is tried again; if that does not help, delete the pod: it gets its devices anew",
            id="unknown now",
        ),
        pytest.param(
            GPU, "GPU-2", FIRST,
            "device GPU-2 of nvidia.com/gpu: it is not remembered which files it was given as: "
            "delete the pod: it gets its devices anew", id="nothing remembered",
        ),
        pytest.param(
            "nvidia.com/gpu.shared", "GPU-1", SECOND,
            "device GPU-1 of nvidia.com/gpu.shared: it is not remembered which files it was given as: "
            "delete the pod: it gets its devices anew", id="the same id of another resource",
        ),
    ],
)  # fmt: skip
def test_any_other_start_is_refused(resource: str, name: str, now: Identity, message: str) -> None:
    """The message has the id, what was given, what it is now, and the remedy."""
    with pytest.raises(StartRefused) as refused:
        check_start(resource, name, KNOWN, now)
    assert str(refused.value) == message


def test_the_next_allocation_of_an_id_replaces_what_it_was() -> None:
    """Other resources and ids stay."""
    other: Given = {("nvidia.com/mig-1g.5gb", "GPU-1"): WAS_FIRST}
    assert with_new({**KNOWN, **other}, GPU, {"GPU-1": WAS_FIRST}) == {**other, (GPU, "GPU-1"): WAS_FIRST}


def test_the_oldest_are_forgotten() -> None:
    """As many are remembered as fit; an id that is given again is new."""
    known: Given = {(GPU, f"GPU-{number}"): WAS_FIRST for number in range(MAX_GIVEN)}
    again = with_new(known, GPU, {"GPU-0": WAS_SECOND})
    more = with_new(again, GPU, {"new": WAS_SECOND})
    assert len(more) == MAX_GIVEN
    assert (GPU, "GPU-1") not in more
    assert more[GPU, "GPU-0"] == more[GPU, "new"] == WAS_SECOND


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        pytest.param((), "it is not known which files are its own", id="nothing"),
        pytest.param(("x" * LONGEST_IDENTITY, "y"), "cannot be remembered", id="too long"),
        pytest.param(("two\nlines",), "cannot be remembered", id="not printable"),
        pytest.param(("\ud800",), "cannot be remembered", id="half a character"),
    ],
)
def test_what_cannot_be_remembered_is_not_given(identity: Identity, message: str) -> None:
    """A start could not be checked."""
    with pytest.raises(AllocationRefused, match=message):
        with_new({}, GPU, {"GPU-1": Allocation(identity=identity)})


@given(_GIVEN)
def test_what_is_written_is_read(known: Given) -> None:
    """In the same order: the oldest first."""
    assert list(parse_given(dump_given(known, BOOT), BOOT).items()) == list(known.items())


def test_a_file_without_shares_and_times_is_read() -> None:
    """It is of an agent that did not write them: how many shares there were is not known."""
    assert parse_given(_file(), BOOT) == {(GPU, "GPU-1"): Allocation(identity=("x",))}


def test_times_of_another_boot_are_not_read() -> None:
    """They count from another moment; what was given, and the shares, stay."""
    assert parse_given(dump_given(KNOWN, BOOT), "boot-2") == {
        (GPU, "GPU-1"): Allocation(identity=SECOND, shares=4, at=None)
    }


def _file(**entry: object) -> bytes:
    full = {"resource": GPU, "id": "GPU-1", "identity": ["x"], **entry}
    return json.dumps({"version": 1, "given": [full]}).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "it is not JSON", id="empty"),
        pytest.param(_file()[:-5], "it is not JSON", id="cut"),
        pytest.param(b"\xff\xfe", "it is not JSON", id="not text"),
        pytest.param(b"[" * 100_000, "it is not JSON", id="deep"),
        pytest.param(b"[]", "it is not of version 1", id="a list"),
        pytest.param(b'{"version": 2, "given": []}', "it is not of version 1", id="a newer one"),
        pytest.param(b'{"version": 1}', "'given' is not a list", id="nothing given"),
        pytest.param(b'{"version": 1, "given": [7]}', "an entry is not an object", id="a number"),
        pytest.param(_file(resource=None), "an entry has no resource", id="no resource"),
        pytest.param(_file(id="\u001b[1m"), "an entry has no id", id="an id that is not printable"),
        pytest.param(_file(id="x" * 1000), "an entry has no id", id="a long id"),
        pytest.param(_file(identity=[]), "an identity is not a list of texts", id="no identity"),
        pytest.param(_file(identity=[1]), "an identity is not a list of texts", id="numbers"),
        pytest.param(_file(identity=["x" * 3000]), "an identity is too long", id="a long identity"),
        pytest.param(_file(shares=-1), "a number of shares is not one of 0 to 4096", id="shares below 0"),
        pytest.param(_file(shares=True), "a number of shares is not one of 0 to 4096", id="shares that are no number"),
        pytest.param(_file(shares=4097), "a number of shares is not one of 0 to 4096", id="more shares than devices"),
        pytest.param(_file(at="now"), "a time is not one", id="a time that is a text"),
        pytest.param(_file(at=float("nan")), "a time is not one", id="a time that is no number"),
        pytest.param(_file(at=-1), "a time is not one", id="a time before the boot"),
    ],
)
def test_what_is_not_such_a_file_is_refused(content: bytes, message: str) -> None:
    """The message says what is wrong."""
    with pytest.raises(FileInvalid, match=message):
        parse_given(content, BOOT)


@given(st.binary(max_size=60) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["version", "boot", "given", "resource", "id", "identity", "shares", "at"]), inner, max_size=5),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_content_is_read_or_refused(content: bytes) -> None:
    """Nothing but the one error comes out."""
    try:
        known = parse_given(content, BOOT)
    except FileInvalid:
        return
    assert len(known) <= MAX_GIVEN
