"""What comes into a container that gets devices. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from device_agent.devices.model import DeviceFile, OfferedDevice
from device_agent.errors import AllocationRefused
from device_agent.protocol.messages import ContainerAllocateResponse, DeviceSpec, Mount
from device_resources.resource import PathType, Resource

_PERMISSIONS = "mrw"
IDS, PATHS = "$(DEVICE_IDS)", "$(DEVICE_PATHS)"
"""What values of variables may contain: ids, or paths in the container, with commas."""


def allocate(resource: Resource, devices: Mapping[str, OfferedDevice], ids: Sequence[str]) -> ContainerAllocateResponse:
    """Bring devices into one container.

    Raises:
        AllocationRefused: when one does not exist or is not healthy, or two have the same path in the container.
    """
    chosen = [_chosen(resource, devices, name) for name in ids]
    files = _files(resource, [file for device in chosen for file in device.state.unit.files])
    nodes = [group for group in files.values() if group[0].described.type is PathType.DEVICE]
    mounts = [group[0] for group in files.values() if group[0].described.type is PathType.MOUNT]
    words = {IDS: ",".join(device.id for device in chosen), PATHS: ",".join(group[0].mount_path for group in nodes)}
    return ContainerAllocateResponse(
        envs={name: _filled(value, words) for name, value in resource.environment.items()},
        devices=tuple(
            DeviceSpec(container_path=group[0].mount_path, host_path=group[0].path, permissions=_permissions(group))
            for group in nodes
        ),
        mounts=tuple(
            Mount(container_path=file.mount_path, host_path=file.path, read_only=file.described.read_only)
            for file in mounts
        ),
    )


def _chosen(resource: Resource, devices: Mapping[str, OfferedDevice], name: str) -> OfferedDevice:
    device = devices.get(name)
    if device is None:
        raise AllocationRefused(f"{resource.name} has no device {name[:100]!r} on this node")
    if not device.state.is_healthy:
        raise AllocationRefused(f"device {name} of {resource.name} is not healthy: {device.state.why}")
    return device


def _files(resource: Resource, files: Iterable[DeviceFile]) -> dict[str, list[DeviceFile]]:
    """Sort files by their path in the container; shares of one unit bring the same ones."""
    by_path: dict[str, list[DeviceFile]] = {}
    for file in files:
        same = by_path.setdefault(file.mount_path, [])
        if same and same[0].path != file.path:
            raise AllocationRefused(
                f"{same[0].path} and {file.path} of {resource.name} would both be {file.mount_path} in the container: "
                "request one device, or leave mountPath out"
            )
        same.append(file)
    return by_path


def _permissions(files: Sequence[DeviceFile]) -> str:
    given = {letter for file in files for letter in file.described.permissions}
    return "".join(letter for letter in _PERMISSIONS if letter in given)


def _filled(value: str, words: Mapping[str, str]) -> str:
    for word, text in words.items():
        value = value.replace(word, text)
    return value
