"""What shares of files were given is remembered for limits of memory, and keeps no container from its devices."""

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from device_agent.allocations.given import Given
from device_agent.allocations.remembered import Allocations
from device_agent.followed import Followed
from device_agent.protocol import messages
from device_agent.protocol.messages import AllocateRequest, AllocateResponse, ContainerAllocateRequest
from device_agent.sources.files.files_source import FilesSource
from device_agent.sources.files.notes import Notes
from tests.unit.device_agent.nvidia.life import Life, play, settings_of
from tests.unit.device_agent.nvidia.test_profiles_in_use import mount, shared

CARD, OTHER = "example.com/card", "example.com/other"
WATCH = "memory: {mode: watch}\n"
FOUR = {(CARD, "a::0"): 4, (CARD, "a::1"): 4}


def config(count: int, more: str = WATCH) -> str:
    """Describe a card that so many containers may share."""
    group = f"{{count: {count}, paths: [{{path: /run/card*, type: Mount}}]}}"
    return f"resources:\n- name: {CARD}\n  groups: [{group}]\n{more}"


def noted(*allocations: tuple[str, int], folder: Path) -> Notes:
    """Note allocations one by one; returns who has noted them."""
    notes = Notes(str(folder), "boot")

    async def work() -> None:
        for name, shares in allocations:
            await notes.note(CARD, {name: shares})

    asyncio.run(work())
    return notes


def shares(given: Given | None) -> dict[tuple[str, str], int]:
    """Return the shares of what is known."""
    return {key: one.shares for key, one in (given or {}).items()}


@pytest.mark.parametrize(
    ("offered", "known"),
    [
        pytest.param(FOUR, {(CARD, "a::0"): 4}, id="as it is offered now"),
        pytest.param({(CARD, "a::0"): 2}, {}, id="of another number of shares by now"),
        pytest.param({}, {}, id="not offered any more"),
    ],
)
def test_what_an_agent_before_has_noted_counts_as_it_is_offered_now(
    tmp_path: Path, offered: dict[tuple[str, str], int], known: dict[tuple[str, str], int]
) -> None:
    """Another agent, which noted nothing, may have given the device since; what this one notes is certain."""
    assert shares(noted(("a::0", 4), folder=tmp_path).known({})) == {(CARD, "a::0"): 4}
    after = Notes(str(tmp_path), "boot")
    assert after.known(offered) is None, "it was not read yet"
    after.load()
    assert shares(after.known(offered)) == known


def test_what_cannot_be_written_is_not_known_and_nor_is_what_was_before(tmp_path: Path) -> None:
    """The share of an earlier container says nothing of this one's; what can be written again is known again."""
    folder = tmp_path / "state"
    notes = noted(("a::0", 4), ("a::1", 4), folder=folder)
    (folder / "allocations.json").rename(tmp_path / "kept")
    folder.rmdir()
    folder.touch()

    async def fail() -> str:
        return await notes.note(CARD, {"a::0": 2})

    assert asyncio.run(fail()) == f"cannot remember what is given in {folder}/allocations.json: File exists"
    assert shares(notes.known(FOUR)) == {(CARD, "a::1"): 4}
    folder.unlink()
    assert asyncio.run(fail()) == ""
    assert shares(notes.known({})) == {(CARD, "a::0"): 2, (CARD, "a::1"): 4}


def test_a_disk_that_does_not_answer_is_waited_for_a_moment_by_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it takes later is known then; what was not even begun is not."""
    answers = threading.Event()
    begun: list[str] = []
    remember = Notes.remember

    def wait(notes: Notes, resource: str, new: dict[str, tuple[str, ...]]) -> None:
        begun.extend(new)
        answers.wait()
        remember(notes, resource, new)

    monkeypatch.setattr(Notes, "remember", wait)
    notes = Notes(str(tmp_path), "boot", moment=0.05)

    async def work() -> None:
        for name in ("a::0", "a::1"):
            assert (await notes.note(CARD, {name: 4})).endswith("the disk has not answered for 0.05 s")
        assert (begun, shares(notes.known({}))) == (["a::0"], {})
        answers.set()
        while not shares(notes.known({})):
            await asyncio.sleep(0.01)
        assert shares(notes.known({})) == {(CARD, "a::0"): 4}

    asyncio.run(work())


def test_a_source_whose_shares_are_noted_says_what_is_remembered_of_both(tmp_path: Path) -> None:
    """What limits are made of. Notes that were not read yet hold up nothing else."""
    given = Allocations(str(tmp_path / "given"), "boot")
    given.remember("nvidia.com/gpu", {"GPU-0": ("/dev/nvidia0",)})
    noted(("a::0", 4), folder=tmp_path)

    async def work() -> None:
        followed = Followed(FilesSource(str(tmp_path)), settings_of(tmp_path), (), lambda: None, given)
        followed.note(Notes(str(tmp_path), "boot"))
        (waiting,) = followed.waiting
        assert shares(followed.remembered()) == {("nvidia.com/gpu", "GPU-0"): 0}
        waiting.load()
        assert (followed.waiting, shares(followed.remembered())) == ((), {("nvidia.com/gpu", "GPU-0"): 0})
        assert followed.notes is not None
        await followed.notes.note(CARD, {"a::0": 4})
        assert shares(followed.remembered()) == {("nvidia.com/gpu", "GPU-0"): 0, (CARD, "a::0"): 4}

    asyncio.run(work())


# ---------------------------------------------------------------- in an agent


async def allocate(life: Life) -> str:
    """Ask for the first share for a container; returns its id."""
    device = min(life.kubelet.shown[CARD])
    request = AllocateRequest(containers=(ContainerAllocateRequest(device_ids=(device,)),))
    answer = await life.kubelet.ask(life.kubelet.plugins[CARD], messages.ALLOCATE, request, AllocateResponse)
    assert [one.container_path for one in answer.containers[0].mounts] == ["/run/card0"]
    return device


def run(folder: Path, text: str, act: Callable[[Life], Awaitable[None]]) -> None:
    """Run an agent on a node with one card, and act when it offers it."""
    (folder / "run").mkdir(exist_ok=True)
    (folder / "run/card0").touch()
    count = 1 if "count: 1," in text else 4

    async def work(life: Life) -> None:
        await life.kubelet.until_shown({CARD: (count, count)})
        await act(life)

    play(folder, work, text, settings_of(folder))


def test_an_agent_that_limits_memory_notes_shares_and_no_whole_devices(tmp_path: Path) -> None:
    """Before it answers, so that what is given is known from then on."""

    async def act(life: Life) -> None:
        device = await allocate(life)
        (entry,) = json.loads((tmp_path / "state/files/allocations.json").read_text())["given"]
        assert (entry["resource"], entry["id"], entry["shares"]) == (CARD, device, 4)

    run(tmp_path, config(4), act)
    (tmp_path / "state/files/allocations.json").unlink()

    async def whole(life: Life) -> None:
        await allocate(life)

    run(tmp_path, config(1), whole)
    assert not (tmp_path / "state/files/allocations.json").exists()


@pytest.mark.parametrize(
    "more", [pytest.param("", id="nothing of it"), pytest.param("memory: {mode: off}\n", id="off")]
)
def test_an_agent_that_limits_no_memory_writes_nothing(tmp_path: Path, more: str) -> None:
    """Its folder may not even be there."""

    async def act(life: Life) -> None:
        await allocate(life)

    run(tmp_path, config(4, more), act)
    assert not (tmp_path / "state").exists()


def test_a_container_gets_its_devices_where_nothing_can_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It has no limit then; the log says so, and names the device."""
    (tmp_path / "state").touch()
    devices: list[str] = []

    async def act(life: Life) -> None:
        devices.append(await allocate(life))

    with caplog.at_level(logging.WARNING):
        run(tmp_path, config(4), act)
    assert f"Not a directory: no limit of memory is known for who gets {devices[0]}" in caplog.text


def test_notes_begin_and_end_with_the_limits(tmp_path: Path) -> None:
    """By a reload, which makes no new plugin."""
    file = tmp_path / "state/files/allocations.json"

    async def act(life: Life) -> None:
        await allocate(life)
        assert not file.exists()
        life.config.write_text(config(4))
        while not file.exists():
            await allocate(life)
        life.config.write_text(config(4, ""))
        while file.exists():
            file.unlink()
            await allocate(life)

    run(tmp_path, config(4, ""), act)


def test_with_profiles_what_is_given_has_to_be_remembered(tmp_path: Path) -> None:
    """Limits change nothing about that: the profile needs it, and a container waits for it."""
    mount(tmp_path / "profiles", "version: v1\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/card0").touch()

    async def act(life: Life) -> None:
        await life.kubelet.until_shown({CARD: (4, 4)})
        await allocate(life)
        (entry,) = json.loads((tmp_path / "state/files/allocations.json").read_text())["given"]
        assert entry["shares"] == 4

    play(tmp_path, act, config(4), shared(tmp_path))
