"""The source follows the container ``nvml``: what it says, what it stops to say, and what is remembered of it."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from device_agent.config.config_file import Description
from device_agent.config.options import Settings
from device_agent.devices.model import Policy, Unit
from device_agent.gpu_state.requests import FOLLOW, MAKE_NODES
from device_agent.gpu_state.state import ABSENT, FAILED, State
from device_agent.gpu_state.state_json import LONGEST_LINE, dump_state
from device_agent.sources.nvidia.client import Timing
from device_agent.sources.nvidia.memory import Memory
from device_agent.sources.nvidia.memory_file import Write, write_memory
from device_agent.sources.nvidia.nvidia_source import NvidiaSource
from device_resources.nvidia import AllocationPolicy, MigStrategy, NvidiaSettings
from tests.unit.device_agent.kubelet_stand_in import SECONDS
from tests.unit.device_agent.nvidia.disk import Disk
from tests.unit.device_agent.nvidia.nvml_stand_in import REFUSAL, Nvml
from tests.unit.device_agent.nvidia.states import card, lost, split, state, xid

GPU = "nvidia.com/gpu"
PATIENT = Timing(
    silence=SECONDS, first_delay=0.01, longest_delay=0.05, first_state=SECONDS, moment=SECONDS, slow=2 * SECONDS
)
IMPATIENT = PATIENT._replace(first_state=0.01)
PLAIN = Description(nvidia=NvidiaSettings())


class Life:
    """A source at work, and the container that it follows."""

    def __init__(self, folder: Path, timing: Timing, description: Description, write: Write) -> None:
        self.folder = folder
        self.nvml = Nvml(folder)
        self.woken = asyncio.Event()
        host, state_dir = str(folder / "host"), str(folder / "state")
        settings = Settings(nvml_socket=self.nvml.path, state_dir=state_dir, root=host, report_dir=str(folder))
        self.source = NvidiaSource(settings, timing, write=write)
        self.source.start(self.woken.set)
        self.source.configure(description)

    async def seen(self, is_right: Callable[[dict[str, str]], bool]) -> dict[str, str]:
        """Look whenever the source asks for it, until full GPUs are right: id -> why not healthy."""
        async with asyncio.timeout(SECONDS):
            while True:
                self.woken.clear()
                await self.source.look()
                found = {unit.id: unit.why for unit in self.units()}
                if is_right(found):
                    return found
                await self.woken.wait()

    def units(self, resource: str = GPU) -> tuple[Unit, ...]:
        """Return the units of a resource."""
        return tuple(self.source.resources[resource] or ())


def play(
    folder: Path,
    act: Callable[[Life], Awaitable[None]],
    timing: Timing = PATIENT,
    description: Description = PLAIN,
    write: Write = write_memory,
) -> None:
    """Run a source, act, and end it."""

    async def work() -> None:
        life = Life(folder, timing, description, write)
        try:
            async with asyncio.timeout(2 * SECONDS):
                await act(life)
        finally:
            await life.source.close()
            await life.nvml.stop()

    asyncio.run(work())


def all_well(found: dict[str, str]) -> bool:
    """Return whether four GPUs are healthy."""
    return len(found) == 4 and not any(found.values())


def test_gpus_that_the_container_names_are_offered(folder: Path) -> None:
    """The same object as long as they are the same, though a state came."""

    async def act(life: Life) -> None:
        await life.nvml.start(state())
        await life.seen(all_well)
        before = life.units()
        life.nvml.show(state(at=110.0))
        await life.woken.wait()
        await life.source.look()
        assert life.units() is before
        assert life.source.traits(GPU).is_checked

    play(folder, act)


def test_a_container_that_ends_takes_the_health_and_not_the_list(folder: Path) -> None:
    """The kubelet would drop the resource. When it is back, they are healthy."""

    async def act(life: Life) -> None:
        await life.nvml.start(state())
        await life.seen(all_well)
        await life.nvml.stop()
        found = await life.seen(lambda found: all(found.values()))
        assert len(found) == 4
        assert all("the container nvml does not answer" in why for why in found.values())
        await life.nvml.start(state(at=110.0, session="s2"))
        await life.seen(all_well)

    play(folder, act)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        pytest.param(b"{}", "said what is no state", id="no state"),
        pytest.param(b"\xff", "said what is no state", id="no JSON"),
        pytest.param(REFUSAL, "there are 8 clients already", id="a refusal"),
        pytest.param(b"x" * (LONGEST_LINE + 100), "said a line of more than", id="too long"),
    ],
)
def test_a_container_that_talks_rubbish_is_not_believed(folder: Path, line: bytes, why: str) -> None:
    """Nothing is given; the connection is made anew, and it is believed when it makes sense again."""

    async def act(life: Life) -> None:
        await life.nvml.start(state())
        await life.seen(all_well)
        life.nvml.say(line)
        found = await life.seen(lambda found: all(found.values()))
        assert why in found["GPU-0"]
        life.nvml.line = dump_state(state(at=110.0))
        await life.seen(all_well)

    play(folder, act)


def test_a_container_that_says_nothing_does_not_answer(folder: Path) -> None:
    """Though it keeps the connection."""

    async def act(life: Life) -> None:
        await life.nvml.start(state())
        await life.seen(lambda found: "said nothing for 0.05 s" in found.get("GPU-0", ""))

    play(folder, act, PATIENT._replace(silence=0.05))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        pytest.param(state(status=FAILED, reason="NVML gave no answer for 30 s"), "NVML gave no answer", id="hangs"),
        pytest.param(state(status=ABSENT, reason="no driver is loaded", load=""), "no driver is loaded", id="absent"),
        pytest.param(state(at=0.0, load="101"), "the driver was loaded anew", id="loaded anew"),
    ],
)
def test_while_nothing_is_read_nothing_is_given(folder: Path, said: State, why: str) -> None:
    """With the reason, and with the GPUs that are known."""

    async def act(life: Life) -> None:
        await life.nvml.start(state())
        await life.seen(all_well)
        life.nvml.show(said)
        found = await life.seen(lambda found: all(found.values()))
        assert len(found) == 4
        assert why in found["GPU-0"]

    play(folder, act)


def test_without_a_container_there_is_a_resource_without_devices(folder: Path) -> None:
    """Its capacity is 0, and the first look ends: the agent registers before device nodes are made."""

    async def act(life: Life) -> None:
        await life.source.look()
        assert life.source.resources == {GPU: ()}

    play(folder, act, IMPATIENT)


def test_device_nodes_are_made_when_the_kubelet_knows_the_resource(folder: Path) -> None:
    """Not before, and by a container that starts later, too."""

    async def act(life: Life) -> None:
        await life.nvml.start(state(status=ABSENT, reason="no device nodes"))
        await life.source.look()
        life.source.registered(frozenset())
        assert await life.nvml.next_request() == FOLLOW
        assert life.nvml.asked.empty()
        life.source.registered(frozenset({GPU}))
        assert await life.nvml.next_request() == MAKE_NODES
        life.source.registered(frozenset({GPU}))
        await life.nvml.stop()
        await life.nvml.start()
        assert [await life.nvml.next_request(), await life.nvml.next_request()] == [FOLLOW, MAKE_NODES]

    play(folder, act)


def test_device_nodes_are_not_made_while_a_resource_is_not_known(folder: Path) -> None:
    """A container of that resource would start without being checked."""

    async def act(life: Life) -> None:
        await life.nvml.start(state(card(0), split(1, "1g.5gb")))
        await life.seen(lambda found: list(found) == ["GPU-0"])
        assert await life.nvml.next_request() == FOLLOW
        life.source.registered(frozenset({GPU}))
        life.nvml.show(state(card(0), split(1, "1g.5gb"), card(2), at=110.0))
        await life.seen(lambda found: list(found) == ["GPU-0", "GPU-2"])
        assert life.nvml.asked.empty()
        life.source.registered(frozenset({GPU, "nvidia.com/mig-1g.5gb"}))
        assert await life.nvml.next_request() == MAKE_NODES

    play(folder, act, description=Description(nvidia=NvidiaSettings(mig_strategy=MigStrategy.MIXED)))


def test_the_list_does_not_wait_for_the_file(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is said of the list comes before what is said of a file that cannot be written."""
    (folder / "state").touch()

    async def act(life: Life) -> None:
        await life.nvml.start(state(split(0)))
        await life.source.look()
        assert caplog.text.index("has no instances") < caplog.text.index("cannot write")

    play(folder, act, description=Description(nvidia=NvidiaSettings(mig_strategy=MigStrategy.SINGLE)))


def test_what_is_held_survives_an_agent_that_is_killed(folder: Path) -> None:
    """And which GPUs there are: the lost one is offered under its UUID by an agent that has never seen it."""
    said = state(xids=(xid(1, 79, of=2, at=101.0),))

    async def act(life: Life) -> None:
        await life.nvml.start(said)
        await life.seen(lambda found: "Xid 79" in found.get("GPU-2", ""))

    async def again(life: Life) -> None:
        cards = (card(0), lost(1), card(2), card(3))
        await life.nvml.start(state(*cards, at=110.0, session="s2"))
        found = await life.seen(lambda found: len(found) == 4)
        assert [found["GPU-0"], found["GPU-1"], found["GPU-2"][:6], found["GPU-3"]] == ["", "GPU is lost", "Xid 79", ""]

    async def without(life: Life) -> None:
        await life.source.look()
        assert [unit.id for unit in life.units()] == [f"GPU-{number}" for number in range(4)]
        assert all("the container nvml does not answer" in unit.why for unit in life.units())
        assert all(unit.identity == () for unit in life.units())

    play(folder, act)
    play(folder, again)
    play(folder, without, IMPATIENT)


def test_the_file_is_written_when_what_survives_has_changed(folder: Path) -> None:
    """Not for a reading that says the same, nor by an agent that starts anew; an Xid changes it."""
    written: list[Memory] = []

    def write(where: str, memory: Memory) -> str:
        written.append(memory)
        return write_memory(where, memory)

    async def act(life: Life) -> None:
        await life.nvml.start(state())
        await life.seen(lambda found: all_well(found) and len(written) == 1)
        life.nvml.show(state(card(0, fabric="it is on its way"), card(1), card(2), card(3), at=110.0))
        await life.seen(lambda found: bool(found["GPU-0"]))
        assert len(written) == 1

    async def again(life: Life) -> None:
        await life.nvml.start(state(at=120.0))
        await life.seen(all_well)
        assert len(written) == 1
        life.nvml.show(state(at=130.0, xids=(xid(1, 79, of=2, at=121.0),)))
        await life.seen(lambda found: bool(found["GPU-2"]) and len(written) == 2)

    play(folder, act, write=write)
    play(folder, again, write=write)


def test_a_folder_that_cannot_be_written_is_logged_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And devices are given all the same."""
    (folder / "state").touch()

    async def act(life: Life) -> None:
        await life.nvml.start(state())
        await life.seen(all_well)
        life.nvml.show(state(lost(0, uuid="GPU-0"), card(1)))
        await life.seen(lambda found: bool(found["GPU-0"]))
        assert caplog.text.count("errors of GPUs are forgotten with the agent") == 1

    play(folder, act)


def test_a_disk_that_does_not_answer_holds_no_health_back(folder: Path) -> None:
    """An Xid is shown, and is written when the disk answers."""
    disk = Disk()

    async def act(life: Life) -> None:
        await life.nvml.start(state())
        await life.seen(all_well)
        life.nvml.show(state(xids=(xid(1, 79, of=2),)))
        await life.seen(lambda found: "Xid 79" in found["GPU-2"])
        assert len(disk.asked) == 1
        disk.answers.set()
        await life.seen(lambda _: any(one.xid == 79 for memory in disk.written for one in memory.verdicts))

    play(folder, act, write=disk.write)


def test_gpus_without_a_uuid_are_logged(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are not offered: there is no id for them."""

    async def act(life: Life) -> None:
        await life.nvml.start(state(card(0), lost(1)))
        assert list(await life.seen(lambda found: len(found) == 1)) == ["GPU-0"]
        assert "1 GPUs cannot be read, and their UUIDs are not known" in caplog.text

    play(folder, act)


def test_the_configuration_may_change(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Another strategy has other resources; without ``nvidia:`` there are none."""

    async def act(life: Life) -> None:
        await life.nvml.start(state(split(0, "1g.5gb"), split(1)))
        await life.seen(lambda found: set(found) == {"GPU-0", "GPU-1"})
        single = NvidiaSettings(mig_strategy=MigStrategy.SINGLE, policy=AllocationPolicy.PACKED)
        life.source.configure(Description(nvidia=single))
        await life.seen(lambda found: not found)
        assert "GPU-1 is in MIG mode and has no instances" in caplog.text
        assert life.source.traits(GPU).policy is Policy.PACKED
        life.source.configure(Description(nvidia=NvidiaSettings(mig_strategy=MigStrategy.MIXED)))
        await life.source.look()
        assert set(life.source.resources) == {GPU, "nvidia.com/mig-1g.5gb"}
        life.source.configure(Description())
        assert life.source.resources == {}
        await life.source.look()
        assert life.source.resources == {}

    play(folder, act)


def test_libraries_are_looked_for_below_the_root(folder: Path) -> None:
    """Until they are there nothing is given."""
    libraries = folder / "host/run/nvidia/driver/usr/lib64"

    async def act(life: Life) -> None:
        await life.nvml.start(state())
        found = await life.seen(lambda found: len(found) == 4)
        assert "there is no libcuda.so.1 below /run/nvidia/driver" in found["GPU-0"]
        os.makedirs(libraries)  # noqa: PTH103 - with those above it
        (libraries / "libcuda.so.1").touch()
        await life.source.look()
        assert all(unit.is_healthy for unit in life.units())
        assert life.units()[0].files[-1].path == "/run/nvidia/driver/usr/lib64"

    play(folder, act, description=Description(nvidia=NvidiaSettings(libraries="/run/nvidia/driver")))
