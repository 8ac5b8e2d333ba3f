"""Pods of a node, as the kubelet shows and records them, for tests of profiles."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from grpclib.const import Cardinality, Handler
from grpclib.server import Server, Stream

from device_agent.kubelet.channel import KubeletCodec
from device_agent.protocol.pod_resources import (
    LIST,
    ContainerDevices,
    ContainerResources,
    ListPodResourcesRequest,
    ListPodResourcesResponse,
    PodResources,
)


class Pods:
    """Shows which pods have which devices on a socket, and records it in the kubelet's checkpoint.

    ``asked``: how often somebody has asked. ``answer``: is waited for before an answer.
    """

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "pods.sock")
        self.asked = 0
        self.answer: asyncio.Event | None = None
        self._checkpoint = folder / "plugins/kubelet_internal_checkpoint"
        self._cgroups = folder / "sys/fs/cgroup/kubepods"
        self._held: dict[tuple[str, str], int] = {}
        self._made = 0
        self._server: Server | None = None
        self._checkpoint.parent.mkdir(exist_ok=True)
        (self._cgroups / "podagent").mkdir(parents=True, exist_ok=True)
        self._write()

    def __mapping__(self) -> dict[str, Handler]:
        """Name the method, as grpclib asks for it."""
        kinds = ListPodResourcesRequest, ListPodResourcesResponse
        return {LIST: Handler(self._list, Cardinality.UNARY_UNARY, *kinds)}

    async def start(self) -> None:
        """Answer."""
        Path(self.path).unlink(missing_ok=True)
        self._server = Server([self], codec=KubeletCodec())
        await self._server.start(path=self.path)

    async def stop(self) -> None:
        """Answer no more."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    def run(self, resource: str, *ids: str) -> None:
        """Have a pod with each of these devices."""
        for name in ids:
            self._held[resource, name] = self._made
            (self._cgroups / f"pod{self._made}x").mkdir(exist_ok=True)
            self._made += 1
        self._write()

    def end(self, resource: str, *ids: str) -> None:
        """End the pods with these devices; they stay in the checkpoint."""
        for name in ids:
            (self._cgroups / f"pod{self._held.pop((resource, name))}x").rmdir()

    def _write(self) -> None:
        entries = [
            {"PodUID": f"{number}x", "ContainerName": "c", "ResourceName": resource, "DeviceIDs": {"0": [name]}}
            for (resource, name), number in self._held.items()
        ]
        temporary = f"{self._checkpoint}.tmp"
        Path(temporary).write_text(json.dumps({"Data": {"PodDeviceEntries": entries}, "Checksum": 0}))
        os.replace(temporary, self._checkpoint)  # noqa: PTH105 - as the kubelet does

    async def _list(self, stream: Stream[Any, Any]) -> None:
        await stream.recv_message()
        self.asked += 1
        if self.answer is not None:
            await self.answer.wait()
        pods = tuple(
            PodResources(
                name=f"p{number}",
                namespace="default",
                containers=(
                    ContainerResources(
                        name="c", devices=(ContainerDevices(resource_name=resource, device_ids=(name,)),)
                    ),
                ),
            )
            for (resource, name), number in self._held.items()
        )
        await stream.send_message(ListPodResourcesResponse(pod_resources=pods))
