"""How a driver leaves a node for good: label, DaemonSet, modules and files, in this order. Pure.

Place in the flow: ``plan`` asks which nodes a driver leaves and adds these actions. All progress is recorded in the
Node's own annotation (:mod:`driver_builder.objects.loaded`): written in the same patch that
removes the ready label, it says what is to be unloaded and since when. Then the DaemonSet is deleted, then an
unload pod does its work and is deleted with the annotation. What cannot be unloaded before the deadline stays loaded
until the node boots again; that is reported, and nothing waits for it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from driver_builder.api.unloading import Unloading
from driver_builder.model.kernels import KernelTarget
from driver_builder.nodes import held_out
from driver_builder.nodes.changes import Change, DeleteObject, PatchNode, RunTask, delete_daemon_set, patch_node
from driver_builder.nodes.plan_labels import label_ready
from driver_builder.nodes.plan_view import DriverView, TargetPart
from driver_builder.nodes.pod_loads import load_of
from driver_builder.objects import loaded
from driver_builder.objects.load_report import LOADED
from driver_builder.objects.loaded import UNREADABLE, Loaded
from driver_builder.plan.unload_step import IN_USE, STAYS, WAITING, Step, pods_on, remember, step
from driver_builder.snapshot import inventory
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import DriverPod
from driver_builder.targets.desired_target import DesiredTarget, SkippedTarget
from driver_builder.tasks.unload_pod import UNLOAD
from kube_api import names

OUTSIDE_SECONDS = 600
"""How long a node keeps a driver that no longer selects it: labels may come back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Changes for the nodes that a driver leaves.

    ``holds`` are those whose DaemonSet has to stay for now: they still have the label, or no record yet.
    """

    actions: tuple[Change, ...] = ()
    holds: frozenset[str] = frozenset()
    unloading: Unloading = field(default_factory=Unloading)
    requeue_at: float | None = None

    @property
    def is_done(self) -> bool:
        """Return whether nothing is left to do: everything is unloaded, or stays until the next boot."""
        return not self.actions and not self.unloading.waiting and not self.unloading.in_use


def with_pods(view: DriverView, node: Node, known: Loaded, pods: Iterable[DriverPod]) -> Loaded:
    """Add what pods have loaded on a node in this boot."""
    for pod in pods:
        load = load_of(view, node, pod)
        if load is not None and node.is_on_boot(load.boot_id):
            known = known.with_load(load, is_proven=pod.proof is not None and pod.proof.result == LOADED)
    return known


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """Nodes that a driver leaves for good; the actions record since when others are outside its selector.

    Those are ``loaded`` while the same boot has their modules: their ready label stays for now.
    """

    nodes: frozenset[str]
    outside: frozenset[str] = frozenset()
    """Those that are outside the selector, and not for long, or have lost the labels of their kernel."""
    loaded: frozenset[str] = frozenset()
    actions: tuple[Change, ...] = ()
    requeue_at: float | None = None


def leaving(view: DriverView, wanted: Iterable[DesiredTarget]) -> Leaving:
    """Return the nodes that a driver leaves: their kernel is skipped, or it has not selected them for long."""
    wanted = tuple(wanted)
    skipped = [item for item in wanted if isinstance(item, SkippedTarget)]
    gone = {node for item in skipped for node in item.nodes}
    # Ordinary nodes are not looked at.
    selected = {node for item in wanted for node in view.weighed(item)}
    due: dict[str, float] = {}
    still: set[str] = set()
    nameless: set[str] = set()
    actions: list[Change] = []
    for node in view.others:
        written = view.on(node).loaded
        known = _with_reports(view, node, written) if node.name not in selected else None
        if known is None:
            continue
        is_loaded = any(load.is_live(node.boot_id) for load in known.loads)
        if not isinstance(inventory.target_of(node), KernelTarget):
            # Without its labels a node's kernel is unknown: that is no reason to remove its driver.
            if is_loaded and not view.pods_on(node.name):
                nameless.add(node.name)
                actions += held_out.keep_out(view, node, "it has lost the labels of its kernel")
            if known != written:
                actions.append(remember(view, node, known, "its driver pod has reported"))
            continue
        since = _since(view, known.outside_since)
        if view.snapshot.now >= since + OUTSIDE_SECONDS:
            gone.add(node.name)
            continue
        due[node.name] = since + OUTSIDE_SECONDS
        if is_loaded:
            still.add(node.name)
            actions += held_out.keep_out(view, node, "the driver no longer selects it")
        outside = replace(known, outside_since=since)
        if outside != written:
            actions.append(remember(view, node, outside, "the driver no longer selects it"))
    return Leaving(
        nodes=frozenset(gone),
        outside=frozenset(due).union(nameless),
        loaded=frozenset(still),
        actions=tuple(actions),
        requeue_at=min(due.values(), default=None),
    )


def _with_reports(view: DriverView, node: Node, known: Loaded | None) -> Loaded | None:
    """Add to a Node's record what its pods have reported since: the node may have left before that was recorded."""
    reported = [pod for pod in pods_on(view, node) if pod.proof is not None]
    if known is not None and known.given_up == UNREADABLE:
        return known
    found = with_pods(view, node, Loaded() if known is None else known, reported)
    found = found if known is None else found.as_written(known)
    return found if known is not None or found.loads else None


def yielding(
    view: DriverView, outside: Collection[str], parts: Iterable[TargetPart]
) -> tuple[frozenset[str], tuple[PatchNode, ...]]:
    """Return the nodes that a driver leaves while one that it depends on is replaced there.

    Its pods are kept from those ``outside`` its selector too, and for a while from some that have returned. A label
    that nothing explains is removed: nothing else would let the driver come back.
    """
    labelled = [node for node in view.others if view.on(node).is_kept_away]
    known = {node.name for node in labelled if view.on(node).is_to_yield and not view.on(node).is_held_out}
    unwanted = [node for node in labelled if node.name not in known and node.name not in outside]
    if not unwanted:
        return frozenset(known), ()
    returned = held_out.returned(view, parts)
    unnamed = f"annotation {names.YIELDING_ANNOTATION} does not name the driver"
    may_come = "its driver pod may come: it takes no module away"
    return frozenset(known), tuple(
        patch_node(on, may_come if on.is_held_out else unnamed, labels={on.keys.yields: None})
        for on in map(view.on, unwanted)
        if on.node.name not in returned
    )


def left(view: DriverView, others: Collection[str]) -> Iterator[str]:
    """Return the nodes besides ``others`` that the driver has left, and where an unload pod is left of that."""
    for name in sorted(view.tasks_of(UNLOAD)):
        if name in view.nodes and name not in others and view.on(view.nodes[name]).loaded is None:
            yield name


def remove(view: DriverView, nodes: Iterable[str]) -> Removal:
    """Remove the driver from some nodes, step by step."""
    chosen = [view.nodes[name] for name in sorted(nodes) if name in view.nodes]
    preparing = {node.name: actions for node in chosen if (actions := _prepare(view, node))}
    steps = {
        node.name: Step(actions=preparing[node.name], state=WAITING) if node.name in preparing else step(view, node)
        for node in chosen
    }
    steps = _limited(view, steps)
    # In the patch that ends the record.
    over = (view.nodes[name] for name, item in steps.items() if any(_is_end(view, action) for action in item.actions))
    let_in = (action for node in over for action in held_out.let_in(view, node, "the driver has left it"))
    return Removal(
        actions=(*(action for item in steps.values() for action in item.actions), *let_in),
        holds=frozenset(preparing),
        unloading=Unloading(
            waiting=_in_state(steps, WAITING), in_use=_in_state(steps, IN_USE), stays=_in_state(steps, STAYS)
        ),
        requeue_at=min((item.requeue_at for item in steps.values() if item.requeue_at is not None), default=None),
    )


def forget_outside(view: DriverView) -> tuple[PatchNode, ...]:
    """Remove the label that keeps pods from nodes of which nothing is recorded."""
    nodes = (node for node in view.nodes.values() if view.on(node).is_kept_away)
    why = "the driver is gone"
    return tuple(
        action for node in nodes if view.on(node).loaded is None for action in held_out.let_in(view, node, why)
    )


def _is_end(view: DriverView, action: Change) -> bool:
    return isinstance(action, PatchNode) and action.annotations.get(view.keys.loaded, "") is None


def delete_daemon_sets(view: DriverView, targets: Iterable[str]) -> tuple[DeleteObject, ...]:
    """Delete the DaemonSets of some targets."""
    chosen = set(targets)
    own = [*view.daemon_sets.values(), *(pair.others for pair in view.pairs.values())]
    found = sorted((item for item in own if item.target in chosen), key=lambda item: (item.target, item.name))
    return tuple(map(delete_daemon_set, found))


def _limited(view: DriverView, steps: Mapping[str, Step]) -> dict[str, Step]:
    """Start no more pods than there is room for."""
    left = view.room(UNLOAD)
    made = {}
    for name, item in steps.items():
        starts = any(isinstance(action, RunTask) for action in item.actions)
        made[name] = replace(item, actions=()) if starts and left <= 0 else item
        left -= starts
    return made


def _prepare(view: DriverView, node: Node) -> tuple[Change, ...]:
    """Remove the ready label and record what is to be unloaded, in one patch: before anything else."""
    known, has_label = view.on(node).loaded, view.on(node).ready is not None
    pods = pods_on(view, node)
    if known is None and not pods and node.name not in view.orphans:
        # A pod of a version that unloads by itself was here, or none at all.
        return (_unlabel(view, node, None),) if has_label else ()
    wanted = known if known is not None and not (known.given_up == UNREADABLE and pods) else Loaded()
    if wanted.unload_since is None:
        wanted = with_pods(view, node, wanted, pods)
    since = _since(view, wanted.unload_since)
    wanted = replace(wanted, unload_since=since)
    if has_label:
        return (_unlabel(view, node, loaded.render(wanted)),)
    return () if wanted == known else (remember(view, node, wanted, "the driver leaves it"),)


def _since(view: DriverView, known: int | None) -> int:
    """Return when something began: now, unless it is known. Nothing begins in the future."""
    now = int(view.snapshot.now)
    return now if known is None or known > now + 60 else known


def _in_state(steps: Mapping[str, Step], state: str) -> dict[str, str]:
    return {name: item.words for name, item in steps.items() if item.state == state}


def _unlabel(view: DriverView, node: Node, memory: str | None) -> PatchNode:
    made = label_ready(view.on(node), None, "the driver leaves the node")
    return made if memory is None else replace(made, annotations={**made.annotations, view.keys.loaded: memory})
