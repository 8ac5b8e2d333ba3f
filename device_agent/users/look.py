"""Reads what says which devices containers have: the kubelet's podresources and checkpoint, and the pods' cgroups."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from device_agent.allocations.recent import Key
from device_agent.boot import seconds_since_boot
from device_agent.config.options import Settings
from device_agent.errors import UsersUnknown
from device_agent.users.checkpoint import of_pods, read_checkpoint
from device_agent.users.in_use import Seen
from device_agent.users.pod_resources import Holders, fetch_holders
from device_agent.users.pods import read_pods

_ANSWER_SECONDS = 5.0
_SETTLED_SECONDS = 60.0
"""After a boot the kubelet starts pods again with what they had, and makes their cgroups one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where that is: the socket of podresources, the folder of the kubelet's sockets, the node's ``/sys/fs/cgroup``."""

    socket: str = "/var/lib/kubelet/pod-resources/kubelet.sock"
    plugins: str = "/var/lib/kubelet/device-plugins"
    cgroups: str = "/sys/fs/cgroup"

    @classmethod
    def of(cls, settings: Settings) -> "Places":
        """Return where it is by the agent's settings."""
        cgroups = f"{settings.root.rstrip('/')}/sys/fs/cgroup"
        return cls(socket=settings.pod_resources, plugins=settings.plugin_dir, cgroups=cgroups)


async def look_at_users(places: Places, now: Callable[[], float] = seconds_since_boot) -> Seen:
    """Read which devices containers have; it takes some seconds where the kubelet does not answer."""
    asked_at = now()
    holders: Holders = {}
    shown, recorded, reasons = None, None, []
    try:
        holders = await fetch_holders(places.socket, _ANSWER_SECONDS)
        shown = holders.keys()
    except UsersUnknown as error:
        reasons.append(str(error))
    try:
        recorded = await asyncio.to_thread(_recorded, places, has_settled=asked_at >= _SETTLED_SECONDS)
    except UsersUnknown as error:
        reasons.append(str(error))
    return Seen(asked_at=asked_at, shown=shown, recorded=recorded, why="; ".join(reasons), holders=holders)


def _recorded(places: Places, *, has_settled: bool) -> frozenset[Key]:
    """Read the checkpoint, then which pods exist: one that is in it and has ended since has no device any more."""
    entries = read_checkpoint(places.plugins)
    return of_pods(entries, read_pods(places.cgroups) if has_settled else None)
