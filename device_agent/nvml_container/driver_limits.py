"""Has the cards' drivers keep limits of memory: reads which cgroups there are, sets limits, and reads them back."""

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from device_agent.gpu_state.limits import PodLimit
from device_agent.gpu_state.use import MOST_DEVICES, KeptLimit
from device_agent.memory_limits.driver import (
    CgroupLimit,
    container_limits,
    divided_cards,
    kept_by_driver,
    limits_to_set,
    wanted_limits,
)
from device_agent.nvml_container.cgroup_folders import read_folders
from kube_api.text import printable

_FOLDER = "sys/fs/cgroup"
_ONLY_IN_V2 = "cgroup.controllers"
_NO_V2 = "the node's cgroup v2 is not there: it has cgroup v1, or /sys/fs/cgroup is not mounted in the container nvml"
_NO_NVML = "limits are kept by NVIDIA's driver alone, and NVML cannot be asked"
_STRICTER = "somebody else has set a lower limit, which stays"
_DIVIDED = "a pod has several devices of the card: each of its containers has the pod's whole limit"
_NOT_TAKEN = "the driver says of a limit that was set that it is not in force"


class Driver(Protocol):
    """What keeps limits, as :class:`nvml_inventory.session.Session` does."""

    def set_memory_limit(self, uuid: str, cgroup_folder: str, hard: int | None) -> str:
        """Set a limit in bytes, or lift it (None); returns why not."""
        ...

    def memory_limit(self, uuid: str, cgroup_folder: str) -> int | None:
        """Read a limit back."""
        ...


class Kept(NamedTuple):
    """What drivers keep, and why cards keep nothing; as of :class:`device_agent.gpu_state.use.Use`."""

    limits: tuple[KeptLimit, ...] = ()
    refused: Mapping[str, str] = {}


class _Own(NamedTuple):
    """A limit that was set here. ``before``: what somebody else had set, which comes back."""

    pod: str
    before: int | None


class DriverLimits:
    """Knows which limits are wanted, and which it has set itself; these alone it lifts. ``root``: the node's ``/``."""

    def __init__(self, root: str) -> None:
        self._cgroups = f"{root.rstrip('/')}/{_FOLDER}"
        self._wanted: tuple[PodLimit, ...] = ()
        self._own: dict[tuple[str, str], _Own] = {}

    def want(self, limits: tuple[PodLimit, ...]) -> None:
        """Keep these from the next time on, and no others."""
        self._wanted = limits

    def keep(self, pods: Mapping[str, str], driver: Driver | None) -> Kept:
        """Set what is wanted and not in force, and lift what is not wanted any more.

        Args:
            pods: NAMESPACE/NAME by UID, of all pods whose limits are wanted.
            driver: None: there is none.
        """
        if not self._wanted and not self._own:
            return Kept()
        why = self._why_not(driver)
        if driver is None or why:
            return self._kept((), dict.fromkeys(self._cards(), why))
        folders = read_folders(self._cgroups)
        wanted = wanted_limits(self._wanted, pods, folders)
        read = {one[:2]: self._read(one, driver) for one in wanted}
        for one in container_limits(wanted, folders):  # NVIDIA's toolkit sets it, by the pod's environment
            found = self._read(one, driver)
            if found or one[:2] in self._own:
                wanted, read[one[:2]] = (*wanted, one), found
        self._take_back(wanted, driver)
        refused: dict[str, str] = {}
        for one in limits_to_set(wanted, read):
            if self._is_stricter(one, read.get(one[:2])):
                self._note(one, _STRICTER, refused)
                continue
            why = self._set(one, read.get(one[:2]), driver)
            read[one[:2]] = self._read(one, driver)
            if why or limits_to_set((one,), read):
                self._note(one, why or _NOT_TAKEN, refused)
        for card in divided_cards(self._wanted, wanted):
            refused.setdefault(card, _DIVIDED)
        kept = kept_by_driver(self._wanted, wanted, read)
        return self._kept((one for one in self._wanted if one[:2] in kept), refused)

    def lift(self, driver: Driver | None) -> None:
        """Lift what was set if nothing is wanted: nobody may ask for a sample any more."""
        if self._own and not self._wanted:
            self.keep({}, driver)

    def _why_not(self, driver: Driver | None) -> str:
        if driver is None:
            return _NO_NVML
        return "" if os.path.exists(f"{self._cgroups}/{_ONLY_IN_V2}") else _NO_V2  # noqa: PTH110 - pathlib costs 1 MiB

    def _cards(self) -> list[str]:
        return sorted({one.card for one in self._wanted})[:MOST_DEVICES]

    def _is_stricter(self, one: CgroupLimit, found: int | None) -> bool:
        """Return whether somebody else allows less: that is left alone."""
        return found is not None and found < one.limit and one[:2] not in self._own

    def _set(self, one: CgroupLimit, found: int | None, driver: Driver) -> str:
        why = driver.set_memory_limit(one.card, self._path(one.folder), one.limit)
        if not why:
            self._own.setdefault(one[:2], _Own(one.pod, found))
        return why

    def _read(self, one: CgroupLimit, driver: Driver) -> int | None:
        return driver.memory_limit(one.card, self._path(one.folder))

    def _take_back(self, wanted: Iterable[CgroupLimit], driver: Driver) -> None:
        """Lift own limits that are not wanted, again and again until it is done, or the folder is gone.

        That of a pod whose folders are not known now stays, as long as the pod is to have a limit.
        """
        found = list(wanted)
        still = {one[:2] for one in found}
        unknown = {one[:2] for one in self._wanted} - {(one.card, one.pod) for one in found}
        for (card, folder), own in sorted(self._own.items()):
            path = self._path(folder)
            if not os.path.exists(path):  # noqa: PTH110 - as above
                del self._own[card, folder]
                continue
            is_wanted = (card, folder) in still or (card, own.pod) in unknown
            if not is_wanted and not driver.set_memory_limit(card, path, own.before):
                del self._own[card, folder]

    def _note(self, one: CgroupLimit, why: str, refused: dict[str, str]) -> None:
        """Note why a card keeps a limit not. A folder that has gone meanwhile is no reason; its name is in none."""
        path = self._path(one.folder)
        if os.path.exists(path) and len(refused) < MOST_DEVICES:  # noqa: PTH110 - as above
            refused.setdefault(one.card, printable(why.replace(path, "a pod's cgroup")))

    def _path(self, folder: str) -> str:
        return f"{self._cgroups}/{folder}"

    @staticmethod
    def _kept(limits: Iterable[PodLimit], refused: Mapping[str, str]) -> Kept:
        return Kept(tuple(KeptLimit(one.card, one.pod, one.limit) for one in limits), refused)
