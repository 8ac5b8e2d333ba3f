"""Makes units of GPUs and of their MIG instances. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from device_agent.device_nodes.wanted import capability_paths
from device_agent.devices.model import DeviceNode, Unit, UnitFile
from device_agent.gpu_state.state import CardState, NodeState
from device_agent.profiles.strategy import Part, Sorted, by_strategy
from device_agent.sources.nvidia.health import USUAL, Rules, Verdict, why_unhealthy
from device_agent.sources.nvidia.libraries import NO_LIBRARIES, Libraries
from device_resources.nvidia import FULL_CARD, MigStrategy

if TYPE_CHECKING:
    from device_agent.profiles.transition import Listing

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"

_NEEDED = {"/dev/nvidiactl": "nvidia", "/dev/nvidia-uvm": "nvidia_uvm"}
"""Nodes without which no container is to start, and the module that each is of. The kubelet keeps its first answer: a
container that was given none of them gets none later."""

_CHANGING = "its MIG layout is being changed"
_FURTHER = ("/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is known besides the GPUs themselves.

    ``trouble``: why nothing may be given at all, empty if it may.
    ``is_current``: their minor numbers are those of the driver that is loaded now.
    ``nodes``: what is in ``/dev``. ``verdicts``, ``rules``: which errors are held against which GPU.
    ``changing``: UUIDs of GPUs whose MIG layout is being changed.
    """

    strategy: MigStrategy = MigStrategy.NONE
    trouble: str = ""
    is_current: bool = True
    nodes: Sequence[NodeState] = ()
    libraries: Libraries = NO_LIBRARIES
    verdicts: Sequence[Verdict] = ()
    rules: Rules = USUAL
    changing: Collection[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Resource -> its units, and why there are fewer than somebody may expect."""

    resources: Mapping[str, tuple[Unit, ...]]
    reasons: tuple[str, ...] = ()


def offer(cards: Sequence[CardState], view: View) -> Offer:
    """Sort units into resources. ``nvidia.com/gpu`` is always there: without any unit, its capacity is 0."""
    made = _Made(view)
    found = by_strategy(cards, view.strategy)
    resources = {name: tuple(map(made.unit, parts)) for name, parts in found.resources.items()}
    return Offer(resources=resources, reasons=found.reasons)


def offer_listed(cards: Sorted, view: View, listing: "Listing") -> Offer:
    """Make units of what is listed: of GPUs and instances that the strategy leaves out, too, and of some that are gone.

    ``view.strategy`` says why there are fewer than somebody may expect.
    """
    from device_agent.profiles.transition import listed_units  # noqa: PLC0415 - nodes without profiles do not need it

    made = _Made(view)
    parts = [part for card in cards.cards for part in (Part(card=card), *_instances(card))]
    units = {part.uuid: made.unit(part) for part in parts}
    return Offer(resources=listed_units(listing, units) or {FULL_CARD: ()}, reasons=cards.by(view.strategy).reasons)


def _instances(card: CardState) -> Iterator[Part]:
    return (Part(card=card, instance=one) for one in card.instances)


class _Made:
    """Makes units that have what is common to all."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._nodes = {node.path: node for node in view.nodes}
        self._capabilities = {node.capability: node for node in view.nodes if node.capability}
        right = (path for path in (*_NEEDED, *_FURTHER) if path in self._nodes and not self._nodes[path].why)
        self._common: tuple[UnitFile, ...] = (*map(_device_node, right), *view.libraries.mounts)
        self._needed_why = next(filter(None, map(self._why_not, _NEEDED)), "")

    def unit(self, part: Part) -> Unit:
        """Make a unit of a whole GPU, or of a MIG instance."""
        card, instance = part.card, part.instance
        if instance is None:
            return self._unit(card, card.uuid, ())
        opened = capability_paths(card.minor, instance.gi, instance.ci) if card.minor is not None else ()
        return self._unit(card, instance.uuid, opened, (instance.gi, instance.ci))

    def _unit(self, card: CardState, uuid: str, opened: Sequence[str], instance: tuple[int, int] | None = None) -> Unit:
        nodes, node_why = self._own_nodes(card, opened)
        view = self._view
        node_why = node_why or self._needed_why
        why = view.trouble or why_unhealthy(card, view.verdicts, view.rules, instance) or node_why or view.libraries.why
        waits = not why and card.uuid in view.changing
        return Unit(
            id=uuid,
            why=_CHANGING if waits else why,
            is_waiting=waits,
            numa_nodes=() if card.numa_node is None else (card.numa_node,),
            links={} if instance else dict(card.links),
            files=(*(_device_node(node.path) for node in nodes), *self._common),
            environment={VISIBLE_DEVICES: uuid},
            identity=() if node_why else tuple(_identity(node) for node in nodes),
        )

    def _why_not(self, path: str) -> str:
        """Say what is wrong with a node that all need."""
        node = self._nodes.get(path)
        if node is None:
            return f"{path} is missing: the module {_NEEDED[path]} is not loaded"
        return f"{path}: {node.why}" if node.why else ""

    def _own_nodes(self, card: CardState, opened: Sequence[str]) -> tuple[list[NodeState], str]:
        """Find the nodes that are this unit's alone, and say what is wrong with them."""
        if card.minor is None or not self._view.is_current:
            return [], "it is not known which device node is its own"
        path = f"/dev/nvidia{card.minor}"
        found = [(path, self._nodes.get(path)), *((f"capability {one}", self._capabilities.get(one)) for one in opened)]
        nodes = [node for _, node in found if node is not None]
        if len(nodes) < len(found):
            missing = next(name for name, node in found if node is None)
            return nodes, f"the driver has no device node for it: {missing} is missing"
        wrong = next((node for node in nodes if node.why), None)
        return nodes, f"{wrong.path}: {wrong.why}" if wrong else ""


def _device_node(path: str) -> DeviceNode:
    return DeviceNode(path=path, mount_path=path, permissions="rw")


def _identity(node: NodeState) -> str:
    """Say what a node is. The minor number of a capability is in its path; its major is another one after each load."""
    return node.path if node.capability else f"{node.path} {node.major}:{node.minor}"
