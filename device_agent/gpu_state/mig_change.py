"""The request that the MIG instances of a card be changed, and what became of it. What is read is checked, and bounded.

Whoever asks names what it saw on the card; the container ``nvml`` compares that before it touches anything.
"""

from typing import NamedTuple

from device_agent.errors import StateInvalid
from device_agent.gpu_state.checks import MOST, Check, integer, name, one_of, record, seconds, several, text
from device_agent.gpu_state.state import MOST_CARDS, MOST_GPU_INSTANCES, MOST_SLICES, MigChanged

DONE, IN_USE, RESET_REQUIRED, FAILED = "done", "in-use", "reset-required", "failed"
"""What :attr:`MigChanged.outcome` is: all is as it was asked for; the driver has clients on the card; the mode changes
with a reset or a boot; anything else, of which nothing or a part was done."""
OUTCOMES = (DONE, IN_USE, RESET_REQUIRED, FAILED)


class NewInstance(NamedTuple):
    """A GPU instance to create. ``start``: its first memory slice. ``compute``: slices of its compute instances."""

    profile: str
    start: int
    compute: tuple[int, ...]


class MigChange(NamedTuple):
    """Change a card, if its GPU instances still are those that were seen.

    First ``destroy``, with all their compute instances, then ``mode`` where it differs, then ``create``; an error ends
    it there.

    ``id``: of this request alone; its answer has it. ``card``: a UUID. ``mode``: 0 or 1, what MIG mode is to be.
    ``destroy``: ids of GPU instances. ``at``: when it was asked, in seconds of CLOCK_BOOTTIME.
    ``seen``: id, profile and first memory slice of all GPU instances of the card.
    """

    id: int
    card: str
    mode: int
    destroy: tuple[int, ...]
    create: tuple[NewInstance, ...]
    at: float
    seen: tuple[tuple[int, str, int], ...]


_SEEN = 3
_ID, _START = integer(most=MOST), integer(most=MOST_SLICES - 1)


def _seen(value: object, place: str) -> tuple[int, str, int]:
    if type(value) is not list or len(value) != _SEEN:
        raise StateInvalid(f"{place} is not id, profile and first slice of a GPU instance")
    return _ID(value[0], f"{place}[0]"), name(value[1], f"{place}[1]"), _START(value[2], f"{place}[2]")


_NEW = record(
    NewInstance,
    {"profile": name, "start": _START, "compute": several(integer(least=1, most=MOST_SLICES), MOST_SLICES)},
)
_CHANGE = record(
    MigChange,
    {
        "id": integer(least=1),
        "card": name,
        "mode": integer(most=1),
        "destroy": several(_ID, MOST_GPU_INSTANCES),
        "create": several(_NEW, MOST_GPU_INSTANCES),
        "at": seconds,
        "seen": several(_seen, MOST_GPU_INSTANCES),
    },
)
CHANGED: Check[MigChanged] = record(
    MigChanged, {"id": integer(least=1), "card": name, "outcome": one_of(*OUTCOMES), "why": text, "at": seconds}
)
MIG_CHANGES: Check[tuple[MigChanged, ...]] = several(CHANGED, MOST_CARDS)


def check_change(value: object, place: str) -> MigChange:
    """Check a request of which each part can be meant.

    Raises:
        StateInvalid: the message says where and why.
    """
    change = _CHANGE(value, place)
    if change.create and not change.mode:
        raise StateInvalid(f"{place}.create has instances although {place}.mode is 0")
    if len(set(change.destroy)) != len(change.destroy):
        raise StateInvalid(f"{place}.destroy has a GPU instance twice")
    if not set(change.destroy) <= {gi for gi, _, _ in change.seen}:
        raise StateInvalid(f"{place}.destroy has a GPU instance that {place}.seen has not")
    return change


def plain_change(change: MigChange) -> dict[str, object]:
    """Make what JSON can write of a request."""
    return {**change._asdict(), "create": [one._asdict() for one in change.create]}
