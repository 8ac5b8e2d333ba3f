"""Other plugins of a resource: whether one answers on its socket. It is connected to, and nothing is asked.

The kubelet takes the plugin that registered last and says nothing to the others. To ask another plugin for its list
would tell, but one that has a single queue of events gives each to one of those who watch: the kubelet would miss some.
"""

import asyncio
from collections.abc import Iterable

from device_resources.resource import NVIDIA_DOMAIN

_ANSWER_SECONDS = 10.0
_GONE_SECONDS = 2.0
"""A plugin that starts anew, as after the kubelet did, is away for a moment; who registers last would offer."""


def rivals(resource: str) -> tuple[str, ...]:
    """Name the sockets of other plugins of a resource in the kubelet's folder; those of ours have another name.

    NVIDIA's plugin has one for each resource: ``nvidia-gpu.sock``, ``nvidia-mig-1g.5gb.sock``.
    """
    return (f"nvidia-{resource.removeprefix(NVIDIA_DOMAIN)}.sock",) if resource.startswith(NVIDIA_DOMAIN) else ()


async def is_answered(socket: str) -> bool:
    """Return whether a process listens on a socket; none does on one that a killed process left behind."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            _, writer = await asyncio.open_unix_connection(socket)
    except TimeoutError:
        return True
    except OSError:
        return False
    writer.close()
    return True


class Rivals:
    """The other plugins of resources, of which one has the same units. ``folder``: where the kubelet has its socket.

    ``socket``: the path of the one that answers, or did a moment ago; empty if there is none.
    """

    def __init__(self, resources: Iterable[str], folder: str) -> None:
        self.socket = ""
        self._sockets = [f"{folder}/{name}" for resource in dict.fromkeys(resources) for name in rivals(resource)]
        self._away_since: float | None = None

    async def look(self) -> None:
        """Look for one."""
        for socket in self._sockets:
            if await is_answered(socket):
                self.socket, self._away_since = socket, None
                return
        now = asyncio.get_running_loop().time()
        if self._away_since is None:
            self._away_since = now
        if now >= self._away_since + _GONE_SECONDS:
            self.socket = ""

    def seconds(self, period: float) -> float:
        """Return when to look again after one was found."""
        return min(period, _ANSWER_SECONDS if self._away_since is None else _GONE_SECONDS)
