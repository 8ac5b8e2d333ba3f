"""The change itself, of cards that nobody has: what was before is written, cards are held, each is changed. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from device_agent.mig.case import LATER, SOON, Case
from device_agent.mig.node_write import PENDING, REBOOTING, Said, has_lock, write_of
from device_agent.mig.record import CHANGING, RESTORING, Before
from device_agent.mig.record import REBOOTING as WAITING_FOR_BOOT
from device_agent.mig.targets import Target, before_of
from device_agent.mig.values import Step
from kube_api.text import first_few

_MOST_NAMED = 5


def change(case: Case, due: Sequence[Target]) -> Step:
    """Go one step. Nothing is touched before the Node, as it was read, says what was there."""
    sight, memory = case.sight, replace(case.memory, drains_since=None)
    before = {**{one.card.uuid: before_of(one.card) for one in due}, **case.before}
    is_booting = all(map(case.waits_for_boot, due))
    said = _said(case, due, before, is_booting=is_booting)
    why = said.record.message if said.record is not None and said.record.message else "cards are changed"
    if (write := write_of(case.node, said, sight.boot_id, sight.now)) is not None:
        held = frozenset(before if case.is_again else case.before)
        return Step(write=write, held=held, why=why, again=LATER, registers=is_booting or not held, memory=memory)
    waits = Step(held=frozenset(before), why=why, again=LATER, memory=memory)
    if is_booting:
        return waits
    if not sight.shown.cards >= before.keys():
        return replace(waits, again=SOON, registers=False)
    if sight.clock < memory.pause:
        return replace(waits, again=memory.pause - sight.clock, registers=False)
    asked = next(one for one in due if not case.waits_for_boot(one)).change(sight.clock)
    return replace(waits, change=asked, again=SOON, registers=False, memory=replace(memory, sent=asked))


def _said(case: Case, due: Sequence[Target], before: Before, *, is_booting: bool) -> Said:
    step, message = CHANGING, ""
    if is_booting:
        cards = first_few((one.card.index for one in due), _MOST_NAMED)
        why = f"; {case.lost}" if case.lost else ""
        step, message = WAITING_FOR_BOOT, f"reboot the node: card {cards} switches MIG mode with the boot{why}"
    elif case.goes_back:
        step, message = RESTORING, case.refusal or case.record.message
    return Said(
        state=REBOOTING if is_booting else PENDING,
        record=case.new_record(step, before, message),
        locks=True,
        request=case.node.drain_request if has_lock(case.node, case.sight.now) else None,
        pauses=True,
        reboots=is_booting,
    )
