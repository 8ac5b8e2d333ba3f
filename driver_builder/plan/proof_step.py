"""Proves what images' own programs have loaded: a pod per driver pod and boot, whose report makes the node ready. Pure.

The report is in the proof pod itself, which stays as long as its driver pod: a controller that is killed between any
two steps continues from what it sees.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from driver_builder.api.mapping_settings import ContainerSettings, LoadedBy
from driver_builder.nodes import proofs
from driver_builder.nodes.changes import Change, DeleteObject, Taking, delete_tasks, sets_label, takes_driver
from driver_builder.nodes.plan_labels import label_ready
from driver_builder.nodes.plan_view import DriverPlan, DriverView
from driver_builder.objects.driver_keys import driver_keys
from driver_builder.plan.run_tasks import Asked, Case, Work
from driver_builder.snapshot import inventory, pairs
from driver_builder.snapshot.by_driver import of_driver, pods_of, tasks_of
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.node_record import record_of
from driver_builder.snapshot.pairs import Pair
from driver_builder.snapshot.snapshot import DaemonSet, DriverPod, Snapshot
from driver_builder.targets.desired_target import DesiredTarget, PrebuiltTarget
from driver_builder.tasks import proof_pod
from driver_builder.tasks.node_task import Next, NodeTask
from driver_builder.tasks.proof_pod import PROOF
from driver_builder.tasks.task_kind import Json

_MAY_UNLOAD = "an image's own program may unload the modules as its driver pod ends or begins"


def _ask(case: Case) -> Iterator[Asked]:
    """Say what is next for each driver pod that needs a proof."""
    view, by_pod = case.view, _by_pod(case.view)
    seconds = {item.target.short_hash: _seconds(item) for item in view.wanted}
    yield Asked(actions=_without_pod(view, by_pod))
    for node in _nodes(view, by_pod):
        for pod in (pod for pod in view.pods_on(node.name) if pod.program is not None):
            step = proofs.next_of(pod, by_pod.get(pod.uid, ()), node.boot_id, view.snapshot.now)
            starts = step.next is Next.START and pod.target in seconds and node.name not in case.leaving
            before = step.task.uid if step.task is not None else ""
            make = partial(_manifest, view, pod, before, seconds[pod.target]) if starts else None
            yield Asked(actions=delete_tasks(step.gone), pod=make, due_at=step.at)


def without_label(part: DriverPlan, snapshot: Snapshot) -> DriverPlan:
    """Remove the ready label before a pod is taken where a program loads the modules, or is to: either may unload them.

    Between two pods of our own loader they stay, or are replaced in a moment. Where the status has to be written first,
    the label goes with the pod.
    """
    taking = [action for action in part.actions if takes_driver(action) and not action.noted]
    if not taking:
        return part
    own, nodes = pods_of(snapshot.pods, part.driver.key), inventory.by_name(snapshot.nodes)
    every = of_driver(snapshot.daemon_sets, part.driver.key)
    known = pairs.pairs(every)
    owners = {(item.target, item.slot.name): item for item in every}
    ending = {action.node for action in taking if any(_ends(action, pod, owners, known) for pod in own.on(action.node))}
    if not ending:
        return part
    label = driver_keys(part.driver.key).ready
    actions: list[Change] = []
    for action in part.actions:
        if sets_label(action, label) and action.node in ending:
            # It may record what is loaded there as well.
            ending.remove(action.node)
            gone = {**action.annotations, label: None}
            actions.append(replace(action, why=_MAY_UNLOAD, labels={label: None}, annotations=gone))
        else:
            actions.append(action)
    left = (record_of(nodes[name], part.driver.key) for name in sorted(ending) if name in nodes)
    gone_there = (label_ready(on, None, _MAY_UNLOAD) for on in left if on.ready is not None)
    return replace(part, actions=(*gone_there, *actions))


def _ends(
    action: Taking, pod: DriverPod, owners: Mapping[tuple[str, str], DaemonSet], known: Mapping[str, Pair]
) -> bool:
    """Return whether an action ends a pod with a program, which still runs, or one that a program follows."""
    if isinstance(action, DeleteObject):
        comes, is_ending = owners.get((pod.target, pod.slot)), pod.uid == action.uid
    else:
        comes = known[pod.target].named(action.moved_to) if pod.target in known else None
        is_ending = comes is not None and comes.slot.name != pod.slot
    has_program = pod.program is not None or (comes is not None and comes.has_program)
    return is_ending and has_program and not pod.deleting


def _nodes(view: DriverView, by_pod: Mapping[str, list[NodeTask]]) -> Iterable[Node]:
    """Return the nodes that are not ordinary, and those with a proof pod too many."""
    double = {found[0].node for found in by_pod.values() if len(found) > 1}
    several = (view.nodes[name] for name in sorted(double) if name in view.nodes)
    return {node.name: node for node in (*view.others, *several)}.values()


def _by_pod(view: DriverView) -> Mapping[str, list[NodeTask]]:
    by_pod: dict[str, list[NodeTask]] = {}
    for item in tasks_of(view.snapshot.tasks, view.driver.key, PROOF):
        by_pod.setdefault(item.subject, []).append(item)
    return by_pod


def _without_pod(view: DriverView, by_pod: Mapping[str, list[NodeTask]]) -> tuple[Change, ...]:
    """Delete the proofs whose driver pods are gone."""
    there = {pod.uid for pod in view.own_pods} if by_pod else set()
    return delete_tasks(item for uid, found in by_pod.items() if uid not in there for item in found)


def _seconds(item: DesiredTarget) -> float:
    """Return how long an image's own program may take; one that is there still may be wanted no longer."""
    if isinstance(item, PrebuiltTarget) and item.vendor.loader is LoadedBy.IMAGE:
        return item.vendor.container.timeout_seconds
    return ContainerSettings().timeout_seconds


def _manifest(view: DriverView, pod: DriverPod, before: str, seconds: float) -> Json:
    return proof_pod.manifest(
        view.driver,
        node=pod.node,
        of_pod=pod.uid,
        before=before,
        environment=dict(pod.program.environment) if pod.program is not None else {},
        image=view.settings.loader_image,
        seconds=seconds,
    )


PROVE = Work(kind=PROOF, ask=_ask, end=lambda view: _without_pod(view, _by_pod(view)))
