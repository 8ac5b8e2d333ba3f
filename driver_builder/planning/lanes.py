"""Which DaemonSet of a target brings what is wanted, and which one keeps the image of before until then. Pure.

Place in the flow: ``plan_rollout`` asks it for each target with an image. Without a wave there is one DaemonSet. A wave
that has something to lose adds a second one; when every node of the target works with what is wanted, the other one
goes. What is wanted may also be what the other one has: after the spec is set back, nodes move back.
"""

from collections.abc import Iterable
from itertools import islice

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.rollout_settings import Strategy
from driver_builder.objects import slots
from driver_builder.objects.fingerprint import is_of_this_form
from driver_builder.objects.slots import Place, Slot
from driver_builder.observed.evidence import Finding, is_current, judge
from driver_builder.observed.inventory import Node
from driver_builder.observed.snapshot import DaemonSet
from driver_builder.planning.actions import Action, MoveNode, PlaceDaemonSet
from driver_builder.planning.plan_view import DriverView
from driver_builder.planning.standing import Lanes

MAX_TIDIED = 200
"""Labels of waves that ended, which one reconcile removes."""


def lanes(
    view: DriverView, spec: DriverSpec, nodes: Iterable[str], existing: DaemonSet | None, written: DaemonSet
) -> Lanes:
    """Decide where what is wanted goes; ``written`` is how the ``existing`` DaemonSet would be written in place."""
    if existing is None:
        return Lanes(front=None, slot=slots.ONLY)
    pair = view.pairs.get(existing.target)
    if pair is not None:
        named = pair.moved.target_label
        if pair.others.fingerprint == written.fingerprint != pair.moved.fingerprint:
            place = Slot(pair.others.slot.name, Place.OTHERS)
            return Lanes(front=pair.others, slot=place, spare=pair.moved, spare_value=named)
        place = Slot(pair.moved.slot.name, Place.MOVED)
        return Lanes(front=pair.moved, slot=place, spare=pair.others, front_value=named)
    if not _has_something_to_lose(view, spec, nodes, existing, written):
        return Lanes(front=existing, slot=Slot(existing.slot.name))
    slot = Slot(slots.other(existing.slot.name), Place.MOVED)
    named = slots.name_in(existing.target, slot.name)
    if any(node.labels.get(view.wave_label) == named for node in view.nodes.values()):
        return Lanes(front=existing, slot=existing.slot, waits=True)
    return Lanes(front=None, slot=slot, spare=existing, front_value=named)


def _has_something_to_lose(
    view: DriverView, spec: DriverSpec, nodes: Iterable[str], existing: DaemonSet, written: DaemonSet
) -> bool:
    """Return whether a node works with the image of before, which a wave is to replace."""
    if spec.rollout.strategy is Strategy.IMMEDIATE or existing.fingerprint == written.fingerprint:
        return False
    # A rebuild for some nodes changes nothing for the others. Pods of an older form know no second DaemonSet.
    if existing.fingerprint in written.kept or not is_of_this_form(existing.fingerprint):
        return False
    return any(
        is_current(pod, existing) and judge(view.nodes[node], pod)[0] is Finding.WORKS
        for node in nodes
        if node in view.nodes
        for pod in view.pods_on(node)
        if pod.target == existing.target
    )


def place(view: DriverView, target: str, found: Lanes) -> tuple[Action, ...]:
    """Let each DaemonSet be for its nodes: the new one is made for nodes with its label alone."""
    others, moved = (found.front, found.spare) if found.slot.place is Place.OTHERS else (found.spare, found.front)
    if others is not None and others.slot.place is not Place.OTHERS:
        named = found.front_value or found.spare_value
        return (_place(view, target, others, named),)
    only = found.front if found.spare is None and not found.waits else None
    if only is not None and only is moved and only.slot.place is Place.OTHERS:
        return (_place(view, target, only, None),)
    return ()


def _place(view: DriverView, target: str, item: DaemonSet, named: str | None) -> PlaceDaemonSet:
    return PlaceDaemonSet(
        namespace=item.namespace,
        name=item.name,
        uid=item.uid,
        target=target,
        label=view.wave_label,
        named=named,
    )


def tidy(view: DriverView) -> tuple[MoveNode, ...]:
    """Remove the labels of waves that have ended."""
    stale = (node for node in view.others if _is_stale(view, node))
    return tuple(_unlabel(view, node.name) for node in islice(stale, MAX_TIDIED))


def _is_stale(view: DriverView, node: Node) -> bool:
    """Return whether a node's wave label names no DaemonSet that is for such nodes."""
    value = node.labels.get(view.wave_label)
    if value is None:
        return False
    named = view.daemon_sets.get(slots.parse_name(value)[0])
    is_for_moved = named is not None and (named.slot.place is Place.MOVED or named.target in view.pairs)
    return named is None or named.target_label != value or not is_for_moved


def _unlabel(view: DriverView, node: str) -> MoveNode:
    return MoveNode(node=node, driver=view.driver.key, label=view.wave_label, value=None, why="the wave has ended")
