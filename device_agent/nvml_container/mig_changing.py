"""Changes MIG of a card as a request says: compares what was seen, then goes step by step, until one is refused.

In the child only, and where that is switched on: it imports nvml_inventory. Nothing is undone here: who asks reads what
is there now, and asks again.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

from device_agent.boot import seconds_since_boot
from device_agent.gpu_state.ending import LONGEST_DELAY
from device_agent.gpu_state.mig_change import DONE, FAILED, IN_USE, RESET_REQUIRED, MigChange, NewInstance
from device_agent.gpu_state.state import MigChanged
from kube_api.text import first_few, printable
from nvml_inventory.errors import MigInUse, MigUnchanged, MigWantsReset
from nvml_inventory.mig_changes import MigCard
from nvml_inventory.values import GpuInstance

_MOST_SHOWN = 8

Begins = Callable[[str], None]
"""Is told what begins now."""


class Card(Protocol):
    """A card that can be changed, as :class:`nvml_inventory.mig_changes.MigCard`."""

    def modes(self) -> tuple[int, int]:
        """Return the mode that it has, and the one that is pending."""
        ...

    def instances(self) -> Sequence[GpuInstance]:
        """Return all its GPU instances."""
        ...

    def set_mode(self, mode: int) -> None:
        """Switch the mode."""
        ...

    def destroy(self, gi: int) -> None:
        """Destroy a GPU instance with its compute instances."""
        ...

    def create(self, profile: str, start: int, compute: Sequence[int]) -> None:
        """Create a GPU instance with compute instances, or nothing."""
        ...


def change_mig(change: MigChange, begins: Begins, card_of: Callable[[str], Card] = MigCard) -> MigChanged:
    """Change the card of a request; returns what became of it. NVML has to be initialised."""
    outcome, why = DONE, ""
    try:
        for step, do in _steps(change, card_of(change.card)):
            begins(f"{step} of {change.card}, for change {change.id}")
            do()
    except MigUnchanged as error:
        kinds = {MigInUse: IN_USE, MigWantsReset: RESET_REQUIRED}
        outcome, why = kinds.get(type(error), FAILED), printable(str(error))
    return MigChanged(change.id, change.card, outcome, why, seconds_since_boot())


def _steps(change: MigChange, card: Card) -> Iterator[tuple[str, Callable[[], None]]]:
    """Name what is done, and do it when it is asked for the next one.

    Raises:
        MigUnchanged: nothing may be done, as the card is not as it was seen.
    """
    if why := _late(change):
        raise MigUnchanged(why)
    modes, there = card.modes(), card.instances()
    if why := _differs(change, there) or _left(change, modes[0], there):
        raise MigUnchanged(why)
    for one in (one for one in there if one.gi in change.destroy):
        yield f"destroying {_named(one)}", partial(card.destroy, one.gi)
    if modes != (change.mode, change.mode):
        yield f"{'enabling' if change.mode else 'disabling'} MIG mode", partial(card.set_mode, change.mode)
    for new in change.create:
        yield f"creating {_new(new)}", partial(card.create, *new)


def _late(change: MigChange) -> str:
    """Say that a request waited for too long: pods may have come to the card by then."""
    age = seconds_since_boot() - change.at
    return "" if 0 <= age <= LONGEST_DELAY else f"the request is {age:.0f} s old: nothing was done"


def _differs(change: MigChange, there: Sequence[GpuInstance]) -> str:
    """Say in what the card is not as it was seen."""
    if set(change.seen) == {(one.gi, one.profile, one.start) for one in there}:
        return ""
    names = first_few(map(_named, there), _MOST_SHOWN) or "no GPU instance"
    return f"{change.card} has other GPU instances than were seen: {names}; nothing was done"


def _left(change: MigChange, mode: int, there: Sequence[GpuInstance]) -> str:
    """Say what keeps the mode as it is."""
    left = [one for one in there if one.gi not in change.destroy]
    if mode == change.mode or not left:
        return ""
    names = first_few(map(_named, left), _MOST_SHOWN)
    return f"MIG mode of {change.card} cannot be disabled with {names}: nothing was done"


def _named(one: GpuInstance) -> str:
    return f"GPU instance {one.gi} ({one.profile} at slice {one.start})"


def _new(one: NewInstance) -> str:
    parts = f" with {'+'.join(map(str, one.compute))} compute slices" if one.compute else ""
    return f"{one.profile} at slice {one.start}{parts}"
