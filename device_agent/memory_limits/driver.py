"""Limits that the card's driver keeps: which cgroup gets which, and which are still to be set. Pure, and level-based.

NVML sets a limit for a folder of cgroup v2 on a card. Where the kernel has the controller ``dmem``, the folder has to
be that of a container; otherwise the driver looks for the nearest folder above a process that has a limit, and the
pod's is enough.

The container ``nvml`` imports this: NamedTuples, because ``dataclasses`` would cost it 2.8 MiB.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from device_agent.gpu_state.limits import PodLimit
from device_agent.users.pods import pod_uid, pod_uids

_EXACT = 2 << 20
"""Bytes: what is read back may be rounded to the card's pages."""


class Folders(NamedTuple):
    """Folders of the node's cgroup v2, each as a path below ``/sys/fs/cgroup``, such as ``kubepods/podUID``.

    ``paths``: the pods', and those directly in a pod's, which are its containers'. ``dmem``: those of them that have
    a file ``dmem.max``.
    """

    paths: Collection[str]
    dmem: Collection[str] = ()


class CgroupLimit(NamedTuple):
    """What processes in a folder may use of a card together, in bytes. ``pod``: whose it is, NAMESPACE/NAME."""

    card: str
    folder: str
    limit: int
    pod: str


Read = Mapping[tuple[str, str], int | None]
"""Card and folder -> the limit that was read back; None: there is none, or it cannot be read."""


def limited_folders(uid: str, folders: Folders) -> tuple[str, ...]:
    """Return the folders of a pod that get its limit; none while the kubelet has not made them.

    Args:
        uid: as :func:`device_agent.users.pods.plain_uid` writes it.
        folders: what there is.
    """
    own = sorted(path for path in folders.paths if _is_of(uid, path))
    return tuple(
        folder
        for pod in own
        for folder in sorted(path for path in folders.dmem if path.rpartition("/")[0] == pod) or [pod]
    )


def wanted_limits(limits: Iterable[PodLimit], pods: Mapping[str, str], folders: Folders) -> tuple[CgroupLimit, ...]:
    """Say which folder gets which limit.

    Each container gets the whole limit of its pod: nobody says which container a folder is of. What they use together
    is watched (:func:`kept_by_driver`).

    Args:
        limits: of pods.
        pods: NAMESPACE/NAME by UID, also of earlier and of later pods of the same name.
        folders: what there is.
    """
    return tuple(
        CgroupLimit(one.card, folder, one.limit, one.pod)
        for one in limits
        for uid in sorted(uid for uid, pod in pods.items() if pod == one.pod and one.uid in {"", uid})
        for folder in limited_folders(uid, folders)
    )


def container_limits(wanted: Iterable[CgroupLimit], folders: Folders) -> tuple[CgroupLimit, ...]:
    """Return the limits of pods' folders for their containers: one with a limit of its own is not under its pod's."""
    containers: dict[str, list[str]] = {}
    for path in sorted(folders.paths):
        containers.setdefault(path.rpartition("/")[0], []).append(path)
    return tuple(limit._replace(folder=path) for limit in wanted for path in containers.get(limit.folder, ()))


def limits_to_set(wanted: Iterable[CgroupLimit], read: Read) -> tuple[CgroupLimit, ...]:
    """Return the limits that are not in force yet, among them those that were changed."""
    return tuple(limit for limit in wanted if not _is_in_force(limit, read))


def kept_by_driver(limits: Iterable[PodLimit], wanted: Iterable[CgroupLimit], read: Read) -> frozenset[tuple[str, str]]:
    """Return card and pod of the limits that the driver keeps by itself; all others have to be watched.

    Not kept is a limit that was not read back from all its folders, and that of a pod whose containers may use the card
    with several devices, each container with a limit of its own.
    """
    by_pod = _by_pod(wanted)
    return frozenset(
        (one.card, one.pod)
        for one in limits
        if (own := by_pod.get((one.card, one.pod)))
        and not _is_divided(one, own)
        and all(_is_in_force(limit, read) for limit in own)
    )


def divided_cards(limits: Iterable[PodLimit], wanted: Iterable[CgroupLimit]) -> frozenset[str]:
    """Return the cards of which a pod has several devices, and containers that each have its whole limit."""
    by_pod = _by_pod(wanted)
    return frozenset(one.card for one in limits if _is_divided(one, by_pod.get((one.card, one.pod), ())))


def _by_pod(wanted: Iterable[CgroupLimit]) -> Mapping[tuple[str, str], Collection[CgroupLimit]]:
    by_pod: dict[tuple[str, str], list[CgroupLimit]] = {}
    for limit in wanted:
        by_pod.setdefault((limit.card, limit.pod), []).append(limit)
    return by_pod


def _is_divided(limit: PodLimit, own: Collection[CgroupLimit]) -> bool:
    return limit.devices > 1 and len(own) > 1


def _is_of(uid: str, path: str) -> bool:
    """Return whether a folder is a pod's, and in no other pod's, where a container can make folders of any name."""
    above, _, name = path.rpartition("/")
    return pod_uid(name) == uid and not pod_uids(above.split("/"))


def _is_in_force(limit: CgroupLimit, read: Read) -> bool:
    found = read.get((limit.card, limit.folder))
    return bool(found) and abs((found or 0) - limit.limit) < _EXACT
