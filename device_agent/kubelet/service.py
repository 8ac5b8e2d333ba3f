"""The service of one resource, ``v1beta1.DevicePlugin``: what the kubelet asks, answered from what is known now."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Stream

from device_agent.devices.allocate import allocate
from device_agent.devices.model import OfferedDevice
from device_agent.devices.preferred import preferred
from device_agent.errors import AllocationRefused
from device_agent.protocol import messages
from device_agent.protocol.messages import (
    AllocateRequest,
    AllocateResponse,
    ContainerPreferredAllocationResponse,
    Device,
    DevicePluginOptions,
    Empty,
    ListAndWatchResponse,
    NUMANode,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    TopologyInfo,
)

log = logging.getLogger(__name__)

OFFERS = DevicePluginOptions(get_preferred_allocation_available=True)

Devices = Mapping[str, OfferedDevice]


class DeviceService:
    """Answers the kubelet. ``publish`` changes the list that it watches; ``leave`` empties it for good."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self.devices: Devices = {}
        self.allocations = {"success": 0, "refused": 0}
        self.watchers = 0
        self._leaving = False
        self._changed = asyncio.Condition()

    async def publish(self, devices: Devices) -> None:
        """Change the list of devices."""
        async with self._changed:
            self.devices = devices
            self._changed.notify_all()

    async def leave(self, seconds: float) -> None:
        """Send an empty list to all who watch, end their streams, and wait for that."""
        async with self._changed:
            self.devices, self._leaving = {}, True
            self._changed.notify_all()
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait_for(lambda: not self.watchers)
            except TimeoutError:
                log.warning("%s: the kubelet did not read the empty list in time", self.resource)

    def __mapping__(self) -> dict[str, Handler]:
        """Name the methods, as grpclib asks for them."""
        unary, stream = Cardinality.UNARY_UNARY, Cardinality.UNARY_STREAM
        return {
            messages.OPTIONS: Handler(self._options, unary, Empty, DevicePluginOptions),
            messages.LIST_AND_WATCH: Handler(self._list_and_watch, stream, Empty, ListAndWatchResponse),
            messages.PREFERRED_ALLOCATION: Handler(
                self._preferred, unary, PreferredAllocationRequest, PreferredAllocationResponse
            ),
            messages.ALLOCATE: Handler(self._allocate, unary, AllocateRequest, AllocateResponse),
            messages.PRE_START_CONTAINER: Handler(self._pre_start, unary, Empty, Empty),
        }

    async def _options(self, stream: Stream[Any, Any]) -> None:
        await _received(stream)
        await stream.send_message(OFFERS)

    async def _list_and_watch(self, stream: Stream[Any, Any]) -> None:
        await _received(stream)
        self.watchers += 1
        try:
            sent: ListAndWatchResponse | None = None
            is_leaving = False
            while not is_leaving:
                async with self._changed:
                    while not self._leaving and self._list() == sent:
                        await self._changed.wait()
                    response, is_leaving = self._list(), self._leaving
                if response != sent:
                    await stream.send_message(response)
                    sent = response
        finally:
            self.watchers -= 1
            if self._leaving:
                async with self._changed:
                    self._changed.notify_all()

    def _list(self) -> ListAndWatchResponse:
        return ListAndWatchResponse(devices=tuple(_device(device) for device in self.devices.values()))

    async def _preferred(self, stream: Stream[Any, Any]) -> None:
        request: PreferredAllocationRequest | None = await _received(stream)
        containers = request.containers if request else ()
        chosen = [preferred(self.devices, one.available, one.must_include, one.size) for one in containers]
        answers = tuple(ContainerPreferredAllocationResponse(device_ids=ids) for ids in chosen)
        await stream.send_message(PreferredAllocationResponse(containers=answers))

    async def _allocate(self, stream: Stream[Any, Any]) -> None:
        request: AllocateRequest | None = await _received(stream)
        containers = request.containers if request else ()
        try:
            answers = tuple(allocate(self.resource, self.devices, one.device_ids) for one in containers)
        except AllocationRefused as error:
            self.allocations["refused"] += 1
            log.warning("%s: not allocated: %s", self.resource, error)
            raise GRPCError(Status.FAILED_PRECONDITION, str(error)) from error
        for one in containers:
            self.allocations["success"] += 1
            log.info("%s: allocated %s", self.resource, ", ".join(one.device_ids))
        await stream.send_message(AllocateResponse(containers=answers))

    async def _pre_start(self, stream: Stream[Any, Any]) -> None:
        await _received(stream)
        await stream.send_message(Empty())


async def _received(stream: Stream[Any, Any]) -> Any:
    """Take the message of a call, None if it has none."""
    try:
        return await stream.recv_message()
    except NotImplementedError as error:
        raise GRPCError(Status.UNIMPLEMENTED, "compressed messages are not supported") from error
    except AssertionError as error:  # of grpclib
        raise GRPCError(Status.INVALID_ARGUMENT, "the message ends too soon") from error


def _device(device: OfferedDevice) -> Device:
    nodes = tuple(NUMANode(id=number) for number in device.unit.numa_nodes)
    health = messages.HEALTHY if device.unit.is_healthy else messages.UNHEALTHY
    return Device(id=device.id, health=health, topology=TopologyInfo(nodes=nodes) if nodes else None)
