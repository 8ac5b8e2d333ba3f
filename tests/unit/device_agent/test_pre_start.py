"""A container starts with the devices that it was given and with no others, also after a boot."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from device_agent.allocations.recent import PENDING
from device_agent.allocations.remembered import Allocations
from device_agent.devices.model import DeviceNode, Traits, Unit, offered
from device_agent.kubelet.plugin import Plugin
from device_agent.protocol import messages
from device_agent.protocol.messages import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    DevicePluginOptions,
    Empty,
    PreStartContainerRequest,
)
from tests.unit.device_agent.kubelet_stand_in import Kubelet

GPU = "nvidia.com/gpu"
CHECKED = Traits(is_checked=True)
PERIOD = 0.05


def card(number: int, minor: int | None, *, why: str = "", shares: int = 1) -> Unit:
    """Make a card with its own node, or one of which that is not known."""
    path = f"/dev/nvidia{minor}"
    own = minor is not None
    return Unit(
        id=f"GPU-{number}",
        shares=shares,
        why=why,
        files=(DeviceNode(path=path, mount_path=path),) if own else (),
        identity=(f"{path} 195:{minor}",) if own else (),
    )


class Life:
    """A plugin that a kubelet knows."""

    def __init__(self, kubelet: Kubelet, plugin: Plugin) -> None:
        self.kubelet = kubelet
        self.plugin = plugin

    async def show(self, *units: Unit) -> None:
        """Have these cards now."""
        await self.plugin.service.publish(offered(units))

    async def allocate(self, *containers: Sequence[str]) -> list[list[str]]:
        """Give devices to containers; returns the nodes of each, or the refusal."""
        request = AllocateRequest(
            containers=tuple(ContainerAllocateRequest(device_ids=tuple(ids)) for ids in containers)
        )
        answer = await self.kubelet.ask(self.kubelet.last, messages.ALLOCATE, request, AllocateResponse)
        return [[spec.host_path for spec in one.devices] for one in answer.containers]

    async def start(self, *ids: str) -> str:
        """Start a container with devices; returns why it does not start."""
        request = PreStartContainerRequest(device_ids=ids)
        try:
            await self.kubelet.ask(self.kubelet.last, messages.PRE_START_CONTAINER, request, Empty)
        except GRPCError as error:
            return f"{error.message}" if error.status is Status.FAILED_PRECONDITION else f"{error.status}: not refused"
        return ""


def boot(
    folder: Path,
    act: Callable[[Life], Awaitable[None]],
    *units: Unit,
    traits: Traits = CHECKED,
    given: Allocations | None = None,
) -> None:
    """Run kubelet and plugin from the start, with what was remembered in the folder before."""
    state, plugins = folder / "state", folder / "plugins"
    plugins.mkdir(exist_ok=True)

    async def work() -> None:
        kubelet = Kubelet(plugins)
        plugin = Plugin(GPU, str(plugins), lambda: None, traits, given or Allocations(str(state)))
        life = Life(kubelet, plugin)
        await life.show(*units)
        await kubelet.start()
        registrar = asyncio.create_task(plugin.keep_registered(PERIOD))
        try:
            await kubelet.next_registration()
            await kubelet.next_list()
            await act(life)
        finally:
            registrar.cancel()
            await asyncio.wait([registrar])
            await plugin.stop()
            await kubelet.stop()

    asyncio.run(work())


def test_the_kubelet_asks_before_each_start(tmp_path: Path) -> None:
    """It is told so by the registration and by the plugin, as its versions read one or the other."""

    async def act(life: Life) -> None:
        expected = DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)
        kubelet = life.kubelet
        options = await kubelet.ask(kubelet.last, messages.OPTIONS, Empty(), DevicePluginOptions)
        assert options == kubelet.last.options == expected

    boot(tmp_path, act, card(0, 0))


def test_the_minute_of_a_device_begins_with_the_answer(tmp_path: Path) -> None:
    """Not before the disk has it, which may take longer than that."""
    given = Allocations(str(tmp_path / "state"), "boot-1", count(100.0).__next__)

    async def act(life: Life) -> None:
        await life.allocate(["GPU-1"])
        assert given.given is not None
        written = given.given[GPU, "GPU-1"].at
        assert written is not None
        assert written < given.recent[GPU, "GPU-1"].at < PENDING

    boot(tmp_path, act, card(1, 1), given=given)


def test_what_allocate_gave_counts_as_in_use(tmp_path: Path) -> None:
    """With the number of shares of its unit, and on the disk before the answer."""

    async def act(life: Life) -> None:
        await life.allocate(["GPU-1::2"])
        agent = Allocations(str(tmp_path / "state"))
        agent.load()
        assert agent.recent.keys() == {(GPU, "GPU-1::2")}
        assert [start.shares for start in agent.recent.values()] == [4]

    boot(tmp_path, act, replace(card(1, 1), shares=4))


def test_a_card_that_was_moved_by_a_lost_one_is_not_opened(tmp_path: Path) -> None:
    """Card 0 is gone after a boot, and card 1 has its path: the pod of card 1 had another path, and does not start."""

    async def before(life: Life) -> None:
        assert await life.allocate(["GPU-1"], ["GPU-2"]) == [["/dev/nvidia1"], ["/dev/nvidia2"]]
        assert await life.start("GPU-1") == await life.start("GPU-2") == ""

    async def after(life: Life) -> None:
        assert await life.start("GPU-1") == (
            "device GPU-1 of nvidia.com/gpu was given as /dev/nvidia1 195:1, and is /dev/nvidia0 195:0 now: "
            "delete the pod: it gets its devices anew"
        )
        assert await life.allocate(["GPU-1"]) == [["/dev/nvidia0"]]
        assert await life.start("GPU-1") == ""
        assert "GPU-2 of nvidia.com/gpu was given as /dev/nvidia2 195:2, and is" in await life.start("GPU-1", "GPU-2")

    boot(tmp_path, before, card(0, 0), card(1, 1), card(2, 2))
    boot(tmp_path, after, card(1, 0), card(2, 1))


def test_cards_that_are_where_they_were_start_again(tmp_path: Path) -> None:
    """Another card that came or went is no reason to refuse, and neither is a boot."""

    async def before(life: Life) -> None:
        await life.allocate(["GPU-0", "GPU-1"])

    async def after(life: Life) -> None:
        assert await life.start("GPU-0", "GPU-1") == ""
        await life.show(card(0, 0), card(1, 1))
        assert await life.start("GPU-1", "GPU-0") == ""

    boot(tmp_path, before, card(0, 0), card(1, 1))
    boot(tmp_path, after, card(0, 0), card(1, 1), card(2, 2))


def test_a_pod_may_use_its_own_sick_card_again(tmp_path: Path) -> None:
    """It is not given to others; a card that is lost has no path that is known to be its own."""

    async def act(life: Life) -> None:
        await life.allocate(["GPU-0"])
        await life.show(card(0, 0, why="Xid 31"))
        assert await life.start("GPU-0") == ""
        await life.show(card(0, None, why="GPU is lost"))
        assert "it is not known what it is now: the start is tried again" in await life.start("GPU-0")
        await life.show()
        assert "it is not known what it is now: the start is tried again" in await life.start("GPU-0")
        await life.show(card(0, 0))
        assert await life.start("GPU-0") == ""

    boot(tmp_path, act, card(0, 0))


def test_a_start_of_which_nothing_is_remembered_is_refused(tmp_path: Path) -> None:
    """It may have been given by another plugin, or before the file was lost. Shares are remembered each by itself."""

    async def act(life: Life) -> None:
        assert "it is not remembered which files it was given as: delete the pod" in await life.start("GPU-0::0")
        await life.allocate(["GPU-0::1"])
        assert await life.start("GPU-0::1") == ""
        assert "GPU-0::0 of nvidia.com/gpu: it is not remembered" in await life.start("GPU-0::0")

    boot(tmp_path, act, card(0, 0, shares=2))


def test_what_cannot_be_remembered_is_not_given(tmp_path: Path) -> None:
    """Neither a card whose files are not known, nor any while the folder cannot be written."""

    async def act(life: Life) -> None:
        with pytest.raises(GRPCError, match=r"GPU-0 of nvidia.com/gpu: it is not known which files are its own"):
            await life.allocate(["GPU-1"], ["GPU-0"])
        (tmp_path / "state").touch()
        with pytest.raises(GRPCError, match=r"cannot remember what is given in .*/state/allocations.json: File exists"):
            await life.allocate(["GPU-1"])
        assert life.plugin.service.allocations == {"success": 0, "refused": 2}
        (tmp_path / "state").unlink()
        assert await life.allocate(["GPU-1"]) == [["/dev/nvidia1"]]

    boot(tmp_path, act, card(0, None), card(1, 1))


def test_other_resources_are_not_checked(tmp_path: Path) -> None:
    """Nothing is written, and a start is not asked about; if it is, it is answered."""

    async def act(life: Life) -> None:
        assert life.kubelet.last.options == DevicePluginOptions(get_preferred_allocation_available=True)
        await life.allocate(["GPU-0"])
        assert await life.start("GPU-0") == await life.start("GPU-9") == ""
        assert not (tmp_path / "state").exists()

    boot(tmp_path, act, card(0, None), traits=Traits())
