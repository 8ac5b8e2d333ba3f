"""A small DRA driver: it registers with a kubelet, publishes one ResourceSlice, and prepares claims by files of CDI.

``python -m tests.support.real_parts.dra_driver NAME FOLDER`` runs it below a root FOLDER, with the variables that a
stage sets (``NODE_NAME``, ``POD_UID``) and the token of its pod. Tests run its class.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from grpclib.const import Cardinality, Handler
from grpclib.server import Server, Stream

from device_agent.kubelet.channel import KubeletCodec
from driver_builder.objects.dra_plugin import FOLDERS
from kube_api.client import Client, Object
from kube_api.errors import Conflict
from kube_api.resources import NODES, RESOURCE_SLICES
from tests.support.real_parts import dra_messages as messages
from tests.support.real_parts.dra_messages import (
    Claims,
    Device,
    Nothing,
    PluginInfo,
    Prepared,
    PreparedClaim,
    PreparedClaims,
    RegistrationStatus,
)

DEVICE = "device-0"


class DraDriver:
    """One driver on one node; ``root`` is above the folders of the kubelet and of CDI."""

    def __init__(self, name: str, node: str, root: Path, pod_uid: str = "") -> None:
        self.name, self.node = name, node
        folders = {key: root / path.removeprefix("/") for key, path in FOLDERS.items()}
        self.cdi = folders["cdi"]
        self.endpoint = folders["plugins"] / name / "dra.sock"
        # Two pods of a rolling update have sockets of their own.
        self.registration = folders["registry"] / f"{name}{f'-{pod_uid}' if pod_uid else ''}-reg.sock"
        self.statuses: asyncio.Queue[RegistrationStatus] = asyncio.Queue()
        self._servers: list[Server] = []

    def __mapping__(self) -> Mapping[str, Handler]:
        """Name the methods, as grpclib asks for them."""
        unary = Cardinality.UNARY_UNARY
        return {
            messages.GET_INFO: Handler(self._info, unary, Nothing, PluginInfo),
            messages.NOTIFY: Handler(self._notified, unary, RegistrationStatus, Nothing),
            messages.PREPARE: Handler(self._prepare, unary, Claims, PreparedClaims),
            messages.UNPREPARE: Handler(self._unprepare, unary, Claims, PreparedClaims),
        }

    async def start(self) -> None:
        """Serve at both sockets: the kubelet looks for the one of the registration."""
        for path in (self.endpoint, self.registration):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            server = Server([self], codec=KubeletCodec())
            await server.start(path=str(path))
            self._servers.append(server)

    async def stop(self) -> None:
        """Leave: first what the kubelet sees."""
        for path, server in zip((self.endpoint, self.registration), self._servers, strict=True):
            path.unlink(missing_ok=True)
            server.close()
            await server.wait_closed()
        self._servers = []

    def slice(self, node_uid: str = "") -> Object:
        """Return the ResourceSlice of its one device."""
        owner = {"apiVersion": "v1", "kind": NODES.kind, "name": self.node, "uid": node_uid, "controller": True}
        return {
            "apiVersion": RESOURCE_SLICES.api_version,
            "kind": RESOURCE_SLICES.kind,
            "metadata": {"name": f"{self.node}-{self.name}", **({"ownerReferences": [owner]} if node_uid else {})},
            "spec": {
                "driver": self.name,
                "nodeName": self.node,
                "pool": {"name": self.node, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": DEVICE, "attributes": {"type": {"string": "test"}}}],
            },
        }

    def publish(self, client: Client) -> None:
        """Create the slice unless it is there."""
        with suppress(Conflict):
            client.create(RESOURCE_SLICES.path(), self.slice(client.get(NODES.path(name=self.node))["metadata"]["uid"]))

    def _file(self, uid: str) -> Path:
        return self.cdi / f"{self.name}-{uid}.json"

    async def _info(self, stream: "Stream[Nothing, PluginInfo]") -> None:
        await stream.recv_message()
        versions = (messages.DRA_SERVICE,)
        await stream.send_message(
            PluginInfo(
                type=messages.DRA_PLUGIN, name=self.name, endpoint=str(self.endpoint), supported_versions=versions
            )
        )

    async def _notified(self, stream: "Stream[RegistrationStatus, Nothing]") -> None:
        status = await stream.recv_message()
        if status is not None:
            self.statuses.put_nowait(status)
        await stream.send_message(Nothing())

    async def _prepare(self, stream: "Stream[Claims, PreparedClaims]") -> None:
        asked = await stream.recv_message()
        done = []
        for claim in asked.claims if asked is not None else ():
            kind, variable = f"{self.name}/claim", f"DRA_DEVICE={DEVICE}"
            edits = {"containerEdits": {"env": [variable]}}
            content = {"cdiVersion": "0.5.0", "kind": kind, "devices": [{"name": claim.uid, **edits}]}
            self.cdi.mkdir(parents=True, exist_ok=True)
            self._file(claim.uid).write_text(json.dumps(content))
            device = Device(pool_name=self.node, device_name=DEVICE, cdi_device_ids=(f"{kind}={claim.uid}",))
            done.append(PreparedClaim(uid=claim.uid, value=Prepared(devices=(device,))))
        await stream.send_message(PreparedClaims(claims=tuple(done)))

    async def _unprepare(self, stream: "Stream[Claims, PreparedClaims]") -> None:
        asked = await stream.recv_message()
        claims = asked.claims if asked is not None else ()
        for claim in claims:
            self._file(claim.uid).unlink(missing_ok=True)
        await stream.send_message(
            PreparedClaims(claims=tuple(PreparedClaim(uid=claim.uid, value=Prepared()) for claim in claims))
        )


async def _run(name: str, root: Path, environment: Mapping[str, str]) -> None:
    driver = DraDriver(name, environment["NODE_NAME"], root, environment.get("POD_UID", ""))
    await driver.start()
    status = await driver.statuses.get()
    print("registered" if status.plugin_registered else f"refused: {status.error}", flush=True)
    client: Any = Client.from_environment()
    await asyncio.to_thread(driver.publish, client)
    print("published", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], Path(sys.argv[2]), os.environ))
