"""What the cards' drivers are to keep, what they keep, and what is said where they do not. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from device_agent.event import NODES_NAMESPACE, Json, warning
from device_agent.gpu_state.checks import MOST, is_pod
from device_agent.gpu_state.limits import PodLimit
from device_agent.gpu_state.use import MOST_POD_LIMITS, KeptLimit, Use
from device_agent.memory_limits.accounts import Account, pod_limits
from device_resources.memory_limits import MemoryMode, MemorySettings
from kube_api.text import bounded_message

REASON = "DeviceMemoryLimitNotByDriver"
MOST_REPORTED = 256


class Refusal(NamedTuple):
    """The driver of a card does not keep limits, or not all of them. ``why``: as the container ``nvml`` says it."""

    card: str
    why: str


def is_by_driver(memory: MemorySettings) -> bool:
    """Return whether drivers are asked to keep limits: never in a dry run, which changes nothing for anybody."""
    return memory.mode is MemoryMode.DRIVER and not memory.dry_run


def asked_limits(use: Use, every: Iterable[Account], memory: MemorySettings) -> tuple[PodLimit, ...]:
    """Return the limits that drivers are to keep: of cards that the container ``nvml`` knows, and not too many."""
    if not is_by_driver(memory):
        return ()
    cards = {card.id for card in use.cards if card.id}
    limits = [one for one in pod_limits(every) if one.card in cards and is_pod(one.pod) and one.limit <= MOST]
    return tuple(limits[:MOST_POD_LIMITS])


def kept_limits(use: Use, every: Iterable[Account], before: Collection[KeptLimit]) -> frozenset[KeptLimit]:
    """Return the limits of accounts that drivers keep; not one that has changed since.

    A driver takes nothing back: who had more before the limit was set is watched until it has less. After that what the
    driver counts decides, which may be less than NVML says. ``before``: what this returned last.
    """
    said, kept = frozenset(use.kept), frozenset(before)
    found = ((KeptLimit(one.card, one.pod, one.limit or 0), one) for one in every)
    return frozenset(
        limit
        for limit, one in found
        if limit in said and (limit in kept or (one.used is not None and one.used <= limit.limit))
    )


def news(refused: Mapping[str, str], every: Iterable[Account], reported: Collection[Refusal]) -> tuple[Refusal, ...]:
    """Return of which cards of accounts it is to be reported that the driver keeps no limits: once for each reason.

    Of very many reasons only the first are reported. ``reported``: those that were.
    """
    cards = {one.card for one in every if one.limit is not None}
    found = (Refusal(card, why) for card, why in refused.items() if card in cards)
    return tuple(one for one in found if one not in reported)[: max(0, MOST_REPORTED - len(reported))]


def refusal_words(refusal: Refusal) -> str:
    """Say in a sentence what is done instead."""
    return bounded_message(
        f"the driver of {refusal.card} does not keep the limits of memory that it should, and the agent watches them: "
        f"{refusal.why}"
    )


def refusal_event(refusal: Refusal, node: str, *, at: str, suffix: str) -> Json:
    """Make the Event of a Node, whose UID is its name there, as the kubelet writes it.

    Args:
        refusal: what is said.
        node: the Node's name.
        at: the time, as RFC 3339 writes it.
        suffix: lower-case letters and digits, at most 20, that no other Event of this Node has.
    """
    about = {"kind": "Node", "name": node, "uid": node}
    return warning(about, NODES_NAMESPACE, REASON, refusal_words(refusal), node=node, at=at, suffix=suffix)
