"""One resource as the kubelet's plugin: listens on a socket of its own and keeps itself registered.

A kubelet that starts deletes all sockets of plugins. So a socket that is gone, another kubelet's socket than the one
that was registered with, and a list that nobody watches lead to a new registration.

While another plugin of the resource answers, it has it, whichever came first. A list that was watched before stays open
and says nothing: the kubelet takes each list, an empty one too, and the end of any, for that of the other plugin.
"""

import asyncio
import logging
import os
import stat
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from device_agent.devices.model import PLAIN, Traits
from device_agent.errors import RegistrationFailed
from device_agent.kubelet.channel import LIMITS, KubeletCodec, call
from device_agent.kubelet.rivals import Rivals, is_answered
from device_agent.kubelet.server import PluginServer
from device_agent.kubelet.service import DeviceService
from device_agent.protocol import messages
from device_agent.protocol.messages import Empty, RegisterRequest
from kube_api.text import printable

if TYPE_CHECKING:
    from device_agent.allocations.remembered import Allocations

log = logging.getLogger(__name__)

_CALL_SECONDS = 10.0
_WATCHED_SECONDS = 10.0
"""How long a kubelet may take to ask for the list after it was registered with."""
_LEAVE_SECONDS = 2.0
_FIRST_DELAY, _LONGEST_DELAY = 0.2, 10.0

Identity = tuple[int, int, int]


class Plugin:
    """A resource at the kubelet. ``folder``: where the kubelet has its socket. ``on_change``: its state is another.

    ``traits``, ``given``: as :class:`DeviceService` has them.
    ``rival``: the socket of another plugin that offers the resource; empty if there is none.
    """

    def __init__(
        self,
        resource: str,
        folder: str,
        on_change: Callable[[], None],
        traits: Traits = PLAIN,
        given: "Allocations | None" = None,
    ) -> None:
        self.service = DeviceService(resource, traits, given)
        self.rival = ""
        self.registrations = {"success": 0, "failure": 0}
        self._resource = resource
        self._folder = folder
        self._endpoint = endpoint(resource)
        self._on_change = on_change
        self._server: PluginServer | None = None
        self._own: Identity | None = None
        self._kubelet: Identity | None = None
        self._registered_at = 0.0
        self._nudged = asyncio.Event()
        self._rivals = Rivals((resource, *traits.beside), folder)
        self._last_failure = ""

    @property
    def socket(self) -> str:
        """The path of the plugin's own socket."""
        return f"{self._folder}/{self._endpoint}"

    @property
    def kubelet_socket(self) -> str:
        """The path of the kubelet's socket."""
        return f"{self._folder}/kubelet.sock"

    @property
    def is_registered(self) -> bool:
        """Whether the kubelet that runs now knows the resource and watches its list."""
        return not self.rival and self._is_current() and self.service.watchers > 0

    def nudge(self) -> None:
        """Look at once whether the registration still stands."""
        self._nudged.set()

    async def keep_registered(self, period: float) -> None:
        """Register, and again whenever that is needed, until cancelled; only then may the plugin be stopped."""
        delay = _FIRST_DELAY
        while True:
            self._nudged.clear()
            wait = period
            if await self._yields():
                wait = self._rivals.seconds(period)
                await asyncio.sleep(_FIRST_DELAY)
            elif not self._stands():
                try:
                    await self._register()
                    delay = _FIRST_DELAY
                except RegistrationFailed as error:
                    self._failed(str(error))
                    wait, delay = delay - _FIRST_DELAY, min(delay * 2, _LONGEST_DELAY)
                # Whatever happens in the kubelet's folder meanwhile: it is not registered with again and again.
                await asyncio.sleep(_FIRST_DELAY)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._nudged.wait()

    async def stop(self) -> None:
        """Send an empty list, then stop listening."""
        await self.service.leave(_LEAVE_SECONDS)
        await self._close()

    async def _yields(self) -> bool:
        """Leave the resource to another plugin that answers; when that has ended the resource may be registered."""
        await self._rivals.look()
        rival = self._rivals.socket
        if rival and not self.service.is_silent:
            log.warning("%s: not offered: another plugin answers on %s; only one may offer it", self._resource, rival)
            self.rival = rival
            await self.service.be_silent(True)
            self._on_change()
        elif self.service.is_silent and not rival:
            log.info("%s: no plugin answers on %s any more: it is offered again", self._resource, self.rival)
            self.rival = ""
            # Before it is registered anew: the kubelet would take the end of the old list for that of the new one.
            await self._close()
            await self.service.be_silent(False)
        if rival and not self._is_watched():
            await self._close()
        return bool(rival)

    def _stands(self) -> bool:
        return self._is_current() and self._is_watched()

    def _is_watched(self) -> bool:
        """Return whether the kubelet watches the list, or may be about to."""
        now = asyncio.get_running_loop().time()
        return self.service.watchers > 0 or now < self._registered_at + _WATCHED_SECONDS

    def _is_current(self) -> bool:
        return (
            self._server is not None
            and self._kubelet is not None
            and self._own == identity(self.socket)
            and self._kubelet == identity(self.kubelet_socket)
        )

    async def _register(self) -> None:
        self.rival, kubelet = "", identity(self.kubelet_socket)
        if kubelet is None:
            raise RegistrationFailed(f"there is no kubelet at {self.kubelet_socket}")
        if self._server is None or self._own != identity(self.socket):
            await self._listen()
        request = RegisterRequest(
            version=messages.VERSION,
            endpoint=self._endpoint,
            resource_name=self._resource,
            options=self.service.options,
        )
        try:
            await call(self.kubelet_socket, messages.REGISTER, request, Empty, _CALL_SECONDS)
        except TimeoutError as error:
            raise RegistrationFailed(f"the kubelet did not answer in {_CALL_SECONDS:.0f} s") from error
        except GRPCError as error:
            said = printable(error.message or error.status.name)
            raise RegistrationFailed(f"the kubelet refused the resource: {said}") from error
        except (OSError, StreamTerminatedError, ProtocolError) as error:
            raise RegistrationFailed(f"the kubelet cannot be reached: {printable(str(error))}") from error
        self._kubelet, self._registered_at = kubelet, asyncio.get_running_loop().time()
        self.registrations["success"] += 1
        self._last_failure = ""
        log.info("%s: registered with the kubelet", self._resource)
        self._on_change()

    def _failed(self, why: str) -> None:
        self.registrations["failure"] += 1
        if why != self._last_failure:
            self._last_failure = why
            log.warning("%s: not registered: %s; it is tried again", self._resource, why)
        self._on_change()

    async def _listen(self) -> None:
        await self._close()
        if await is_answered(self.socket):
            self.rival = self.socket
            # To take its socket away would make it take ours away, and so on.
            raise RegistrationFailed(f"another plugin listens on {self.socket}: only one may offer a resource")
        _make_room(self.socket)
        server = PluginServer([self.service], codec=KubeletCodec(), config=LIMITS)
        start = asyncio.ensure_future(server.start(path=self.socket))
        try:
            await asyncio.wait([start])
        finally:
            # Also where this is cancelled meanwhile: a server that is not known would listen without end.
            if not start.done():
                await asyncio.wait([start])
            if start.exception() is None:
                self._server, self._own = server, identity(self.socket)
        try:
            start.result()
        except OSError as error:
            raise RegistrationFailed(f"cannot listen on {self.socket}: {error.strerror or error}") from error

    async def _close(self) -> None:
        if self._server is None:
            return
        server, self._server = self._server, None
        is_ours = self._own == identity(self.socket)
        server.close()
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                await server.wait_closed()
        except TimeoutError:
            server.abort()
        finally:
            if is_ours:
                with suppress(FileNotFoundError):
                    os.unlink(self.socket)  # noqa: PTH108 - pathlib would cost the resident process 1 MiB


def endpoint(resource: str) -> str:
    """Return the name of a resource's socket: short enough for any folder, and another one for each resource."""
    return f"driverwright-{resource.rpartition('/')[2][:16]}-{zlib.crc32(resource.encode()):08x}.sock"


def _make_room(path: str) -> None:
    """Remove what is no socket from the place of one, where nobody listens: it would be there for ever."""
    with suppress(OSError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)  # noqa: PTH108 - as above


def identity(path: str) -> Identity | None:
    """Return what tells a socket from one that took its place; None if it is not there."""
    try:
        status = os.stat(path)  # noqa: PTH116 - as above
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns
