"""The driver's libraries and tools below the folder that drivers export, for containers.

CUDA's images look in the two places of the container without any setting.
"""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass

from device_agent.devices.model import BindMount

LIBRARY = "libcuda.so.1"
LIBRARIES_PLACE, TOOLS_PLACE = "/usr/local/nvidia/lib64", "/usr/local/nvidia/bin"

_FOLDERS = ("usr/lib/{arch}-linux-gnu", "usr/lib/{arch}-linux-gnu/nvidia/current", "usr/lib64", "usr/lib")
"""Debian and Ubuntu; Debian behind its alternatives, absolute links that lead nowhere below another root; the rest."""
_TOOLS = "usr/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Libraries:
    """What is mounted into containers; ``why``: why that is not possible, empty if it is."""

    mounts: tuple[BindMount, ...] = ()
    why: str = ""


NO_LIBRARIES = Libraries()


def find_libraries(root: str, path: str) -> Libraries:
    """Find the libraries of the driver.

    The mounts have ``path`` as it is configured: it is a link that an upgrade moves, and the kubelet keeps the answer.

    ``root``: what stands for the node's ``/``. ``path``: the driver's root there, such as /run/nvidia/driver.
    """
    folders = [folder.format(arch=os.uname().machine) for folder in _FOLDERS]
    base = f"{root.rstrip('/')}{path}"
    found = next((folder for folder in folders if _is(stat.S_ISREG, f"{base}/{folder}/{LIBRARY}")), None)
    if found is None:
        where = ", ".join(folders)
        return Libraries(why=f"there is no {LIBRARY} below {path} of the node: looked in {where}")
    mounts = [BindMount(path=f"{path}/{found}", mount_path=LIBRARIES_PLACE)]
    if _is(stat.S_ISDIR, f"{base}/{_TOOLS}"):
        mounts.append(BindMount(path=f"{path}/{_TOOLS}", mount_path=TOOLS_PLACE))
    return Libraries(mounts=tuple(mounts))


def _is(kind: Callable[[int], bool], path: str) -> bool:
    try:
        return kind(os.stat(path).st_mode)  # noqa: PTH116 - pathlib would cost the resident process 1 MiB
    except OSError:
        return False
