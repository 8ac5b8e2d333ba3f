"""A driver goes after its stages: ``run`` goes first, then the plugin's pod, then the module. Pure.

Place in the flow: :func:`hold_back` looks at what all drivers are about to do, once nodes are prepared for a wave.
Nothing is held back where the same modules stay loaded. Removals and repairs ask :func:`staying`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeGuard

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.model.driver_key import DriverKey
from driver_builder.nodes.changes import Change, PatchNode, takes_driver
from driver_builder.nodes.kept_modules import KeptModules
from driver_builder.nodes.plan_view import Alone, DriverPlan, DriverView
from driver_builder.plan.removal import Removal
from driver_builder.plan.stage_view import LEAVE_SECONDS, LOOK_SECONDS, StageView
from driver_builder.rollout.draining import draining_of, parse_draining
from driver_builder.rollout.node_lock import is_locked_by
from driver_builder.snapshot import inventory
from driver_builder.snapshot.by_driver import of_driver
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import Snapshot
from kube_api import names


def staying(view: DriverView, nodes: Iterable[str]) -> dict[str, str]:
    """Return those of some nodes that the stages of a driver have still to leave, with the words for it."""
    if not _may_have_stages(view.snapshot, view.driver.key, view.driver.spec):
        return {}
    stages = StageView.of(view.snapshot, view.driver)
    return stages.staying(view.nodes[name] for name in sorted(nodes) if name in view.nodes)


def refuted(view: DriverView) -> dict[str, str]:
    """Return the nodes whose modules have changed and that the stages have still to leave.

    On an ordinary node none have: in a large fleet the others are few.
    """
    pods = view.own_pods
    if len(view.others) < len(pods):
        return staying(view, (pod.node for node in view.others for pod in pods.on(node.name) if pod.contrary))
    return staying(view, (pod.node for pod in pods if pod.contrary is not None))


def with_staying(view: DriverView, going: Removal, left: Mapping[str, str]) -> Removal:
    """Add the nodes to a removal whose stages go first."""
    if not left:
        return going
    waiting = {**going.unloading.waiting, **left}
    times = [view.snapshot.now + LOOK_SECONDS, *([going.requeue_at] if going.requeue_at is not None else [])]
    return replace(
        going,
        holds=going.holds.union(left),
        unloading=replace(going.unloading, waiting=waiting),
        requeue_at=min(times),
    )


def hold_back(
    admitted: Iterable[DriverPlan], prepared: Iterable[DriverPlan], snapshot: Snapshot, alone: Alone
) -> tuple[DriverPlan, ...]:
    """Let the stages leave first where a driver is taken from a node.

    ``admitted`` are the plans before nodes were prepared: ``run`` goes where a node is locked, and not while its next
    image is pulled; with a DRA driver once it is drained. Of a driver whose work ends in an error ``alone`` returns
    the plan.
    """
    return tuple(
        alone(part, partial(_held_back, before, part, snapshot))
        for before, part in zip(admitted, prepared, strict=True)
    )


def _may_have_stages(snapshot: Snapshot, driver: DriverKey, spec: object) -> bool:
    has_stages = isinstance(spec, DriverSpec) and spec.stages is not None
    return has_stages or bool(of_driver(snapshot.plugin_pods, driver) or of_driver(snapshot.plugin_sets, driver))


def _is_asked(part: DriverPlan, snapshot: Snapshot) -> bool:
    if not any(takes_driver(action) for action in part.actions):
        return False
    return _may_have_stages(snapshot, part.driver.key, part.driver.spec)


def _held_back(before: DriverPlan, part: DriverPlan, snapshot: Snapshot) -> DriverPlan:
    if part.trouble is not None or not _is_asked(before, snapshot):
        return part
    stages, kept = StageView.of(snapshot, part.driver), KeptModules.of(part, snapshot)
    nodes = inventory.by_name(snapshot.nodes)
    taken = {action.node for action in before.actions if takes_driver(action) and not kept.stay(action)}
    going = {action.node for action in part.actions if takes_driver(action)}
    # The kubelet ends no claim without a plugin that leaves last.
    is_last = part.drain is not None and part.drain.plugin_leaves_last
    locked = {action.node for action in part.actions if _writes(action, names.LOCK_ANNOTATION)}
    first: list[Change] = []
    left: dict[str, str] = {}
    words: list[str] = []
    for name in sorted(taken):
        node = nodes[name]
        is_held = name in locked or is_locked_by(part.driver.key, node, snapshot.now)
        if name not in going and not (_is_drained(node, part) if is_last else is_held):
            continue
        first += stages.take_run(node, "the driver is replaced there")
        if not stages.has_left(node):
            left[name] = stages.words(node)
            words.append(f"{name}: {left[name]}")
        elif stages.users(name):
            late = f"did not leave within {int(LEAVE_SECONDS)} seconds"
            words.append(f"{name}: its device plugin {late}: {', '.join(stages.users(name))}")
    # A plugin that leaves last may have devices of those open that depend on its driver.
    yields = [action for action in part.actions if is_last and _writes(action, names.YIELDING_ANNOTATION)]
    held = [action for action in yields if action.node in left]
    staying = [action for action in part.actions if action not in held and not _waits(action, left, stages, taken)]
    wave, times = part.wave, [part.requeue_at, snapshot.now + LOOK_SECONDS if left else None]
    if words and wave is not None:
        wave = replace(wave, message="; ".join(filter(None, (*words, wave.message))))
    return replace(
        part,
        actions=(*first, *staying),
        budgeted=part.budgeted.difference(left),
        wave=wave,
        requeue_at=min((time for time in times if time is not None), default=None),
    )


def _is_drained(node: Node, part: DriverPlan) -> bool:
    """Return whether a node is drained for a driver, or is with what is done now."""
    on_node = (action for action in part.actions if isinstance(action, PatchNode) and action.node == node.name)
    texts = (action.annotations.get(names.DRAINING_ANNOTATION) for action in on_node)
    every = (*(parse_draining(text) for text in texts if text is not None), draining_of(node))
    return any(item is not None and item.driver == part.driver.key and item.is_drained for item in every)


def _waits(action: Change, left: Mapping[str, str], stages: StageView, taken: set[str]) -> bool:
    """Return whether an action is left out: it takes the driver, or lets stages run where it is taken."""
    if takes_driver(action):
        return action.node in left
    if not isinstance(action, PatchNode) or action.node not in taken:
        return False
    return any(action.labels.get(label) is not None for label in stages.labels.values())


def _writes(action: Change, key: str) -> TypeGuard[PatchNode]:
    """Return whether an annotation of a Node gets a text."""
    return isinstance(action, PatchNode) and action.annotations.get(key) is not None
