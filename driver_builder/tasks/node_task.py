"""A task as it is: a pod that does one thing on one node, and what comes next of it. Pure.

Which task a node needs, and what its report means there, is its kind's own file in ``nodes``, ``plan`` or ``rollout``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from driver_builder.model.driver_key import DriverKey
from driver_builder.objects.load_report import LoadReport
from driver_builder.tasks.task_kind import PodEnd, State, TaskKind

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTask:
    """The pod of a task; ``driver`` is its driver's key, ``subject`` what it is about, ``message`` why it does not run.

    ``ended_at`` is when its container ended, None where the kubelet has not said it. A pull has ``SUCCEEDED`` as soon
    as the image is there.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    driver: DriverKey
    node: str
    subject: str
    deleting: bool = False
    created_at: float = 0.0
    state: State = State.PENDING
    ended_at: float | None = None
    message: str = ""
    report: LoadReport | None = None

    @property
    def has_ended(self) -> bool:
        """Return whether its outcome is known."""
        return self.state not in (State.PENDING, State.RUNNING)

    @property
    def over_at(self) -> float:
        """When it ended, at the earliest: where the kubelet has not said it, when it was created."""
        return self.created_at if self.ended_at is None else self.ended_at


def read(obj: Json, kind: TaskKind, **common: Any) -> NodeTask:
    """Read a pod of a kind; ``common`` are the fields that all pods of ours have."""
    pod = PodEnd(obj, kind.container)
    state, message, report = kind.outcome(pod)
    return NodeTask(
        **common,
        kind=kind.name,
        subject=kind.subject(obj) if kind.subject is not None else obj["metadata"]["labels"][kind.label],
        created_at=pod.created_at,
        state=state,
        ended_at=pod.ended_at,
        message=message,
        report=report,
    )


class Next(StrEnum):
    """What comes next of a task."""

    NOTHING = "nothing"
    START = "start"
    WAIT = "wait"
    TAKE = "take the report"
    DELETE = "delete"
    GIVE_UP = "give up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The task that a node needs: what it is about, and what is recorded of it already.

    ``recorded`` is the uid of the pod whose failure is; None where failures are not. ``known`` says that it has
    succeeded, or failed for good.
    """

    subject: str
    recorded: str | None = None
    known: State | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a task may start, when one that failed is tried again, and when it is given up.

    One that its kubelet has not seen after ``unseen`` seconds is given up as well: the node does not answer.
    """

    retry_at: Callable[[NodeTask], float] = lambda _task: 0.0
    start_at: float = 0.0
    until: float = math.inf
    unseen: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStep:
    """What comes next, of which pod if there is one; it is looked at again at the time ``at``.

    ``gone`` are the pods that nothing waits for: those of other subjects, and one that is over.
    """

    next: Next
    task: NodeTask | None = None
    gone: tuple[NodeTask, ...] = ()
    at: float | None = None


def task_step(tasks: Sequence[NodeTask], wanted: Wanted | None, now: float, limits: Limits) -> TaskStep:
    """Decide what comes next of a kind of task on a node that has these pods of it, none of them twice."""
    subject = wanted.subject if wanted is not None else None
    task = next((item for item in tasks if item.subject == subject), None)
    others = tuple(item for item in tasks if item is not task and not item.deleting)
    if wanted is None:
        return TaskStep(next=Next.NOTHING, gone=others)
    if task is None or task.deleting or not task.has_ended:
        then, at = _before_its_end(task, wanted, now, limits, is_free=not tasks)
    else:
        then, at = _after_its_end(task, wanted, now, limits)
    gone = (*others, task) if task is not None and then is Next.DELETE else others
    return TaskStep(next=then, task=task, gone=gone, at=at)


def _before_its_end(
    task: NodeTask | None, wanted: Wanted, now: float, limits: Limits, *, is_free: bool
) -> tuple[Next, float | None]:
    if wanted.known is not None:
        return Next.NOTHING, None
    is_pending = task is not None and task.state is State.PENDING and not task.deleting
    since = task.created_at if task is not None and is_pending else math.inf
    if now >= limits.until or now >= since + limits.unseen:
        return Next.GIVE_UP, None
    if not is_free:
        # A pod of another subject may have its name.
        return Next.WAIT, None
    return (Next.START, None) if now >= limits.start_at else (Next.WAIT, limits.start_at)


def _after_its_end(task: NodeTask, wanted: Wanted, now: float, limits: Limits) -> tuple[Next, float | None]:
    if wanted.known is State.SUCCEEDED:
        return Next.DELETE, None
    is_news = task.uid != wanted.recorded if wanted.recorded is not None else task.state is State.SUCCEEDED
    if is_news:
        return Next.TAKE, None
    if wanted.known is State.FAILED:
        # The last one stays, for its log.
        return Next.NOTHING, None
    if now >= limits.until:
        return Next.GIVE_UP, None
    at = limits.retry_at(task)
    return (Next.DELETE, None) if now >= at else (Next.WAIT, at)
