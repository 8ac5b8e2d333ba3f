"""Which pods exist on the node: those that have a cgroup.

The kubelet makes one for each pod before its first container starts, and removes it after the last one has ended:
``kubepods/burstable/podUID``, or with systemd ``kubepods-burstable-podU_I_D.slice``.
"""

import os
import re
from collections.abc import Iterable, Iterator

MOST_ENTRIES = 1 << 14
"""Folders that are looked at."""

_HIERARCHIES = ("", "memory", "pids", "cpu", "systemd", "unified")
"""Below the mount: cgroup v2 is one tree, v1 has one for each controller. A pod in any of them exists."""
_TREES = ("kubepods", "kubepods.slice", "kubelet/kubepods", "kubelet.slice/kubelet-kubepods.slice")
"""Where the kubelet has its pods; the last two in clusters whose nodes are containers."""
_TREE = re.compile(r"(?:.*-)?kubepods(?:\.slice)?")
_CLASS = re.compile(r"(?:.*-)?(?:burstable|besteffort)(?:\.slice)?")
_POD = re.compile(r"(?:.*-)?pod([0-9A-Za-z_-]{1,64})(?:\.slice)?")


def pod_uids(names: Iterable[str]) -> frozenset[str]:
    """Return the UIDs of pods that folders are of, as :func:`plain_uid` writes them."""
    return frozenset(uid for name in names if (uid := pod_uid(name)))


def pod_uid(name: str) -> str:
    """Return the UID of the pod that a folder is of, as :func:`plain_uid` writes it; empty for any other folder."""
    found = _POD.fullmatch(name)
    return plain_uid(found[1]) if found else ""


def is_tree(name: str) -> bool:
    """Return whether a folder is the one with all pods: ``kubepods``, ``kubelet-kubepods.slice``."""
    return _TREE.fullmatch(name) is not None


def is_class(name: str) -> bool:
    """Return whether a folder is that of a class of service, with its pods in it."""
    return _CLASS.fullmatch(name) is not None


def plain_uid(uid: str) -> str:
    """Write a UID so that it can be compared: systemd has underscores in the place of hyphens, static pods neither."""
    return uid.replace("-", "").replace("_", "").lower()


def read_pods(cgroups: str) -> frozenset[str] | None:
    """Return the UIDs of all pods that have a cgroup. ``cgroups``: where the node's /sys/fs/cgroup is mounted.

    None where that cannot be said: there is no tree of pods (``--cgroups-per-qos=false``, or a ``--cgroup-root``), or
    none with a pod, though the agent is one; one cannot be read, or there are too many folders.
    """
    names: list[str] = []
    try:
        for tree in (f"{cgroups.rstrip('/')}/{one}/{two}" for one in _HIERARCHIES for two in _TREES):
            if os.path.isdir(tree):  # noqa: PTH112 - pathlib would cost the resident process 1 MiB
                for name in _folders(tree):
                    names.append(name)
                    if len(names) > MOST_ENTRIES:
                        return None
    except OSError:
        return None
    return pod_uids(names) or None


def _folders(tree: str) -> Iterator[str]:
    """Name the folders of a tree: pods, and the folders of classes of service with their pods; not what is in a pod."""
    classes: list[str] = []
    with os.scandir(tree) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield entry.name
                classes += [entry.name] if is_class(entry.name) else []
    for name in classes:
        with os.scandir(f"{tree}/{name}") as entries:
            yield from (entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
