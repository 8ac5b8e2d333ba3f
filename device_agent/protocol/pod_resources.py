"""The messages of the kubelet's podresources API, as far as they say which container has which device.

Source: ``k8s.io/kubelet/pkg/apis/podresources/v1/api.proto`` and ``v1alpha1/api.proto``, in kubernetes/kubernetes below
``staging/src``: the numbers of these fields are the same in both. CPUs, memory, NUMA nodes and claims are skipped.
"""

from dataclasses import dataclass
from typing import ClassVar

from device_agent.protocol.wire import Field, Message, Type

LIST = "/v1.PodResourcesLister/List"
LIST_ALPHA = "/v1alpha1.PodResourcesLister/List"
"""Of kubelets before 1.20."""

Fields = tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPodResourcesRequest(Message):
    """The question what all pods have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerDevices(Message):
    """Devices of one resource."""

    FIELDS: ClassVar[Fields] = (
        Field(1, "resource_name", Type.STRING),
        Field(2, "device_ids", Type.STRING, repeated=True),
    )
    resource_name: str = ""
    device_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerResources(Message):
    """What a container has."""

    FIELDS: ClassVar[Fields] = (
        Field(1, "name", Type.STRING),
        Field(2, "devices", ContainerDevices, repeated=True),
    )
    name: str = ""
    devices: tuple[ContainerDevices, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResources(Message):
    """What the containers of a pod have, those of ``spec.containers`` and sidecars."""

    FIELDS: ClassVar[Fields] = (
        Field(1, "name", Type.STRING),
        Field(2, "namespace", Type.STRING),
        Field(3, "containers", ContainerResources, repeated=True),
    )
    name: str = ""
    namespace: str = ""
    containers: tuple[ContainerResources, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPodResourcesResponse(Message):
    """What all pods have."""

    FIELDS: ClassVar[Fields] = (Field(1, "pod_resources", PodResources, repeated=True),)
    pod_resources: tuple[PodResources, ...] = ()
