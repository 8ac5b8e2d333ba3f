"""How much memory of which card each pod uses and may use. Pure.

Three sources are put together: podresources says which pod has which device, what was given says how much of a card
that is, and the container ``nvml`` says which processes use the card.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from device_agent.allocations.given import Given
from device_agent.gpu_state.limits import PodLimit
from device_agent.gpu_state.use import CardUse, ProcessUse, Use
from device_agent.memory_limits.limits import Part, is_unknown, limit_of, part_of
from device_agent.usage.attribution import Allocated, cards_by_device, known_on, known_pods
from device_resources.memory_limits import MemorySettings

_MIG = "MIG-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A pod that has devices of a card.

    ``pod``: NAMESPACE/NAME. ``uid``: its UID; empty where it has no process on the card, or that cannot be said.
    ``limit``: bytes that it may use; None: as many as there are. ``is_unknown``: it would have one if more was known.
    ``used``: bytes that its processes use together, as far as the card knows them; None: not known now.
    ``processes``: its own on this card.
    ``devices``: how many it has of the card; no more containers than that use it.
    """

    card: str
    pod: str
    uid: str = ""
    limit: int | None = None
    is_unknown: bool = False
    used: int | None = None
    processes: tuple[ProcessUse, ...] = ()
    devices: int = 1


def accounts(use: Use, held: Iterable[Allocated], given: Given, settings: MemorySettings) -> tuple[Account, ...]:
    """Say of each pod that has a device what it uses of that card, and may use; by card and pod.

    Processes of pods that do not have the card count for nobody.

    Args:
        use: what the container ``nvml`` said last.
        held: what containers have, as podresources said a few seconds ago at most.
        given: what is remembered of allocations.
        settings: what an admin says.
    """
    cards = {card.id: card for card in use.cards}
    known = known_pods(use)
    found: list[Account] = []
    for (name, pod), parts in sorted(_parts(use, held, given).items()):
        card = cards.get(name)
        account = Account(card=name, pod=pod, devices=len(parts))
        if not _is_mig(name, card):
            what = (parts, _total(card), settings)
            account = replace(account, limit=limit_of(*what), is_unknown=is_unknown(*what))
        found.append(_used(account, card) if card is not None and pod in known_on(card, known, use) else account)
    return tuple(found)


def pod_limits(every: Iterable[Account]) -> tuple[PodLimit, ...]:
    """Return what a driver has to know of the pods that have a limit.

    podresources has no UIDs: by the name alone the next pod of that name would have the limit of this one for a while.
    """
    rows = list(every)
    known = frozenset((one.pod, one.uid) for one in rows if one.uid)
    several = Counter(pod for pod, _ in known)
    uids = {pod: uid for pod, uid in known if several[pod] == 1}
    return tuple(
        PodLimit(one.card, one.pod, one.limit, one.devices, uids.get(one.pod, ""))
        for one in rows
        if one.limit is not None
    )


def _parts(use: Use, held: Iterable[Allocated], given: Given) -> dict[tuple[str, str], list[Part]]:
    """Return what each pod has of each card; a device that several of its containers have is one.

    A device of several cards is a part of each.
    """
    find = cards_by_device(use.cards)
    cards = {(one.resource, one.device, one.holder.pod): find(one) or {one.unit} for one in held}
    parts: dict[tuple[str, str], list[Part]] = {}
    for (resource, device, pod), names in cards.items():
        part = part_of(resource, device, given.get((resource, device)))
        for card in names:
            parts.setdefault((card, pod), []).append(part)
    return parts


def _used(account: Account, card: CardUse) -> Account:
    """Add what the pod's processes use. What the card does not know of a process is not counted."""
    own = tuple(process for process in card.processes if process.pod == account.pod)
    known = [process.memory for process in own if process.memory is not None]
    used = sum(known) if known or not own else None
    return replace(account, uid=own[0].uid if own else "", used=used, processes=own)


def _total(card: CardUse | None) -> int | None:
    total = card.values.get("memory_total") if card is not None else None
    return None if total is None else int(total)


def _is_mig(name: str, card: CardUse | None) -> bool:
    """Return whether this is a MIG device, also while it is not seen: its memory is its own anyway."""
    return name.startswith(_MIG) or (card is not None and bool(card.parent))
