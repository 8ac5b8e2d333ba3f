"""Which pod has which card, and how much of it each pod uses. Pure.

A pod has what the kubelet's podresources says. A process counts for its own pod, and only where that pod has the card.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from device_agent.devices.model import OfferedDevice, unit_of
from device_agent.gpu_state.use import NVIDIA, CardUse, ProcessUse, Use
from device_agent.users.pod_resources import Holder, Holders

FRESH_SECONDS = 5.0
"""How old values may be; older ones say nothing of now."""

Resources = Mapping[str, Mapping[str, OfferedDevice]]
"""The agent's resources -> device id -> what is offered by it."""
Addresses = Mapping[str, Collection[str]]
"""Id of a unit -> the PCI addresses of its device nodes."""


class Allocated(NamedTuple):
    """A device of the agent's that a container has.

    ``unit``: the id of what it is a share of, or is. ``pci``: the PCI addresses of that unit's device nodes.
    """

    resource: str
    device: str
    unit: str
    holder: Holder
    pci: Collection[str] = ()

    @property
    def is_share(self) -> bool:
        """Return whether others may have their part of the unit."""
        return self.device != self.unit


class Owner(NamedTuple):
    """Whom a series is of. ``container``: empty for several of one pod."""

    namespace: str = ""
    pod: str = ""
    container: str = ""


NOBODY = Owner()
"""Of a card that is shared, or that nobody has."""


class PodUse(NamedTuple):
    """How much of a shared card a pod uses: bytes, and percent of the card's time. None: not known."""

    owner: Owner
    memory: int | None
    busy: float | None


class CardView(NamedTuple):
    """A card, or a MIG device; ``parent``: its card, or None. ``pods``: those that share it, where that is known."""

    card: CardUse
    parent: CardUse | None = None
    owner: Owner = NOBODY
    pods: tuple[PodUse, ...] = ()


def still_offered(resources: Resources, before: Resources, holders: Holders) -> Resources:
    """Add to what is offered what was ``before``, as far as a container has it: a new profile takes nothing away."""
    found = {name: dict(devices) for name, devices in resources.items()}
    for resource, device in holders:
        if resource in before and device in before[resource]:
            found.setdefault(resource, {}).setdefault(device, before[resource][device])
    return found


def allocated(holders: Holders, resources: Resources, addresses: Addresses) -> tuple[Allocated, ...]:
    """List what containers have of the agent's resources, sorted.

    Also of pods that have ended, as long as podresources names them: the kubelet gives their devices to nobody else.
    """
    found = []
    for (resource, device), containers in holders.items():
        if resource in resources:
            offered = resources[resource].get(device)
            unit = unit_of(device) if offered is None else offered.unit.id
            found += [Allocated(resource, device, unit, one, addresses.get(unit, ())) for one in containers]
    return tuple(sorted(found, key=lambda one: one[:4]))


def pods_of(holders: Holders, resources: Collection[str]) -> tuple[str, ...]:
    """Return the pods that have a device of these resources, NAMESPACE/NAME, sorted."""
    return tuple(sorted({one.pod for key, containers in holders.items() if key[0] in resources for one in containers}))


def fresh(use: Use | None, now: float) -> Use | None:
    """Return what is known of use now, in seconds of the boot clock: nothing if it is old, or not of the past."""
    return use if use is not None and -1.0 <= now - use.at <= FRESH_SECONDS else None


def known_pods(use: Use) -> frozenset[str]:
    """Return the pods, NAMESPACE/NAME, whose processes are known to be theirs.

    Not those of a name that processes of two UIDs have, as while a pod is replaced: podresources has no UIDs, and does
    not say which of them has the devices.
    """
    uids: dict[str, str] = {}
    every = [process for card in use.cards for process in card.processes]
    two = {process.pod for process in every if uids.setdefault(process.pod, process.uid) != process.uid}
    return frozenset(use.pods or ()) - two if not use.processes else frozenset()


def known_on(card: CardUse, known: frozenset[str], use: Use) -> frozenset[str]:
    """Return those of ``known``, as :func:`known_pods` has them, of which it is known what they use of this card."""
    if card.is_unread:
        return frozenset()
    return known if card.driver == NVIDIA else known.difference(use.unread)


def card_views(use: Use, held: Iterable[Allocated]) -> tuple[CardView, ...]:
    """Say of each card who has it.

    The compute instances of a GPU instance have its memory together, which NVML says of each: they are as one card.
    """
    cards = {card.id: card for card in use.cards}
    by_card = _by_card(held, cards.values())
    pods = known_pods(use)
    together: dict[object, list[CardUse]] = {}
    for card in cards.values():
        together.setdefault(_memory_of(card), []).append(card)
    views = []
    for card in cards.values():
        parts = together[_memory_of(card)]
        processes = tuple(process for part in parts for process in part.processes)
        having = [one for part in parts for one in by_card.get(part.id, ())]
        known = frozenset.intersection(*(known_on(part, pods, use) for part in parts))
        views.append(_view(card._replace(processes=processes), cards.get(card.parent), having, known))
    return tuple(views)


def owner_of(held: Sequence[Allocated]) -> Owner:
    """Say whom devices of one pod are of."""
    containers = {one.holder.container for one in held}
    first = held[0].holder
    return Owner(first.namespace, first.name, first.container if len(containers) == 1 else "")


def cards_by_device(cards: Collection[CardUse]) -> Callable[[Allocated], frozenset[str]]:
    """Find the cards that a device is of, as ids: by its own id, else by its device nodes; mostly one or none."""
    ids = {card.id for card in cards}
    by_pci = {card.pci: card.id for card in cards if card.pci and not card.parent}

    def find(one: Allocated) -> frozenset[str]:
        return frozenset({one.unit} if one.unit in ids else {by_pci[pci] for pci in one.pci if pci in by_pci})

    return find


def _by_card(held: Iterable[Allocated], cards: Collection[CardUse]) -> dict[str, list[Allocated]]:
    found: dict[str, list[Allocated]] = {}
    find = cards_by_device(cards)
    for one in held:
        for card in find(one):
            found.setdefault(card, []).append(one)
    return found


def _memory_of(card: CardUse) -> object:
    """Name the memory that a card, or a MIG device, has: a GPU instance's."""
    return (card.parent, card.gi) if card.parent and card.gi is not None else card.id


def _view(card: CardUse, parent: CardUse | None, held: Sequence[Allocated], known: Collection[str]) -> CardView:
    """Say who has a card. ``known``: pods whose processes are known."""
    pods: dict[str, list[Allocated]] = {}
    for one in held:
        pods.setdefault(one.holder.pod, []).append(one)
    if not pods:
        return CardView(card, parent)
    if len(pods) == 1 and not any(one.is_share for one in held):
        return CardView(card, parent, owner_of(held))
    return CardView(card, parent, NOBODY, _pod_uses(card, {name: one for name, one in pods.items() if name in known}))


def _pod_uses(card: CardUse, pods: Mapping[str, Sequence[Allocated]]) -> tuple[PodUse, ...]:
    processes: dict[str, dict[tuple[int, int], ProcessUse]] = {name: {} for name in pods}
    for one in card.processes:
        if one.pod in processes:
            processes[one.pod][one.pid, one.start] = one
    values = card.values
    own = {name: list(found.values()) for name, found in processes.items()}
    memory = {name: _sum([one.memory for one in found], "memory_used" in values) for name, found in own.items()}
    busy = {name: _sum([one.busy for one in found], "busy_percent" in values) for name, found in own.items()}
    memory = _within(memory, values.get("memory_used", values.get("memory_total")))
    busy = _within(busy, values.get("busy_percent", 100.0))
    return tuple(
        PodUse(owner_of(pods[name]), None if memory[name] is None else int(memory[name] or 0), busy[name])
        for name in own
    )


def _sum(values: Sequence[float | None], is_known: bool) -> float | None:
    """Add what is known; nothing is 0 where the card's own value is known."""
    known = [value for value in values if value is not None]
    if known:
        return sum(known)
    return 0 if is_known and not values else None


def _within(values: Mapping[str, float | None], most: float | None) -> dict[str, float | None]:
    """Make the sum no more than the card's own value: they were not read at the same moment."""
    total = sum(value for value in values.values() if value)
    if most is None or total <= most:
        return dict(values)
    return {name: None if value is None else float(int(value * most / total)) for name, value in values.items()}
