"""NVIDIA's driver as a source: its GPUs and MIG instances, as the container ``nvml`` sees them."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from device_agent.config.config_file import Description
from device_agent.config.options import Settings
from device_agent.devices.model import Policy, Traits, Unit
from device_agent.gpu_state.state import State
from device_agent.profiles.strategy import Sorted
from device_agent.sources.in_thread import in_thread
from device_agent.sources.nvidia.client import USUAL, Heard, NvmlClient, Timing
from device_agent.sources.nvidia.health import Rules
from device_agent.sources.nvidia.libraries import NO_LIBRARIES, Libraries, find_libraries
from device_agent.sources.nvidia.memory import Memory, after, surviving
from device_agent.sources.nvidia.memory_file import Keeper, Write, read_memory, write_memory
from device_agent.sources.nvidia.sharing_report import SharingReport
from device_agent.sources.nvidia.units import Offer, View, offer
from device_agent.sources.said import Said
from device_agent.sources.source import Known, unchanged
from device_resources.nvidia import NvidiaSettings
from file_watch.inotify import Place
from kube_api.text import first_few

if TYPE_CHECKING:
    from device_agent.allocations.remembered import Allocations
    from device_agent.mig.values import Step
    from device_agent.profiles.current import ProfileFolder
    from device_agent.profiles.verdict import Verdict
    from device_agent.sources.nvidia.mig_keeper import MigKeeper, NodePort
    from device_agent.sources.nvidia.profiled import Profiled

log = logging.getLogger(__name__)

_MOST_NAMED = 3


class NvidiaSource:
    """Follows the container ``nvml``.

    ``write`` writes down what has to survive the agent; what only looks beside an agent has none, and reports nothing.
    ``given``: remembers what was given; it says in which way each GPU was. Without it nobody has devices.
    ``folder``: reads the profiles, where the settings name any.
    """

    name = "nvidia"

    def __init__(
        self,
        settings: Settings,
        timing: Timing = USUAL,
        *,
        write: Write | None = write_memory,
        given: "Allocations | None" = None,
        folder: "ProfileFolder | None" = None,
    ) -> None:
        self._settings = settings
        self._timing = timing
        self._write = write
        self._given = given
        self._folder = folder
        self._profiles: Profiled | None = None
        self._nvidia: NvidiaSettings | None = None
        self._client: NvmlClient | None = None
        self._memory: Memory | None = None
        self._keeper: Keeper | None = None
        self._say = Said(log, self.name)
        self._report = SharingReport(
            settings.report_dir if write else "", self._say, moment=timing.moment, slow=timing.slow
        )
        self._resources: dict[str, tuple[Unit, ...]] = {}
        self._mig_port: NodePort | None = None
        self._mig: MigKeeper | None = None

    @property
    def resources(self) -> Known:
        """Return the units that were seen last; none where the configuration has no ``nvidia:``."""
        return self._resources

    def start(self, wake: Callable[[], None]) -> None:
        """Remember whom to wake when the container says something."""
        self._wake = wake
        if self._mig_port is not None and self._given is not None:
            self._mig = self._with_mig(self._mig_port, self._given)
        if self._settings.profiles:
            self._profiles = self._with_profiles(self._folder)

    def configure(self, description: Description) -> None:
        """Offer what this describes; the container is followed as soon as something is described."""
        self._nvidia = description.nvidia
        if self._nvidia is None:
            self._resources = {}
            if self._profiles is not None:
                self._profiles.sharing.forget()
        elif self._client is None:
            self._client = NvmlClient(self._settings.nvml_socket, self._timing, self._wake)

    def change_mig(self, port: "NodePort") -> None:
        """Have cards become as the Node asks, where the configuration allows it; called before :meth:`start`."""
        self._mig_port = port

    def look_soon(self) -> None:
        """Have another look: what the Node says has changed."""
        self._wake()

    def expect(self) -> None:
        """Have the profile that was in force before count until the first :meth:`ask`."""
        if self._profiles is not None:
            self._profiles.expect()

    def ask(self, key: str | None) -> None:
        """Have the profile with this key count from the next look on; None or empty: the default one."""
        if self._profiles is not None:
            self._profiles.ask(key or "")

    @property
    def answer(self) -> "Verdict | None":
        """Say what became of the profile that is asked for now; None until it was looked at."""
        return self._profiles.answer if self._profiles else None

    @property
    def verdict(self) -> "Verdict | None":
        """Say how the node's profile was at the last look, whoever has asked for it; None without profiles."""
        return self._profiles.sharing.verdict if self._profiles else None

    @property
    def mig_waits(self) -> bool | None:
        """Return whether the node has not the MIG layout that is asked for; None where none is changed."""
        is_on = self._mig is not None and self._nvidia is not None and self._nvidia.changes_mig
        return bool(self._mig.step.why) if is_on and self._mig is not None else None

    @property
    def missing(self) -> str:
        """Say why nothing can be offered yet."""
        return self._profiles.sharing.missing if self._profiles else ""

    def places(self) -> Sequence[Place]:
        """Watch the profiles and MIG layouts; of GPUs the container says what has changed."""
        folders = (self._settings.profiles, self._settings.mig_config)
        return tuple(Place(folder, self.name) for folder in folders if folder)

    async def look(self) -> None:
        """Take the last state in, and write down what has to survive."""
        nvidia, client = self._nvidia, self._client
        if nvidia is None or client is None:
            await self._report.keep(b"")
            return
        client.check()
        if self._memory is None:
            self._memory = await self._remember()
            await client.first_state()
            if self._profiles is not None:
                await self._profiles.begin(self._memory.profile)
        heard = client.heard
        memory = self._memory = self._after(self._memory, heard.current, nvidia)
        self._say("trouble", "" if heard.silence else heard.trouble)
        libraries = await in_thread(lambda: self._libraries(nvidia), self.name)
        profiles = self._profiles
        mig = await self._change_mig(heard.current, nvidia, client)
        current = await profiles.read() if profiles is not None else None
        has_begun = profiles is not None and await profiles.sharing.begin()
        cards = Sorted(memory.roster.cards)
        if self._nvidia is nvidia:  # and not described anew meanwhile
            view = replace(self._view(memory, heard, nvidia, libraries), changing=mig.held if mig is not None else ())
            if mig is not None and not mig.registers and not self._resources:
                pass  # what is registered first is what the layout makes
            elif profiles is None:
                self._take(offer(memory.roster.cards, view))
            elif has_begun:  # from here to the end of the step nothing is waited for
                self._take(profiles.offer(current, cards, view))
                memory = self._memory = replace(memory, profile=profiles.in_force or memory.profile)
            if self._mig is not None and mig is not None:
                self._mig.has_offered()
        why = await self._keeper.keep(surviving(memory)) if self._keeper is not None else ""
        self._say("file", f"{why}; errors of GPUs are forgotten with the agent" if why else "")
        await self._report.keep(profiles.report(cards, nvidia.mig_strategy) if profiles is not None else b"")

    def traits(self, resource: str) -> Traits:  # noqa: ARG002 - all are alike
        """Have each start of a container checked; what the profile says counts more than the configuration."""
        policy = Policy.DISTRIBUTED if self._nvidia is None else Policy(self._nvidia.policy)
        if self._profiles is None:
            return Traits(policy=policy, is_checked=True)
        profile = self._profiles.sharing.good.profile
        return Traits(
            policy=policy if profile.policy is None else Policy(profile.policy),
            is_checked=True,
            one_share=profile.fails_greater_than_one,
            beside=self._profiles.usual,
        )

    def registered(self, resources: frozenset[str], taken: frozenset[str] = frozenset()) -> None:
        """Have device nodes made once the kubelet asks before containers of each of the resources start.

        What another plugin gives meanwhile is looked at before anything is given here again.
        """
        if self._profiles is not None and self._profiles.sharing.beside(is_another=bool(taken)):
            self._wake()
        if self._client is not None and self._resources and self._resources.keys() <= resources:
            self._client.make_nodes()

    def commands(self, resource: str) -> Mapping[str, int]:  # noqa: ARG002 - as above
        """Run no command."""
        return {}

    async def close(self) -> None:
        """End the connection, what is being looked at, and what is being written."""
        if self._profiles is not None:
            await self._profiles.close()
        if self._mig is not None:
            await self._mig.close()
        if self._client is not None:
            await self._client.close()
        if self._keeper is not None:
            await self._keeper.close()
        await self._report.close()

    def _with_mig(self, port: "NodePort", given: "Allocations") -> "MigKeeper":
        from device_agent.sources.nvidia.mig_keeper import MigKeeper  # noqa: PLC0415 - as above
        from device_agent.sources.nvidia.mig_layouts import LayoutsFile  # noqa: PLC0415 - most nodes change no layouts
        from device_agent.users.asking import Users  # noqa: PLC0415 - as above
        from device_agent.users.look import Places  # noqa: PLC0415 - as above

        users = Users(Places.of(self._settings), self._wake, self._timing.users)
        return MigKeeper(port, LayoutsFile(self._settings.mig_config).read, users, given, self._wake)

    async def _change_mig(self, state: State | None, nvidia: NvidiaSettings, client: NvmlClient) -> "Step | None":
        """Go one step of a change of MIG layouts; None where nobody changes any."""
        if self._mig is None or not nvidia.changes_mig:
            return None
        from device_agent.mig.values import MigSettings  # noqa: PLC0415 - most nodes change no layouts

        return await self._mig.look(state, MigSettings(drain=nvidia.drains_for_mig), client.change_mig)

    def _with_profiles(self, folder: "ProfileFolder | None") -> "Profiled":
        from device_agent.profiles.current import ProfileFolder  # noqa: PLC0415 - most nodes have no profiles
        from device_agent.sources.nvidia.profiled import Profiled  # noqa: PLC0415 - as above
        from device_agent.sources.sharing import Sharing  # noqa: PLC0415 - as above
        from device_agent.users.asking import Users  # noqa: PLC0415 - as above
        from device_agent.users.look import Places  # noqa: PLC0415 - as above

        settings, wake = self._settings, self._wake
        sharing = Sharing(Users(Places.of(settings), wake, self._timing.users), self._given, self._say)
        folder = folder or ProfileFolder(settings.profiles, settings.default_profile)
        return Profiled(sharing, folder, wake, self._timing)

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
        self._resources = unchanged(self._resources, made.resources)
        self._say("empty", first_few(made.reasons, _MOST_NAMED, separator="; "))
