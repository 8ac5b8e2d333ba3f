"""What a kubelet does with a DRA driver: it finds its socket, asks who it is, and lets it prepare claims."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from device_agent.kubelet.channel import call
from device_agent.protocol.wire import Message
from driver_builder.objects.dra_plugin import FOLDERS
from tests.support.real_parts import dra_messages as messages
from tests.support.real_parts.dra_messages import (
    Claim,
    Claims,
    Nothing,
    PluginInfo,
    Prepared,
    PreparedClaims,
    RegistrationStatus,
)

SECONDS = 30.0


@contextmanager
def short_root() -> Iterator[Path]:
    """Give a root for the kubelet's folders whose sockets have names of less than 108 bytes."""
    with tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp") as folder:
        yield Path(folder)


_Reply = TypeVar("_Reply", bound=Message)


class PluginWatcher:
    """Stands in for the kubelet of a node whose folders are below ``root``."""

    def __init__(self, root: Path) -> None:
        self._registry = root / FOLDERS["registry"].removeprefix("/")
        self.known: dict[str, PluginInfo] = {}

    async def register(self) -> PluginInfo:
        """Take the first driver whose socket is there; one that is of another kind or version is refused."""
        async with asyncio.timeout(SECONDS):
            while not (found := sorted(self._registry.glob("*.sock"))):
                await asyncio.sleep(0.01)
        info = await self._ask(str(found[0]), messages.GET_INFO, Nothing(), PluginInfo)
        is_fit = info.type == messages.DRA_PLUGIN and messages.DRA_SERVICE in info.supported_versions
        status = RegistrationStatus(plugin_registered=is_fit, error="" if is_fit else f"cannot use {info}")
        await self._ask(str(found[0]), messages.NOTIFY, status, Nothing)
        if is_fit:
            self.known[info.name] = info
        return info

    async def prepare(self, name: str, claim: Claim) -> Prepared:
        """Let a driver prepare a claim."""
        return await self._of_claim(name, messages.PREPARE, claim)

    async def unprepare(self, name: str, claim: Claim) -> Prepared:
        """Give a claim back: without its driver a pod does not end."""
        return await self._of_claim(name, messages.UNPREPARE, claim)

    async def _of_claim(self, name: str, method: str, claim: Claim) -> Prepared:
        answer = await self._ask(self.known[name].endpoint, method, Claims(claims=(claim,)), PreparedClaims)
        (entry,) = answer.claims
        assert entry.uid == claim.uid
        return entry.value or Prepared()

    async def _ask(self, socket: str, method: str, request: Message, reply: type[_Reply]) -> _Reply:
        return await call(socket, method, request, reply, SECONDS)
