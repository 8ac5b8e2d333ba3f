"""Which errors are held against which GPUs, and until when. Pure.

An error is held until a later reading shows that it is over: what the container ``nvml`` says again and again is no new
answer of the GPU. So an agent, or a container ``nvml``, that is away makes nothing healthy.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from device_agent.config.options import ALL_XIDS
from device_agent.gpu_state.state import MOST_CARDS, MOST_INSTANCES, CardState, State, XidEvent
from device_agent.sources.nvidia.roster import is_read

LOST = 0
"""Stands for an Xid where a GPU was lost; no error has this number."""

RESET_XIDS = frozenset({48, 62, 64, 74, 79, 95, 119, 120})
"""Errors after which a GPU has to be reset."""

USUALLY_IGNORED = frozenset({13, 31, 43, 45, 68, 109})
"""Errors of the program that ran on the GPU, as NVIDIA's device plugin has them."""

ANSWER_SECONDS = 30.0
"""How far apart two answers are of a GPU that is well again."""

_LOST_ERRORS = frozenset({15, 16})
"""NVML_ERROR_GPU_IS_LOST and NVML_ERROR_RESET_REQUIRED."""

_ACTIONS = {
    1: "reset the GPU",
    2: "reboot the node",
    3: "drain peer-to-peer traffic",
    4: "drain, then reset the GPU",
    5: "recover the IMEX domain",
    6: "reset the bus",
    7: "reboot the whole system",
}
"""Values of NVML's field 230 and what they ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Which Xids count, and how long those that ask for no reset do where the driver does not know better.

    ``ignored``, ``counted``: Xids, or :data:`ALL_XIDS`; counted ones override ignored ones.
    """

    ignored: frozenset[int] = frozenset()
    counted: frozenset[int] = frozenset()
    hold_seconds: float = 600.0

    def does_count(self, xid: int) -> bool:
        """Return whether an Xid changes health."""
        if xid == LOST or xid in self.counted or ALL_XIDS in self.counted:
            return True
        return not (xid in self.ignored or ALL_XIDS in self.ignored or xid in USUALLY_IGNORED)


USUAL = Rules()
"""As without any setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """An error that is held against a GPU, or against one of its instances.

    ``uuid``: of the GPU. ``gi``, ``ci``: of the instance; None where it is the whole GPU.
    ``xid``: the error, :data:`LOST` where there was none. ``at``: when it was last seen, in seconds of CLOCK_BOOTTIME.
    ``boot``, ``load``: of that time. ``is_away``: the GPU is lost still.
    ``knows_action``: the driver has said of the GPU whether it has to be recovered, so its silence is no good news.
    ``good_since``: when the GPU answered first that nothing is wrong with it; None before.
    """

    uuid: str
    xid: int
    at: float
    boot: str
    load: str
    gi: int | None = None
    ci: int | None = None
    is_away: bool = False
    knows_action: bool = False
    good_since: float | None = None

    @property
    def place(self) -> tuple[str, int | None, int | None]:
        """Return what it is held against."""
        return self.uuid, self.gi, self.ci

    def covers(self, gi: int, ci: int) -> bool:
        """Return whether an instance of the GPU is concerned."""
        return self.gi is None or (self.gi == gi and self.ci in (None, ci))


def judged(
    verdicts: Iterable[Verdict],
    state: State,
    events: Sequence[XidEvent],
    cards: Sequence[CardState],
    rules: Rules,
    *,
    with_action: Collection[str] = (),
) -> tuple[Verdict, ...]:
    """Return what is held now.

    ``events``: those of the state that were not seen before. ``cards``: all that are known, as they are now.
    ``with_action``: UUIDs of those of which the driver has said before whether they have to be recovered.
    """
    held = {one.place: one for one in verdicts if _stands(one, state) and rules.does_count(one.xid)}
    known = [card.uuid for card in cards]
    for event in events:
        if rules.does_count(event.xid):
            # Without a UUID it may be any GPU's. One that is not known may not have been read yet.
            for uuid in [event.uuid] if event.uuid else known:
                if uuid in known or _has_room(held, known, uuid):
                    _hold(held, _of_event(event, uuid, state))
    if is_read(state):
        for card in cards:
            if card.why and card.error in _LOST_ERRORS:
                lost = Verdict(uuid=card.uuid, xid=LOST, at=state.read_at, boot=state.boot, load=state.load)
                _note_lost(held, lost)
    for place, one in held.items():
        if one.uuid in with_action and not one.knows_action:
            held[place] = replace(one, knows_action=True)
    if is_read(state):
        by_uuid = {card.uuid: card for card in cards}
        read = (_after_reading(one, by_uuid.get(one.uuid), state.read_at, rules) for one in held.values())
        return _bounded([one for one in read if one is not None], known)
    return _bounded(tuple(held.values()), known)


def why_unhealthy(
    card: CardState, verdicts: Iterable[Verdict], rules: Rules, instance: tuple[int, int] | None = None
) -> str:
    """Say why a GPU, or its instance (GPU instance and compute instance), is not given; empty if it is."""
    of_card = [one for one in verdicts if one.uuid == card.uuid]
    mine = [one for one in of_card if instance is None or one.covers(*instance)]
    named = next((one for one in sorted(mine, key=_weight, reverse=True)), None)
    if card.why:
        return f"{card.why}, after Xid {named.xid}" if named and named.xid != LOST else card.why
    if named:
        return f"{_error(named)}: {_remedy(named, card.recovery_action, rules)}"
    if card.row_remap_failed:
        return "row remap failed: its memory is broken and has no spare rows left; replace it"
    if card.fabric:
        return f"the fabric of NVSwitch is not ready for it: {card.fabric}"
    if card.recovery_action and not of_card and ALL_XIDS not in rules.ignored:
        return _asked(card.recovery_action)
    return ""


def new_events(state: State, session: str, number: int) -> tuple[XidEvent, ...]:
    """Return the events that were not seen up to an event of a session: each event is counted once."""
    return tuple(event for event in state.xids if state.session != session or event.number > number)


# --- what is held -----------------------------------------------------------------------------------------------------

_Held = dict[tuple[str, int | None, int | None], Verdict]


def _stands(verdict: Verdict, state: State) -> bool:
    """Return whether it is of this boot and of this load of the driver: both begin with a reset."""
    return state.boot in (verdict.boot, "") and state.load in (verdict.load, "")


def _of_event(event: XidEvent, uuid: str, state: State) -> Verdict:
    ci = event.ci if event.gi is not None else None
    return Verdict(uuid=uuid, xid=event.xid, at=event.at, boot=state.boot, load=state.load, gi=event.gi, ci=ci)


def _has_room(held: _Held, known: Sequence[str], uuid: str) -> bool:
    strangers = {name for name, _, _ in held}.difference(known)
    return uuid in strangers or len(strangers) < MOST_CARDS


def _bounded(verdicts: Sequence[Verdict], known: Sequence[str]) -> tuple[Verdict, ...]:
    """Forget those first held against GPUs that are not known any more, if these are too many."""
    strangers = dict.fromkeys(one.uuid for one in verdicts if one.uuid not in known)
    forgotten = list(strangers)[: max(len(strangers) - MOST_CARDS, 0)]
    return tuple(one for one in verdicts if one.uuid not in forgotten)


def _hold(held: _Held, new: Verdict) -> None:
    if new.place not in held and sum(uuid == new.uuid for uuid, _, _ in held) > MOST_INSTANCES:
        new = replace(new, gi=None, ci=None)  # there are not so many instances: it is about the whole GPU
    old = held.get(new.place)
    if old is None:
        held[new.place] = new
        return
    graver = max(new, old, key=_weight)
    held[new.place] = replace(
        old, xid=graver.xid, at=max(old.at, new.at), boot=new.boot, load=new.load, good_since=None
    )


def _note_lost(held: _Held, lost: Verdict) -> None:
    """Note that a GPU is away. How long is not written down again and again: the time of its return counts."""
    held[lost.place] = replace(held.get(lost.place, lost), is_away=True, good_since=None)


def _weight(verdict: Verdict) -> tuple[bool, bool]:
    return verdict.xid in RESET_XIDS, verdict.xid != LOST


def _after_reading(verdict: Verdict, card: CardState | None, at: float, rules: Rules) -> Verdict | None:
    """Return a verdict after the GPU was read; None if it is over."""
    if card is None or card.why:
        return replace(verdict, good_since=None)
    if card.recovery_action is not None and not verdict.knows_action:
        verdict = replace(verdict, knows_action=True)
    if verdict.is_away:
        verdict = replace(verdict, is_away=False, at=max(verdict.at, at), good_since=None)
    elif at <= verdict.at:  # it was read before the error
        return verdict
    if card.recovery_action or (card.recovery_action is None and verdict.knows_action):
        return replace(verdict, good_since=None)
    if card.recovery_action is None:
        return verdict if verdict.xid in RESET_XIDS or at < verdict.at + rules.hold_seconds else None
    if verdict.good_since is None:
        return replace(verdict, good_since=at)
    return verdict if at < verdict.good_since + ANSWER_SECONDS else None


# --- how it is said ---------------------------------------------------------------------------------------------------


def _error(verdict: Verdict) -> str:
    return "it was lost" if verdict.xid == LOST else f"Xid {verdict.xid}"


def _remedy(verdict: Verdict, action: int | None, rules: Rules) -> str:
    if action:
        return _asked(action)
    if action == 0:
        return f"it is given again when it has answered for {ANSWER_SECONDS:.0f} s"
    if verdict.knows_action:
        return "it is given again when the driver says that it asks for nothing"
    if verdict.xid in RESET_XIDS:
        return "it is given again after the next boot or load of the driver"
    return f"it is given again {rules.hold_seconds:g} s after the last error"


def _asked(action: int) -> str:
    return f"the driver asks for recovery action {action} ({_ACTIONS.get(action, 'unknown')})"
