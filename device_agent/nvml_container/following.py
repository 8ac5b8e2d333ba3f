"""What the state is after something has happened. Pure."""

from collections.abc import Sequence

from device_agent.gpu_state.state import (
    ABSENT,
    FAILED,
    MOST_CARDS,
    MOST_XIDS,
    OK,
    CardState,
    MigChanged,
    State,
    XidEvent,
)
from device_agent.gpu_state.use import MOST_XID_COUNTS, XidCount
from device_agent.nvml_container.messages import Look, XidSeen
from device_agent.nvml_container.settings import Timing

_NEWS_AFTER = 60.0
"""Seconds without an Xid event, after which one of its kind is logged again."""


def after_look(state: State, look: Look, at: float) -> State:
    """Take an inventory in. One that failed leaves the cards that are known, and when they were read."""
    if look.status == FAILED:
        return state._replace(status=FAILED, reason=look.reason, nodes=look.nodes)
    cards = with_known(look.cards, state.cards)
    state = state._replace(status=look.status, reason=look.reason, driver=look.driver, cards=cards, nodes=look.nodes)
    return state._replace(read_at=at, mig_changes=with_answers(state.mig_changes, look.mig_changes))


def with_answers(known: Sequence[MigChanged], fresh: Sequence[MigChanged]) -> tuple[MigChanged, ...]:
    """Take answers to changes of MIG in: of each card the last one."""
    last = {one.card: one for one in fresh}
    return (*(one for one in known if one.card not in last), *last.values())[-MOST_CARDS:]


def differ(state: State, other: State) -> bool:
    """Return whether a state says something new: that the same was read again is said with the sign of life."""
    return state._replace(read_at=min(state.read_at, 1.0)) != other._replace(read_at=min(other.read_at, 1.0))


def after_failure(state: State, reason: str) -> State:
    """Take in that there was no inventory."""
    return state._replace(status=FAILED, reason=reason)


def after_load(state: State, load: str) -> State:
    """Take in which load of the module it is: of another one, minors and indexes are others."""
    return state if load == state.load else state._replace(load=load, cards=(), nodes=(), read_at=0.0)


def after_xid(state: State, seen: XidSeen, at: float) -> State:
    """Take an Xid event in. It takes the place of one of its kind: a storm of one card's pushes no other one's out."""
    number = state.xids[-1].number + 1 if state.xids else 1
    event = XidEvent(number, at, *seen)
    others = (other for other in state.xids if _kind(other) != seen)
    return state._replace(xids=(*others, event)[-MOST_XIDS:])


def count_xid(counts: tuple[XidCount, ...], seen: XidSeen) -> tuple[XidCount, ...]:
    """Count an Xid event in, as the last one. Of too many kinds, the one that was not seen for longest is forgotten."""
    others = tuple(one for one in counts if one[:2] != seen[:2])
    before = sum(one.count for one in counts if one[:2] == seen[:2])
    return (*others, XidCount(seen.uuid, seen.xid, before + 1))[-MOST_XID_COUNTS:]


def is_news(state: State, seen: XidSeen, at: float) -> bool:
    """Return whether there was no event of its kind for a while before it."""
    return all(_kind(event) != seen or at >= event.at + _NEWS_AFTER for event in state.xids)


def _kind(event: XidEvent) -> XidSeen:
    return XidSeen(event.uuid, event.xid, event.gi, event.ci)


def with_known(cards: Sequence[CardState], known: Sequence[CardState]) -> tuple[CardState, ...]:
    """Give cards that cannot be read what was known of them.

    A lost card often cannot even say its UUID. It is the one that had its index, as long as NVML counts as many cards
    as before and each card that can be read has the index that it had.
    """
    by_index = {card.index: card for card in known if card.uuid}
    present = {card.uuid for card in cards if card.uuid}
    if len(cards) != len(known) or any(_has_moved(card, by_index) for card in cards):
        return tuple(cards)
    return tuple(_known(card, by_index.get(card.index), present) for card in cards)


def _has_moved(card: CardState, known: dict[int, CardState]) -> bool:
    return bool(card.uuid) and card.index in known and known[card.index].uuid != card.uuid


def _known(card: CardState, known: CardState | None, present: set[str]) -> CardState:
    if not card.why or known is None or (not card.uuid and known.uuid in present):
        return card
    return known._replace(why=card.why, error=card.error, recovery_action=None, row_remap_failed=False, fabric="")


def pause(state: State, failures: int, timing: Timing, *, is_used: bool = False) -> float:
    """Return the seconds until the next child starts, after one that has ended.

    ``is_used``: whether the use of cards is followed. A child has waited itself then, where there is no driver.
    """
    if state.status == ABSENT and is_used:
        return timing.first_pause
    if state.status == ABSENT:
        return timing.absent_pause if state.load else timing.unloaded_pause
    if state.status == OK:
        return timing.first_pause
    return float(min(timing.longest_pause, timing.first_pause * 2.0 ** min(max(failures - 1, 0), 16)))
