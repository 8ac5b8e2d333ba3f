"""What the status says of kernels that nodes can move to, and that it says it again after a restart."""

import json
from dataclasses import replace
from typing import Any

import pytest

from driver_builder.api.prebuild_status import AheadStatus, condition, news, previous_ahead, render_ahead
from driver_builder.api.status import TargetStatus
from driver_builder.base.reasons import Reason, TargetState
from tests.support.driver_builder.factories import KERNEL, NOW

TARGET = TargetStatus(
    target=f"{KERNEL}/debian:12/amd64",
    kernel=KERNEL,
    os="debian:12",
    architecture="amd64",
    nodes=2,
    ready_nodes=0,
    state=TargetState.READY,
    reason=Reason.BUILT_AHEAD,
    message="built and verified",
    image="r.io/edu:1",
    digest="sha256:1",
    key="0" * 20,
    since=NOW,
)
GOOD = AheadStatus(stream="6.1 cloud-amd64", base_image="debian:bookworm-slim", target=TARGET, looked_up=NOW)


def entry(**changes: Any) -> AheadStatus:
    """Make an entry whose target is changed."""
    return replace(GOOD, target=replace(TARGET, **changes))


FAILED = entry(state=TargetState.FAILED, reason="CompileError", message="a.c:1: x", failures=2, last_failure=NOW)
ASKED = entry(
    kernel="", target="/debian:12/amd64", state=TargetState.PENDING, reason=Reason.NOT_LOOKED_UP, message="is asked",
    nodes=0, image="", digest="", key="",
)  # fmt: skip
SKIPPED = entry(state=TargetState.SKIPPED, reason=Reason.SKIPPED_BY_MAPPING, message="skipped")
RUNS = entry(reason=Reason.NEWEST_KERNEL_RUNS, nodes=0)


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(GOOD, id="built"),
        pytest.param(FAILED, id="failed"),
        pytest.param(replace(ASKED, looked_up=None), id="never asked"),
        pytest.param(replace(GOOD, error="no route", error_at=NOW + 5), id="a later discovery failed"),
    ],
)
def test_what_is_written_is_read_again(known: AheadStatus) -> None:
    """All that a controller needs that is started anew."""
    written = json.loads(json.dumps({"ahead": render_ahead([known])}))
    assert previous_ahead(written) == {known.pool: known}


@pytest.mark.parametrize(
    "strange", [[{}], [{"kernel": "x"}], ["x"], [{**render_ahead([GOOD])[0], "state": "Lost"}], None]
)
def test_entries_of_another_shape_are_dropped(strange: Any) -> None:
    """They are ours to write anew."""
    assert previous_ahead({"ahead": strange}) == {}


@pytest.mark.parametrize(
    ("entries", "status", "reason", "words"),
    [
        pytest.param([], "Unknown", "NoMatchingNodes", "no selected node", id="no pool"),
        pytest.param([GOOD], "True", "BuiltAhead", KERNEL, id="built"),
        pytest.param([SKIPPED], "True", "BuiltAhead", KERNEL, id="skipped by a person"),
        pytest.param([RUNS], "True", "NewestKernelRuns", KERNEL, id="all run it"),
        pytest.param([GOOD, RUNS], "True", "BuiltAhead", KERNEL, id="some run it"),
        pytest.param([GOOD, FAILED], "False", "CompileError", f"{KERNEL}: a.c:1: x", id="one does not compile"),
        pytest.param([ASKED], "Unknown", "NotLookedUp", "6.1 cloud-amd64: is asked", id="not known yet"),
        pytest.param([ASKED, FAILED], "False", "CompileError", "a.c:1", id="one is known not to be"),
    ],
)
def test_one_condition_sums_all_pools_up(entries: list[AheadStatus], status: str, reason: str, words: str) -> None:
    """True only where every pool may move; what is known to be wrong comes before what is not known."""
    made = condition(entries)
    assert (made["type"], made["status"], made["reason"]) == ("ReadyForNewestKernel", status, reason)
    assert words in made["message"]


@pytest.mark.parametrize(
    ("before", "after", "reasons"),
    [
        pytest.param([], [GOOD], [("Normal", "ReadyForKernel")], id="built"),
        pytest.param([GOOD], [GOOD], [], id="nothing new"),
        pytest.param([GOOD], [FAILED], [("Warning", "CompileError")], id="failed"),
        pytest.param([FAILED], [replace(FAILED, target=replace(FAILED.target, failures=3))], [], id="failed again"),
        pytest.param([], [ASKED], [], id="not known"),
        pytest.param([], [RUNS], [], id="nobody can move"),
        pytest.param([], [SKIPPED], [], id="skipped"),
        pytest.param([], [entry(state=TargetState.BLOCKED, reason=Reason.BUILDS_SUSPENDED)], [], id="told elsewhere"),
    ],
)
def test_events_report_what_is_new(
    before: list[AheadStatus], after: list[AheadStatus], reasons: list[tuple[str, str]]
) -> None:
    """Once for each change, and only of kernels that some node can move to."""
    told = news({known.pool: known for known in before}, after)
    assert [(event.kind, event.reason) for event in told] == reasons
