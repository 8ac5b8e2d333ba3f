"""Which proof pods are created and deleted, from the driver pods and the proof pods that are there."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.nodes.changes import DeleteObject, RunTask
from driver_builder.nodes.proofs import with_proof
from driver_builder.objects.driver_keys import driver_keys
from driver_builder.objects.load_report import LoadReport
from driver_builder.plan.plan import plan
from driver_builder.snapshot.snapshot import DriverPod, Snapshot
from driver_builder.tasks.node_task import NodeTask
from driver_builder.tasks.proof_pod import PROOF, Program
from driver_builder.tasks.task_kind import State
from tests.support.driver_builder.changes import done, label_in, patches, pods_replaced
from tests.support.driver_builder.factories import (
    BOOT_ID,
    GONE,
    KERNEL,
    LOADED,
    NOW,
    OLD,
    SETTINGS,
    daemon_set,
    driver,
    node,
    ready_snapshot,
    task,
)

IMAGE = "registry.example.com:5000/vendor/edu:1"
MAPPING = {"regexp": ".*", "image": IMAGE, "loader": "image", "container": {"timeout": "5m"}}
SPEC = {"kernelMappings": [MAPPING], "module": {"names": ["edudrv"], "trustImage": True}}
CONTAINER = driver(spec_changes=SPEC)
ENVIRONMENT = (("DRIVER", "driverwright.edu-2c602ba5"), ("KERNEL", KERNEL), ("MODULES", "edudrv"))
RUNS = Program(environment=ENVIRONMENT, started_at=NOW - 600)


def proof(of_pod: str = "uid-pod-node-a", **changes: Any) -> NodeTask:
    """Make a proof pod that has ended, well unless its report is another one."""
    is_good = changes.get("report", LOADED) == LOADED
    words = {"name": "edu-prove-1", "uid": "proof-1", "created_at": NOW - 300, "ended_at": NOW - 250}
    state = State.SUCCEEDED if is_good else State.FAILED
    return task(PROOF, of_pod, **{"state": state, "report": LOADED, **words, **changes})


def seen(*found: NodeTask, program: Program = RUNS, labelled: bool = True, **changes: Any) -> Snapshot:
    """Make a snapshot of a node with such a driver and these proof pods."""
    made = ready_snapshot(node(), driver=CONTAINER)
    (pod,) = made.pods
    pods = (with_proof(replace(pod, proof=None, expected={}, program=program, **changes), found),)
    nodes = made.nodes if labelled else (node(),)
    return replace(made, nodes=nodes, pods=pods, tasks=found)


def pod_of(snapshot: Snapshot) -> DriverPod:
    """Return the driver pod."""
    (pod,) = snapshot.pods
    return pod


def test_a_running_program_is_proven_by_a_pod_on_its_node() -> None:
    """With what its pod says, and the time that the mapping gives it."""
    (action,) = (item for item in plan(seen(labelled=False), SETTINGS).actions if isinstance(item, RunTask))
    (container,) = action.manifest["spec"]["containers"]
    given = {item["name"]: item["value"] for item in container["env"]}
    assert given == {**dict(ENVIRONMENT), "LOADER": "image", "LIVE_TIMEOUT": "300", "POD_UID": "uid-pod-node-a"}
    assert (action.node, action.manifest["spec"]["nodeName"]) == ("node-a", "node-a")
    assert container["image"] == SETTINGS.loader_image


def test_its_report_makes_the_node_ready() -> None:
    """As the report of `load` does in other driver pods."""
    actions = plan(seen(proof(), labelled=False), SETTINGS).actions
    assert [label_in(item)[1] for item in patches(actions, "label Node")] == ["1.0.0"]
    assert not {"run proof", "delete Pod"}.intersection(done(actions))


def test_a_proof_that_is_deleted_is_made_again_and_takes_no_label_away() -> None:
    """The driver pod is ready: what was proven of it is still live."""
    actions = plan(seen(), SETTINGS).actions
    assert [what for what in done(actions) if what in ("run proof", "label Node")] == ["run proof"]


def test_the_label_goes_with_a_pod_whose_program_ends() -> None:
    """It may unload the modules."""
    actions = plan(seen(proof(), deleting=True), SETTINGS).actions
    assert [label_in(item)[1] for item in patches(actions, "label Node")] == [None]
    assert not {"run proof", "delete Pod"}.intersection(done(actions))


def test_the_label_goes_in_the_write_that_ends_the_program() -> None:
    """Before its pod is deleted, where the driver has one DaemonSet."""
    edited = driver(spec_changes={**SPEC, "rollout": {"strategy": "immediate"}})
    found = replace(seen(proof()), drivers=(edited,))
    found = replace(found, daemon_sets=(daemon_set(found),), pods=(replace(pod_of(found), fingerprint=OLD),))
    changes = plan(found, SETTINGS).actions
    assert [what for what in done(changes) if what in ("label Node", "replace Pod")] == ["label Node", "replace Pod"]
    (taken,) = patches(changes, "label Node")
    assert (label_in(taken)[1], taken.annotations) == (None, {driver_keys(CONTAINER.key).ready: None})


@pytest.mark.parametrize("follows", [True, False], ids=["a program", "our loader"])
def test_the_label_goes_with_a_pod_of_our_loader_where_a_program_follows(follows: bool) -> None:
    """A program may take its time; another pod of our loader finds the modules, or replaces them in a moment."""
    changes = {"rollout": {"strategy": "immediate"}, **(SPEC if follows else {})}
    found = ready_snapshot(node(), driver=driver(spec_changes=changes))
    found = replace(found, daemon_sets=(daemon_set(found),), pods=(replace(pod_of(found), fingerprint=OLD),))
    decided = plan(found, SETTINGS)
    taken = [what for what in done(decided.actions) if what in ("label Node", "replace Pod")]
    assert taken == ["label Node", "replace Pod"][not follows :]


def test_the_proof_of_a_pod_that_is_gone_goes() -> None:
    """Also where the driver is deleted."""
    found = seen(proof(), proof("uid-before", uid="proof-0", name="edu-prove-0"))
    assert [item.uid for item in plan(found, SETTINGS).actions if isinstance(item, DeleteObject)] == ["proof-0"]
    gone = replace(found, drivers=(replace(CONTAINER, deleting=True),), pods=())
    deleted = [item.uid for item in plan(gone, SETTINGS).actions if isinstance(item, DeleteObject)]
    assert sorted(deleted) == ["proof-0", "proof-1"]


def test_a_proof_that_a_newer_one_replaces_goes() -> None:
    """Also where nothing else is left to do."""
    first = proof(uid="proof-0", name="edu-prove-0", created_at=NOW - 900, ended_at=NOW - 850)
    found = seen(first, proof(), leaves_modules=True)
    (record,) = (item for item in patches(plan(found, SETTINGS).actions, "record loads"))
    recorded = {**found.nodes[0].annotations, **{key: str(text) for key, text in record.annotations.items()}}
    settled = replace(found, nodes=(replace(found.nodes[0], annotations=recorded),))
    assert [str(item) for item in plan(settled, SETTINGS).actions] == [
        "delete Pod driverwright/edu-prove-0: its proof on node node-a is over"
    ]


def test_a_module_that_is_gone_is_loaded_again_by_another_pod() -> None:
    """The program does not know."""
    held = replace(RUNS, held=GONE, held_at=NOW - 10)
    actions = plan(seen(proof(), program=held, ready=False), SETTINGS).actions
    assert [what for what in done(actions) if what in ("run proof", "replace Pod")] == ["replace Pod"]


def test_a_program_that_loads_again_by_itself_keeps_its_pod() -> None:
    """It is proven anew; the node has no label until then."""
    other = LoadReport(result="OtherBuild", kernel=KERNEL, boot_id=BOOT_ID)
    for program in (
        replace(RUNS, held=other, held_at=NOW - 10),
        replace(RUNS, started_at=NOW - 20, held=GONE, held_at=NOW - 10),
    ):
        actions = plan(seen(proof(), program=program, ready=False), SETTINGS).actions
        assert not any(pods_replaced(actions))
        assert "run proof" in done(actions)
        assert [label_in(item)[1] for item in patches(actions, "label Node")] == [None]


def test_a_failed_proof_is_the_failure_of_the_driver() -> None:
    """It is shown until another one ends, and the plan says when that starts."""
    failed = LoadReport(result="LoadFailed", kernel=KERNEL, boot_id=BOOT_ID, message="module edudrv is not live")
    decided = plan(seen(proof(report=failed, ended_at=NOW - 60), labelled=False), SETTINGS)
    assert "run proof" not in done(decided.actions)
    assert decided.requeue_at == NOW + 480
    (target,) = decided.drivers[0].targets
    assert "module edudrv is not live" in target.message


@pytest.mark.parametrize(
    "changes", [{"kernelMappings": []}, {"dependsOn": [{"name": "missing"}]}], ids=["built now", "blocked"]
)
def test_a_program_that_is_not_wanted_any_more_is_proven_while_it_runs(changes: dict[str, Any]) -> None:
    """A wave that replaces it would wait for its proof without end, and a node that boots would never be ready."""
    edited = driver(spec_changes={**SPEC, **changes})
    found = replace(seen(labelled=False), drivers=(edited,))
    starts = [item for item in plan(found, SETTINGS).actions if isinstance(item, RunTask)]
    assert done(starts) == ["run proof"]
