"""The messages of the kubelet's device plugin API, ``v1beta1``, and the names of its methods.

Source: ``k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1``. The tests compare each with what ``protobuf`` writes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from device_agent.protocol.wire import Field, Message, Type

VERSION = "v1beta1"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"

REGISTER = "/v1beta1.Registration/Register"
OPTIONS = "/v1beta1.DevicePlugin/GetDevicePluginOptions"
LIST_AND_WATCH = "/v1beta1.DevicePlugin/ListAndWatch"
PREFERRED_ALLOCATION = "/v1beta1.DevicePlugin/GetPreferredAllocation"
ALLOCATE = "/v1beta1.DevicePlugin/Allocate"
PRE_START_CONTAINER = "/v1beta1.DevicePlugin/PreStartContainer"

Fields = tuple[Field, ...]
Texts = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty(Message):
    """Nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePluginOptions(Message):
    """Which calls the kubelet makes."""

    FIELDS: ClassVar[Fields] = (
        Field(1, "pre_start_required", Type.BOOL),
        Field(2, "get_preferred_allocation_available", Type.BOOL),
    )
    pre_start_required: bool = False
    get_preferred_allocation_available: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterRequest(Message):
    """A resource and the name of its plugin's socket."""

    FIELDS: ClassVar[Fields] = (
        Field(1, "version", Type.STRING),
        Field(2, "endpoint", Type.STRING),
        Field(3, "resource_name", Type.STRING),
        Field(4, "options", DevicePluginOptions),
    )
    version: str = ""
    endpoint: str = ""
    resource_name: str = ""
    options: DevicePluginOptions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NUMANode(Message):
    """A NUMA node."""

    FIELDS: ClassVar[Fields] = (Field(1, "id", Type.INTEGER),)
    id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyInfo(Message):
    """Where a device is."""

    FIELDS: ClassVar[Fields] = (Field(1, "nodes", NUMANode, repeated=True),)
    nodes: tuple[NUMANode, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Device(Message):
    """A device of the list."""

    FIELDS: ClassVar[Fields] = (
        Field(1, "id", Type.STRING),
        Field(2, "health", Type.STRING),
        Field(3, "topology", TopologyInfo),
    )
    id: str = ""
    health: str = ""
    topology: TopologyInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAndWatchResponse(Message):
    """All devices of a resource."""

    FIELDS: ClassVar[Fields] = (Field(1, "devices", Device, repeated=True),)
    devices: tuple[Device, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPreferredAllocationRequest(Message):
    """What one container may get."""

    FIELDS: ClassVar[Fields] = (
        Field(1, "available", Type.STRING, repeated=True),
        Field(2, "must_include", Type.STRING, repeated=True),
        Field(3, "size", Type.INTEGER),
    )
    available: Texts = ()
    must_include: Texts = ()
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferredAllocationRequest(Message):
    """The question which devices containers should get."""

    FIELDS: ClassVar[Fields] = (Field(1, "containers", ContainerPreferredAllocationRequest, repeated=True),)
    containers: tuple[ContainerPreferredAllocationRequest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPreferredAllocationResponse(Message):
    """What one container should get."""

    FIELDS: ClassVar[Fields] = (Field(1, "device_ids", Type.STRING, repeated=True),)
    device_ids: Texts = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferredAllocationResponse(Message):
    """The answer, in the order of the question."""

    FIELDS: ClassVar[Fields] = (Field(1, "containers", ContainerPreferredAllocationResponse, repeated=True),)
    containers: tuple[ContainerPreferredAllocationResponse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerAllocateRequest(Message):
    """The devices that one container gets."""

    FIELDS: ClassVar[Fields] = (Field(1, "device_ids", Type.STRING, repeated=True),)
    device_ids: Texts = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateRequest(Message):
    """The devices that containers get."""

    FIELDS: ClassVar[Fields] = (Field(1, "containers", ContainerAllocateRequest, repeated=True),)
    containers: tuple[ContainerAllocateRequest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount(Message):
    """A bind mount."""

    FIELDS: ClassVar[Fields] = (
        Field(1, "container_path", Type.STRING),
        Field(2, "host_path", Type.STRING),
        Field(3, "read_only", Type.BOOL),
    )
    container_path: str = ""
    host_path: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec(Message):
    """A device node."""

    FIELDS: ClassVar[Fields] = (
        Field(1, "container_path", Type.STRING),
        Field(2, "host_path", Type.STRING),
        Field(3, "permissions", Type.STRING),
    )
    container_path: str = ""
    host_path: str = ""
    permissions: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerAllocateResponse(Message):
    """What comes into one container."""

    FIELDS: ClassVar[Fields] = (
        Field(1, "envs", Type.MAP),
        Field(2, "mounts", Mount, repeated=True),
        Field(3, "devices", DeviceSpec, repeated=True),
        Field(4, "annotations", Type.MAP),
    )
    envs: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceSpec, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateResponse(Message):
    """The answer, in the order of the question."""

    FIELDS: ClassVar[Fields] = (Field(1, "containers", ContainerAllocateResponse, repeated=True),)
    containers: tuple[ContainerAllocateResponse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreStartContainerRequest(Message):
    """The devices of a container that is about to start. The answer is empty."""

    FIELDS: ClassVar[Fields] = (Field(1, "device_ids", Type.STRING, repeated=True),)
    device_ids: Texts = ()
