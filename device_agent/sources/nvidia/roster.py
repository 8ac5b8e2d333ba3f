"""The GPUs that are known, also those that cannot be read now. Pure.

A lost GPU often cannot say its UUID, but it is still counted: it is offered under the UUID that it had, unhealthy. One
that is no longer listed stays until the next boot or load of the driver, when it is no more.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from device_agent.gpu_state.state import MOST_CARDS, OK, CardState, State

_UNLISTED = "NVML does not list it any more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """GPUs, each with its UUID, and of which boot and load of the driver their minor numbers are."""

    boot: str = ""
    load: str = ""
    cards: tuple[CardState, ...] = ()

    def is_of(self, state: State) -> bool:
        """Return whether its minor numbers are those of the driver that is loaded now."""
        return (self.boot, self.load) == (state.boot, state.load)


EMPTY = Roster()
"""Of an agent that has never seen a GPU."""


def is_read(state: State) -> bool:
    """Return whether the cards of a state are what NVML says of this load of the driver."""
    return state.status == OK and state.read_at > 0


def after_state(roster: Roster, state: State, held: Collection[str] = ()) -> tuple[Roster, int]:
    """Return what is known after a state, and how many cards it has of which nobody knows the UUID.

    ``held``: UUIDs of cards that something is held against. They stay longest when there are too many.
    """
    if not is_read(state):
        return roster, 0
    is_same = roster.is_of(state)
    listed = {card.uuid for card in state.cards if card.uuid}
    missing = [card for card in roster.cards if card.uuid not in listed]
    known = {card.uuid: card for card in roster.cards}
    cards: list[CardState] = []
    for card in sorted(state.cards, key=lambda card: card.index):
        old = known.get(card.uuid) if card.uuid else _meant(card, missing)
        if old is not None and not card.uuid:
            missing.remove(old)
        if named := _named(card, old, is_same):
            cards.append(named)
    unnamed = len(state.cards) - len(cards)
    if is_same:
        cards += [_unlisted(card) for card in _kept(missing, MOST_CARDS - len(cards), held)]
    return Roster(boot=state.boot, load=state.load, cards=tuple(cards)), unnamed


def identities(roster: Roster) -> Roster:
    """Return what is worth to be remembered: which cards there are, and not how they are."""
    cards = tuple(
        card._replace(why="", error=0, recovery_action=None, row_remap_failed=False, fabric="", links=())
        for card in roster.cards
    )
    return Roster(boot=roster.boot, load=roster.load, cards=cards)


def _kept(missing: Sequence[CardState], most: int, held: Collection[str]) -> list[CardState]:
    """Choose of cards that are not listed: those with a verdict, then those that were listed last, which are first."""
    kept = sorted(missing, key=lambda card: card.uuid not in held)[: max(most, 0)]
    return [card for card in missing if card in kept]


def _meant(card: CardState, missing: Sequence[CardState]) -> CardState | None:
    """Return which of the missing cards one without a UUID is: by its address, else by its index."""
    if card.pci:
        return next((old for old in missing if old.pci == card.pci), None)
    return next((old for old in missing if old.index == card.index), None)


def _named(card: CardState, old: CardState | None, is_same: bool) -> CardState | None:
    """Give a card that cannot be read what was known of it; None if not even its UUID is known."""
    if old is None or not card.why:
        return card if card.uuid else None
    # Another load of the driver counts its cards anew: the minor number may be another card's.
    minor = card.minor if card.minor is not None else old.minor if is_same else None
    return old._replace(
        index=card.index,
        why=card.why,
        error=card.error,
        minor=minor,
        recovery_action=None,
        row_remap_failed=False,
        fabric="",
    )


def _unlisted(card: CardState) -> CardState:
    return card._replace(why=_UNLISTED, error=0, recovery_action=None, row_remap_failed=False, fabric="")
