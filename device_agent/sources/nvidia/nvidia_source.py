"""NVIDIA's driver as a source: its GPUs and MIG instances, as the container ``nvml`` sees them."""

import logging
from collections.abc import Callable, Mapping, Sequence

from device_agent.config.config_file import Description
from device_agent.config.options import Settings
from device_agent.devices.model import Policy, Traits, Unit
from device_agent.gpu_state.state import State
from device_agent.sources.in_thread import in_thread
from device_agent.sources.nvidia.client import USUAL, Heard, NvmlClient, Timing
from device_agent.sources.nvidia.health import Rules
from device_agent.sources.nvidia.libraries import NO_LIBRARIES, Libraries, find_libraries
from device_agent.sources.nvidia.memory import Memory, after, surviving
from device_agent.sources.nvidia.memory_file import Keeper, Write, read_memory, write_memory
from device_agent.sources.nvidia.units import Offer, View, offer
from device_agent.sources.source import Known
from device_resources.nvidia import NvidiaSettings
from file_watch.inotify import Place
from kube_api.text import first_few

log = logging.getLogger(__name__)

_MOST_NAMED = 3


class NvidiaSource:
    """Follows the container ``nvml``.

    ``write`` writes down what has to survive the agent; what only looks beside an agent has none.
    """

    name = "nvidia"

    def __init__(self, settings: Settings, timing: Timing = USUAL, *, write: Write | None = write_memory) -> None:
        self._settings = settings
        self._timing = timing
        self._write = write
        self._nvidia: NvidiaSettings | None = None
        self._client: NvmlClient | None = None
        self._memory: Memory | None = None
        self._keeper: Keeper | None = None
        self._said: dict[str, str] = {}
        self._resources: dict[str, tuple[Unit, ...]] = {}

    @property
    def resources(self) -> Known:
        """Return the units that were seen last; none where the configuration has no ``nvidia:``."""
        return self._resources

    def start(self, wake: Callable[[], None]) -> None:
        """Remember whom to wake when the container says something."""
        self._wake = wake

    def configure(self, description: Description) -> None:
        """Offer what this describes; the container is followed as soon as something is described."""
        self._nvidia = description.nvidia
        if self._nvidia is None:
            self._resources = {}
        elif self._client is None:
            self._client = NvmlClient(self._settings.nvml_socket, self._timing, self._wake)

    def places(self) -> Sequence[Place]:
        """Watch no files: the container says what has changed."""
        return ()

    async def look(self) -> None:
        """Take the last state in, and write down what has to survive."""
        nvidia, client = self._nvidia, self._client
        if nvidia is None or client is None:
            return
        client.check()
        if self._memory is None:
            self._memory = await self._remember()
            await client.first_state()
        heard = client.heard
        memory = self._memory = self._after(self._memory, heard.current, nvidia)
        self._say("trouble", "" if heard.silence else heard.trouble)
        libraries = await in_thread(lambda: self._libraries(nvidia), self.name)
        if self._nvidia is nvidia:  # and not described anew meanwhile
            self._take(offer(memory.roster.cards, self._view(memory, heard, nvidia, libraries)))
        why = await self._keeper.keep(surviving(memory)) if self._keeper is not None else ""
        self._say("file", f"{why}; errors of GPUs are forgotten with the agent" if why else "")

    def traits(self, resource: str) -> Traits:  # noqa: ARG002 - all are alike
        """Have each start of a container checked."""
        policy = Policy.DISTRIBUTED if self._nvidia is None else Policy(self._nvidia.policy)
        return Traits(policy=policy, is_checked=True)

    def registered(self, resources: frozenset[str]) -> None:
        """Have device nodes made once the kubelet asks before containers of each of the resources start."""
        if self._client is not None and self._resources and self._resources.keys() <= resources:
            self._client.make_nodes()

    def commands(self, resource: str) -> Mapping[str, int]:  # noqa: ARG002 - as above
        """Run no command."""
        return {}

    async def close(self) -> None:
        """End the connection, and what is being written."""
        if self._client is not None:
            await self._client.close()
        if self._keeper is not None:
            await self._keeper.close()

    async def _remember(self) -> Memory:
        """Read what has survived; from now on it is kept."""
        folder = self._settings.state_dir
        memory = await in_thread(lambda: read_memory(folder), self.name)
        if self._write is not None:
            self._keeper = Keeper(self._write, folder, self._wake)
            self._keeper.written = surviving(memory)
        return memory

    def _after(self, memory: Memory, state: State | None, nvidia: NvidiaSettings) -> Memory:
        if state is None:
            return memory
        memory, unnamed = after(memory, state, self._rules(nvidia))
        self._say("unnamed", f"{unnamed} GPUs cannot be read, and their UUIDs are not known" if unnamed else "")
        return memory

    def _libraries(self, nvidia: NvidiaSettings) -> Libraries:
        """Look for the libraries; it may wait for a disk."""
        return NO_LIBRARIES if nvidia.libraries is None else find_libraries(self._settings.root, nvidia.libraries)

    def _view(self, memory: Memory, heard: Heard, nvidia: NvidiaSettings, libraries: Libraries) -> View:
        state = heard.current
        return View(
            strategy=nvidia.mig_strategy,
            trouble=heard.trouble,
            is_current=state is not None and memory.roster.is_of(state),
            nodes=state.nodes if state is not None else (),
            libraries=libraries,
            verdicts=memory.verdicts,
            rules=self._rules(nvidia),
        )

    def _rules(self, nvidia: NvidiaSettings) -> Rules:
        settings = self._settings
        return Rules(ignored=settings.ignored_xids, counted=settings.counted_xids, hold_seconds=nvidia.hold_seconds)

    def _take(self, made: Offer) -> None:
        """Take what is offered; units that are as before are the same object."""
        before = self._resources
        self._resources = {
            name: before[name] if before.get(name) == units else units for name, units in made.resources.items()
        }
        self._say("empty", first_few(made.reasons, _MOST_NAMED, separator="; "))

    def _say(self, topic: str, what: str) -> None:
        """Log what is wrong once, as long as it stays so."""
        if what and what != self._said.get(topic):
            log.warning("nvidia: %s", what)
        self._said[topic] = what
