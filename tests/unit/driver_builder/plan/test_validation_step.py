"""What comes next for a command on a node, from the Node's record and the validation pod alone."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.model import permissions
from driver_builder.nodes.changes import RunTask
from driver_builder.objects import loaded, validated
from driver_builder.objects.driver_keys import driver_keys
from driver_builder.objects.loaded import Load, Loaded
from driver_builder.objects.validated import Validated
from driver_builder.plan.plan import Plan, plan
from driver_builder.plan.validation_step import VALIDATE
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.tasks import validation_pod
from driver_builder.tasks.node_task import NodeTask
from driver_builder.tasks.task_kind import State
from driver_builder.tasks.validation_pod import VALIDATION
from tests.support.driver_builder.changes import done, labels, patches
from tests.support.driver_builder.factories import (
    BOOT_ID,
    KERNEL,
    NOW,
    SETTINGS,
    driver,
    fingerprint,
    node,
    ready_snapshot,
    spec_of,
    task,
)

COMMAND: dict[str, Any] = {"image": "docker.io/library/test:1", "command": ["/test"], "retries": 1}
CONTAINER = driver(spec_changes={"validation": COMMAND})
READY = driver_keys(CONTAINER.key).ready
RECORD = validated.annotation(CONTAINER.key)


def seen(*names: str, record: Validated | None = None, pods: tuple[NodeTask, ...] = ()) -> Snapshot:
    """Make a snapshot in which the driver works on some nodes that have no label; the first has the record."""
    made = ready_snapshot(*(node(name) for name in names or ("node-a",)), driver=CONTAINER)
    nodes = [node(item.name) for item in made.nodes]
    if record is not None:
        nodes[0] = replace(nodes[0], annotations={**nodes[0].annotations, RECORD: validated.render(record)})
    return replace(made, nodes=tuple(nodes), tasks=pods)


SUBJECT = validation_pod.subject_of(spec_of(CONTAINER).validation, boot_id=BOOT_ID, fingerprint=fingerprint(seen()))


def pod(**changes: Any) -> NodeTask:
    """Make the validation pod of node-a, which runs."""
    return task(VALIDATION, **{"subject": SUBJECT, "uid": "uid-run", **changes})


DONE = State.SUCCEEDED
ENDED: dict[str, Any] = {"ended_at": NOW - 1, "state": State.FAILED, "message": "no answer"}
NOT_RUN = Validated(subject=SUBJECT, pod="uid-run", failed_at=int(NOW), message="not started")
FAILED = Validated(subject=SUBJECT, failures=1, pod="uid-run", failed_at=int(NOW) - 10, message="no answer")
FAILED_FOR_GOOD = replace(FAILED, failures=2)
SUCCEEDED = Validated(subject=SUBJECT, succeeded=True)
OTHER = Validated(subject="f" * 16, succeeded=True)

NEXT: list[Any] = [
    pytest.param(None, (), ["run validation"], id="nothing has begun"),
    pytest.param(OTHER, (), ["run validation"], id="another boot was validated"),
    pytest.param(None, (pod(),), [], id="it runs"),
    pytest.param(None, (pod(subject="f" * 16),), ["delete Pod"], id="another command runs"),
    pytest.param(None, (pod(deleting=True, **ENDED),), [], id="it was deleted by hand"),
    pytest.param(None, (pod(**ENDED),), ["record validation"], id="it failed"),
    pytest.param(FAILED, (pod(**ENDED),), ["delete Pod"], id="its failure is recorded"),
    pytest.param(FAILED, (), [], id="it waits for the next try"),
    pytest.param(replace(FAILED, failed_at=int(NOW) - 30), (), ["run validation"], id="it is tried again"),
    pytest.param(replace(FAILED, failed_at=int(NOW) + 9000), (), ["run validation"], id="recorded by another clock"),
    pytest.param(FAILED, (pod(uid="second"),), [], id="it runs again"),
    pytest.param(FAILED, (pod(uid="second", **ENDED),), ["record validation"], id="it failed again"),
    pytest.param(FAILED_FOR_GOOD, (pod(**ENDED),), [], id="it failed for good"),
    pytest.param(FAILED_FOR_GOOD, (), [], id="it failed for good, without its pod"),
    pytest.param(None, (pod(ended_at=NOW, state=DONE),), ["label Node", "record validation"], id="it succeeded"),
    pytest.param(SUCCEEDED, (pod(ended_at=NOW, state=DONE),), ["label Node", "delete Pod"],
                 id="its success is recorded"),
    pytest.param(SUCCEEDED, (), ["label Node"], id="it has succeeded"),
]  # fmt: skip


@pytest.mark.parametrize(("record", "pods", "names"), NEXT)
def test_each_state_has_one_next_step(record: Validated | None, pods: tuple[NodeTask, ...], names: list[str]) -> None:
    """Each of them is a write, after which the next plan finds another state."""
    actions = plan(seen(record=record, pods=pods), SETTINGS).actions
    assert [what for what in done(actions) if what != "record loads"] == names


def recorded(decided: Plan) -> list[Validated | None]:
    """Return what is recorded of validations."""
    patched = patches(decided.actions, "record validation")
    return [validated.parse(text) for part in patched for text in part.annotations.values()]


def test_a_failure_is_counted_with_what_it_reported() -> None:
    """The uid of its pod makes that it is counted once."""
    decided = plan(seen(record=FAILED, pods=(pod(uid="second", **ENDED),)), SETTINGS)
    expected = replace(FAILED_FOR_GOOD, pod="second", failed_at=int(NOW))
    assert recorded(decided) == [expected]


def test_a_pod_that_did_not_run_is_no_failure_of_the_command() -> None:
    """A registry that is away for long, or an eviction, does not fail the node: it is tried again and again."""
    ended = pod(ended_at=NOW - 1, state=State.LOST, message="not started")
    assert plan(seen(pods=(ended,)), SETTINGS).drivers[0].targets[0].message == (
        "0 of 1 nodes ready; node-a: validation is tried again: not started"
    )
    assert recorded(plan(seen(pods=(ended,)), SETTINGS)) == [NOT_RUN]
    later = replace(seen(record=NOT_RUN), now=NOW + 30)
    assert [item.node for item in plan(later, SETTINGS).actions if isinstance(item, RunTask)] == ["node-a"]


def test_the_next_try_is_looked_for_in_time() -> None:
    """Although nothing changes until then."""
    assert plan(seen(record=FAILED), SETTINGS).requeue_at == FAILED.failed_at + 30


def test_so_many_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes without a label come first; a pod that has ended counts no more."""
    few = replace(VALIDATE, kind=replace(VALIDATION, most=3))
    monkeypatch.setattr("driver_builder.plan.plan.WORKS", (few,))
    names = [f"node-{letter}" for letter in "abcdef"]
    made = seen(*names, pods=(pod(), pod(node="node-b", ended_at=NOW, state=DONE)))
    labelled = ready_snapshot(*(node(name) for name in names), driver=CONTAINER).nodes
    modules = tuple(made.pods[0].expected.items())
    load = Load(target=made.pods[0].target, kernel=KERNEL, boot_id=BOOT_ID, modules=modules)
    record = loaded.render(Loaded(loads=(load,)))
    kept = [
        replace(item, annotations={**item.annotations, loaded.annotation(CONTAINER.key): record})
        for item in labelled
        if item.name in ("node-c", "node-d")
    ]
    nodes = {item.name: item for item in (*made.nodes, *kept)}
    made = replace(made, nodes=tuple(nodes.values()))
    actions = plan(made, SETTINGS).actions
    assert [action.node for action in actions if isinstance(action, RunTask)] == ["node-e", "node-f"]
    assert not any(value is None for _, _, value in labels(actions))


def test_an_image_that_is_not_allowed_does_not_run() -> None:
    """The target says that it is not allowed."""
    allowed = permissions.read({"allowed_base_images": "registry.example.com/*"})
    settings = replace(SETTINGS, template_versions=replace(SETTINGS.template_versions, permissions=allowed))
    decided = plan(seen(), settings)
    assert "run validation" not in done(decided.actions)
    assert decided.drivers[0].targets[0].reason == "NotAllowed"


def test_a_pod_is_not_deleted_because_its_node_is_silent() -> None:
    """The driver pod may be unready for a moment; a new one is not begun either."""
    made = seen(pods=(pod(),))
    silent = replace(made, pods=tuple(replace(item, ready=False) for item in made.pods))
    assert plan(silent, SETTINGS).actions == ()
    assert plan(replace(silent, tasks=()), SETTINGS).actions == ()
