"""Which DaemonSet of a target brings what is wanted, and which one keeps the image of before until then. Pure.

Place in the flow: ``plan_rollout`` asks it for each target with an image. Without a wave there is one DaemonSet. A wave
that has something to lose adds a second one; when every node of the target works with what is wanted, the other one
goes. What is wanted may also be what the other one has: after the spec is set back, nodes move back.
"""

import json
from typing import Any

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.rollout_settings import Strategy
from driver_builder.nodes.changes import ApplyObject, Change, PatchObject, delete_daemon_set
from driver_builder.nodes.evidence import Finding, is_current, judge
from driver_builder.nodes.plan_view import DriverView
from driver_builder.nodes.standing import Lanes, may_work
from driver_builder.objects import slots
from driver_builder.objects.fingerprint import is_of_this_form
from driver_builder.objects.slots import Place, Slot
from driver_builder.objects.yielding import yielding_of
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.node_record import NodeRecord, record_of
from driver_builder.snapshot.snapshot import DaemonSet
from driver_builder.targets.desired_target import ImageTarget
from kube_api.resources import DAEMON_SETS


def lanes(
    view: DriverView, spec: DriverSpec, item: ImageTarget, existing: DaemonSet | None, written: DaemonSet
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
    if not _has_something_to_lose(view, spec, item, existing, written):
        return Lanes(front=existing, slot=Slot(existing.slot.name))
    slot = Slot(slots.other(existing.slot.name), Place.MOVED)
    named = slots.name_in(existing.target, slot.name)
    # Where the DaemonSet that they name is missing, such labels are of this wave.
    is_missing = existing.slot.place is Place.OTHERS
    if not is_missing and any(view.on(node).wave == named for node in view.nodes.values()):
        return Lanes(front=existing, slot=existing.slot, waits=True)
    return Lanes(front=None, slot=slot, spare=existing, front_value=named)


def is_complete(view: DriverView) -> bool:
    """Return whether every node works with what the wave has brought: only its end is not written yet."""
    if any(pair.moved.fingerprint in view.driver.undone for pair in view.pairs.values()):
        return False
    every = [(view.nodes[name], item.target.short_hash) for item in view.wanted for name in item.nodes
             if name in view.nodes]  # fmt: skip
    return all(_is_proven(view, node, target) for node, target in every if target in view.daemon_sets)


def _is_proven(view: DriverView, node: Node, target: str) -> bool:
    """Return whether a node works with the DaemonSet to which a wave moves nodes, and so do drivers that yielded."""
    item, record = view.daemon_sets[target], yielding_of(node.annotations)
    yielded = record.drivers if record is not None and record.first == view.driver.key else ()
    theirs = (record_of(node, key) for key in yielded)
    if view.on(node).ready is None or not all(it.ready is not None and not it.is_kept_away for it in theirs):
        return False
    return any(
        pod.target == target
        and pod.slot == item.slot.name
        and is_current(pod, item)
        and judge(node, pod)[0] is Finding.WORKS
        for pod in view.pods_on(node.name)
    )


def end(view: DriverView, target: str, left: DaemonSet | None, spent: DaemonSet) -> tuple[Change, ...]:
    """End a wave: the DaemonSet that is left is for all nodes, the other one is deleted."""
    # First the one that is left: a node that joins has one of them at any moment.
    released = release(view, target, left) if left is not None else ()
    return (*released, delete_daemon_set(spent))


def _has_something_to_lose(
    view: DriverView, spec: DriverSpec, item: ImageTarget, existing: DaemonSet, written: DaemonSet
) -> bool:
    """Return whether a node works with the image of before, or is about to, which a wave is to replace."""
    if spec.rollout.strategy is Strategy.IMMEDIATE or existing.fingerprint == written.fingerprint:
        return False
    # A rebuild for some nodes changes nothing for the others. Pods of an older form know no second DaemonSet.
    if existing.fingerprint in written.kept or not is_of_this_form(existing.fingerprint):
        return False
    every = [view.nodes[node] for node in item.nodes if node in view.nodes]
    pods = [(node, pod) for node in every for pod in view.pods_on(node.name) if pod.target == existing.target]
    # A pod that unloads when it ends would do so beside another one.
    if not all(pod.leaves_modules and is_of_this_form(pod.fingerprint) for _, pod in pods):
        return False
    if any(is_current(pod, existing) and may_work(node, pod) for node, pod in pods):
        return True
    # A node that was outside the selector for a while has kept its modules, and not its pod. Nor has one that is
    # registered anew: where the driver has just worked, that it records nothing proves nothing.
    before = view.before.get(item.target.id)
    has_worked = before is not None and before.ready_nodes > 0
    return any(
        not view.pods_on(node.name)
        and (_is_live(view.on(node), existing.target) or (has_worked and not view.on(node).is_recorded))
        for node in every
    )


def _is_live(on: NodeRecord, target: str) -> bool:
    return any(load.target == target and load.is_live(on.node.boot_id) for load in on.loads)


def place(view: DriverView, target: str, found: Lanes, written: DaemonSet) -> tuple[Change, ...]:
    """Let each DaemonSet be for its nodes: the new one is made for nodes with its label alone."""
    if found.spare is None:
        return ()
    is_others_front = found.slot.place is Place.OTHERS
    wanted = [(found.spare, Place.MOVED if is_others_front else Place.OTHERS, written)]
    if is_others_front and found.front is not None:
        wanted.append((found.front, Place.OTHERS, found.spare))
    named = found.front_value or found.spare_value or ""
    return tuple(
        placing(view, target, item, place=where, named=named, wanted=written, beside=beside)
        for item, where, beside in wanted
        if item.slot.place is not where
        or not _reaches_the_same(item, written)
        or item.sees_programs is not _follows_program(item, beside)
    )


def _follows_program(item: DaemonSet, beside: DaemonSet | None) -> bool:
    """Return whether pods of our loader may come to a node where a program of the DaemonSet beside it still ends."""
    return beside is not None and beside.has_program and not item.has_program


def _reaches_the_same(item: DaemonSet, written: DaemonSet) -> bool:
    return (item.node_selector, item.tolerations) == (written.node_selector, written.tolerations)


def placing(
    view: DriverView,
    target: str,
    item: DaemonSet,
    *,
    place: Place = Place.ALL,
    named: str = "",
    wanted: DaemonSet | None = None,
    beside: DaemonSet | None = None,
) -> PatchObject:
    """Return what lets a DaemonSet be for the nodes of a place, and reach what the ``wanted`` one reaches.

    Everything else in it stays, so it goes on with the image of before.

    ``beside`` is the other one of the target.
    """
    follows_program = _follows_program(item, beside)
    spec: dict[str, Any] = {"affinity": slots.affinity(view.keys.wave, named, place, view.keys.yields)}
    if wanted is not None and not _reaches_the_same(item, wanted):
        if selector := {**dict.fromkeys(item.node_selector), **wanted.node_selector}:
            spec["nodeSelector"] = selector
        spec["tolerations"] = json.loads(wanted.tolerations)
    if follows_program is not item.sees_programs:
        spec["hostPID"] = follows_program or None
    return PatchObject(
        resource=DAEMON_SETS,
        namespace=item.namespace,
        name=item.name,
        uid=item.uid,
        target=target,
        why=f"be for {_PLACES[place]}",
        places=True,
        body={"spec": {"template": {"spec": spec}}},
    )


_PLACES = {
    Place.ALL: "all nodes of its target",
    Place.MOVED: "the nodes that the wave has moved",
    Place.OTHERS: "the nodes that the wave has not reached",
}


def is_placing(change: Change) -> bool:
    """Return whether a change lets a DaemonSet be for the nodes of a place, or writes all of it."""
    return isinstance(change, ApplyObject) or (isinstance(change, PatchObject) and change.places)


def release(view: DriverView, target: str, item: DaemonSet) -> tuple[Change, ...]:
    """Let the DaemonSet that a wave has left be for all nodes, whatever is wanted of it."""
    return () if item.slot.place is Place.ALL else (placing(view, target, item),)
