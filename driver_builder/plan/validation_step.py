"""Runs the command of ``spec.validation`` once per node and boot, and records how it ended. Pure.

What is known is on the Node and in the validation pod, so a controller that is killed between any two steps continues:
create the pod, record its end on the Node (with the label, in one patch), delete it. The last pod of a command that
failed for good stays, for its log.
"""

from collections.abc import Iterable, Iterator, Set
from functools import partial

from driver_builder.nodes.changes import ApplyObject, Change, delete_tasks, replace_pod
from driver_builder.nodes.evidence import Finding
from driver_builder.nodes.plan_labels import evidence_of_weighed, validation_of
from driver_builder.nodes.plan_view import DriverView, TargetPart
from driver_builder.nodes.validation import UNCHECKED, CommandRecord
from driver_builder.plan.run_tasks import Asked, Case, Work
from driver_builder.snapshot.inventory import Node
from driver_builder.targets import permissions
from driver_builder.tasks import validation_pod
from driver_builder.tasks.node_task import Next
from driver_builder.tasks.validation_pod import VALIDATION


def _ask(case: Case) -> Iterator[Asked]:
    """Say what is next on each node that is not ordinary; nodes without a label come first."""
    names, settled = evidence_of_weighed(case.view, case.parts).keys() - case.leaving, _settled(case.parts)
    is_allowed = not permissions.of_validation(case.spec, case.view.settings.template_versions.permissions)
    for node in _nodes(case.view):
        yield _asked(case, node, settled, is_wanted=node.name in names, is_allowed=is_allowed)


def _nodes(view: DriverView) -> Iterable[Node]:
    """Return the nodes that are not ordinary; where nothing is validated, those with something left of it."""
    if view.validation.is_set:
        return view.others
    pods = view.tasks_of(VALIDATION)
    return [node for node in view.others if view.on(node).has_validation or node.name in pods]


def _settled(parts: Iterable[TargetPart]) -> frozenset[str]:
    """Return the nodes whose pods have what is wanted, once their DaemonSet is as wanted too."""
    return frozenset(
        node.node
        for part in parts
        if part.standing is not None and part.standing.is_written
        if not any(isinstance(action, ApplyObject) for action in part.actions)
        for node in part.standing.nodes
        if not node.is_outdated
    )


def _asked(case: Case, node: Node, settled: Set[str], *, is_wanted: bool, is_allowed: bool) -> Asked:
    """Say what is next on a node; those in ``settled`` have what is wanted."""
    view = case.view
    found = validation_of(view, node) if is_wanted else None
    if found is None or found.pod.deleting:
        return Asked(actions=_ended(view, node, keeps_record=is_wanted and view.validation.has_command))
    works = found.finding is Finding.WORKS
    if works and found.is_unchecked and not found.is_labelled and node.name in settled:
        return Asked(actions=(replace_pod(found.pod, why=UNCHECKED),))
    if found.progress is None:
        return Asked(actions=_ended(view, node))
    # Not against a driver that is labelled, and about to be replaced by another.
    may_start = works and (not found.is_labelled or node.name in settled)
    step, subject = found.progress.step, found.progress.record.subject
    make = partial(validation_pod.manifest, view.driver, case.spec, node=node.name, subject=subject)
    return Asked(
        actions=_record(view, node).go_on(found.progress, "the validation pod ended"),
        pod=make if is_allowed and may_start and step.next is Next.START else None,
        rank=(found.is_labelled, node.name),
        due_at=step.at if may_start else None,
    )


def _record(view: DriverView, node: Node) -> CommandRecord:
    return CommandRecord(view.on(node), view.keys.validated)


def _ended(view: DriverView, node: Node, *, keeps_record: bool = False) -> tuple[Change, ...]:
    """Delete the pods of a node where nothing is validated, and its record if the driver is not wanted there."""
    tasks = view.tasks_of(VALIDATION).get(node.name, ())
    return delete_tasks(tasks) if keeps_record else _record(view, node).forget(tasks, "nothing is validated there")


def _end(view: DriverView) -> Iterator[Change]:
    for node in view.nodes.values():
        yield from _ended(view, node)


VALIDATE = Work(kind=VALIDATION, ask=_ask, end=_end)
