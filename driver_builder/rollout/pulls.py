"""Whether a node has its next image before its working driver is replaced, and what keeps it from there. Pure.

Place in the flow: :mod:`driver_builder.rollout.roll` says which image a node gets next;
:func:`driver_builder.rollout.fleet.admit` holds back the nodes where it is not proven, so that the wave takes others;
:func:`driver_builder.rollout.prepare.prepare` makes and ends the pull pods. All that is known of a pull is its pod.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from driver_builder.api.rollout_status import Phase
from driver_builder.nodes.changes import Change, RunTask, delete_tasks
from driver_builder.nodes.plan_view import DriverPlan
from driver_builder.snapshot.by_driver import tasks_of
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.tasks import pull_pod
from driver_builder.tasks.node_task import Limits, Next, NodeTask, Wanted, task_step
from driver_builder.tasks.pull_pod import PULL
from driver_builder.tasks.task_kind import State

SLOW_SECONDS = 600.0
"""A pull that takes longer is reported, and other nodes are pulled for in place of this one; it goes on."""
AGAIN_SECONDS = 60.0
"""So long a pod that ended without the image is left there: the node refuses the next one perhaps as fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulls:
    """The pull pods of all drivers by driver and node, as they are ``now``."""

    pods: Mapping[tuple[str, str], tuple[NodeTask, ...]] = field(default_factory=dict)
    now: float = 0.0

    @classmethod
    def of(cls, tasks: Iterable[NodeTask], now: float, nodes: Mapping[str, Node] | None = None) -> "Pulls":
        """Find the pulls among tasks; those that are being deleted prove nothing any more."""
        found: dict[tuple[str, str], tuple[NodeTask, ...]] = {}
        for pod in tasks:
            if pod.kind == PULL.name and not pod.deleting:
                place = (pod.driver, pod.node)
                found[place] = (*found.get(place, ()), _believed(pod, (nodes or {}).get(pod.node)))
        return cls(pods=found, now=now)

    def find(self, driver: str, node: str, image: str) -> NodeTask | None:
        """Return the pod that brings an image to a node."""
        return next((pod for pod in self.pods.get((driver, node), ()) if pod.subject == image), None)

    def is_proven(self, driver: str, node: str, image: str) -> bool:
        """Return whether a node has an image: a container has run with it, and its pod keeps it there."""
        pod = self.find(driver, node, image)
        return pod is not None and pod.state is State.SUCCEEDED

    def trouble(self, pod: NodeTask) -> str:
        """Return what prevents a pull; empty while it may succeed."""
        if pod.state is State.SUCCEEDED:
            return ""
        if pod.message or pod.has_ended:
            return pod.message or "its pod has ended"
        is_slow = self.now >= pod.created_at + SLOW_SECONDS
        return f"it is not there after {SLOW_SECONDS / 60:.0f} minutes" if is_slow else ""

    def is_over(self, pod: NodeTask) -> bool:
        """Return whether a pod has ended without the image, and is made anew."""
        limits = Limits(retry_at=lambda failed: failed.created_at + AGAIN_SECONDS)
        return task_step((pod,), Wanted(subject=pod.subject), self.now, limits).next is Next.DELETE

    def next_look(self, pod: NodeTask) -> float | None:
        """Return when a pull has to be looked at although nothing changes."""
        at = pod.created_at + (AGAIN_SECONDS if pod.has_ended else SLOW_SECONDS)
        return None if pod.state is State.SUCCEEDED or at <= self.now else at

    def failure(self, driver: str, node: str, image: str) -> str:
        """Return what prevents the pull of an image to a node; empty if nothing is known to."""
        pod = self.find(driver, node, image)
        return self.trouble(pod) if pod is not None else ""


def _believed(pod: NodeTask, node: Node | None) -> NodeTask:
    """Return a pod without its proof if its node had too little disk space since.

    Its kubelet then removes containers that have ended, and images that none uses any more. Both times are of the
    node's own clock.
    """
    changed = node.disk_changed if node is not None else None
    if pod.state is not State.SUCCEEDED or changed is None or pod.ended_at is None or changed <= pod.ended_at:
        return pod
    return replace(pod, state=State.FAILED, message="the node had DiskPressure since it was pulled")


class _Turns:
    """How many nodes have their image or get it, for the driver's own wave and for each other one that needs it."""

    def __init__(self, part: DriverPlan) -> None:
        self._waves = part.pulled_for or ((frozenset(part.images), part.pulls),)
        self._taken = [0] * len(self._waves)

    def has_room(self, node: str) -> bool:
        """Return whether a wave that needs the image on a node may have one more."""
        return any(self._taken[number] < min(self._waves[number][1], PULL.most) for number in self._of(node))

    def take(self, node: str) -> None:
        """Note that a node has its image, or gets it."""
        for number in self._of(node):
            self._taken[number] += 1

    def _of(self, node: str) -> list[int]:
        return [number for number, (nodes, _) in enumerate(self._waves) if node in nodes]


def with_pulls(part: DriverPlan, snapshot: Snapshot, pulls: Pulls, loader_image: str) -> DriverPlan:
    """Bring images to the nodes that wait for them, and end the pulls that nothing waits for any more.

    A pod stays until the driver is proven on its node: it keeps the image there.
    """
    driver = part.driver
    existing = tasks_of(snapshot.tasks, driver.key, PULL)
    if part.trouble is not None or not (existing or part.images):
        return part
    actions: list[Change] = []
    existing_names = {pod.name for pod in existing}
    times = [part.requeue_at]
    kept: set[str] = set()
    turns = _Turns(part)
    # Until the canary is proven, no node is next after those that go.
    is_canary = part.wave is not None and part.wave.phase is Phase.CANARY
    for node, image in part.images.items():
        pod = pulls.find(driver.key, node, image)
        if pod is not None and (node in part.budgeted or not pulls.is_over(pod)):
            kept.add(pod.uid)
            times.append(pulls.next_look(pod))
        if node in part.budgeted:
            if is_canary:
                turns.take(node)
            continue
        if pod is None and turns.has_room(node):
            manifest = pull_pod.manifest(driver, node=node, image=image, loader_image=loader_image)
            # One that is being deleted has its name until then.
            if manifest["metadata"]["name"] not in existing_names:
                actions.append(RunTask(kind=PULL, driver=driver.key, manifest=manifest))
            turns.take(node)
        elif pod is not None and not pulls.trouble(pod):
            turns.take(node)
    at_work = part.busy | part.budgeted
    actions += delete_tasks(
        pod for pod in existing if pod.uid not in kept and not (pod.state is State.SUCCEEDED and pod.node in at_work)
    )
    return replace(
        part,
        actions=(*part.actions, *actions),
        requeue_at=min((time for time in times if time is not None), default=None),
    )
