"""What the container ``nvml`` has answered to the last change, and when a card is asked again. Pure."""

from dataclasses import dataclass, replace

from device_agent.gpu_state.mig_change import DONE, IN_USE, RESET_REQUIRED, MigChange
from device_agent.gpu_state.state import State
from device_agent.mig.values import Memory

LATE_SECONDS = 10.0
"""So long after it was asked for a change may still begin. Where cards were read later there will be no answer."""
_LOST_SECONDS = 120.0
"""After which that counts as so although cards are not read."""
_FIRST_PAUSE = 5.0
_MOST_IN_USE, _MOST_FAILED = 6, 2
"""How often a card is asked until it is given up: what has it open may be ending just now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What is known after an answer.

    ``memory``: without what was answered. ``is_awaited``: there is no answer yet. ``failure``: why a card is given up.
    """

    memory: Memory
    is_awaited: bool = False
    failure: str = ""


def answered(memory: Memory, state: State, clock: float) -> Answered:
    """Take the answer in."""
    sent = memory.sent
    if sent is None:
        return Answered(memory=memory)
    answer = next((one for one in state.mig_changes if (one.id, one.card) == (sent.id, sent.card)), None)
    if answer is None:
        is_awaited = state.read_at < sent.at + LATE_SECONDS and clock < sent.at + _LOST_SECONDS
        return Answered(memory=memory if is_awaited else replace(memory, sent=None), is_awaited=is_awaited)
    if answer.outcome == DONE or (answer.outcome == RESET_REQUIRED and _is_pending(sent, state)):
        return Answered(memory=replace(memory, sent=None, done=sent, tries=0, pause=0.0))
    tries = memory.tries + 1
    if tries >= (_MOST_IN_USE if answer.outcome == IN_USE else _MOST_FAILED):
        index = next((card.index for card in state.cards if card.uuid == sent.card), None)
        name = "a card that is gone" if index is None else f"card {index}"
        return Answered(
            memory=replace(memory, sent=None, tries=0, pause=0.0), failure=f"{name}: {answer.why or answer.outcome}"
        )
    pause = answer.at + _FIRST_PAUSE * 2 ** (tries - 1)
    return Answered(memory=replace(memory, sent=None, tries=tries, pause=pause))


def _is_pending(sent: MigChange, state: State) -> bool:
    """Return whether a boot brings the mode that was asked for: the card itself says so from now on."""
    card = next((card for card in state.cards if card.uuid == sent.card), None)
    return card is not None and card.mig_mode != card.mig_pending == sent.mode
