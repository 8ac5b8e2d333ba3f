"""How far a rollout is, by the status that the controller wrote."""

from typing import Any

import pytest

from driver_builder.cli import rollout_view
from driver_builder.cli.rollout_view import Outcome
from kube_api import names
from tests.support.driver_builder.factories import KERNEL, OTHER_KERNEL, driver_object

Json = dict[str, Any]

WAVE: Json = {
    "phase": "Rolling", "message": "waits for node-3", "nodes": 8, "updatedNodes": 3, "unavailableNodes": 1,
    "failedNodes": 0, "leftOutNodes": 2, "maxUnavailable": 2, "startTime": "2026-11-24T08:00:00Z",
    "canaryProvenTime": "2026-11-24T08:10:00Z", "targets": {"t": "v2:0"}, "failedBefore": ["node-9"],
}  # fmt: skip
"""As the controller writes ``status.rollout``."""


def target(state: str = "Ready", *, kernel: str = KERNEL, nodes: int = 2, ready: int = 2, reason: str = "R") -> Json:
    """Make an entry of ``status.targets``."""
    return {
        "kernel": kernel, "os": "debian", "architecture": "amd64", "nodes": nodes, "readyNodes": ready, "state": state,
        "reason": reason, "message": f"{ready} of {nodes}",
    }  # fmt: skip


def driver(*targets: Json, wave: Json | None = None, paused: bool = False, observed: int = 1, **more: Any) -> Json:
    """Make a DriverContainer with this status."""
    status = {"observedGeneration": observed, "targets": list(targets), **({"rollout": wave} if wave else {}), **more}
    return driver_object(status=status, annotations={names.PAUSE_ANNOTATION: "true"} if paused else None)


@pytest.mark.parametrize(
    ("obj", "outcome", "words"),
    [
        pytest.param(driver(target()), Outcome.DONE, "edu 1.0.0: rolled out, 2 of 2 nodes ready", id="ready"),
        pytest.param(driver(target(), paused=True), Outcome.DONE, "nodes ready, paused", id="ready, and paused"),
        pytest.param(
            driver(target(), target("Skipped", kernel=OTHER_KERNEL, ready=0)), Outcome.DONE, "2 of 2", id="skipped"
        ),
        pytest.param(
            driver(target(), target("Failed", kernel=OTHER_KERNEL, nodes=0, ready=0)), Outcome.DONE, "2 of 2",
            id="a target without nodes",
        ),
        pytest.param(driver(target("RollingOut", ready=1)), Outcome.UNDER_WAY, "rolling out, 1 of 2", id="rolling out"),
        pytest.param(driver(target("Pending", ready=0)), Outcome.UNDER_WAY, "rolling out, 0 of 2", id="pending"),
        pytest.param(driver(target(), wave=WAVE), Outcome.UNDER_WAY, "wave Rolling, 3 of 8", id="ready within a wave"),
        pytest.param(driver(target(), observed=0), Outcome.UNDER_WAY, "has not observed", id="an older spec is ready"),
        pytest.param(driver(target("Failed"), observed=0), Outcome.UNDER_WAY, "not observed", id="an older one failed"),
        pytest.param(
            driver(target("Blocked", ready=0, reason="NotAllowed")), Outcome.STUCK,
            f"not rolled out, 0 of 2 nodes ready; {KERNEL}: Blocked, NotAllowed", id="blocked",
        ),
        pytest.param(
            driver(target("Failed", reason="CompileError"), wave=WAVE), Outcome.STUCK, "Failed, CompileError",
            id="failed within a wave",
        ),
        pytest.param(
            driver(target(), wave={**WAVE, "phase": "Halted", "message": "2 nodes failed"}), Outcome.STUCK,
            "wave Halted, 3 of 8 nodes updated: 2 nodes failed", id="halted",
        ),
        pytest.param(
            driver(target("Blocked"), wave={**WAVE, "phase": "Halted"}, paused=True), Outcome.UNDER_WAY, ": paused, ",
            id="stuck, but paused",
        ),
        pytest.param(
            driver(conditions=[{"type": "Ready", "status": "False", "message": "no selected node"}]), Outcome.UNDER_WAY,
            "0 of 0 nodes ready; no selected node", id="no node",
        ),
        pytest.param({**driver(), "status": None}, Outcome.UNDER_WAY, "has not observed", id="no status"),
    ],
)  # fmt: skip
def test_a_rollout_is_done_under_way_or_stuck(obj: Json, outcome: Outcome, words: str) -> None:
    """By the targets that have nodes, the wave, and whether the status is that of the spec."""
    view = rollout_view.parse(obj)
    assert view.outcome is outcome
    assert words in view.sentence


def test_a_table_has_the_wave_and_what_needs_a_person_first() -> None:
    """A line for the counts of the wave, its message, its times, and each target."""
    view = rollout_view.parse(driver(target(), target("Failed", kernel=OTHER_KERNEL, ready=0), wave=WAVE))
    head, counts, message, times, blank, _, first, second = rollout_view.lines(view)
    assert head == "driverwright/edu 1.0.0: not rolled out, 2 of 4 nodes ready"
    assert counts == "  Rolling: 3/8 nodes updated, 1 unavailable (at most 2), 0 failed, 2 left out"
    assert message == "  waits for node-3"
    assert times == "  started 2026-11-24T08:00:00Z, canary proven 2026-11-24T08:10:00Z"
    assert blank == ""
    assert first.split()[:4] == [OTHER_KERNEL, "debian/amd64", "0/2", "Failed"]
    assert second.split()[:4] == [KERNEL, "debian/amd64", "2/2", "Ready"]


@pytest.mark.parametrize(("ready", "bar"), [(0, "............"), (1, "####........"), (3, "############")])
def test_a_bar_shows_how_many_nodes_are_ready(ready: int, bar: str) -> None:
    """It is full only when all are."""
    view = rollout_view.parse(driver(target("RollingOut", nodes=3, ready=ready)))
    assert f" {bar} {ready}/3 " in rollout_view.lines(view, bars="#.")[-1]


def test_more_targets_than_rows_are_counted() -> None:
    """A terminal has a few lines, a fleet a hundred kernels."""
    view = rollout_view.parse(driver(*(target(kernel=f"6.1.0-{number}-amd64") for number in range(9))))
    made = rollout_view.lines(view, rows=2)
    assert made[-1] == "and 7 more"
    assert len(made) == 6


@pytest.mark.parametrize(
    "wave",
    [{}, {"phase": ""}, "x", {"phase": "New", "nodes": "many", "later": 1}],
    ids=["empty", "none", "text", "later"],
)
def test_a_wave_of_another_version_is_read_as_far_as_it_goes(wave: Any) -> None:
    """It is no error."""
    view = rollout_view.parse(driver(target(), wave=wave))
    assert (view.wave is None) is (wave == "x" or not wave.get("phase"))
    assert rollout_view.lines(view)


def test_hostile_words_are_printable() -> None:
    """A status may be written by others."""
    view = rollout_view.parse(driver({**target(), "message": "x\x1b[2Jy\nz"}, wave={**WAVE, "message": "a\x1b[2Jb"}))
    assert "\x1b" not in "".join(rollout_view.lines(view)) + view.sentence
