"""What is recorded on Nodes that keep their driver: what is loaded there now. Pure.

Place in the flow: ``plan`` passes the labels that it is going to set; the record of the same node goes into the same
patch. An unload pod removes firmware and blacklist that an earlier kernel has left on a node.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from driver_builder.nodes.changes import Change, delete_tasks, sets_label
from driver_builder.nodes.plan_view import DriverView
from driver_builder.objects import loaded
from driver_builder.objects.loaded import Load, Loaded
from driver_builder.plan import removal
from driver_builder.plan.unload_step import pods_on, remembering, start
from driver_builder.snapshot.inventory import Node
from driver_builder.tasks.node_task import Limits, Next, NodeTask, TaskStep, Wanted, task_step
from driver_builder.tasks.task_kind import State
from driver_builder.tasks.unload_pod import UNLOAD

_RETRY_SECONDS = 300.0


def remember(view: DriverView, nodes: Iterable[str], labels: Sequence[Change]) -> tuple[Change, ...]:
    """Return the labels together with the records, and records of nodes without a new label."""
    targets = _targets(view)
    texts = {name: _text(view, view.nodes[name], targets) for name in nodes}
    texts = {name: text for name, text in texts.items() if text != view.on(view.nodes[name]).loaded_text}
    made: list[Change] = []
    for action in labels:
        if sets_label(action, view.keys.ready) and action.node in texts:
            known = {view.keys.loaded: texts.pop(action.node)}
            made.append(replace(action, annotations={**action.annotations, **known}))
        else:
            made.append(action)
    why = "its driver pod has reported"
    return (*made, *(remembering(view.on(view.nodes[name]), text, why) for name, text in texts.items()))


def clean_up(view: DriverView, nodes: Iterable[str]) -> tuple[Change, ...]:
    """Run unload pods on nodes that keep their driver: for files of targets that they have left."""
    actions: list[Change] = []
    targets = _targets(view)
    for node in (view.nodes[name] for name in nodes):
        tasks, left = view.tasks_of(UNLOAD).get(node.name, ()), _left_files(view, node, targets)
        found = [(load, _step(view, tasks, load)) for load in left]
        gone = {id(task) for _, step in found for task in step.gone}
        names = {load.target for load in left}
        actions += delete_tasks(task for task in tasks if task.subject not in names or id(task) in gone)
        actions += [start(view, node, replace(load, modules=())) for load, step in found if step.next is Next.START]
    return tuple(actions)


def _step(view: DriverView, tasks: Iterable[NodeTask], load: Load) -> TaskStep:
    own = [task for task in tasks if task.subject == load.target]
    limits = Limits(retry_at=lambda task: task.over_at + _RETRY_SECONDS)
    return task_step(own, Wanted(subject=load.target), view.snapshot.now, limits)


def _targets(view: DriverView) -> dict[str, str]:
    """Return the targets of nodes that are not ordinary, with the version of the operating system recorded for it."""
    return {node: item.target.short_hash for item in view.wanted for node in view.weighed(item)}


def _left_files(view: DriverView, node: Node, targets: Mapping[str, str]) -> list[Load]:
    """Return what has files on a node although its boot or its target is gone."""
    known = view.on(node).loaded
    if known is None or node.boot_id is None or node.name not in targets:
        return []
    here = {targets[node.name], *(pod.target for pod in pods_on(view, node))}
    return [load for load in known.loads if load.has_files and load.boot_id != node.boot_id and load.target not in here]


def _text(view: DriverView, node: Node, targets: Mapping[str, str]) -> str | None:
    known = view.on(node).loaded
    reported = [pod for pod in pods_on(view, node) if pod.proof is not None]
    now = removal.with_pods(view, node, Loaded() if known is None else known.settled, reported)
    left = {load.target for load in _left_files(view, node, targets)}
    for task in view.tasks_of(UNLOAD).get(node.name, ()):
        if task.subject in left and task.state is State.SUCCEEDED:
            now = now.without(task.subject)
    if known is not None and not view.validation.has_command:
        # No Node is written for a fingerprint alone before a validation may ask for it.
        now = now.as_written(known)
    return loaded.render(now) if now.loads else None
