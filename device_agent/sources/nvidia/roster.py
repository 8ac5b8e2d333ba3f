"""The GPUs that are known, also those that cannot be read now. Pure.

A lost GPU often cannot say its UUID, but it is still counted: it is offered under the UUID that it had, unhealthy. One
that is no longer listed stays until the next boot or load of the driver. Then it has a while to appear, while fewer are
listed than were known, and is no more after that.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from device_agent.gpu_state.state import MOST_CARDS, OK, CardState, State

_UNLISTED = "NVML does not list it any more"
_SETTLE_SECONDS = 120.0
"""From the first reading of a boot or load until GPUs that it does not list are no more. One that is late stays in the
node's capacity, and has a name even if it cannot say its UUID."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """GPUs, each with its UUID, and of which boot and load of the driver their minor numbers are.

    One that is not listed and has no minor number is known of an earlier boot or load.
    ``since``: when GPUs of this one were first read, in seconds of CLOCK_BOOTTIME; 0 where that is not known.
    """

    boot: str = ""
    load: str = ""
    since: float = 0.0
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
    since = (roster.since if is_same else 0.0) or state.read_at
    if not is_same:
        missing = [card._replace(minor=None) for card in missing]
    awaited = len(roster.cards) - len(state.cards) if state.read_at < since + _SETTLE_SECONDS else 0
    cards += map(_unlisted, _kept(missing, awaited, MOST_CARDS - len(cards), held))
    return Roster(boot=state.boot, load=state.load, since=since, cards=tuple(cards)), unnamed


def identities(roster: Roster) -> Roster:
    """Return what is worth to be remembered: which cards there are, and not how they are."""
    cards = tuple(
        card._replace(why="", error=0, recovery_action=None, row_remap_failed=False, fabric="", links=())
        for card in roster.cards
    )
    return Roster(boot=roster.boot, load=roster.load, cards=cards)


def _kept(missing: Sequence[CardState], awaited: int, most: int, held: Collection[str]) -> list[CardState]:
    """Choose of cards that are not listed: those with a verdict, then those that were listed last, which are first.

    ``awaited``: how many may be missing because they are late.
    """
    by_weight = sorted(missing, key=lambda card: card.uuid not in held)
    own = [card for card in by_weight if card.minor is not None]
    earlier = [card for card in by_weight if card.minor is None]
    kept = [*own, *earlier[: max(awaited - len(own), 0)]][: max(most, 0)]
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
