"""Limits of memory that a card's driver is to keep, and those that it keeps. What is read is checked, and bounded."""

from collections.abc import Mapping
from typing import NamedTuple

from device_agent.errors import StateInvalid
from device_agent.gpu_state.checks import MOST, Check, integer, name, pod, record, several, text, word
from device_agent.gpu_state.use import MOST_DEVICES, MOST_POD_LIMITS, KeptLimit
from kube_api.text import printable

_MOST_OF_A_CARD = 1 << 20


class PodLimit(NamedTuple):
    """What a pod may use of a card, in bytes. ``pod``: NAMESPACE/NAME. ``devices``: how many it has of the card.

    ``uid``: the pod's, as :func:`device_agent.users.pods.plain_uid` writes it: another one of this name has not got the
    limit; empty: not known.
    """

    card: str
    pod: str
    limit: int
    devices: int = 1
    uid: str = ""


_BYTES = integer(least=1, most=MOST)
_LIMIT = record(
    PodLimit,
    {
        "card": name,
        "pod": pod,
        "limit": _BYTES,
        "devices": integer(least=1, most=_MOST_OF_A_CARD),
        "uid": word,
    },
)
_LIMITS = several(_LIMIT, MOST_POD_LIMITS)
KEPT: Check[tuple[KeptLimit, ...]] = several(
    record(KeptLimit, {"card": name, "pod": pod, "limit": _BYTES}), MOST_POD_LIMITS
)


def check_limits(value: object, place: str) -> tuple[PodLimit, ...]:
    """Check limits, of which a pod has one on each card.

    Raises:
        StateInvalid: the message says where and why.
    """
    limits = _LIMITS(value, place)
    if len({one[:2] for one in limits}) != len(limits):
        raise StateInvalid(f"{place} has two limits of one pod on one card")
    return limits


def check_refused(value: object, place: str) -> Mapping[str, str]:
    """Check why cards keep no limits, by their ids.

    Raises:
        StateInvalid: the message says where and why.
    """
    if type(value) is not dict or len(value) > MOST_DEVICES:
        raise StateInvalid(f"{place} is not an object of at most {MOST_DEVICES}: {printable(repr(value), 80)}")
    return {name(card, place): text(why, f"{place}.{card}") for card, why in value.items()}
