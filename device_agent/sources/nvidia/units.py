"""Makes units of GPUs and of their MIG instances. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from device_agent.device_nodes.wanted import capability_paths
from device_agent.devices.model import DeviceNode, Unit, UnitFile
from device_agent.gpu_state.state import CardState, InstanceState, NodeState
from device_agent.sources.nvidia.health import USUAL, Rules, Verdict, why_unhealthy
from device_agent.sources.nvidia.libraries import NO_LIBRARIES, Libraries
from device_resources.nvidia import FULL_CARD, MigStrategy
from device_resources.resource import NVIDIA_DOMAIN

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"

_NEEDED = {"/dev/nvidiactl": "nvidia", "/dev/nvidia-uvm": "nvidia_uvm"}
"""Nodes without which no container is to start, and the module that each is of. The kubelet keeps its first answer: a
container that was given none of them gets none later."""

_FURTHER = ("/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,57}[a-z0-9])?")
"""What may follow ``mig-`` in the name of a resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is known besides the GPUs themselves.

    ``trouble``: why nothing may be given at all, empty if it may.
    ``is_current``: their minor numbers are those of the driver that is loaded now.
    ``nodes``: what is in ``/dev``. ``verdicts``, ``rules``: which errors are held against which GPU.
    """

    strategy: MigStrategy = MigStrategy.NONE
    trouble: str = ""
    is_current: bool = True
    nodes: Sequence[NodeState] = ()
    libraries: Libraries = NO_LIBRARIES
    verdicts: Sequence[Verdict] = ()
    rules: Rules = USUAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Resource -> its units, and why there are fewer than somebody may expect."""

    resources: Mapping[str, tuple[Unit, ...]]
    reasons: tuple[str, ...] = ()


def offer(cards: Sequence[CardState], view: View) -> Offer:
    """Sort units into resources. ``nvidia.com/gpu`` is always there: without any unit, its capacity is 0."""
    made = _Made(view)
    split = [card for card in cards if card.mig_mode == 1 and view.strategy is not MigStrategy.NONE]
    empty = [card.uuid for card in split if not card.instances and not card.why]
    reasons = [f"{uuid} is in MIG mode and has no instances" for uuid in empty]
    if view.strategy is MigStrategy.SINGLE and split:
        return _single(cards, split, made, reasons)
    whole = tuple(made.card(card) for card in cards if card not in split)
    resources: dict[str, tuple[Unit, ...]] = {FULL_CARD: whole}
    for card, instance in _instances(split):
        name = resource_name(instance.profile)
        if name is None:
            reasons.append(f"{instance.uuid} has a profile without a resource: {instance.profile or 'none'}")
        else:
            resources[name] = (*resources.get(name, ()), made.instance(card, instance))
    return Offer(resources=resources, reasons=tuple(reasons))


def resource_name(profile: str) -> str | None:
    """Return the resource of a MIG profile: ``1g.10gb+me`` is ``nvidia.com/mig-1g.10gb.me``; None if it has none."""
    name = profile.replace("+", ".")
    return f"{NVIDIA_DOMAIN}mig-{name}" if _NAME.fullmatch(name) else None


def _instances(cards: Sequence[CardState]) -> Iterator[tuple[CardState, InstanceState]]:
    return ((card, instance) for card in cards for instance in card.instances)


def _single(cards: Sequence[CardState], split: Sequence[CardState], made: "_Made", reasons: list[str]) -> Offer:
    """Offer what the GPUs that can be read are split into; what is remembered of others decides only without these."""
    basis = [card for card in cards if not card.why] or [card for card in cards if card.mig_mode is not None]
    if all(card.mig_mode != 1 for card in basis):
        return Offer(resources={FULL_CARD: tuple(made.card(card) for card in cards if card not in split)})
    reasons += _differences(basis)
    profiles = {instance.profile for _, instance in _instances(basis)}
    alike = (pair for pair in _instances(split) if pair[1].profile in profiles)
    return Offer(
        resources={FULL_CARD: () if reasons else tuple(made.instance(*pair) for pair in alike)}, reasons=tuple(reasons)
    )


def _differences(cards: Sequence[CardState]) -> Iterator[str]:
    """Say how GPUs differ that have to be split alike."""
    whole = [card.uuid for card in cards if card.mig_mode != 1]
    if whole:
        yield f"migStrategy single needs MIG mode on all GPUs or on none: {whole[0]} is not in it, others are"
    profiles = sorted({instance.profile for _, instance in _instances(cards)})
    if len(profiles) > 1:
        yield f"migStrategy single needs instances of one profile: there are {profiles[0]} and {profiles[1]}"


class _Made:
    """Makes units that have what is common to all."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._nodes = {node.path: node for node in view.nodes}
        self._capabilities = {node.capability: node for node in view.nodes if node.capability}
        right = (path for path in (*_NEEDED, *_FURTHER) if path in self._nodes and not self._nodes[path].why)
        self._common: tuple[UnitFile, ...] = (*map(_device_node, right), *view.libraries.mounts)
        self._needed_why = next(filter(None, map(self._why_not, _NEEDED)), "")

    def card(self, card: CardState) -> Unit:
        """Make a unit of a whole GPU."""
        return self._unit(card, card.uuid, ())

    def instance(self, card: CardState, instance: InstanceState) -> Unit:
        """Make a unit of a MIG instance."""
        opened = capability_paths(card.minor, instance.gi, instance.ci) if card.minor is not None else ()
        return self._unit(card, instance.uuid, opened, (instance.gi, instance.ci))

    def _unit(self, card: CardState, uuid: str, opened: Sequence[str], instance: tuple[int, int] | None = None) -> Unit:
        nodes, node_why = self._own_nodes(card, opened)
        view = self._view
        node_why = node_why or self._needed_why
        why = view.trouble or why_unhealthy(card, view.verdicts, view.rules, instance) or node_why or view.libraries.why
        return Unit(
            id=uuid,
            why=why,
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
