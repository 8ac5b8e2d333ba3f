"""The page that Prometheus gets, from what was sampled before. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from device_agent.exporter.dcgm import dcgm_families
from device_agent.exporter.labels import Family, Host, labelled
from device_agent.exporter.ours import Health, allocated_family, card_families, event_families, health_families
from device_agent.gpu_state.use import NVIDIA, CardUse, Use
from device_agent.metrics import family
from device_agent.usage.attribution import Allocated, card_views

MOST_SERIES = 20_000
"""Of a page. Eight cards with 32 pods have some 500."""


def render_use(use: Use | None, held: Sequence[Allocated] | None, host: Host) -> tuple[str, int]:
    """Write the series of cards and devices; returns them, and how many had no place.

    ``use``: None where nothing is known of now. ``held``: None where it is not known who has what.
    """
    families: list[Family] = []
    if use is not None:
        cards = labelled(card_views(use, held or ()), host)
        families += [*dcgm_families(cards, use.xids), *card_families(cards), *event_families(cards, use.xids, host)]
    if held is not None:
        families.append(allocated_family(held, host))
    kept, dropped = _bounded(families)
    return _text(kept), dropped


def with_lost(use: Use, known: Mapping[str, CardUse]) -> Use:
    """Add cards of NVIDIA's that are lost, as they were ``known``, if an Xid error of theirs is counted.

    NVML names a card no more that fell off the bus. Its errors keep their labels: with others they would be new ones.
    """
    present, failed = {card.id for card in use.cards}, {one.uuid for one in use.xids}
    lost = [card._replace(values={}, processes=()) for card in known.values() if card.id in failed - present]
    return use._replace(cards=(*use.cards, *lost)) if lost else use


def known_cards(use: Use) -> Mapping[str, CardUse]:
    """Return NVIDIA's cards by their UUIDs, for :func:`with_lost` of the next use."""
    return {card.id: card for card in use.cards if card.driver == NVIDIA and not card.parent}


def render_health(health: Health) -> str:
    """Write the series of the exporter itself."""
    return _text(health_families(health))


def _bounded(families: Iterable[Family]) -> tuple[list[Family], int]:
    """Keep each series once, and no more than Prometheus should get."""
    kept, room, dropped = [], MOST_SERIES, 0
    for one in families:
        samples: dict[str, float] = {}
        for pairs, value in one.samples:
            # Two compute instances of one GPU instance have the same labels: Prometheus would refuse the page.
            samples.setdefault(pairs, value)
        kept.append(one._replace(samples=list(samples.items())[:room]))
        dropped += max(0, len(samples) - room)
        room -= min(room, len(samples))
    return kept, dropped


def _text(families: Iterable[Family]) -> str:
    return "".join(line for one in families if one.samples for line in _lines(one))


def _lines(one: Family) -> Iterator[str]:
    return family(one.name, one.kind, one.description, one.samples)
