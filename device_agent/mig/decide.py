"""The next step of a change of a node's MIG layout, from what the Node and the cards say now. Pure.

A change ends in one of two layouts: what the label asks for, or what was there before. Whatever is killed in between,
the next step follows from the Node's annotation and from the cards::

    nothing is asked, or all cards are as asked: nothing to do
    draining: pods leave
    changing: what was before is written, cards are held, one after the other is changed
    rebooting: a boot switches the mode
    restoring: what is asked could not be made, or is not asked any more: each card becomes as before
    between: neither could be made; both are tried again
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from device_agent.errors import MigRefused, StateInvalid
from device_agent.gpu_state.state import State
from device_agent.mig.answers import LATE_SECONDS, answered
from device_agent.mig.case import LATER, SOON, Case
from device_agent.mig.change import change
from device_agent.mig.drain import drain, is_draining
from device_agent.mig.node_write import FAILED, PENDING, SUCCESS, Said, lock_of, write_of
from device_agent.mig.record import BETWEEN, CHANGING, DRAINING, IDLE, RESTORING, Record, parse_record
from device_agent.mig.targets import Target, described, targets_asked, targets_before
from device_agent.mig.values import Memory, NodeMig, Sight, Step
from kube_api.drain_contract import HOLDER
from kube_api.names import MIG_ANNOTATION
from kube_api.text import first_few

_MOST_NAMED = 5
_FRESH_SECONDS = 15.0
"""So long it counts who was seen with devices."""


def decide(sight: Sight) -> Step:
    """Say what to do now; the same for the same sight."""
    node, is_awaited = sight.node, _is_awaited(sight)
    holds = Step(
        held=sight.shown.cards, why="a card is being changed", again=SOON, registers=False, memory=sight.memory
    )
    if node is None:
        return holds if is_awaited else replace(holds, why="the Node was not read yet", again=LATER)
    try:
        record = Record() if node.record is None else parse_record(node.record)
    except StateInvalid as error:
        return holds if is_awaited else _unreadable(sight, node, str(error))
    case = Case(sight=sight, node=node, record=record, before=record.before, memory=sight.memory)
    if node.asked or node.record is not None:
        return _asked(case)
    return holds if is_awaited else _nothing(case)


def _is_awaited(sight: Sight) -> bool:
    """Return whether a card may be changed just now: whatever the Node says, nobody is to get a device of it."""
    if sight.memory.sent is None or sight.state is None:
        return sight.memory.sent is not None
    return answered(sight.memory, sight.state, sight.clock).is_awaited


def _asked(case: Case) -> Step:
    """Wait until all is known, and a change that was asked for is answered."""
    sight, node, record = case.sight, case.node, case.record
    hides = bool(record.before) or case.is_again
    if sight.state is None:
        return case.waits("the cards are not known", hides=hides, renews=False)
    if node.asked and (sight.layouts is None or sight.layouts.key != node.asked):
        return case.waits("the file of layouts is being read", hides=hides)
    answer = answered(sight.memory, sight.state, sight.clock)
    case = replace(case, memory=answer.memory)
    if answer.is_awaited:
        return case.waits("a card is being changed", again=SOON, hides=True)
    if record.before and sight.state.read_at < sight.inherited + LATE_SECONDS:
        return case.waits("an earlier agent may have asked for a change", again=SOON, hides=True)
    return _targeted(case, sight.state, answer.failure)


def _unreadable(sight: Sight, node: NodeMig, why: str) -> Step:
    """Touch no card: nobody knows what was before. What else was taken is given back."""
    message = f"annotation {MIG_ANNOTATION} cannot be read: {why}: correct it, or remove it to begin with what is there"
    said = Said(state=FAILED if node.asked else node.state, record=None)
    write = write_of(node, said, sight.boot_id, sight.now)
    if write is not None:
        annotations = {key: value for key, value in write.annotations.items() if key != MIG_ANNOTATION}
        event = message if node.asked and node.state != FAILED else None
        write = replace(write, annotations=annotations, event=event) if write.labels or annotations else None
    return Step(write=write, why=message)


def _nothing(case: Case) -> Step:
    """Touch nothing, whoever has written it. A lock of ours without a record is left over."""
    lock = lock_of(case.node)
    if lock is None or lock.holder != HOLDER:
        return Step()
    return case.says(Said(state=case.node.state, record=None), "", memory=Memory())


def _targeted(case: Case, state: State, failure: str) -> Step:
    """Find what each card is to become.

    A card of the change that cannot be seen is waited for, and the others go back by their UUIDs: without it NVML
    counts the cards behind it anew, and what the file asks by index would be asked of others.
    """
    cards = tuple(card for card in state.cards if card.uuid and not card.why)
    users = case.sight.users.units if case.sight.users is not None else {}
    known = {card.uuid for card in cards}
    unread = next(
        (f"card {one.index} cannot be read: {one.why or 'it has no UUID'}" for one in state.cards if one not in cards),
        "",
    )
    if not unread and (case.is_new or case.is_again):
        case = replace(case, before={uuid: one for uuid, one in case.before.items() if uuid in known})
    if missing := case.before.keys() - known:
        case = replace(case, lost=unread or _unlisted(missing))
        failure = "" if _was_sent(case.sight.memory, missing) else failure
        if case.record.step in (DRAINING, CHANGING) and not case.is_again:
            return case.stays_between(case.lost, case.rested())  # it may be back in a moment
    try:
        back = targets_before(cards, case.before, users)
    except MigRefused as error:
        return case.stays_between(str(error))
    layouts = case.sight.layouts
    if not case.node.asked or case.restores or layouts is None:
        return _towards(case, back, back, failure)
    refusal = layouts.error or ("" if case.is_again else unread or case.lost)
    try:
        targets = back if refusal else targets_asked(cards, layouts.entries, case.before, users)
    except MigRefused as error:
        targets, refusal = back, str(error)
    return _towards(replace(case, refusal=refusal), targets, back, failure)


def _unlisted(missing: Collection[str]) -> str:
    cards = first_few(sorted(missing), _MOST_NAMED)
    return f"NVML lists {cards} no more: if it does not come back, ask for another layout, or remove the annotation"


def _was_sent(memory: Memory, cards: Collection[str]) -> bool:
    """Return whether the change that was asked for is one of these cards'."""
    return memory.sent is not None and memory.sent.card in cards


def _towards(case: Case, targets: Sequence[Target], back: Sequence[Target], failure: str) -> Step:
    """Go one step towards the targets. ``back``: what would be to do to have all as before."""
    due = tuple(one for one in targets if not one.is_reached)
    if not due:
        return _end(case, seen={one.card.uuid for one in back})
    touched = case.before.keys() - {one.card.uuid for one in back if one.is_reached}
    if failure := failure or _undone(case, due):
        return _give_up(case, due, failure, is_untouched=not touched)
    if (rest := _resting(case, due)) is not None:
        return rest
    lock = lock_of(case.node)
    if lock is not None and lock.holder != HOLDER and not lock.is_expired(case.sight.now):
        if not case.before:
            return case.pends(f"the node is locked by {lock.holder or 'an annotation that cannot be read'}", begins=due)
        return case.waits(f"the node {lock}")
    return _with_users(case, due, touched)


def _undone(case: Case, due: Sequence[Target]) -> str:
    """Say that a card is not as asked although the driver has said so; to ask again and again would not help."""
    done = case.memory.done
    for one in due:
        if done is not None and one.card.uuid == done.card and not case.waits_for_boot(one):
            again = one.change(0.0)
            if (again.mode, again.create) == (done.mode, done.create):
                return f"card {one.card.index}: the driver said that it is done, and {described(one.card)}"
    return ""


def _resting(case: Case, due: Sequence[Target]) -> Step | None:
    """Wait for the next try of what has failed, unless something else is asked, or users have changed."""
    rest = case.memory.rest
    if rest is None or case.record.step not in (IDLE, BETWEEN) or case.sight.clock >= rest.until:
        return None
    is_other = rest.users is not None and case.sight.users is not None and rest.users != case.users(due)
    if is_other or rest.layouts != case.question:
        return None
    why = f"it is tried again: {case.record.message}"
    return case.waits(why, again=min(LATER, rest.until - case.sight.clock), looks=rest.users is not None)


def _with_users(case: Case, due: tuple[Target, ...], touched: Collection[str]) -> Step:
    """Wait until nobody has what goes, then change it. ``touched``: UUIDs of cards that are not as before."""
    sight = case.sight
    is_held = bool(case.before) and sight.shown.cards >= case.before.keys()
    if sight.unknown:
        why = f"it is not known who has devices: {sight.unknown}"
        return case.waits(why, looks=True, renews=False) if touched or is_draining(case) else case.pends(why)
    is_booting = all(map(case.waits_for_boot, due))  # then nothing goes before the boot
    fresh = max(sight.shown.since if is_held else 0.0, 0.0 if is_booting else sight.clock - _FRESH_SECONDS)
    if sight.users is None or sight.users.at <= fresh:
        return case.waits("users are being looked at", looks=True, begins=due, hides=bool(case.before))
    users = case.users(due)
    if not users:
        return change(case, due)
    names = first_few(sorted({one.pod or "a pod that the kubelet has not named yet" for one in users}), _MOST_NAMED)
    cards = first_few((one.card.index for one in due if case.users((one,))), _MOST_NAMED)
    why = f"pods use what goes on card {cards}: {names}"
    case = replace(case, before={uuid: one for uuid, one in case.before.items() if uuid in touched})
    if sight.settings.drain and (is_draining(case) or any(one.pod for one in users)):
        return drain(case, users, why)
    if not touched:
        return case.pends(why)
    step = RESTORING if case.goes_back else CHANGING
    said = Said(state=PENDING, record=case.new_record(step, case.before, why))
    return replace(case.says(said, why, again=LATER), looks=True)


def _end(case: Case, seen: Collection[str]) -> Step:
    """Say what was reached; all that was taken is given back in the same patch. ``seen``: cards of the change."""
    if case.lost:
        unseen = {uuid: one for uuid, one in case.before.items() if uuid not in seen}
        return replace(case, before=unseen).stays_between(case.lost)
    if not case.node.asked:
        return case.says(Said(state=None, record=None), "", memory=Memory())
    if not case.goes_back:
        record = replace(case.new_record(IDLE, {}, ""), applied=case.node.asked)
        return case.says(Said(state=SUCCESS, record=record), "", memory=Memory())
    why = case.refusal or case.record.message
    memory = case.rested() if case.restores else None
    return case.says(Said(state=FAILED, record=case.new_record(IDLE, {}, why)), why, again=LATER, memory=memory)


def _give_up(case: Case, due: Sequence[Target], why: str, *, is_untouched: bool) -> Step:
    """Go back to what was there; where that is refused, too, say what is there, and try again later."""
    if is_untouched:
        record = case.new_record(IDLE, {}, why)
        return case.says(Said(state=FAILED, record=record), why, again=LATER, memory=case.rested())
    if case.goes_back:
        why = f"{case.lost}; {why}" if case.lost else why
        there = first_few((described(one.card) for one in due), _MOST_NAMED, separator="; ")
        return case.stays_between(f"{why}; it could not be made as before: {there}", case.rested())
    record = case.new_record(RESTORING, case.before, why)
    request = case.node.drain_request
    said = Said(state=PENDING, record=record, locks=True, request=request, pauses=True)
    return replace(case.says(said, why, again=SOON, memory=replace(case.memory, done=None)), registers=False)
