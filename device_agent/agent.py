"""The agent's loop: looks at devices when something happens, keeps resources registered, until it is stopped.

What wakes it: uevents, inotify on the folders of device files, on the kubelet's sockets and on the configuration file,
signals, the results of commands, and a timer. :mod:`device_agent.served` looks at one resource;
:mod:`device_agent.kubelet.plugin` keeps it registered.
"""

import asyncio
import ctypes
import gc
import logging
import signal
from collections.abc import Callable
from contextlib import ExitStack, suppress

from device_agent.config.options import Settings
from device_agent.devices.command import Running
from device_agent.devices.find import fixed_folder
from device_agent.errors import ConfigurationError
from device_agent.metrics import Counts, render
from device_agent.served import Served
from device_agent.telemetry import serve
from device_agent.uevents import DeviceEvents, watch_devices
from device_resources.resource import Resource
from file_watch.inotify import FileWatch, Place, watch_files
from kube_api.pages import Page, health
from kube_api.text import first_few

log = logging.getLogger(__name__)

_SETTLE_SECONDS = 0.05
"""A device comes with several events at once; they are looked at together."""
_OVERDUE_INTERVALS = 3
_OVERDUE_SECONDS = 60.0
_MAX_NAMED = 5
_DEVICES, _CONFIG, _KUBELET = "devices", "config", "kubelet"

Load = Callable[[], tuple[Resource, ...]]


class Agent:
    """The loop. ``load`` reads the resources again; ``resources`` are those it starts with."""

    def __init__(self, settings: Settings, resources: tuple[Resource, ...], load: Load) -> None:
        self._settings = settings
        self._resources = resources
        self._load = load
        self._served: dict[str, Served] = {}
        self._files: FileWatch | None = None
        self._is_stopping = False
        self._is_config_asked = False
        self._is_config_current = True
        self._reloads = {"success": 0, "failure": 0}
        self._is_settled = False

    async def run(self) -> None:
        """Work until stopped.

        Raises:
            ConfigurationError: when the port or the socket cannot be had.
        """
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._commands = Running()
        self._last_turn = self._loop.time()
        with ExitStack() as stack:
            await self._open(stack)
            async with asyncio.TaskGroup() as self._tasks:
                try:
                    await self._take(self._resources)
                    while not self._is_stopping:
                        await self._turn()
                finally:
                    await self._leave()

    async def _open(self, stack: ExitStack) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_stop)
        self._loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        if files := watch_files(_places(self._settings, self._resources)):
            self._files = files
            stack.callback(files.close)
            self._loop.add_reader(files.fileno(), self._on_files, files)
            stack.callback(self._loop.remove_reader, files.fileno())
        if devices := watch_devices():
            stack.callback(devices.close)
            self._loop.add_reader(devices.fileno(), self._on_devices, devices)
            stack.callback(self._loop.remove_reader, devices.fileno())
        pages = {
            "/healthz": lambda: health(self._trouble()),
            "/readyz": lambda: health(self._missing()),
            "/metrics": lambda: Page(render(self._counts())),
        }
        if self._settings.port:
            stack.callback((await serve(self._settings.port, pages)).close)
        if self._settings.socket:
            stack.callback((await serve(self._settings.socket, pages)).close)

    async def _turn(self) -> None:
        """Do what is due, then wait for what comes next."""
        self._woken.clear()
        if self._is_config_asked:
            self._is_config_asked = False
            await self._reload()
        for served in self._served.values():
            await served.refresh()
        self._commands.collect_strays()
        self._last_turn = self._loop.time()
        if not self._is_settled:
            self._is_settled = True
            _settle()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.interval):
                await self._woken.wait()
            await asyncio.sleep(_SETTLE_SECONDS)

    async def _leave(self) -> None:
        await asyncio.gather(*(served.stop() for served in self._served.values()))

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
        self._is_config_asked |= _CONFIG in triggers
        if _KUBELET in triggers:
            for served in self._served.values():
                served.plugin.nudge()
        if triggers & {_CONFIG, _DEVICES}:
            self._woken.set()

    def _on_devices(self, devices: DeviceEvents) -> None:
        if devices.drain():
            self._woken.set()

    # --- resources ----------------------------------------------------------------------------------------------------

    async def _reload(self) -> None:
        """Take new resources; a file that is wrong leaves the old ones in use."""
        try:
            resources = self._load()
        except ConfigurationError as error:
            self._reloads["failure"] += 1
            self._is_config_current = False
            log.error("config: not reloaded, the previous resources stay: %s", error)  # noqa: TRY400 - no traceback: the message is for the operator
            return
        self._reloads["success"] += 1
        self._is_config_current = True
        if resources != self._resources:
            log.info("config: %s changed", self._settings.config_file)
            await self._take(resources)

    async def _take(self, resources: tuple[Resource, ...]) -> None:
        """Offer these resources and no others."""
        self._resources = resources
        if self._files is not None:
            self._files.watch(_places(self._settings, resources))
        by_name = {resource.name: resource for resource in resources}
        gone = [self._served.pop(name) for name in list(self._served) if name not in by_name]
        await asyncio.gather(*(served.stop() for served in gone))
        for name, resource in by_name.items():
            if name not in self._served:
                await self._offer(resource)
            elif self._served[name].resource != resource:
                await self._served[name].change(resource)

    async def _offer(self, resource: Resource) -> None:
        """Look at the devices first: the kubelet's first list is right then."""
        served = Served(resource, self._settings.root, self._settings.plugin_dir, self._commands, self._woken.set)
        self._served[resource.name] = served
        await served.refresh()
        served.register(self._tasks, self._settings.interval)

    # --- what is asked ------------------------------------------------------------------------------------------------

    def _trouble(self) -> str:
        longest = self._settings.interval * _OVERDUE_INTERVALS + _OVERDUE_SECONDS
        is_overdue = self._loop.time() - self._last_turn > longest
        return "the devices were not looked at for too long" if is_overdue else ""

    def _missing(self) -> str:
        missing = [name for name, served in self._served.items() if not served.plugin.is_registered]
        return f"not registered: {first_few(missing, _MAX_NAMED)}" if missing else ""

    def _counts(self) -> Counts:
        return Counts(
            resources=tuple(served.counts() for served in self._served.values()),
            config_is_current=self._is_config_current,
            reloads=self._reloads,
        )


def _places(settings: Settings, resources: tuple[Resource, ...]) -> list[Place]:
    """Name the files whose change matters."""
    root = settings.root.rstrip("/")
    folders = sorted({fixed_folder(path.path) for one in resources for group in one.groups for path in group.paths})
    return [
        Place(settings.config_file, _CONFIG, levels=0),
        Place(settings.plugin_dir, _KUBELET, contents=False),
        # In /dev somebody always writes to /dev/null.
        *(Place(f"{root}{folder}", _DEVICES, levels=min(levels, 2), contents=False) for folder, levels in folders),
    ]


def _settle() -> None:
    """Give back what starting left behind; what is left now stays, so the collector need not look at it again."""
    gc.collect()
    gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl does not
    if trim is not None:
        trim(0)
