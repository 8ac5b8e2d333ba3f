"""Messages of the kubelet's plugin registration and of its API for DRA drivers, ``v1``, as far as tests need them.

Source: ``k8s.io/kubelet/pkg/apis/pluginregistration/v1`` and ``.../dra/v1``.
"""

from dataclasses import dataclass
from typing import ClassVar

from device_agent.protocol.wire import Field, Message, Type

DRA_PLUGIN, DRA_SERVICE = "DRAPlugin", "v1.DRAPlugin"
"""The kind of the plugin, and what it supports."""

GET_INFO = "/pluginregistration.Registration/GetInfo"
NOTIFY = "/pluginregistration.Registration/NotifyRegistrationStatus"
PREPARE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
UNPREPARE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources"

Fields = tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing(Message):
    """A message without a field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginInfo(Message):
    """What a plugin says of itself: ``endpoint`` is the socket that it serves at."""

    FIELDS: ClassVar[Fields] = (
        Field(1, "type", Type.STRING),
        Field(2, "name", Type.STRING),
        Field(3, "endpoint", Type.STRING),
        Field(4, "supported_versions", Type.STRING, repeated=True),
    )
    type: str = ""
    name: str = ""
    endpoint: str = ""
    supported_versions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationStatus(Message):
    """Whether the kubelet took it."""

    FIELDS: ClassVar[Fields] = (Field(1, "plugin_registered", Type.BOOL), Field(2, "error", Type.STRING))
    plugin_registered: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Message):
    """A ResourceClaim."""

    FIELDS: ClassVar[Fields] = (
        Field(1, "namespace", Type.STRING),
        Field(2, "uid", Type.STRING),
        Field(3, "name", Type.STRING),
    )
    namespace: str = ""
    uid: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims(Message):
    """Those that are to be prepared, or given back."""

    FIELDS: ClassVar[Fields] = (Field(1, "claims", Claim, repeated=True),)
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Device(Message):
    """A device of a claim, and what the container runtime knows it by."""

    FIELDS: ClassVar[Fields] = (
        Field(1, "request_names", Type.STRING, repeated=True),
        Field(2, "pool_name", Type.STRING),
        Field(3, "device_name", Type.STRING),
        Field(4, "cdi_device_ids", Type.STRING, repeated=True),
    )
    request_names: tuple[str, ...] = ()
    pool_name: str = ""
    device_name: str = ""
    cdi_device_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(Message):
    """The devices of one claim, or why there are none; of one that is given back the error alone is written."""

    FIELDS: ClassVar[Fields] = (Field(1, "devices", Device, repeated=True), Field(2, "error", Type.STRING))
    devices: tuple[Device, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedClaim(Message):
    """One entry of the map by a claim's uid: as an entry of a map is written, a message with key and value."""

    FIELDS: ClassVar[Fields] = (Field(1, "uid", Type.STRING), Field(2, "value", Prepared))
    uid: str = ""
    value: Prepared | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedClaims(Message):
    """The answer, for each claim that was asked for."""

    FIELDS: ClassVar[Fields] = (Field(1, "claims", PreparedClaim, repeated=True),)
    claims: tuple[PreparedClaim, ...] = ()
