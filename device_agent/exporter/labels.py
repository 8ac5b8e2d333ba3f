"""The labels of series, as text: made once for each card and pod, and used by all their metrics. Pure.

Names and values are those of NVIDIA's dcgm-exporter. The three labels of a pod are always there, empty where the
series is nobody's: Prometheus would fill in absent ones from its target, and the exporter's own pod would seem to use
the card.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from device_agent.gpu_state.use import NVIDIA, CardUse
from device_agent.metrics import label_pairs
from device_agent.usage.attribution import NOBODY, CardView, Owner, PodUse
from kube_api.text import printable

_LONGEST_NAME = 200

Sample = tuple[str, float]
"""Labels as text, and a value."""


class Family(NamedTuple):
    """A metric with its samples."""

    name: str
    kind: str
    description: str
    samples: Sequence[Sample]


class Host(NamedTuple):
    """The label with the node's name."""

    label: str
    name: str


class Labelled(NamedTuple):
    """A card with its labels. ``own``: of its series. ``pods``: of the series of each pod that shares it.

    ``lasting``: of series that stay the same whoever has the card.
    """

    view: CardView
    own: str
    pods: tuple[tuple[str, PodUse], ...]
    lasting: str

    @property
    def card(self) -> CardUse:
        """Return how it is used."""
        return self.view.card


def labelled(views: Iterable[CardView], host: Host) -> list[Labelled]:
    """Make the labels of cards."""
    return [_labelled(view, host) for view in views]


def pods_of_cards(cards: Iterable[Labelled]) -> Iterator[tuple[str, PodUse]]:
    """Give the pods that share cards, each with the labels of its series."""
    for one in cards:
        yield from one.pods


def owner_pairs(owner: Owner) -> str:
    """Write the labels of a pod, or empty ones."""
    return label_pairs({"namespace": owner.namespace, "pod": owner.pod, "container": owner.container})


def lasting_pairs(gpu: str, uuid: str, host: Host) -> str:
    """Write labels that do not change with who has the card."""
    return f"{label_pairs({'gpu': gpu, 'UUID': uuid, host.label: host.name})},{owner_pairs(NOBODY)}"


def _labelled(view: CardView, host: Host) -> Labelled:
    card, whole = view.card, view.parent or view.card
    instance = {"GPU_I_PROFILE": card.profile, "GPU_I_ID": "" if card.gi is None else str(card.gi)}
    pairs = label_pairs(
        {
            "gpu": str(whole.index),
            "UUID": whole.id,
            "pci_bus_id": _bus_id(whole.pci),
            "device": f"{'nvidia' if whole.driver == NVIDIA else 'card'}{whole.index}",
            "modelName": printable(whole.name, _LONGEST_NAME),
            **(instance if card.parent else {}),
            host.label: host.name,
        }
    )
    pods = tuple((f"{pairs},{owner_pairs(one.owner)}", one) for one in view.pods)
    lasting = lasting_pairs(str(whole.index), whole.id, host)
    return Labelled(view, f"{pairs},{owner_pairs(view.owner)}", pods, lasting)


def _bus_id(pci: str) -> str:
    """Write a PCI address as NVML does: ``0000:3b:00.0`` becomes ``00000000:3B:00.0``."""
    domain, colon, rest = pci.partition(":")
    return f"{domain:0>8}{colon}{rest}".upper() if colon else pci
