"""The agent: follows its sources, and what wakes them, until it is stopped.

A source is woken by uevents, by inotify on the folders that it names, by what it finds out itself, and by a timer. The
agent is woken by inotify on the kubelet's sockets and on the configuration file, and by signals.
:mod:`device_agent.followed` looks at one source, :mod:`device_agent.served` shows one resource to the kubelet, and
:mod:`device_agent.kubelet.plugin` keeps it registered.
"""

import asyncio
import ctypes
import gc
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from device_agent.config.config_file import Description
from device_agent.config.options import Settings
from device_agent.errors import ConfigurationError
from device_agent.followed import Followed
from device_agent.metrics import Counts, render
from device_agent.sources.files.files_source import FilesSource
from device_agent.sources.source import Source
from device_agent.telemetry import serve
from device_agent.uevents import DeviceEvents, watch_devices
from file_watch.inotify import FileWatch, Place, watch_files
from kube_api.pages import Page, health
from kube_api.text import first_few

if TYPE_CHECKING:
    from device_agent.allocations.remembered import Allocations
    from device_agent.gpus import Gpus, MakeOwnNode
    from device_agent.monitoring import Connect, Monitoring
    from device_agent.sources.files.notes import Notes
    from device_agent.sources.files.profiled_files import ProfiledFiles

log = logging.getLogger(__name__)

_SETTLE_SECONDS = 0.05
"""A file changes with several events at once; it is read after them."""
_OVERDUE_INTERVALS = 3
_OVERDUE_SECONDS = 60.0
_MAX_NAMED = 5
_GIVE_BACK_SECONDS = 60.0
_M_ARENA_MAX = -8
"""A parameter of glibc's ``mallopt`` (malloc.h)."""
_CONFIG, _KUBELET = "config", "kubelet"
"""What changes of files are called; no source has these names."""

Load = Callable[[], Description]


class Agent:
    """The agent. ``load`` reads the configuration file again; ``description`` is the one that it starts with.

    ``sources``: where devices come from; if nothing else is given, the node's files, and NVIDIA's driver where the
    configuration asks for it.
    ``given``: remembers what was given; made where a source of its own has resources that are checked.
    ``own_node``: makes what follows the agent's own Node, whose label chooses a profile; called only with profiles.
    ``connect``: connects to the API server, if there is a token; called only with limits of memory.
    """

    def __init__(
        self,
        settings: Settings,
        description: Description,
        load: Load,
        sources: Sequence[Source] | None = None,
        given: "Allocations | None" = None,
        *,
        own_node: "MakeOwnNode" = lambda *_: None,
        connect: "Connect" = lambda: None,
    ) -> None:
        self._settings = settings
        self._own_node = own_node
        self._gpus: Gpus | None = None
        self._connect = connect
        self._monitoring: Monitoring | None = None
        self._pages: dict[str, Callable[[], Page]] = {
            "/healthz": lambda: health(self._trouble()),
            "/readyz": lambda: health(self._missing()),
            "/metrics": lambda: Page(render(self._counts()) + (self._monitoring.metrics() if self._monitoring else "")),
        }
        self._description = description
        self._load = load
        self._given = given
        self._files_by_profile = _profiled_files(settings) if sources is None and settings.profiles else None
        self._sources = (self._files_by_profile or FilesSource(settings.root),) if sources is None else sources
        self._may_add_sources = sources is None
        self._tasks: asyncio.TaskGroup | None = None
        self._followed: list[Followed] = []
        self._files: FileWatch | None = None
        self._is_stopping = False
        self._is_config_asked = False
        self._is_config_current = True
        self._reloads = {"success": 0, "failure": 0}
        self._gave_back: float | None = None

    async def run(self) -> None:
        """Work until stopped.

        Raises:
            ConfigurationError: when the port or the socket cannot be had.
        """
        _use_one_arena()
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        for source in self._sources:
            self._add(source, self._files_by_profile.given if self._files_by_profile else self._given)
        self._configure(self._description)
        with ExitStack() as stack:
            await self._open(stack)
            async with asyncio.TaskGroup() as tasks:
                try:
                    self._tasks = tasks
                    for one in self._followed:
                        one.follow(tasks)
                    if self._gpus is not None:
                        self._gpus.follow(tasks)
                    while not self._is_stopping:
                        await self._woken.wait()
                        await asyncio.sleep(_SETTLE_SECONDS)
                        self._woken.clear()
                        self._reload()
                finally:
                    await self._leave()

    def _add(self, source: Source, given: "Allocations | None") -> None:
        one = Followed(source, self._settings, self._followed, self._on_look, given)
        self._followed.append(one)
        if self._tasks is not None:
            one.follow(self._tasks)

    async def _open(self, stack: ExitStack) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_stop)
        self._loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        if files := watch_files(self._places()):
            self._files = files
            stack.callback(files.close)
            self._loop.add_reader(files.fileno(), self._on_files, files)
            stack.callback(self._loop.remove_reader, files.fileno())
        if devices := watch_devices():
            stack.callback(devices.close)
            self._loop.add_reader(devices.fileno(), self._on_devices, devices)
            stack.callback(self._loop.remove_reader, devices.fileno())
        if self._settings.port:
            stack.callback((await serve(self._settings.port, self._pages)).close)
        if self._settings.socket:
            stack.callback((await serve(self._settings.socket, self._pages)).close)

    async def _leave(self) -> None:
        ends: list[Awaitable[None]] = [one.stop() for one in self._followed]
        if self._gpus is not None:
            ends.append(self._gpus.stop())
        if self._monitoring is not None:
            ends.append(self._monitoring.stop())
        await asyncio.gather(*ends)

    # --- what happens -------------------------------------------------------------------------------------------------

    def _on_stop(self) -> None:
        if not self._is_stopping:
            log.info("stopping")
        self._is_stopping = True
        self._woken.set()

    def _on_hangup(self) -> None:
        self._is_config_asked = True
        self._woken.set()

    def _on_files(self, files: FileWatch) -> None:
        triggers = files.drain().triggers
        if _KUBELET in triggers:
            for one in self._followed:
                one.nudge()
        if _CONFIG in triggers:
            self._on_hangup()
        for one in self._followed:
            if one.source.name in triggers:
                one.wake()

    def _on_devices(self, devices: DeviceEvents) -> None:
        if devices.drain():
            for one in self._followed:
                one.wake()

    def _on_look(self) -> None:
        if self._gpus is not None:
            self._gpus.answer()
        now = self._loop.time()
        if self._gave_back is None:
            if not all(one.has_looked for one in self._followed):
                return
            _give_back(stays=True)
        elif now - self._gave_back < _GIVE_BACK_SECONDS:
            return
        else:
            _give_back(stays=False)
        self._gave_back = now

    # --- configuration ------------------------------------------------------------------------------------------------

    def _reload(self) -> None:
        """Take new resources if that is asked; a file that is wrong leaves the old ones in use."""
        if not self._is_config_asked:
            return
        self._is_config_asked = False
        for one in self._followed:
            one.wake()
        try:
            description = self._load()
        except ConfigurationError as error:
            self._reloads["failure"] += 1
            self._is_config_current = False
            log.error("config: not reloaded, the previous resources stay: %s", error)  # noqa: TRY400 - no traceback: the message is for the operator
            return
        self._reloads["success"] += 1
        self._is_config_current = True
        if description != self._description:
            log.info("config: %s changed", self._settings.config_file)
            self._configure(description)

    def _configure(self, description: Description) -> None:
        self._description = description
        if self._settings.profiles and description.nvidia is None and not description.resources:
            where = self._settings.config_file
            log.warning("config: --profiles means nothing without nvidia: in %s, or resources there", where)
        if description.nvidia is not None and description.nvidia.changes_mig and not self._settings.mig_config:
            where = self._settings.config_file
            log.warning("config: nvidia.mig in %s means nothing without a file of layouts: set --mig-config", where)
        if description.nvidia is not None and self._may_add_sources:
            self._may_add_sources = False
            self._add_gpus()
        self._note_files(description)
        for one in self._followed:
            one.configure(description)
        if self._monitoring is not None or description.is_monitored:
            self._monitor()
        if self._files is not None:
            self._files.watch(self._places())

    def _add_gpus(self) -> None:
        from device_agent.gpus import Gpus  # noqa: PLC0415 - most nodes do not need it

        gpus = self._gpus = Gpus(self._settings, self._given, self._own_node, self._files_by_profile)
        self._given = gpus.given
        self._add(gpus.source, self._given)
        if self._tasks is not None:
            gpus.follow(self._tasks)

    def _note_files(self, description: Description) -> None:
        """Have shares of the node's files noted while memory is limited; with profiles all is remembered anyway."""
        is_noted = description.limits_memory and bool(description.resources)
        for one in self._followed:
            if isinstance(one.source, FilesSource) and is_noted is not (one.notes is not None):
                one.note(_notes(self._settings) if is_noted else None)

    def _monitor(self) -> None:
        from device_agent.monitoring import Monitoring  # noqa: PLC0415 - most nodes do not need it

        if self._monitoring is None:
            self._monitoring = Monitoring(self._settings, self._followed, self._pages, self._connect)
        self._monitoring.configure(self._description)

    def _places(self) -> list[Place]:
        """Name the files whose change matters."""
        return [
            Place(self._settings.config_file, _CONFIG, levels=0),
            Place(self._settings.plugin_dir, _KUBELET, contents=False),
            *(place for one in self._followed for place in one.source.places()),
        ]

    # --- what is asked ------------------------------------------------------------------------------------------------

    def _late(self) -> list[str]:
        longest = self._settings.interval * _OVERDUE_INTERVALS + _OVERDUE_SECONDS
        return [one.source.name for one in self._followed if one.seconds_since_look() > longest]

    def _trouble(self) -> str:
        """Say what a restart may help with: one source of several that does not answer is no reason for it."""
        if self._followed and len(self._late()) == len(self._followed):
            return "the devices were not looked at for too long"
        return self._monitoring.trouble if self._monitoring is not None else ""

    def _missing(self) -> str:
        served = {name: one for each in self._followed for name, one in each.offers().items()}
        if missing := [one.missing for one in served.values() if one.missing]:
            return f"not registered: {first_few(missing, _MAX_NAMED)}"
        if missing := [one.source.missing for one in self._followed if one.source.missing]:
            return first_few(missing, _MAX_NAMED, separator="; ")
        late = {*self._late(), *(one.source.name for one in self._followed if not one.has_looked)}
        return f"not looked at: {first_few(sorted(late), _MAX_NAMED)}" if late else ""

    def _counts(self) -> Counts:
        return Counts(
            resources=tuple(counts for one in self._followed for counts in one.counts()),
            config_is_current=self._is_config_current,
            reloads=self._reloads,
            profile=self._gpus.verdict if self._gpus is not None else None,
            mig_waits=self._gpus.source.mig_waits if self._gpus is not None else None,
        )


def _profiled_files(settings: Settings) -> "ProfiledFiles":
    from device_agent.sources.files.profiled_files import ProfiledFiles  # noqa: PLC0415 - most nodes have no profiles

    return ProfiledFiles(settings)


def _notes(settings: Settings) -> "Notes":
    from device_agent.sources.files.notes import Notes, folder_of_files  # noqa: PLC0415 - most nodes limit no memory

    return Notes(folder_of_files(settings.state_dir))


def _use_one_arena() -> None:
    """Have threads take memory from one place: they mostly wait, and what each leaves behind would be 0.3 MiB."""
    limit = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it, musl has one arena
    if limit is not None:
        limit(_M_ARENA_MAX, 1)


def _give_back(*, stays: bool) -> None:
    """Give back what is needed no more. ``stays``: what is left is not looked at by the collector again."""
    gc.collect()
    if stays:
        gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl does not
    if trim is not None:
        trim(0)
