"""Limits that the card's driver keeps: which cgroup gets which, and which are still to be set. Pure, and level-based.

NVML sets a limit for a folder of cgroup v2 on a card. Where the kernel has the controller ``dmem``, the folder has to
be that of a container; otherwise the driver looks for the nearest folder above a process that has a limit, and the
pod's is enough.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from device_agent.memory_limits.accounts import Account
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


def wanted_limits(
    accounts: Iterable[Account], uids: Mapping[str, Collection[str]], folders: Folders
) -> tuple[CgroupLimit, ...]:
    """Say which folder gets which limit. ``uids``: of pods by NAMESPACE/NAME, also of earlier ones of the same name.

    Each container gets the whole limit of its pod: nobody says which container a folder is of. What they use together
    is watched (:func:`still_watched`).
    """
    return tuple(
        CgroupLimit(account.card, folder, account.limit, account.pod)
        for account in accounts
        if account.limit is not None
        for uid in sorted(uids.get(account.pod, ()))
        for folder in limited_folders(uid, folders)
    )


def limits_to_set(wanted: Iterable[CgroupLimit], read: Read) -> tuple[CgroupLimit, ...]:
    """Return the limits that are not in force yet, among them those that were changed."""
    return tuple(limit for limit in wanted if not _is_in_force(limit, read))


def still_watched(accounts: Iterable[Account], wanted: Sequence[CgroupLimit], read: Read) -> tuple[Account, ...]:
    """Return the pods whose limits the driver does not keep by itself: they are watched.

    These are pods without a limit that was read back, and those of several containers that may use the card, each with
    a limit of its own.
    """
    limits: dict[tuple[str, str], list[CgroupLimit]] = {}
    for limit in wanted:
        limits.setdefault((limit.card, limit.pod), []).append(limit)
    return tuple(one for one in accounts if not _is_kept(one, limits.get((one.card, one.pod), []), read))


def news(refused: Mapping[str, str], reported: Mapping[str, str]) -> dict[str, str]:
    """Return of which cards it is to be reported that the driver keeps no limits, and why: once for each reason."""
    return {card: why for card, why in refused.items() if reported.get(card) != why}


def _is_of(uid: str, path: str) -> bool:
    """Return whether a folder is a pod's, and in no other pod's, where a container can make folders of any name."""
    above, _, name = path.rpartition("/")
    return pod_uid(name) == uid and not pod_uids(above.split("/"))


def _is_kept(account: Account, limits: Sequence[CgroupLimit], read: Read) -> bool:
    is_one = account.devices == 1 or len(limits) == 1
    return bool(limits) and is_one and all(_is_in_force(limit, read) for limit in limits)


def _is_in_force(limit: CgroupLimit, read: Read) -> bool:
    found = read.get((limit.card, limit.folder))
    return found is not None and abs(found - limit.limit) < _EXACT
