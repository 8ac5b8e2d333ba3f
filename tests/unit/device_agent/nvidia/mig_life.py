"""A source that changes MIG layouts, for tests: a Node in memory, a kubelet that says who has devices."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from device_agent.allocations.remembered import Allocations
from device_agent.config.config_file import Description
from device_agent.config.options import Settings
from device_agent.gpu_state.mig_change import MigChange
from device_agent.gpu_state.state import State
from device_agent.mig.values import NodeMig, NodeWrite
from device_agent.sources.nvidia.client import Timing
from device_agent.sources.nvidia.nvidia_source import NvidiaSource
from device_resources.nvidia import MigStrategy, NvidiaSettings
from tests.unit.device_agent.kubelet_stand_in import SECONDS
from tests.unit.device_agent.mig.world import LAYOUTS, World
from tests.unit.device_agent.nvidia.nvml_stand_in import Nvml
from tests.unit.device_agent.nvidia.pods import Pods
from tests.unit.device_agent.nvidia.states import nodes, state

NVIDIA = NvidiaSettings(mig_strategy=MigStrategy.MIXED, changes_mig=True)
TIMING = Timing(silence=SECONDS, first_delay=0.01, longest_delay=0.05, first_state=SECONDS, users=0.05)


class Port:
    """A Node in memory. ``is_away``: it cannot be read."""

    def __init__(self, world: World, wake: Callable[[], None]) -> None:
        self.world = world
        self.is_away = False
        self.is_writing = False
        self._wake = wake

    @property
    def seen(self) -> NodeMig | None:
        """Return the Node."""
        return None if self.is_away else self.world.node()

    def write(self, write: NodeWrite) -> None:
        """Write, and show it a little later."""
        self.is_writing = True
        asyncio.get_running_loop().call_later(0.01, self._written, write)

    def _written(self, write: NodeWrite) -> None:
        self.world.write(write)
        self.is_writing = False
        self._wake()


class Life:
    """A source at work on a node. ``held``: cards of which no device could be given, at each look."""

    def __init__(self, folder: Path, world: World) -> None:
        self.world = world
        self.folder = folder
        self.nvml, self.pods = Nvml(folder), Pods(folder)
        self.nvml.change = self.change
        self.held: list[set[str]] = []
        self.offered: list[set[str]] = []
        (folder / "layouts").mkdir(exist_ok=True)
        (folder / "layouts/config.yaml").write_text(LAYOUTS)
        self.begin()

    def begin(self) -> None:
        """Start the source."""
        folder = self.folder
        settings = Settings(
            nvml_socket=self.nvml.path, state_dir=str(folder / "state"), root=str(folder), report_dir="",
            plugin_dir=str(folder / "plugins"), pod_resources=self.pods.path, mig_config=str(folder / "layouts"),
        )  # fmt: skip
        self.woken = asyncio.Event()
        self.given = Allocations(str(folder / "state"))
        self.source = NvidiaSource(settings, TIMING, given=self.given)
        self.port = Port(self.world, self.woken.set)
        self.source.change_mig(self.port)
        self.source.start(self.woken.set)
        self.source.configure(Description(nvidia=NVIDIA))

    def state(self) -> State:
        """Return what the container says."""
        cards = [card.state() for card in self.world.cards]
        made = state(*cards, nodes=nodes(*(card.index for card in self.world.cards)))
        return made._replace(mig_changes=self.world.changed)

    def change(self, change: MigChange) -> State:
        """Change a card as the world does."""
        self.world.check_asked(change)
        self.world.clock = change.at
        self.world.queue.append(change)
        self.world.changes.append(change)
        self.world.work()
        return self.state()

    async def until(self, is_right: Callable[[], bool]) -> None:
        """Look whenever the source asks for it, until all is right."""
        async with asyncio.timeout(SECONDS):
            while True:
                self.woken.clear()
                await self.source.look()
                units = [unit for each in self.source.resources.values() for unit in each or ()]
                self.held.append({unit.id for unit in units if unit.why == "its MIG layout is being changed"})
                self.offered.append(set(self.source.resources))
                if is_right():
                    return
                await self.woken.wait()

    def count(self, resource: str) -> int:
        """Count the units of a resource."""
        return len(self.source.resources.get(resource) or ())


def play(folder: Path, world: World, act: Callable[[Life], Awaitable[None]], *, has_nvml: bool = False) -> None:
    """Run a source, act, and end it. ``has_nvml``: somebody else listens as the container ``nvml``."""

    async def work() -> None:
        life = Life(folder, world)
        if not has_nvml:
            await life.nvml.start(life.state())
        await life.pods.start()
        try:
            async with asyncio.timeout(3 * SECONDS):
                await act(life)
        finally:
            await life.source.close()
            await life.pods.stop()
            await life.nvml.stop()

    asyncio.run(work())
