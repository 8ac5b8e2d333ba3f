"""A kind of task that no product file knows: a row, what is wanted of it, and what its report means."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from driver_builder.cli.plan_summary import verb
from driver_builder.nodes.changes import Change, PatchNode, RunTask, delete_tasks
from driver_builder.nodes.plan_view import DriverView
from driver_builder.objects import validated
from driver_builder.plan.plan import WORKS
from driver_builder.plan.run_tasks import Asked, Case, Work
from driver_builder.snapshot.inventory import Node
from driver_builder.tasks import task_pod
from driver_builder.tasks.kinds import KINDS
from driver_builder.tasks.node_task import Limits, Next, NodeTask, Wanted, task_step
from driver_builder.tasks.task_kind import Json, Outcome, PodEnd, State, TaskKind
from kube_api.client import Object
from kube_api.resources import NODES, PODS
from kube_api.timestamps import timestamp
from tests.support.driver_builder.factories import KERNEL, NAMESPACE
from tests.support.driver_builder.model_world import World
from tests.support.driver_builder.worlds import DRIVER_PATH

RECORD = f"{validated.PREFIX}{NAMESPACE}.edu.burn-in"
RETRY_SECONDS = 60.0


def outcome(pod: PodEnd) -> Outcome:
    """Read the exit code of the test."""
    if not pod.has_ended:
        return Outcome(pod.under_way, pod.trouble)
    return Outcome(State.FAILED if pod.ended.get("exitCode") else State.SUCCEEDED, pod.failure("the test"))


BURN_IN = TaskKind(
    name="burn-in", verb="test", container="test", outcome=outcome, most=1, word="burnin",
    does="test {driver} on", group="validate",
)  # fmt: skip


def manifest(view: DriverView, node: Node) -> Json:
    """Build the pod that tests a node once per boot."""
    test = task_pod.container(BURN_IN, image="r.io/test:1", command=("/test",), context={})
    key, boot_id = view.driver.key, node.boot_id or ""
    return task_pod.manifest(BURN_IN, key, node=node.name, label=boot_id, owner=view.driver, containers=(test,))


def remember(view: DriverView, node: Node, value: str | None) -> PatchNode:
    """Record on a Node in which boot it passed."""
    return PatchNode(node=node.name, driver=view.driver.key, annotations={RECORD: value}, why="tested")


def retry_at(failed: NodeTask) -> float:
    """Return when a test that failed is tried again."""
    return failed.over_at + RETRY_SECONDS


def ask(case: Case) -> Iterator[Asked]:
    """Test each node with the ready label once per boot."""
    view = case.view
    for name in sorted(view.nodes):
        node, wanted = view.nodes[name], None
        if view.on(node).ready is not None:
            is_known = node.annotations.get(RECORD) == node.boot_id
            wanted = Wanted(subject=node.boot_id or "", known=State.SUCCEEDED if is_known else None)
        step = task_step(view.tasks_of(BURN_IN).get(name, ()), wanted, view.snapshot.now, Limits(retry_at=retry_at))
        news = (remember(view, node, node.boot_id),) if step.next is Next.TAKE else ()
        pod = partial(manifest, view, node) if step.next is Next.START else None
        yield Asked(actions=(*delete_tasks(step.gone), *news), pod=pod, rank=(name,), due_at=step.at)


def end(view: DriverView) -> Iterator[Change]:
    """Remove pods and records with the driver."""
    yield from delete_tasks(task for tasks in view.tasks_of(BURN_IN).values() for task in tasks)
    yield from (remember(view, node, None) for node in view.nodes.values() if RECORD in node.annotations)


class BurnInWorld(World):
    """A world whose kubelets run the test: so many fail on each node."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: dict[str, int] = {}
        self.runs: list[str] = []
        """The nodes that were tested, in this order."""
        self.together = 0
        """How many pods there were at the same time that had not ended."""
        self.said: list[tuple[str, str]] = []
        """Text and verb of each start of such a pod."""
        for name in ("a", "b"):
            self.add_node(name, KERNEL)
        self.add_driver()

    def steps(self) -> tuple[Callable[[], None], ...]:
        """Return the parts of a round, the last of which runs the tests."""
        return (*super().steps(), self._test)

    def tests(self) -> list[Object]:
        """Return the pods of tests."""
        return self.client.list(PODS.path(namespace=NAMESPACE), label_selector=BURN_IN.label).items

    def look(self, action: Change) -> bool:
        """Note what is done with the pods."""
        if isinstance(action, RunTask) and action.kind is BURN_IN:
            self.said.append((str(action).partition(" (")[0], verb(action)))
        return False

    def records(self) -> dict[str, str | None]:
        """Return in which boot each node has passed."""
        nodes = self.client.list(NODES.path()).items
        return {node["metadata"]["name"]: node["metadata"]["annotations"].get(RECORD) for node in nodes}

    def _test(self) -> None:
        new = [pod for _, pod in self._objects("pods")
               if BURN_IN.label in pod["metadata"]["labels"] and not pod.get("status")]  # fmt: skip
        self.together = max(self.together, len(new))
        for pod in new:
            node = pod["spec"]["nodeName"]
            self.runs.append(node)
            fails = self.failing.get(node, 0) > 0
            self.failing[node] = self.failing.get(node, 0) - fails
            ended = {"exitCode": int(fails), "finishedAt": timestamp(self.now)}
            state = {"name": BURN_IN.container, "state": {"terminated": ended}}
            pod["status"] = {"phase": "Failed" if fails else "Succeeded", "containerStatuses": [state]}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> BurnInWorld:
    """Make a world with the new kind."""
    monkeypatch.setitem(KINDS, BURN_IN.name, BURN_IN)
    work = Work(kind=BURN_IN, ask=ask, end=end)
    monkeypatch.setattr("driver_builder.plan.plan.WORKS", (*WORKS, work))
    return BurnInWorld()


def test_it_runs_from_its_start_over_a_retry_to_its_report_and_is_cleaned_up(world: BurnInWorld) -> None:
    """One node after the other, as its limit says; a test that failed is tried again a minute later."""
    world.failing = {"a": 1}
    world.settle()
    assert world.records() == world.boots
    assert sorted(world.runs) == ["a", "a", "b"]
    assert world.together == 1
    assert world.tests() == []
    world.rounds(3)
    assert len(world.runs) == 3


def test_it_waits_before_it_is_tried_again(world: BurnInWorld) -> None:
    """The pod that failed is there until then."""
    world.failing = {"a": 1}
    while not world.runs:
        world.rounds(1)
    assert world.decide().requeue_at == world.now - 5.0 + RETRY_SECONDS
    failed_at = world.now
    while world.runs.count("a") < 2:
        world.rounds(1)
    assert world.now >= failed_at + RETRY_SECONDS


def test_it_is_said_by_its_row(world: BurnInWorld) -> None:
    """The output of plans and logs has no other table."""
    world.rounds(40)
    assert {*world.said} == {(f"test {NAMESPACE}/edu on node {name}", "validate") for name in ("a", "b")}


def test_a_controller_that_is_killed_after_each_action_goes_on(world: BurnInWorld) -> None:
    """All that is known of a task is its pod, and the record on the Node."""
    world.failing = {"b": 1}
    for _ in range(80):
        world.reconcile(lambda _action: True)
        world.finish_builds()
        world.turn()
        world.now += 5.0
    world.settle()
    assert world.records() == world.boots
    assert sorted(world.runs) == ["a", "b", "b"]
    assert world.tests() == []


def test_what_nothing_waits_for_is_deleted(world: BurnInWorld) -> None:
    """A node that boots again is tested again; a driver that goes takes pods and records with it."""
    world.settle()
    world.reboot("a", KERNEL)
    world.settle()
    assert (world.records(), world.runs.count("a") > 1, world.runs.count("b")) == (world.boots, True, 1)
    world.failing = {"a": 100}
    world.reboot("a", KERNEL)
    world.rounds(6)
    assert [pod["spec"]["nodeName"] for pod in world.tests()] == ["a"]
    world.delete_driver("edu")
    world.settle()
    assert DRIVER_PATH not in world.client.objects
    assert (world.tests(), world.records()) == ([], {"a": None, "b": None})
