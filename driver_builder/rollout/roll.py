"""The wave of one driver: from what its targets found to pods that are replaced and a status. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.rollout_settings import Order
from driver_builder.api.rollout_status import Phase, Wave, previous_wave
from driver_builder.base.reasons import Reason, TargetState
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.image_state import Present
from driver_builder.nodes.changes import PatchNode, Taking, move_node, replace_pod
from driver_builder.nodes.lanes import end, is_complete, is_placing
from driver_builder.nodes.plan_view import DriverView, TargetPart, WavePart
from driver_builder.nodes.standing import (
    Lanes,
    NodeStanding,
    Placed,
    TargetStanding,
    Weighing,
    stand,
    without_image,
)
from driver_builder.objects.slots import Place, Slot
from driver_builder.rollout.plan_target import with_since
from driver_builder.rollout.wave_fleet import Seen
from driver_builder.rollout.wave_labels import restore, with_reached
from driver_builder.rollout.waves import Decision, next_nodes
from driver_builder.snapshot.inventory import Node
from driver_builder.targets.dependencies import NONE
from driver_builder.targets.desired_target import DesiredTarget, SkippedTarget, TargetToBuild

_REASONS = {
    Phase.CANARY: Reason.WAITING_FOR_CANARY,
    Phase.SOAKING: Reason.SOAKING,
    Phase.WAITING: Reason.ROLLOUT_WAITING,
}
"""Why the nodes of a target that have the image of before still have it; otherwise the target says it itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolled(WavePart):
    """``parts`` of the targets, now with the pods that are replaced."""

    parts: tuple[TargetPart, ...]
    requeue_at: float | None = None


def roll(view: DriverView, spec: DriverSpec, parts: Sequence[TargetPart]) -> Rolled:
    """Decide over all targets which pods are replaced."""
    before = previous_wave(view.driver.status)
    if any(_is_overtaken(view, part) for part in parts) and is_complete(view) and not view.is_wave_held:
        return Rolled(parts=tuple(with_since(view, _ended(view, part)) for part in parts))
    parts = [_with_way_back(view, part, before) for part in parts]
    last = view.snapshot.drained_last.get(view.driver.key, frozenset())
    seen = Seen(targets=tuple(part.standing for part in parts if part.standing is not None), last=last)
    if before is not None or any(map(_has_outdated, parts)):
        seen = _with_nodes(view, spec, parts, seen)
    if before is not None:
        seen = replace(seen, imageless=_imageless(view, parts))
    decided = next_nodes(spec.rollout, seen, before, view.snapshot.now)
    if decided.wave is None and before is not None and (any(part.is_remade for part in parts) or restore(view)):
        # Nodes that have lost their label or their DaemonSet seem to have nothing to do with it.
        decided = replace(decided, wave=before)
    rolled = tuple(with_since(view, _with(view, part, decided)) for part in parts)
    kept_out = {node.node for item in seen.targets for node in item.nodes if node.is_kept_out}
    return Rolled(
        parts=rolled,
        wave=with_reached(view, decided.wave, before, kept_out),
        busy=decided.busy,
        taken=decided.taken,
        budgeted=decided.budgeted,
        reserve=tuple(_reserve(view, parts, decided)),
        drained_last=last,
        images=_images(view, parts, decided),
        pulls=decided.pulls,
        placed=_placed(view, seen.targets) if view.dependencies is not NONE else {},
        yielded={node.node: node.works for item in seen.targets for node in item.nodes if node.works is not None},
        requeue_at=decided.requeue_at,
    )


def _is_overtaken(view: DriverView, part: TargetPart) -> bool:
    """Return whether something else is wanted than either DaemonSet of a wave has, and its image is there."""
    standing = part.standing
    pair = view.pairs.get(standing.target) if standing is not None and standing.has_image else None
    if standing is None or pair is None:
        return False
    return standing.fingerprint not in (pair.moved.fingerprint, pair.others.fingerprint)


def _ended(view: DriverView, part: TargetPart) -> TargetPart:
    """End a wave that every node has, before the next one begins: that one returns to what they have."""
    target = next((item.target.short_hash for item in view.wanted if item.target.id == part.status.target), "")
    pair = view.pairs.get(target)
    if pair is None:
        return part
    others = (action for action in part.actions if not is_placing(action))
    return replace(part, actions=(*others, *end(view, part.status.target, pair.moved, pair.others)))


def _placed(view: DriverView, standings: Iterable[TargetStanding]) -> dict[tuple[str, str, str], Placed]:
    wanted = {item.target.short_hash: item for item in view.wanted}
    return {
        wanted[item.target].target.group: Placed(
            target=item.target,
            is_written=item.is_written,
            lanes=item.lanes,
            built_for=_built_for(view, wanted[item.target]),
        )
        for item in standings
        if item.has_image
    }


def _built_for(view: DriverView, item: DesiredTarget) -> dict[DriverKey, str]:
    exporters = item.exporters if isinstance(item, TargetToBuild) else ()
    states = ((exporter, view.snapshot.image(exporter.driver, exporter.image)) for exporter in exporters)
    return {
        exporter.driver: str(exporter.image.at(state.digest))
        for exporter, state in states
        if isinstance(state, Present)
    }


def _with_way_back(view: DriverView, part: TargetPart, before: Wave | None) -> TargetPart:
    """Say where the nodes of a target stand whose image is not there: those that a wave took there can return."""
    if part.standing is not None or not view.pairs:
        return part
    item = next((item for item in view.wanted if item.target.id == part.status.target), None)
    pair = view.pairs.get(item.target.short_hash) if item is not None else None
    if item is None or pair is None:
        return part
    target = item.target
    fingerprint = pair.moved.fingerprint
    is_undone = fingerprint in view.driver.undone
    if not is_undone and (before is None or before.targets.get(target.short_hash) != fingerprint):
        return part
    named = pair.moved.target_label
    lanes = Lanes(front=pair.moved, slot=Slot(pair.moved.slot.name, Place.MOVED), spare=pair.others, front_value=named)
    nodes = [view.nodes[name] for name in item.nodes if name in view.nodes]
    pods = [pod for node in nodes for pod in view.pods_on(node.name) if pod.target == target.short_hash]
    outdated = {pod.uid: False for pod in pods if not pod.deleting and pod.slot != pair.moved.slot.name}
    weighing = Weighing(
        target=target.short_hash,
        driver=view.driver.key,
        outdated=outdated,
        asking=frozenset(),
        lanes=lanes,
    )
    standing = TargetStanding(
        target=target.short_hash,
        fingerprint=fingerprint,
        is_written=False,
        settled=0,
        nodes=stand(nodes, pods, weighing),
        lanes=lanes,
        has_image=False,
        is_undone=is_undone,
    )
    return replace(part, standing=standing)


def _imageless(view: DriverView, parts: Iterable[TargetPart]) -> dict[str, tuple[NodeStanding, ...]]:
    """Return the targets without an image, with their nodes where a driver was loaded and does not work."""
    hashes = {item.target.id: item.target.short_hash for item in view.wanted if not isinstance(item, SkippedTarget)}
    return {
        hashes[part.status.target]: tuple(
            without_image(view.nodes[name], hashes[part.status.target], found.why)
            for name, found in part.evidence.items()
            if not found.works and view.on(view.nodes[name]).may_be_loaded
        )
        for part in parts
        if part.standing is None and part.status.target in hashes
    }


def _has_outdated(part: TargetPart) -> bool:
    found = part.standing
    return found is not None and (bool(found.waiting) or any(node.is_outdated for node in found.nodes))


def _with_nodes(view: DriverView, spec: DriverSpec, parts: Iterable[TargetPart], seen: Seen) -> Seen:
    """Add what the labels say by which an admin names the nodes that go first, and those that may go."""
    settings = spec.rollout
    if not settings.canary_node_selector and settings.order is not Order.NODE_LABEL:
        return seen
    standing = {part.status.target for part in parts if part.standing is not None}
    items = (item for item in view.wanted if item.target.id in standing)
    every = [view.nodes[name] for item in items for name in item.nodes if name in view.nodes]
    return replace(
        seen,
        canary=frozenset(node.name for node in every if _is_selected(node, settings.canary_node_selector)),
        wanted=frozenset(node.name for node in every if view.on(node).wants == spec.version),
    )


def _is_selected(node: Node, selector: Mapping[str, str]) -> bool:
    return bool(selector) and all(node.labels.get(key) == value for key, value in selector.items())


def _reserve(view: DriverView, parts: Iterable[TargetPart], decided: Decision) -> list[Taking]:
    """Return what is done instead where a node is held back, in the order in which the nodes go."""
    lanes = {part.standing.target: part.standing.lanes for part in parts if part.standing is not None}
    return [action for node in decided.reserve for action in _replacements(view, [node], lanes[node.target])]


def _images(view: DriverView, parts: Iterable[TargetPart], decided: Decision) -> dict[str, str]:
    """Return what the nodes get next whose working driver is replaced, now or soon, where they do not run it."""
    lanes = {part.standing.target: part.standing.lanes for part in parts if part.standing is not None}
    brought = {target: _brings(view, target, found) for target, found in lanes.items()}
    next_ones = [node for node in decided.chosen if node.node in decided.budgeted]
    images = {node.node: brought[node.target] for node in (*next_ones, *decided.coming)}
    for node in decided.returned:
        found = lanes[node.target]
        if node.node in decided.budgeted and found is not None and found.spare is not None:
            images[node.node] = found.spare.image
    return {
        node: image
        for node, image in images.items()
        if image and not any(pod.image == image and not pod.deleting for pod in view.pods_on(node))
    }


def _brings(view: DriverView, target: str, lanes: Lanes | None) -> str:
    """Return the image that the DaemonSet of a target brings; empty where there is none yet."""
    front = lanes.front if lanes is not None else view.daemon_sets.get(target)
    return front.image if front is not None else ""


def _with(view: DriverView, part: TargetPart, decided: Decision) -> TargetPart:
    """Add to a target's part the pods of it that are replaced, and why others wait."""
    standing = part.standing
    if decided.wave is None and part.spent is not None and not view.is_wave_held:
        left = standing.lanes.front if standing is not None and standing.lanes is not None else None
        return replace(part, actions=(*part.actions, *end(view, part.status.target, left, part.spent)))
    if standing is None or decided.wave is None:
        return part
    chosen = [node for node in decided.chosen if node.target == standing.target]
    back = [node for node in decided.returned if node.target == standing.target]
    returned = _returned(view, back, standing.lanes)
    part = replace(part, actions=(*part.actions, *_replacements(view, chosen, standing.lanes), *returned))
    gone = {node.node for node in chosen}
    outdated = chain((node.node for node in standing.nodes if node.is_outdated), standing.waiting)
    waiting = any(name not in gone for name in outdated)
    is_brought = standing.target in decided.wave.targets
    if not standing.has_image:
        # What is known of its image says more.
        return part
    if decided.wave.phase is Phase.HALTED and is_brought and part.status.state is not TargetState.READY:
        return part.blocked(Reason.ROLLOUT_HALTED, decided.wave.message)
    reason = _REASONS.get(decided.wave.phase)
    if not waiting or reason is None or part.status.reason != Reason.WAITING_FOR_NODES:
        return part
    words = f"{part.status.ready_nodes} of {part.status.nodes} nodes ready; {decided.wave.message}"
    return part.with_status(reason=reason, message=words)


def _returned(view: DriverView, nodes: Iterable[NodeStanding], lanes: Lanes | None) -> list[PatchNode]:
    """Let nodes have the image of before again, once the status says that they do not get this one another time."""
    if lanes is None:
        return []
    return [_move(view, node, lanes.spare_value, f"back to the image of before: {node.why}") for node in nodes]


def _move(view: DriverView, node: NodeStanding, value: str | None, why: str = "") -> PatchNode:
    action = move_node(node=node.node, driver=view.driver.key, value=value, lets_in=node.is_kept_out)
    return replace(action, why=why, noted=True) if why else action


def _replacements(view: DriverView, chosen: Iterable[NodeStanding], lanes: Lanes | None) -> list[Taking]:
    """Replace pods, or let nodes move.

    Those that only the status records come last: if it is not written, nothing waits behind them.
    """
    chosen = tuple(chosen)
    value = lanes.front_value if lanes else None
    moved: list[Taking] = [
        _move(view, node, value) for node in chosen if node.is_kept_out or (node.moves and lanes is not None)
    ]
    actions: list[Taking] = [
        replace_pod(pod, noted=pod.uid in node.noted) for node in chosen if not node.moves for pod in node.replaced
    ]
    return sorted([*moved, *actions], key=lambda action: action.noted)
