"""What NVML said of cards, as the state has it. Pure. In the child only: it imports nvml_inventory."""

import json
from collections.abc import Mapping, Sequence

from device_agent.errors import StateInvalid
from device_agent.gpu_state.state import (
    MOST_CARDS,
    MOST_INSTANCES,
    CardState,
    GpuInstanceState,
    InstanceState,
    MigProfileState,
)
from device_agent.gpu_state.state_json import CARD, plain_card
from kube_api.text import printable
from nvml_inventory.values import Card, Conditions, GpuInstance, Mig, MigLayout, Unreadable

_MOST_U32 = 2**32 - 1


def card_states(
    cards: Sequence[Card | Unreadable],
    conditions: Mapping[int, Conditions],
    numa_nodes: Mapping[str, int | None],
    layouts: Mapping[str, MigLayout] = {},
) -> tuple[CardState, ...]:
    """Make the cards of a state.

    ``conditions``: by NVML's index, of cards that can be read. ``numa_nodes``: by PCI address. ``layouts``: by UUID.
    What makes no sense, such as a UUID with a line break in it, is a reason against its card alone. Of MIG that makes
    none nothing is said: who only offers what is there can do without it.
    """
    uuids = {card.pci_bus_id: card.uuid for card in cards if isinstance(card, Card)}
    states: list[CardState] = []
    for index, card in enumerate(cards[:MOST_CARDS]):
        if isinstance(card, Card):
            one = _readable(index, card, conditions.get(index, Conditions()), uuids)
            one = one._replace(numa_node=numa_nodes.get(one.pci))
            one = _sensible(_with_mig(one, card, layouts.get(card.uuid, MigLayout())), without_mig=one)
        else:
            error = card.error if 0 <= card.error <= _MOST_U32 else 0
            one = _sensible(CardState(index, uuid=card.uuid, pci=card.pci, why=printable(card.reason), error=error))
        states.append(_known_once(one, {state.uuid for state in states}))
    return tuple(states)


def _readable(index: int, card: Card, conditions: Conditions, uuids: Mapping[str, str]) -> CardState:
    return CardState(
        index=index,
        uuid=card.uuid,
        name=printable(card.name),
        pci=card.pci_bus_id,
        minor=card.minor,
        memory_mib=card.memory_mib,
        mig_mode=card.mig_mode,
        links=tuple((uuids[pci], count) for pci, count in card.nvlinks if pci in uuids)[:MOST_CARDS],
        recovery_action=conditions.recovery_action,
        row_remap_failed=conditions.row_remap_failed,
        fabric=printable(conditions.fabric),
        instances=tuple(_instance(mig) for mig in card.migs[:MOST_INSTANCES]),
    )


def _with_mig(state: CardState, card: Card, layout: MigLayout) -> CardState:
    """Put in what is there of MIG."""
    return state._replace(
        pci_id=card.pci_id,
        mig_pending=card.mig_pending,
        mig_profiles=tuple(MigProfileState(*one) for one in layout.profiles),
        gpu_instances=tuple(_gpu_instance(one, card.migs) for one in layout.instances),
    )


def _gpu_instance(one: GpuInstance, migs: Sequence[Mig]) -> GpuInstanceState:
    compute = sorted((mig.slices_ci for mig in migs if mig.gi == one.gi), reverse=True)
    return GpuInstanceState(one.gi, one.profile, one.start, one.size, tuple(compute))


def _instance(mig: Mig) -> InstanceState:
    # Minus one is refused with its card: each driver that knows MIG says the ids.
    gi, ci = -1 if mig.gi is None else mig.gi, -1 if mig.ci is None else mig.ci
    return InstanceState(uuid=mig.uuid, profile=mig.profile, gi=gi, ci=ci, memory_mib=mig.memory_mib)


def _sensible(card: CardState, without_mig: CardState | None = None) -> CardState:
    """Return a card that its reader accepts, if need be the one without what is there of MIG; or why it is none."""
    trouble = _trouble(card)
    if not trouble:
        return card
    if without_mig is not None and not _trouble(without_mig):
        return without_mig
    why = f"GPU {card.index} cannot be used, NVML's answer makes no sense: {trouble}"
    return CardState(card.index, why=printable(why))


def _known_once(card: CardState, uuids: set[str]) -> CardState:
    """Return a card, or why it cannot be told from others."""
    place = f"GPU {card.index}"
    if not card.uuid and not card.why:
        return CardState(card.index, why=f"{place} cannot be used: it has no UUID")
    if card.uuid and card.uuid in uuids:
        return CardState(card.index, why=f"{place} cannot be used: another one has its UUID, {card.uuid}")
    return card


def _trouble(card: CardState) -> str:
    """Say why a reader would not accept a card; empty if it does."""
    try:
        CARD(json.loads(json.dumps(plain_card(card))), f"GPU {card.index}")
    except StateInvalid as error:
        return str(error)
    return ""
