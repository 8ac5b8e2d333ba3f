"""Follows who has which device, and how much cards are used. It asks the kubelet every few seconds, and nobody else."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from device_agent.boot import seconds_since_boot
from device_agent.config.options import Settings
from device_agent.devices.model import DeviceNode
from device_agent.errors import UsersUnknown
from device_agent.gpu_state.checks import is_pod
from device_agent.gpu_state.ending import EndRequest
from device_agent.gpu_state.limits import PodLimit
from device_agent.gpu_state.use import MOST_PODS, Use
from device_agent.nvml_client.lines import Pauses
from device_agent.nvml_client.use_client import UseClient
from device_agent.sources.files.pci import pci_addresses
from device_agent.sources.in_thread import in_thread
from device_agent.usage.attribution import Addresses, Allocated, Resources, allocated, pods_of, still_offered
from device_agent.users.pod_resources import Holders, fetch_holders
from kube_api.text import printable

log = logging.getLogger(__name__)

_ANSWER_SECONDS = 5.0


class Timing(NamedTuple):
    """``period``: seconds from one question to the kubelet to the next. ``pauses``: of the connection to ``nvml``."""

    period: float = 5.0
    pauses: Pauses = Pauses()


USUAL = Timing()


class UseWatch:
    """Follows until it is closed. ``resources``: what the agent offers now.

    ``held``: what containers have of that; None where the kubelet does not say it. ``why``: then, the reason.
    ``held_at``: from before the kubelet was asked for it, in seconds of CLOCK_BOOTTIME.
    """

    def __init__(self, settings: Settings, resources: Callable[[], Resources], timing: Timing = USUAL) -> None:
        self.held: tuple[Allocated, ...] | None = None
        self.held_at = 0.0
        self.why = "the kubelet was not asked yet"
        self._settings = settings
        self._resources = resources
        self._offered: Resources = {}
        self._is_per_pod = False
        self._has_too_many = False
        self._holders: Holders | None = None
        self._period = timing.period
        self._client = UseClient(settings.nvml_socket, timing.pauses)
        self._task = asyncio.create_task(self._follow())

    @property
    def use(self) -> Use | None:
        """Return what was said last, however old it is by now."""
        return self._client.use

    def ask_processes(self, is_per_pod: bool) -> None:
        """Have the processes of pods sampled, too, or no more."""
        self._is_per_pod = is_per_pod
        self._ask()

    def end(self, process: EndRequest) -> bool:
        """Have a process ended, as :meth:`UseClient.end`."""
        return self._client.end(process)

    def limit(self, limits: tuple[PodLimit, ...]) -> None:
        """Have drivers keep limits of memory, as :meth:`UseClient.limit`."""
        self._client.limit(limits)

    def check(self) -> None:
        """Raise the error with which following has ended: none is expected."""
        self._client.check()
        if self._task.done():
            self._task.result()

    async def close(self) -> None:
        """End the connection, and what is being asked."""
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._client.close()

    async def _follow(self) -> None:
        while True:
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001 - what was known would stay for ever, and processes be ended by it
                self._fail(error)
            await asyncio.sleep(self._period)

    def _fail(self, error: Exception) -> None:
        """Know nothing after a look that nobody has foreseen the end of, such as where no thread can be started."""
        why = printable(f"it could not be found out: {error!r}")
        if why != self.why:
            log.error("use: it is not known which pod has which device: %s", why, exc_info=error)
        self.held, self._holders, self.why = None, None, why

    async def _look(self) -> None:
        asked_at = seconds_since_boot()
        try:
            self._holders = await fetch_holders(self._settings.pod_resources, _ANSWER_SECONDS)
        except UsersUnknown as error:
            self._note(str(error))
            self.held = self._holders = None
            return
        self._offered = resources = still_offered(self._resources(), self._offered, self._holders)
        self._ask()
        addresses: Addresses = {}
        with suppress(TimeoutError):  # files of the node that do not answer: their devices are of no card then
            async with asyncio.timeout(_ANSWER_SECONDS):
                addresses = await in_thread(_find_addresses(self._settings.root, self._holders, resources), "usage")
        self._note("")
        self.held, self.held_at = allocated(self._holders, resources, addresses), asked_at

    def _note(self, why: str) -> None:
        """Log once that the kubelet does not say who has devices, and once that it does again."""
        if why and why != self.why:
            log.warning("use: it is not known which pod has which device: %s", why)
        elif self.why and not why and self.held is None:
            log.info("use: the kubelet says which pod has which device")
        self.why = why

    def _ask(self) -> None:
        """Ask for the processes of all pods that have a device; while these are not known, of the same as before."""
        if not self._is_per_pod:
            self._client.ask(None)
        elif self._holders is not None:
            pods = [name for name in pods_of(self._holders, self._offered) if is_pod(name)]
            if len(pods) > MOST_PODS and not self._has_too_many:
                log.warning("use: %d pods have devices: processes are known of %d", len(pods), MOST_PODS)
            self._has_too_many = len(pods) > MOST_PODS
            self._client.ask(pods[:MOST_PODS])


def _find_addresses(root: str, holders: Holders, resources: Resources) -> Callable[[], Addresses]:
    """Make what looks for the PCI addresses of units that containers have; it may wait for the node's files."""
    offered = (resources.get(resource, {}).get(device) for resource, device in holders)
    units = {device.unit.id: device.unit for device in offered if device is not None}
    paths = {name: [file.path for file in unit.files if isinstance(file, DeviceNode)] for name, unit in units.items()}
    return lambda: {name: pci_addresses(root, nodes) for name, nodes in paths.items() if nodes}
