"""Asks the kubelet which container has which device, over its podresources socket."""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from grpclib.const import Status
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from device_agent.errors import UsersUnknown
from device_agent.kubelet.channel import call
from device_agent.protocol.pod_resources import (
    LIST,
    LIST_ALPHA,
    ListPodResourcesRequest,
    ListPodResourcesResponse,
)
from kube_api.text import printable

LONGEST = 1 << 22
"""Bytes of an answer. Pods with 4,096 devices make less than two megabytes."""

_LONGEST_NAME = 512


class Holder(NamedTuple):
    """A container that has a device."""

    namespace: str
    name: str
    container: str

    @property
    def pod(self) -> str:
        """Return its pod as NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"


Holders = Mapping[tuple[str, str], frozenset[Holder]]
"""Resource and device id -> containers that have it."""


def parse_holders(response: ListPodResourcesResponse) -> Holders:
    """Say who has which device; what has no proper name or id cannot be one of ours."""
    holders: dict[tuple[str, str], set[Holder]] = {}
    for pod in response.pod_resources:
        for container in pod.containers:
            words = (printable(word, _LONGEST_NAME) for word in (pod.namespace, pod.name, container.name))
            holder = Holder(*words)
            for key in ((device.resource_name, one) for device in container.devices for one in device.device_ids):
                if all(0 < len(word) <= _LONGEST_NAME and word.isprintable() for word in key):
                    holders.setdefault(key, set()).add(holder)
    return {key: frozenset(containers) for key, containers in holders.items()}


async def fetch_holders(socket: str, seconds: float) -> Holders:
    """Ask the kubelet who has which device; each of two questions may take so many seconds.

    Raises:
        UsersUnknown: it cannot be asked, or does not answer in time.
    """
    try:
        try:
            return parse_holders(await _ask(socket, LIST, seconds))
        except GRPCError as error:
            if error.status is not Status.UNIMPLEMENTED:
                raise
            return parse_holders(await _ask(socket, LIST_ALPHA, seconds))
    except TimeoutError as error:
        raise UsersUnknown(f"the kubelet did not answer on {socket} in {seconds:.0f} s") from error
    except GRPCError as error:
        said = printable(error.message or error.status.name)
        raise UsersUnknown(f"the kubelet does not say on {socket} who has devices: {said}") from error
    except (OSError, StreamTerminatedError, ProtocolError) as error:
        raise UsersUnknown(f"the kubelet cannot be asked on {socket}: {printable(str(error))}") from error
    except (AssertionError, NotImplementedError, struct.error) as error:  # of grpclib: cut short, or compressed
        raise UsersUnknown(f"the kubelet's answer on {socket} cannot be read") from error


async def _ask(socket: str, method: str, seconds: float) -> ListPodResourcesResponse:
    return await call(socket, method, ListPodResourcesRequest(), ListPodResourcesResponse, seconds, most=LONGEST)
