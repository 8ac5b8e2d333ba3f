"""The service of one resource, ``v1beta1.DevicePlugin``: what the kubelet asks, answered from what is known now.

Of a resource whose devices are checked, Allocate remembers what they are before it answers, and PreStartContainer
refuses a start with others: the kubelet uses the answer of Allocate again at each start of a container.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Stream

from device_agent.devices.allocate import allocate
from device_agent.devices.model import PLAIN, OfferedDevice, Traits
from device_agent.devices.preferred import preferred
from device_agent.errors import AllocationRefused, StartRefused
from device_agent.protocol import messages
from device_agent.protocol.messages import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateResponse,
    ContainerPreferredAllocationResponse,
    Device,
    DevicePluginOptions,
    Empty,
    ListAndWatchResponse,
    NUMANode,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    TopologyInfo,
)

if TYPE_CHECKING:
    from device_agent.allocations.remembered import Allocations

log = logging.getLogger(__name__)

Devices = Mapping[str, OfferedDevice]
Note = Callable[[str, Mapping[str, int]], Awaitable[str]]


class DeviceService:
    """Answers the kubelet. ``publish`` changes the list that it watches; ``leave`` empties it for good.

    ``traits``: what its source says of the resource. ``given``: remembers what checked devices were.
    ``note``: remembers shares that are given, id -> shares of its unit, where that is possible, and says why not;
    nothing is refused for it. None: nobody needs that.
    ``is_silent``: those who watch get no list now, because it would replace that of another plugin of the resource.
    """

    def __init__(self, resource: str, traits: Traits = PLAIN, given: "Allocations | None" = None) -> None:
        self.resource = resource
        self.traits = traits
        self.devices: Devices = {}
        self.allocations = {"success": 0, "refused": 0}
        self.watchers = 0
        self.is_silent = False
        self.note: Note | None = None
        self._given = given
        self._leaving = False
        self._changed = asyncio.Condition()

    @property
    def options(self) -> DevicePluginOptions:
        """Return which calls the kubelet makes."""
        return DevicePluginOptions(pre_start_required=self.traits.is_checked, get_preferred_allocation_available=True)

    async def publish(self, devices: Devices) -> None:
        """Change the list of devices."""
        async with self._changed:
            self.devices = devices
            self._changed.notify_all()

    async def be_silent(self, is_silent: bool) -> None:
        """Send no list, and end no stream with an empty one, until told otherwise."""
        async with self._changed:
            self.is_silent = is_silent
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
            messages.PRE_START_CONTAINER: Handler(self._pre_start, unary, PreStartContainerRequest, Empty),
        }

    async def _options(self, stream: Stream[Any, Any]) -> None:
        await _received(stream)
        await stream.send_message(self.options)

    async def _list_and_watch(self, stream: Stream[Any, Any]) -> None:
        await _received(stream)
        self.watchers += 1
        try:
            sent: ListAndWatchResponse | None = None
            is_leaving = False
            while not is_leaving:
                async with self._changed:
                    while not self._leaving and (self.is_silent or self._list() == sent):
                        await self._changed.wait()
                    response, is_leaving = self._list(), self._leaving
                if response != sent and not self.is_silent:
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
        chosen = [
            preferred(self.devices, one.available, one.must_include, one.size, self.traits.policy) for one in containers
        ]
        answers = tuple(ContainerPreferredAllocationResponse(device_ids=ids) for ids in chosen)
        await stream.send_message(PreferredAllocationResponse(containers=answers))

    async def _allocate(self, stream: Stream[Any, Any]) -> None:
        request: AllocateRequest | None = await _received(stream)
        containers = request.containers if request else ()
        try:
            answers = await self._allocated([one.device_ids for one in containers])
        except AllocationRefused as error:
            self.allocations["refused"] += 1
            log.warning("%s: not allocated: %s", self.resource, error)
            raise GRPCError(Status.FAILED_PRECONDITION, str(error)) from error
        for one in containers:
            self.allocations["success"] += 1
            log.info("%s: allocated %s", self.resource, ", ".join(one.device_ids))
        await stream.send_message(AllocateResponse(containers=answers))

    async def _allocated(self, containers: Sequence[Sequence[str]]) -> tuple[ContainerAllocateResponse, ...]:
        devices = self.devices
        answers = tuple(allocate(self.resource, devices, ids) for ids in containers)
        if self.traits.one_share:
            self._refuse_shares(containers)
        if self.traits.is_checked or self.traits.is_remembered:
            if self._given is None:
                raise AllocationRefused(f"{self.resource}: there is no folder to remember in what is given")
            units = {name: devices[name].unit for ids in containers for name in ids}
            shares = {name: unit.shares for name, unit in units.items()}
            new = {name: unit.identity if self.traits.is_checked else (unit.id,) for name, unit in units.items()}
            self._given.begin(self.resource, shares)
            try:
                await asyncio.to_thread(self._given.remember, self.resource, new)
            finally:
                self._given.end(self.resource, shares)
        elif self.note is not None:
            await self._note(self.note, [devices[name] for ids in containers for name in ids])
        return answers

    async def _note(self, note: "Note", devices: Sequence[OfferedDevice]) -> None:
        shares = {one.id: one.unit.shares for one in devices if one.unit.shares > 1}
        if shares and (why := await note(self.resource, shares)):
            log.warning("%s: %s: no limit of memory is known for who gets %s", self.resource, why, ", ".join(shares))

    def _refuse_shares(self, containers: Sequence[Sequence[str]]) -> None:
        """Refuse more than one share for a container: it gets no more of a device by that."""
        for ids in containers:
            if len(ids) > 1 and any(self.devices[name].unit.shares > 1 for name in ids):
                raise AllocationRefused(
                    f"request for '{self.resource}: {len(ids)}' too large: maximum request size for shared resources "
                    "is 1 (failRequestsGreaterThanOne)"
                )

    async def _pre_start(self, stream: Stream[Any, Any]) -> None:
        request: PreStartContainerRequest | None = await _received(stream)
        try:
            await self._check_start(request.device_ids if request else ())
        except StartRefused as error:
            log.warning("%s: a container does not start: %s", self.resource, error)
            raise GRPCError(Status.FAILED_PRECONDITION, str(error)) from error
        await stream.send_message(Empty())

    async def _check_start(self, ids: Sequence[str]) -> None:
        """Compare devices with what was given. One that is not healthy may be used again: it is the pod's own."""
        if self.traits.is_checked:
            if self._given is None:
                raise StartRefused(f"{self.resource}: there is no folder in which it was remembered what was given")
            now = [(name, device.unit.identity if (device := self.devices.get(name)) else ()) for name in ids]
            await asyncio.to_thread(self._given.check, self.resource, now)


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
