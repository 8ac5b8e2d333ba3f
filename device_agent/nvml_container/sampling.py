"""How much cards are used now, and by which processes of the pods that are asked for. In the child: it may hang."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from device_agent.boot import seconds_since_boot
from device_agent.errors import StateInvalid
from device_agent.gpu_state.ending import MOST_ENDED, Ended
from device_agent.gpu_state.requests import FOLLOW_USE, Request
from device_agent.gpu_state.use import MOST_DEVICES, MOST_IN_ALL, MOST_PROCESSES, NVIDIA, CardUse, ProcessUse, Use
from device_agent.gpu_state.use_json import CARD_USE, plain_card_use
from device_agent.nvml_container.driver_limits import Driver, DriverLimits, Kept
from device_agent.nvml_container.drm import Clients, read_cards
from device_agent.nvml_container.pod_logs import read_pod_names
from device_agent.nvml_container.processes import Processes, read_process, why_unseen
from device_agent.nvml_container.settings import Places
from kube_api.text import printable
from nvml_inventory.values import DeviceUse

_NEVER = float("inf")
_SOON = 1.0
"""Seconds between two samples, also when other pods are asked for again and again."""
_LONGEST_NAME = 100


class _Pods(NamedTuple):
    """``names``: NAMESPACE/NAME of the pods that were asked for, by UID. ``why``: why processes are not known.

    ``known``: those pods, as far as their UIDs are known; None: processes were not asked for.
    """

    names: Mapping[str, str] = {}
    why: str = ""
    known: tuple[str, ...] | None = None


class Sampling:
    """Takes a sample every so many seconds, while that is asked for; ``request`` is what is asked for at the start."""

    def __init__(self, places: Places, every: float, request: Request) -> None:
        self._places = places
        self._proc = places.proc
        self._every = every
        self._taken = self._due = -_NEVER
        self._known: frozenset[str] = frozenset()
        self._processes = Processes(self._proc)
        self._clients = Clients(self._proc)
        self._ended: tuple[Ended, ...] = ()
        self._limits = DriverLimits(places.root)
        self._note_request(request)

    @property
    def is_followed(self) -> bool:
        """Return whether samples are asked for."""
        return self._request.name == FOLLOW_USE

    def follow(self, request: Request) -> None:
        """Take samples as it is asked for from now on, the first one soon."""
        self._note_request(request)
        self._due = min(self._due, self._taken + min(_SOON, self._every))

    def note(self, ended: Ended) -> None:
        """Say what became of a request that a process be ended, with a sample that is due now."""
        self._ended = (*self._ended, ended)[-MOST_ENDED:]
        self._due = -_NEVER

    def rest(self) -> float:
        """Return the seconds until the next sample is due."""
        return max(0.0, self._due - time.monotonic()) if self.is_followed else _NEVER

    def lift_limits(self, driver: Driver | None) -> None:
        """Lift limits that are not wanted any more, where no sample does it."""
        if not self.is_followed:
            self._limits.lift(driver)

    def take(self, read_devices: Callable[[], Sequence[DeviceUse]], driver: Driver | None = None) -> Use:
        """Take a sample, of what NVML says by ``read_devices`` and of the cards of other drivers.

        ``driver``: what keeps limits of memory, if there is one.
        """
        self._taken = time.monotonic()
        self._due = self._taken + self._every
        at = seconds_since_boot()
        devices = read_devices()
        cards = (*map(_card, devices), *read_cards(self._places.root))
        pods = self._pods()
        used, unread = self._used(devices, cards, pods.names, at)
        full = (card._replace(processes=tuple(used.get(card.id, ()))) for card in cards)
        kept = self._keep(pods, driver)
        return Use("", at, _sensible(full), pods=pods.known, processes=pods.why, ended=self._ended,
                   kept=kept.limits, refused=kept.refused, unread=unread)  # fmt: skip

    def _note_request(self, request: Request) -> None:
        self._request = request
        if request.limits is not None:
            self._limits.want(request.limits)

    def _keep(self, pods: _Pods, driver: Driver | None) -> Kept:
        """Have limits kept; while it is not known which pod is which, what was set stays."""
        return Kept() if self._request.limits is None or pods.why else self._limits.keep(pods.names, driver)

    def _pods(self) -> _Pods:
        if self._request.pods is None:
            return _Pods()
        names = read_pod_names(self._places.root, frozenset(self._request.pods))
        why = why_unseen(self._proc)
        if names is None:
            why = why or "the node's /var/log/pods cannot be read: it has to be mounted in the container nvml"
        if why or names is None:
            return _Pods(why=why, known=())
        # Of a pod without a folder it is not known which processes are its own; those of none would be 0 bytes.
        found = frozenset(names.values())
        return _Pods(names, known=tuple(pod for pod in self._request.pods if pod in found))

    def _used(
        self, devices: Iterable[DeviceUse], cards: Iterable[CardUse], pods: Mapping[str, str], at: float
    ) -> tuple[dict[str, list[ProcessUse]], tuple[str, ...]]:
        """Return the processes of pods, by the id of their card; and the pods that have too many to look at."""
        if not pods:
            return {}, ()
        if pods.keys() != self._known:
            self._known = frozenset(pods)
            self._processes.forget()
        found = {device.uuid: self._of_device(device, pods, at) for device in devices if device.processes}
        unread: Iterable[str] = ()
        if any(card.driver != NVIDIA for card in cards):
            found |= self._clients.read(self._processes.of_pods(pods, at), pods)
            unread = self._clients.unread if self._processes.is_complete else pods
        ids = {card.id for card in cards}
        bounded = _bounded({card: processes for card, processes in found.items() if card in ids})
        return bounded, tuple(sorted({pods[uid] for uid in unread}))

    def _of_device(self, device: DeviceUse, pods: Mapping[str, str], at: float) -> list[ProcessUse]:
        """Return those of a GPU's processes that are of a pod.

        NVML has named a number. Who has started after that is another process, which has the number by now.
        """
        found = []
        for one in device.processes or ():
            process = read_process(self._proc, one.pid)
            if process is not None and process.uid in pods and process.is_older_than(at):
                found.append(ProcessUse(*process, pods[process.uid], one.memory, one.busy))
        return found


def _card(device: DeviceUse) -> CardUse:
    return CardUse(
        id=device.uuid,
        pci=device.pci,
        driver=NVIDIA,
        index=device.index,
        name=printable(device.name, _LONGEST_NAME),
        parent=device.parent,
        profile=device.profile,
        gi=device.gi,
        values=device.values,
        is_unread=device.processes is None,
    )


def _sensible(cards: Iterable[CardUse]) -> tuple[CardUse, ...]:
    """Leave out cards that no reader would accept, such as one with a line break in its UUID."""
    found: dict[str, CardUse] = {}
    for card in cards:
        try:
            CARD_USE(plain_card_use(card), "a card")
        except StateInvalid:
            continue
        found.setdefault(card.id, card)
    return tuple(found.values())[:MOST_DEVICES]


def _bounded(used: Mapping[str, list[ProcessUse]]) -> dict[str, list[ProcessUse]]:
    """Keep processes with most memory, of each card and of all."""
    every = [(card, one) for card, processes in used.items() for one in processes]
    every.sort(key=lambda one: -(one[1].memory or 0))
    kept: dict[str, list[ProcessUse]] = {}
    for card, one in every[:MOST_IN_ALL]:
        if len(kept.setdefault(card, [])) < MOST_PROCESSES:
            kept[card].append(one)
    return kept
