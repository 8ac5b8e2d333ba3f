"""A container gets the files of its devices, and the resource's variables."""

from collections.abc import Mapping

import pytest

from device_agent.devices.model import OfferedDevice
from device_agent.errors import AllocationRefused
from device_agent.protocol.messages import ContainerAllocateResponse, DeviceSpec, Mount
from device_agent.sources.files.assemble import assemble
from device_agent.sources.files.file_unit import UnitState
from device_resources.resource import Resource
from tests.unit.device_agent.file_devices import allocate, offered
from tests.unit.device_agent.host_tree import resource

MATCHES = {"/dev/a*": ["/dev/a0", "/dev/a1"], "/dev/ctl": ["/dev/ctl"], "/opt/lib": ["/opt/lib"]}


def devices_of(described: Resource, why: str = "") -> Mapping[str, OfferedDevice]:
    """List the devices of a resource whose files are all there."""
    units = assemble(described, MATCHES, ())
    return offered(described, [UnitState(unit=unit, why=why) for unit in units])


def test_a_device_brings_its_files() -> None:
    """Nodes with their permissions, mounts, and variables with ids and paths."""
    described = resource(
        {"path": "/dev/a*", "mountPath": "/dev/card", "permissions": "wr"},
        {"path": "/opt/lib", "type": "Mount", "readOnly": True, "limit": 9},
        environment={"CARDS": "ids=$(DEVICE_IDS) paths=$(DEVICE_PATHS)", "MODE": "fast"},
    )
    devices = devices_of(described)
    name = next(iter(devices))
    assert allocate(described, devices, [name]) == ContainerAllocateResponse(
        envs={"CARDS": f"ids={name} paths=/dev/card", "MODE": "fast"},
        devices=(DeviceSpec(container_path="/dev/card", host_path="/dev/a0", permissions="rw"),),
        mounts=(Mount(container_path="/opt/lib", host_path="/opt/lib", read_only=True),),
    )


def test_what_two_devices_share_comes_once() -> None:
    """A file of both is one node in the container."""
    described = resource("/dev/a*", {"path": "/dev/ctl", "limit": 5})
    devices = devices_of(described)
    answer = allocate(described, devices, list(devices))
    assert [spec.host_path for spec in answer.devices] == ["/dev/a0", "/dev/ctl", "/dev/a1"]


@pytest.mark.parametrize(
    ("described", "why", "ids", "message"),
    [
        pytest.param(resource("/dev/a*"), "", ["other"], "has no device 'other' on this node", id="unknown"),
        pytest.param(resource("/dev/a*"), "/dev/a0 is gone", None, "is not healthy: /dev/a0 is gone", id="unhealthy"),
        pytest.param(
            resource({"path": "/dev/a*", "mountPath": "/dev/card"}), "", None,
            "/dev/a0 and /dev/a1 of example.com/card would both be /dev/card", id="same path in the container",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_given_is_refused(described: Resource, why: str, ids: list[str] | None, message: str) -> None:
    """The message names device and reason."""
    devices = devices_of(described, why)
    with pytest.raises(AllocationRefused, match=message):
        allocate(described, devices, ids or list(devices))
