"""What sysfs says of a device node: which drivers are bound to the device and those above it, and its NUMA node."""

import os
import stat
from collections.abc import Callable, Iterator
from itertools import islice

from device_agent.sources.files.find import raise_if_exhausted

_MAX_LEVELS = 64
_MAX_DRIVERS = 4096


def has_driver(root: str, paths: list[str], driver: str, has_any: Callable[[], bool]) -> str:
    """Return why a driver is not bound to the device of any of these nodes; empty if it is.

    Nodes that sysfs does not know, such as those of a driver without a device class, cannot be asked: then any device
    that is bound to the driver will do; ``has_any`` is :func:`has_devices` of the driver.
    """
    bound = [name for path in paths for folder in device_folders(root, path) for name in _bound(folder)]
    if driver in bound or (not bound and has_any()):
        return ""
    return f"driver {driver} is not bound to it, but {bound[0]} is" if bound else f"no device is bound to {driver}"


def numa_nodes(root: str, paths: list[str]) -> tuple[int, ...]:
    """Return the NUMA nodes of device nodes, sorted; empty if the machine does not say."""
    found = {node for path in paths if (node := _numa_node(root, path)) is not None}
    return tuple(sorted(found))


def _numa_node(root: str, path: str) -> int | None:
    for folder in device_folders(root, path):
        try:
            with open(f"{folder}/numa_node", "rb") as file:  # noqa: PTH123 - as in find.py
                number = int(file.read(16))
        except ValueError:
            continue
        except OSError as error:
            raise_if_exhausted(error)
            continue
        return number if number >= 0 else None
    return None


def device_folders(root: str, path: str) -> Iterator[str]:
    """Give the folder of a node's device, and those of the devices above it."""
    root = root.rstrip("/")
    try:
        status = os.stat(f"{root}{path}")  # noqa: PTH116 - as in find.py
    except OSError:
        return
    kind = "char" if stat.S_ISCHR(status.st_mode) else "block" if stat.S_ISBLK(status.st_mode) else None
    if kind is None:
        return
    number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    folder = os.path.realpath(f"{root}/sys/dev/{kind}/{number}")
    devices = f"{os.path.realpath(f'{root}/sys')}/devices/"
    for _ in range(_MAX_LEVELS):
        if not folder.startswith(devices):
            return
        yield folder
        folder = os.path.dirname(folder)  # noqa: PTH120 - as in find.py


def _bound(folder: str) -> list[str]:
    try:
        return [os.path.basename(os.readlink(f"{folder}/driver"))]  # noqa: PTH115, PTH119 - as in find.py
    except OSError:
        return []


def has_devices(root: str, driver: str) -> bool:
    """Return whether any device is bound to a driver."""
    buses = f"{root.rstrip('/')}/sys/bus"
    return any(_has_links(f"{buses}/{bus}/drivers/{driver}") for bus in _entries(buses))


def _has_links(folder: str) -> bool:
    """Return whether a driver's folder has a device; its link to its own module is none."""
    return any(
        name != "module" and os.path.islink(f"{folder}/{name}")  # noqa: PTH114 - as in find.py
        for name in _entries(folder)
    )


def _entries(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in islice(entries, _MAX_DRIVERS)]
    except OSError as error:
        raise_if_exhausted(error)
        return []
