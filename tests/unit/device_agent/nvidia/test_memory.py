"""What survives the agent: the file is whole at any moment, and one that is broken does no harm."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import StateInvalid
from device_agent.gpu_state.state import MOST_CARDS
from device_agent.sources.nvidia.health import USUAL, Verdict
from device_agent.sources.nvidia.memory import Memory, after, dump_memory, parse_memory, surviving
from device_agent.sources.nvidia.memory_file import Keeper, read_memory, write_memory
from device_agent.sources.nvidia.roster import EMPTY, Roster
from tests.unit.device_agent.kubelet_stand_in import SECONDS
from tests.unit.device_agent.nvidia.disk import Disk
from tests.unit.device_agent.nvidia.states import card, lost, split, state, xid

SAID = state(split(0, "1g.5gb"), card(1), xids=(xid(1, 79, of=1), xid(2, 94, gi=1, ci=0)))
NEWER = tuple(Memory(session=name) for name in ("1", "2", "3"))
"""Contents of the file, one after the other."""

_words = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:/+-]{0,40}", fullmatch=True)
_verdicts = st.builds(
    Verdict,
    uuid=_words,
    xid=st.integers(0, 2**32 - 1),
    at=st.floats(0, 2**53),
    boot=_words,
    load=_words,
    gi=st.none() | st.integers(0, 100),
    ci=st.none() | st.integers(0, 100),
    is_away=st.booleans(),
    knows_action=st.booleans(),
    good_since=st.none(),
)


def test_what_is_known_survives() -> None:
    """GPUs with their instances, verdicts, the last event that was counted; not how far a GPU is on its way back."""
    memory, _ = after(Memory(), SAID, USUAL)
    memory, _ = after(memory, SAID._replace(read_at=110.0), USUAL)
    assert memory.verdicts[0].good_since == 110.0
    again = parse_memory(dump_memory(memory))
    assert [card.uuid for card in again.roster.cards] == ["GPU-0", "GPU-1"]
    assert [one.uuid for one in again.roster.cards[0].instances] == ["MIG-0-1"]
    assert (again.session, again.number) == ("s1", 2)
    assert [(*one.place, one.xid, one.good_since) for one in again.verdicts] == [
        ("GPU-1", None, None, 79, None),
        ("GPU-0", 1, 0, 94, None),
    ]


def test_an_agent_that_starts_anew_counts_no_event_twice() -> None:
    """The same state, and one with a new event."""
    memory, _ = after(Memory(), SAID, USUAL)
    well = parse_memory(dump_memory(Memory(roster=memory.roster, session="s1", number=2)))
    assert after(well, SAID, USUAL)[0].verdicts == ()
    more = SAID._replace(xids=(*SAID.xids, xid(3, 48)))
    assert [one.xid for one in after(well, more, USUAL)[0].verdicts] == [48]


def test_a_container_that_starts_anew_counts_from_one() -> None:
    """Its first event is none that was counted."""
    memory, _ = after(Memory(), SAID, USUAL)
    memory, _ = after(memory, SAID._replace(session="s2", xids=()), USUAL)
    assert (memory.session, memory.number) == ("s2", 0)
    memory, _ = after(memory, SAID._replace(session="s2", xids=(xid(1, 48),)), USUAL)
    assert [one.xid for one in memory.verdicts] == [79, 94, 48]


def test_silence_about_a_gpu_after_an_answer_ends_nothing() -> None:
    """The driver said before the Xid that the GPU needs nothing, and then says nothing: also to a new agent."""
    memory, _ = after(Memory(), state(card(0)), USUAL)
    silent = state(card(0, recovery_action=None), at=102.0, xids=(xid(1, 94),))
    memory, _ = after(memory, silent, USUAL)
    memory = parse_memory(dump_memory(memory))
    memory, _ = after(memory, silent._replace(read_at=10_000.0), USUAL)
    assert [one.xid for one in memory.verdicts] == [94]
    for at in (10_010.0, 10_040.0):
        memory, _ = after(memory, state(card(0), at=at, xids=silent.xids), USUAL)
    assert memory.verdicts == ()


def test_a_verdict_of_an_agent_before_is_read() -> None:
    """It did not write down whether the driver knows of recovery."""
    memory, _ = after(Memory(), SAID, USUAL)
    plain = json.loads(dump_memory(memory))
    for one in plain["verdicts"]:
        del one["knows_action"]
    assert [one.knows_action for one in parse_memory(json.dumps(plain).encode()).verdicts] == [False, False]


def test_gpus_with_other_uuids_each_time_are_bounded() -> None:
    """The file is valid after each reading; of those that are not listed, one with an Xid stays."""
    memory, _ = after(Memory(), state(card(0), card(1), xids=(xid(1, 79, of=1),)), USUAL)
    for number in range(2, 200):
        memory, _ = after(memory, state(card(number, index=0), at=100.0 + number, xids=(xid(1, 79, of=1),)), USUAL)
        memory = parse_memory(dump_memory(memory))
    names = [one.uuid for one in memory.roster.cards]
    assert len(names) == MOST_CARDS
    assert {"GPU-199", "GPU-198", "GPU-1"} <= set(names)
    assert [one.uuid for one in memory.verdicts] == ["GPU-1"]


def test_verdicts_of_gpus_that_are_gone_are_bounded() -> None:
    """Each reading has a full state of new GPUs, and an Xid of each."""
    memory = Memory()
    for first in range(0, 10 * MOST_CARDS, MOST_CARDS):
        numbers = range(first, first + MOST_CARDS)
        xids = tuple(xid(number + 1, 79, of=number) for number in numbers)
        memory, _ = after(memory, state(*(card(number, index=number - first) for number in numbers), xids=xids), USUAL)
    assert len(memory.roster.cards) == MOST_CARDS
    assert [one.uuid for one in memory.verdicts] == [f"GPU-{of}" for of in range(8 * MOST_CARDS, 10 * MOST_CARDS)]


def test_nothing_is_written_for_nothing() -> None:
    """Readings that say the same, of a GPU that is lost or on its way back, change no file."""
    memory, _ = after(Memory(), state(lost(0, uuid="GPU-0"), card(1), xids=(xid(1, 79, of=1),)), USUAL)
    before = surviving(memory)
    for at in range(110, 130, 10):
        memory, _ = after(memory, state(lost(0, uuid="GPU-0"), card(1), at=float(at), xids=(xid(1, 79, of=1),)), USUAL)
        assert surviving(memory) == before


@given(st.lists(_verdicts, max_size=3).map(tuple), _words, st.integers(0, 2**53))
def test_what_is_written_is_read_again(verdicts: tuple[Verdict, ...], session: str, number: int) -> None:
    """Whatever it is."""
    roster = Roster(boot="b", load="1", cards=(split(0, "1g.10gb+me", recovery_action=None),))
    memory = Memory(roster=roster, verdicts=verdicts, session=session, number=number)
    assert parse_memory(dump_memory(memory)) == memory


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"version": 2}, id="another version"),
        pytest.param({"verdicts": [{}]}, id="an empty verdict"),
        pytest.param({"number": -1}, id="a negative number"),
        pytest.param({"cards": {}}, id="no list"),
        pytest.param({"more": 1}, id="an unknown field"),
    ],
)
def test_what_is_no_memory_is_refused(change: dict[str, object]) -> None:
    """Field by field."""
    plain = json.loads(dump_memory(Memory()))
    with pytest.raises(StateInvalid):
        parse_memory(json.dumps({**plain, **change}).encode())


def test_a_file_is_written_and_read(tmp_path: Path) -> None:
    """In a folder that is made; one that a killed agent has left half written is no hindrance."""
    folder = tmp_path / "state"
    memory, _ = after(Memory(), SAID, USUAL)
    assert read_memory(str(folder)) == Memory()
    assert write_memory(str(folder), memory) == ""
    (folder / "verdicts.json.new").write_text("{")
    assert write_memory(str(folder), memory) == ""
    assert [one.place for one in read_memory(str(folder)).verdicts] == [one.place for one in memory.verdicts]
    assert sorted(path.name for path in folder.iterdir()) == ["verdicts.json"]


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b"[" * 5000, b" " * (1 << 22) + b"{}"])
def test_a_broken_file_is_set_aside(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and nothing is held against anything."""
    (tmp_path / "verdicts.json").write_bytes(content)
    assert read_memory(str(tmp_path)) == Memory(roster=EMPTY)
    assert (tmp_path / "verdicts.json.broken").exists()
    assert "verdicts.json is not valid" in caplog.text


def test_a_pipe_in_its_place_is_not_opened_for_ever(tmp_path: Path) -> None:
    """It is no regular file."""
    os.mkfifo(tmp_path / "verdicts.json")
    assert read_memory(str(tmp_path)) == Memory()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """With the reason."""
    (tmp_path / "file").touch()
    assert "cannot write" in write_memory(str(tmp_path / "file"), Memory())
    assert read_memory(str(tmp_path / "file")) == Memory()


def test_a_disk_that_does_not_answer_has_one_write_and_then_the_newest(tmp_path: Path) -> None:
    """Nobody waits for it, and it is a reason as long as it does not answer."""
    disk = Disk()

    async def act() -> None:
        woken = asyncio.Event()
        keeper = Keeper(disk.write, str(tmp_path), woken.set, moment=0.01, slow=0.0)
        said = [await keeper.keep(content) for content in NEWER]
        assert set(said) == {f"cannot write {tmp_path}/verdicts.json: the disk has not answered for 0 s"}
        assert disk.asked == [NEWER[0]]
        disk.answers.set()
        async with asyncio.timeout(SECONDS):
            await woken.wait()
            while await keeper.keep(NEWER[2]):
                await asyncio.sleep(0.01)
        assert disk.written == [NEWER[0], NEWER[2]]
        await keeper.close()

    asyncio.run(act())


def test_a_disk_that_does_not_answer_does_not_keep_the_agent_from_ending(tmp_path: Path) -> None:
    """What is being written is given up."""
    disk = Disk()

    async def act() -> None:
        keeper = Keeper(disk.write, str(tmp_path), lambda: None, moment=0.01)
        assert await keeper.keep(NEWER[0]) == ""
        async with asyncio.timeout(SECONDS):
            await keeper.close()

    asyncio.run(act())
    assert disk.written == []
    disk.answers.set()


def test_what_could_not_be_written_is_written_again(tmp_path: Path) -> None:
    """When the next content is kept, also the same one; what is on the disk is not written twice."""
    asked: list[Memory] = []

    def write(_folder: str, content: Memory) -> str:
        asked.append(content)
        return "it is full" if len(asked) == 1 else ""

    async def act() -> None:
        keeper = Keeper(write, str(tmp_path), lambda: None, moment=SECONDS)
        assert [await keeper.keep(NEWER[0]) for _ in range(3)] == ["it is full", "", ""]

    asyncio.run(act())
    assert asked == [NEWER[0], NEWER[0]]
