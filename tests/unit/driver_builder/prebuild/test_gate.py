"""Whether a node may move to another kernel, and what is said when it may not."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.api.status import render
from driver_builder.base.errors import ConfigurationError
from driver_builder.base.reasons import with_remedy
from driver_builder.model.image_state import Absent, ImageState, Invalid, Present, Unauthorized, Unreachable
from driver_builder.model.permissions import Permissions
from driver_builder.objects import loaded
from driver_builder.objects.driver_keys import driver_keys
from driver_builder.plan.plan import plan
from driver_builder.prebuild.gate import Gate, gate, with_kernel
from driver_builder.snapshot.snapshot import FailedBuild, Snapshot
from tests.support.driver_builder.factories import (
    DIGEST,
    KERNEL,
    NOW,
    OTHER_KERNEL,
    PRESENT,
    SETTINGS,
    driver,
    node,
    ready_snapshot,
    snapshot,
    with_images,
)

COMING = "6.12.9+deb12-amd64"
READY = driver_keys(driver().key).ready
RECORD = loaded.annotation(driver().key)


def judged(seen: Snapshot, state: ImageState = PRESENT, *, kernel: str = COMING) -> Gate:
    """Let every registry give one answer for what the moved node wants, and judge."""
    return gate(with_images(with_kernel(seen, "node-a", kernel), state), "node-a", kernel, SETTINGS.template_versions)


def with_mapping(**rule: Any) -> Snapshot:
    """Make a snapshot with one kernel mapping."""
    return snapshot(drivers=(driver(spec_changes={"kernelMappings": [rule]}),))


@pytest.mark.parametrize(
    ("state", "is_open", "words"),
    [
        pytest.param(PRESENT, True, f"built and verified: registry.example.com:5000/drivers/edu@{DIGEST}", id="there"),
        pytest.param(Absent(), False, f"preflight --kernel {COMING} --os debian:12 --push edu", id="absent"),
        pytest.param(Unauthorized(message="401"), False, "RegistryUnauthorized: 401", id="unauthorised"),
        pytest.param(Unreachable(message="timeout"), False, "RegistryUnreachable: timeout", id="unreachable"),
        pytest.param(Invalid(message="HTML"), False, "RegistryInvalid: HTML", id="invalid"),
    ],
)
def test_only_an_image_that_is_proven_to_be_there_opens_it(state: ImageState, is_open: bool, words: str) -> None:
    """What the registry cannot say for sure is a no."""
    answer = judged(snapshot(), state)
    assert answer.is_open == is_open
    assert words in answer.findings[0].message
    assert ("may move" in answer.sentence, "must not move" in answer.sentence) == (is_open, not is_open)


@pytest.mark.parametrize(
    ("seen", "is_open", "words"),
    [
        pytest.param(with_mapping(regexp="6[.]12.*", skip=True), True, "skipped by mapping", id="skipped by a person"),
        pytest.param(with_mapping(literal=KERNEL), False, "NoKernelMapping", id="no rule for it"),
        pytest.param(with_mapping(regexp=".*", image="r.io/x:1"), True, "prebuilt", id="prebuilt image"),
        pytest.param(snapshot(node(os_id="gentoo")), False, "UnsupportedOS", id="no template"),
        pytest.param(snapshot(sources={}), False, "SourceMissing", id="no source"),
        pytest.param(snapshot(drivers=(driver(spec_changes={"image": "?"}),)), False, "spec.image", id="invalid spec"),
        pytest.param(snapshot(node(labels={"kubernetes.io/arch": ""})), False, "kubernetes.io/arch", id="no labels"),
        pytest.param(snapshot(drivers=(driver(paused=True),)), True, "verified", id="paused, and there"),
    ],
)
def test_what_else_decides(seen: Snapshot, is_open: bool, words: str) -> None:
    """A driver that nobody can judge is a no, one that is not wanted on that kernel is not missed."""
    seen = seen if seen.drivers[0].spec.__class__.__name__ != "InvalidDriver" else replace(seen, images={})
    answer = gate(_asked(seen), "node-a", COMING, SETTINGS.template_versions)
    assert answer.is_open == is_open
    assert words in answer.findings[0].message


def _asked(seen: Snapshot) -> Snapshot:
    moved = with_kernel(seen, "node-a", COMING)
    return moved if isinstance(moved.drivers[0].spec, Exception) else with_images(moved)


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(snapshot(node(labels={"pool": "web"})), id="not selected"),
        pytest.param(snapshot(drivers=(driver(deleting=True),)), id="driver on its way out"),
        pytest.param(snapshot(drivers=()), id="no driver"),
    ],
)
def test_a_node_that_wants_no_driver_may_move(seen: Snapshot) -> None:
    """Others' nodes are not held up."""
    answer = judged(seen, Absent())
    assert answer.is_open
    assert answer.findings == ()
    assert "no driver is wanted on it" in answer.sentence


def test_one_driver_without_image_is_enough_for_a_no() -> None:
    """All are judged, and each is named."""
    seen = with_kernel(snapshot(drivers=(driver(), driver("other"))), "node-a", COMING)
    both = with_images(seen)
    first = next(image for image in both.images if image.repository.endswith("edu"))
    answer = gate(replace(both, images={**both.images, first: Absent()}), "node-a", COMING, SETTINGS.template_versions)
    assert len(answer.findings) == 2
    assert not answer.is_open
    assert json.loads(json.dumps(answer.as_document())) == answer.as_document()


def test_a_failed_build_for_that_kernel_says_why() -> None:
    """Where another node runs it already, the reason of its failed build is the answer."""
    seen = with_images(snapshot(node(), node("node-b", OTHER_KERNEL)), Absent())
    builds = [action for action in plan(seen, SETTINGS).actions if "for " + OTHER_KERNEL in str(action)]
    key = builds[0].request.key  # type: ignore[union-attr]
    failure = FailedBuild(reason="CompileError", message="nv-pci.c:223: too few arguments", at=NOW)
    (part,) = plan(replace(seen, failed_builds={key: failure}), SETTINGS).drivers
    written = render(part.driver, part.targets, rebuilds=part.rebuilds, unknown={}, now=NOW)
    told = judged(replace(seen, drivers=(driver(status=written),)), Absent(), kernel=OTHER_KERNEL)
    assert not told.is_open
    assert "Failed, CompileError: nv-pci.c:223: too few arguments" in told.findings[0].message


@pytest.mark.parametrize(
    ("labels", "annotations", "is_open", "words"),
    [
        pytest.param({}, {}, True, "not allowed, and not on this node: spec.image", id="not there"),
        pytest.param({READY: "1"}, {}, False, "the node has it and would lose it: spec.image", id="ready"),
        pytest.param({}, {RECORD: "x"}, False, "would lose it", id="loaded and not ready"),
    ],
)
def test_a_driver_that_is_not_allowed_holds_up_only_nodes_that_have_it(
    labels: dict[str, str], annotations: dict[str, str], is_open: bool, words: str
) -> None:
    """Its author cannot keep all nodes from updates, and no node loses a working driver by one."""
    limits = replace(SETTINGS.template_versions, permissions=Permissions(registries=()))
    there = node(labels=labels)
    there = replace(there, annotations={**there.annotations, **annotations})
    seen = with_kernel(snapshot(there), "node-a", COMING)
    answer = gate(seen, "node-a", COMING, limits)
    assert answer.is_open == is_open
    assert words in answer.findings[0].message


def test_a_missing_prebuilt_image_is_the_admins_to_push() -> None:
    """A missing prebuilt image blocks the move; it is never built."""
    answer = judged(with_mapping(regexp=".*", image="r.io/x:1"), Absent())
    assert answer.findings[0].message == with_remedy("ImageMissing", "ImageMissing: r.io/x:1 does not exist")


def test_the_kernel_it_runs_is_the_kernel_it_may_stay_on() -> None:
    """Where all is well the move to the same kernel is open."""
    assert judged(ready_snapshot(), kernel=KERNEL).is_open


@pytest.mark.parametrize("kernel", ["", "latest", "6", "6.1; reboot", "../6.1"])
def test_what_is_no_kernel_is_wrong_usage(kernel: str) -> None:
    """The value is named, with what to write."""
    with pytest.raises(ConfigurationError, match="is not a kernel release: write the output of uname -r"):
        with_kernel(snapshot(), "node-a", kernel)


@given(st.sampled_from([KERNEL, OTHER_KERNEL, COMING]))
def test_the_moved_node_reads_as_that_kernel_and_nothing_else_changes(kernel: str) -> None:
    """Also a release whose characters no label can hold; moving twice is moving once."""
    seen = snapshot(node(), node("node-b"))
    moved = with_kernel(seen, "node-a", kernel)
    assert moved.nodes[0].kernel_version == kernel
    assert moved.nodes[1:] == seen.nodes[1:]
    assert replace(moved, nodes=seen.nodes) == seen
    assert with_kernel(moved, "node-a", kernel) == moved


@given(st.sampled_from([Present(digest=DIGEST), Absent(), Unreachable(message="x")]), st.booleans())
def test_it_asks_for_the_image_that_the_node_would_then_want(state: ImageState, paused: bool) -> None:
    """Open exactly when a plan for the moved cluster would find the image there."""
    seen = with_images(with_kernel(snapshot(drivers=(driver(paused=paused),)), "node-a", COMING), state)
    (entry,) = plan(replace(seen, drivers=(driver(),)), SETTINGS).drivers[0].targets
    assert gate(seen, "node-a", COMING, SETTINGS.template_versions).is_open == bool(entry.digest)


def test_a_namespace_that_may_not_be_read_is_a_no() -> None:
    """One of its drivers may be against the move."""
    seen = replace(
        snapshot(), forbidden={"team-b": "namespace team-b no permission to read namespace driverwright: 403"}
    )
    answer = judged(seen)
    assert not answer.is_open
    assert answer.sentence == f"node-a must not move to {COMING}: team-b/*"
