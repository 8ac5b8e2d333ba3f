"""Runs tasks on the nodes of one driver, each kind within its limit. Pure.

Place in the flow: ``plan`` adds these actions once every target is decided. Each kind says what is next on which node;
those that belong to removals, stages and waves are run by these.
"""

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.nodes.changes import Change, RunTask
from driver_builder.nodes.plan_view import DriverView, TargetPart
from driver_builder.tasks.task_kind import Json, TaskKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What decides on the tasks of a driver, which is ``leaving`` some nodes."""

    view: DriverView
    spec: DriverSpec
    parts: tuple[TargetPart, ...]
    leaving: Set[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What comes next on a node: actions, or a pod if there is room for it; those of the lowest ``rank`` come first."""

    actions: tuple[Change, ...] = ()
    pod: Callable[[], Json] | None = None
    rank: tuple[object, ...] = ()
    due_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A kind of task: what is next on nodes, and what is removed of it with the driver."""

    kind: TaskKind
    ask: Callable[[Case], Iterable[Asked]]
    end: Callable[[DriverView], Iterable[Change]]


def run(work: Work, case: Case) -> tuple[tuple[Change, ...], float | None]:
    """Return what comes next of a kind on all nodes, and when to look again."""
    asked, view = tuple(work.ask(case)), case.view
    waiting = sorted((item for item in asked if item.pod is not None), key=lambda item: item.rank)
    pods = (item.pod() for item in waiting[: view.room(work.kind)] if item.pod is not None)
    return (
        *(action for item in asked for action in item.actions),
        *(RunTask(kind=work.kind, driver=view.driver.key, manifest=pod) for pod in pods),
    ), min((item.due_at for item in asked if item.due_at is not None), default=None)
