"""What has to change on each card so that it is as a key asks: what stays, goes and comes. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from device_agent.errors import MigRefused
from device_agent.mig.model import Model
from device_agent.mig.parse import Entry, Layout
from device_agent.mig.solve import Existing, Placed, place
from kube_api.text import first_few


@dataclass(frozen=True, slots=True, kw_only=True)
class MigCard:
    """A card as it is. ``product``: for messages. ``model``: None where no placements are known.

    ``pci_ids``: those that it may have, as ``0x20b010de``. ``enabled``: whether it is in MIG mode.
    ``tells_when_enabled``: its placements are known once it is in MIG mode, which is switched on first then.
    """

    index: int
    product: str
    model: Model | None
    pci_ids: frozenset[str] = frozenset()
    enabled: bool = False
    existing: tuple[Existing, ...] = ()
    tells_when_enabled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPlan:
    """What happens to a card.

    ``layout``: what is asked for; None where no entry is for the card, or entries differ. ``stays``, ``destroyed``:
    instances that are there. ``created``: with their places. ``refused``: why nothing is done to the card.
    """

    card: MigCard
    layout: Layout | None = None
    stays: tuple[Existing, ...] = ()
    destroyed: tuple[Existing, ...] = ()
    created: tuple[Placed, ...] = ()
    refused: str = ""

    @property
    def changes_mode(self) -> bool:
        """Return whether MIG mode is switched on or off."""
        return not self.refused and self.layout is not None and self.layout.enabled != self.card.enabled

    @property
    def is_as_asked(self) -> bool:
        """Return whether nothing has to be done, or nothing is asked."""
        return not (self.refused or self.changes_mode or self.destroyed or self.created)


def plan_cards(entries: Sequence[Entry], cards: Iterable[MigCard]) -> tuple[CardPlan, ...]:
    """Plan each card for itself; whoever applies it touches none if one is refused."""
    return tuple(_plan(entries, card) for card in cards)


def _plan(entries: Sequence[Entry], card: MigCard) -> CardPlan:
    try:
        layout = _layout(entries, card)
        if layout is None or _is_as(layout, card):
            return CardPlan(card=card, layout=layout, stays=card.existing)
        return _change(layout, card)
    except MigRefused as error:
        return CardPlan(card=card, stays=card.existing, refused=f"card {card.index} ({card.product}): {error}")


def _layout(entries: Sequence[Entry], card: MigCard) -> Layout | None:
    """Return what the entries ask of a card; None where none is for it. Their order means nothing.

    Raises:
        MigRefused: two ask for different layouts, or it cannot be known whether one is for the card.
    """
    matching = [entry for entry in entries if _is_for(entry, card)]
    differing = [entry.number for entry in matching if entry.layout != matching[0].layout]
    if differing:
        numbers = first_few((matching[0].number, *differing), 5)
        raise MigRefused(f"entries {numbers} of the key are for it and differ: narrow their devices or device-filter")
    return matching[0].layout if matching else None


def _is_for(entry: Entry, card: MigCard) -> bool:
    if entry.indexes is not None and card.index not in entry.indexes:
        return False
    if entry.pci_ids is not None and not card.pci_ids:
        raise MigRefused(
            f"entry {entry.number} has a device-filter, and its PCI id is not known: add pciId to the card"
        )
    return entry.pci_ids is None or bool(entry.pci_ids & card.pci_ids)


def _is_as(layout: Layout, card: MigCard) -> bool:
    """Return whether the card has the devices that are asked for, wherever they are."""
    there = Counter(device for one in card.existing for device in one.instance.devices)
    is_complete = all(one.instance.compute for one in card.existing)
    return layout.enabled == card.enabled and there == Counter(layout.devices) and is_complete


def _change(layout: Layout, card: MigCard) -> CardPlan:
    if not layout.enabled:
        return CardPlan(card=card, layout=layout, destroyed=card.existing)
    if card.model is None and card.tells_when_enabled and not card.enabled:
        return CardPlan(card=card, layout=layout, destroyed=card.existing)
    if card.model is None:
        raise MigRefused("no MIG placements are known of it: add migProfiles to the card, or leave it out by devices")
    # With another mode nothing of what was there stays.
    placed = place(card.model, layout.devices, card.existing if card.enabled else ())
    kept = {(one.instance, one.start) for one in placed if one.kept}
    stays = tuple(one for one in card.existing if (one.instance, one.start) in kept)
    return CardPlan(
        card=card,
        layout=layout,
        stays=stays,
        destroyed=tuple(one for one in card.existing if one not in stays),
        created=tuple(one for one in placed if not one.kept),
    )
