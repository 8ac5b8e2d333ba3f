"""What comes into a container that gets devices. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from device_agent.devices.model import BindMount, DeviceNode, OfferedDevice, UnitFile
from device_agent.errors import AllocationRefused
from device_agent.protocol.messages import ContainerAllocateResponse, DeviceSpec, Mount

_PERMISSIONS = "mrw"
IDS, PATHS = "$(DEVICE_IDS)", "$(DEVICE_PATHS)"
"""What values of variables may contain: ids, or paths in the container, with commas."""


def allocate(resource: str, devices: Mapping[str, OfferedDevice], ids: Sequence[str]) -> ContainerAllocateResponse:
    """Bring devices of a resource into one container.

    Raises:
        AllocationRefused: when one does not exist or may not be given, or two have the same path in the container.
    """
    chosen = [_chosen(resource, devices, name) for name in ids]
    files = _files(resource, [file for device in chosen for file in device.unit.files])
    nodes = [same for same in files.values() if isinstance(same[0], DeviceNode)]
    mounts = [same[0] for same in files.values() if isinstance(same[0], BindMount)]
    words = {IDS: ",".join(device.id for device in chosen), PATHS: ",".join(same[0].mount_path for same in nodes)}
    return ContainerAllocateResponse(
        envs=_environment(chosen, words),
        devices=tuple(
            DeviceSpec(container_path=same[0].mount_path, host_path=same[0].path, permissions=_permissions(same))
            for same in nodes
        ),
        mounts=tuple(
            Mount(container_path=mount.mount_path, host_path=mount.path, read_only=mount.read_only) for mount in mounts
        ),
    )


def _chosen(resource: str, devices: Mapping[str, OfferedDevice], name: str) -> OfferedDevice:
    device = devices.get(name)
    if device is None:
        raise AllocationRefused(f"{resource} has no device {name[:100]!r} on this node")
    if not device.unit.is_healthy:
        what = "is not given yet" if device.unit.is_waiting else "is not healthy"
        raise AllocationRefused(f"device {name} of {resource} {what}: {device.unit.why}")
    return device


def _files(resource: str, files: Iterable[UnitFile]) -> dict[str, list[UnitFile]]:
    """Sort files by their path in the container; shares of one unit bring the same ones."""
    by_path: dict[str, list[UnitFile]] = {}
    for file in files:
        same = by_path.setdefault(file.mount_path, [])
        if same and same[0].path != file.path:
            raise AllocationRefused(
                f"{same[0].path} and {file.path} of {resource} would both be {file.mount_path} in the container: "
                "request one device, or leave mountPath out"
            )
        same.append(file)
    return by_path


def _permissions(files: Sequence[UnitFile]) -> str:
    given = {letter for file in files if isinstance(file, DeviceNode) for letter in file.permissions}
    return "".join(letter for letter in _PERMISSIONS if letter in given)


def _environment(devices: Iterable[OfferedDevice], words: Mapping[str, str]) -> dict[str, str]:
    """Give each variable the values of all units, each value once."""
    values: dict[str, dict[str, None]] = {}
    for device in devices:
        for name, value in device.unit.environment.items():
            values.setdefault(name, {})[_filled(value, words)] = None
    return {name: ",".join(given) for name, given in values.items()}


def _filled(value: str, words: Mapping[str, str]) -> str:
    for word, text in words.items():
        value = value.replace(word, text)
    return value
