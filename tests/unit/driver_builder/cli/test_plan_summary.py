"""A plan in words and counts: nothing of it is lost, and every target says what comes next."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from driver_builder.base.reasons import with_remedy
from driver_builder.cli.plan_summary import VERBS, DriverSummary, as_document, counted, summarise, verb
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.image_state import Absent, Unreachable
from driver_builder.nodes.changes import RunTask, delete_tasks
from driver_builder.plan.plan import plan
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.tasks.node_task import NodeTask
from driver_builder.tasks.proof_pod import PROOF
from driver_builder.tasks.pull_pod import PULL
from driver_builder.tasks.task_kind import TaskKind
from driver_builder.tasks.unload_pod import UNLOAD
from driver_builder.tasks.validation_pod import PLUGIN_VALIDATION, VALIDATION
from tests.support.driver_builder.factories import (
    KERNEL,
    NAMESPACE,
    OTHER_KERNEL,
    SETTINGS,
    daemon_set,
    driver,
    node,
    pod,
    ready_snapshot,
    snapshot,
    with_images,
)
from tests.support.driver_builder.snapshots import READY_LABEL, snapshots


def told(seen: Snapshot) -> DriverSummary:
    """Summarise what a plan says of the only driver."""
    (item,) = summarise(seen, plan(seen, SETTINGS))
    return item


def outdated() -> Snapshot:
    """Make a fleet whose pods run the image before."""
    seen = with_images(snapshot(node("a"), node("b")))
    return replace(seen, daemon_sets=(daemon_set(seen),), pods=tuple(pod(seen, name, old=True) for name in "ab"))


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(with_images(snapshot(), Absent()), "build 1", id="image missing"),
        pytest.param(with_images(snapshot()), "roll out 1", id="image there"),
        pytest.param(outdated(), "prepare 1, replace 1, label 2", id="image before"),
        pytest.param(ready_snapshot(), "nothing", id="all well"),
        pytest.param(with_images(snapshot(), Unreachable(message="x")), "wait", id="registry away"),
        pytest.param(snapshot(drivers=(driver(spec_changes={"kernelMappings": [{"regexp": ".*", "skip": True}]}),)),
                     "nothing", id="skipped"),
        pytest.param(replace(ready_snapshot(), pods=(pod(ready_snapshot(), expected={"edudrv": "FF"}),)), "unlabel 1",
                     id="label that lies"),
    ],
)  # fmt: skip
def test_each_target_says_what_comes_next(seen: Snapshot, expected: str) -> None:
    """In counts of what is done, or that it is waited for."""
    (target,) = told(seen).targets
    assert target.next == expected


def test_each_target_names_its_nodes() -> None:
    """The summary lists the nodes of each target."""
    seen = with_images(snapshot(node("a"), node("b", OTHER_KERNEL), node("c")), Absent())
    assert [(item.status.kernel, item.nodes) for item in told(seen).targets] == [
        (OTHER_KERNEL, ("b",)),
        (KERNEL, ("a", "c")),
    ]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(replace(ready_snapshot(), nodes=(node(kernel=OTHER_KERNEL),)), "remove 1", id="kernel gone"),
        pytest.param(snapshot(drivers=(driver(finalizer=False),)), "keep tidy 1", id="finalizer"),
        pytest.param(snapshot(node(labels={"pool": "web", READY_LABEL: "1"})), "unlabel 1", id="outsider's label"),
        pytest.param(ready_snapshot(), "nothing", id="nothing"),
    ],
)
def test_what_belongs_to_no_target_is_distinguished(seen: Snapshot, expected: str) -> None:
    """The driver as a whole, and what is left of before."""
    assert counted(told(seen).others) == expected


def test_a_node_without_kernel_is_reported() -> None:
    """With the reason why it has no target."""
    assert "node node-a has no label" in told(snapshot(node(kernel=None))).unknown["node-a"]


@given(snapshots())
def test_no_action_is_lost(seen: Snapshot) -> None:
    """The counts of all targets and the rest are those of the plan, and it is plain data."""
    for item, part in zip(summarise(seen, plan(seen, SETTINGS)), plan(seen, SETTINGS).drivers, strict=True):
        words = [target.next for target in item.targets] + [counted(item.others)]
        counts = [int(word.split()[-1]) for text in words for word in text.split(", ") if word[-1].isdigit()]
        assert sum(counts) == len(part.actions)
        assert {verb(item) for item in part.actions} <= set(VERBS)
        document: Any = as_document(item)
        assert json.loads(json.dumps(document)) == document


def test_the_output_names_the_kind_of_a_change() -> None:
    """Programs read it, and what it does."""
    seen = with_images(snapshot(drivers=(driver(spec_changes={"preflight": {"followRepository": True}}),)))
    document = as_document(told(seen))
    assert ("DiscoverKernels", "look up") in {(item["action"], item["verb"]) for item in document["actions"]}


@pytest.mark.parametrize(
    ("kind", "starts"),
    [
        (UNLOAD, ("unload", "unload a/b from node n (pod a/p)")),
        (VALIDATION, ("validate", "validate a/b on node n (pod a/p)")),
        (PLUGIN_VALIDATION, ("validate", "validate the device plugin of a/b on node n (pod a/p)")),
        (PROOF, ("validate", "prove a/b on node n (pod a/p)")),
        (PULL, ("prepare", "pull the next image on node n (pod a/p)")),
    ],
)
def test_pods_that_do_one_thing_have_words_for_what_they_do(kind: TaskKind, starts: tuple[str, str]) -> None:
    """Programs read verb and text of each change."""
    manifest = {"metadata": {"namespace": "a", "name": "p"}, "spec": {"nodeName": "n"}}
    start = RunTask(kind=kind, driver=DriverKey("a/b"), manifest=manifest)
    assert (verb(start), str(start)) == starts


def test_what_is_over_is_deleted() -> None:
    """Its text names kind and node."""
    over = NodeTask(kind=UNLOAD.name, namespace="a", name="p", uid="u", driver=DriverKey("a/b"), node="n", subject="t")
    (delete,) = delete_tasks((over,))
    assert (verb(delete), str(delete)) == ("keep tidy", "delete Pod a/p: its unload on node n is over")


def test_a_driver_in_trouble_says_which() -> None:
    """Nothing is decided for it, and nothing done."""
    seen = replace(ready_snapshot(), forbidden={NAMESPACE: "no permission to read namespace driverwright"})
    (told,) = summarise(seen, plan(seen, SETTINGS))
    assert told.trouble == with_remedy(
        "NamespaceForbidden", "NamespaceForbidden: no permission to read namespace driverwright"
    )
    assert as_document(told)["trouble"] == told.trouble
    assert (told.actions, told.targets) == ((), ())
