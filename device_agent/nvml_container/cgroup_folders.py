"""Reads which cgroups of pods and containers the node has, and which of them the kernel can limit by ``dmem``."""

import os
from collections.abc import Iterator

from device_agent.memory_limits.driver import Folders
from device_agent.users.pods import MOST_ENTRIES, is_class, is_tree, pod_uid

_DMEM = "dmem.max"
_ABOVE = ("", "kubelet", "kubelet.slice")
"""Where the tree of pods is; the last two in clusters whose nodes are containers."""


def read_folders(cgroups: str) -> Folders:
    """Read the folders of pods and their containers. ``cgroups``: where the node's cgroup v2 is mounted.

    What cannot be read, as what has just gone, is left out, and so is what comes after too many folders.
    """
    root = cgroups.rstrip("/")
    paths: list[str] = []
    for path in _folders(root):
        paths.append(path)
        if len(paths) >= MOST_ENTRIES:
            break
    has_dmem = [path for path in paths if os.path.exists(f"{root}/{path}/{_DMEM}")]  # noqa: PTH110 - see boot
    return Folders(tuple(paths), tuple(has_dmem))


def _folders(root: str) -> Iterator[str]:
    trees = (f"{above}/{name}".lstrip("/") for above in _ABOVE for name in _names(f"{root}/{above}") if is_tree(name))
    for tree in trees:
        classes = [f"{tree}/{name}" for name in _names(f"{root}/{tree}") if is_class(name)]
        for folder in (tree, *classes):
            for pod in (f"{folder}/{name}" for name in _names(f"{root}/{folder}") if pod_uid(name)):
                yield pod
                yield from (f"{pod}/{name}" for name in _names(f"{root}/{pod}"))


def _names(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
