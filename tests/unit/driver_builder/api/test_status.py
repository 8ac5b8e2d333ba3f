"""Target states as the object's status, conditions and Events."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.node_notes import NodeNote, bounded, render_notes
from driver_builder.api.prebuild_status import AheadStatus, render_ahead
from driver_builder.api.rebuild_status import Rebuilds
from driver_builder.api.status import (
    Event,
    TargetStatus,
    Trouble,
    condition_events,
    events,
    previous_targets,
    render,
    render_trouble,
)
from driver_builder.base.reasons import Reason, TargetState, remedy_of, with_remedy, without_remedy
from kube_api.text import MAX_MESSAGE, printable
from kube_api.timestamps import parse_timestamp, timestamp
from tests.support.driver_builder.factories import KERNEL, NOW, OTHER_KERNEL, driver, target

NO_REBUILDS = Rebuilds(requests={}, tokens={})


def entry(state: TargetState = TargetState.READY, *, kernel: str = KERNEL, **changes: Any) -> TargetStatus:
    """Make a target's status."""
    words: dict[str, Any] = {
        "target": target(kernel).id,
        "kernel": kernel,
        "os": "debian:12",
        "architecture": "amd64",
        "nodes": 2,
        "ready_nodes": 2 if state is TargetState.READY else 0,
        "state": state,
        "reason": "AReason",
        "message": "some words",
        "since": NOW,
    }
    return TargetStatus(**{**words, **changes})


def rendered(
    *targets: TargetStatus, container: DriverContainer | None = None, unknown: dict[str, str] | None = None
) -> dict[str, Any]:
    """Render a status."""
    return render(container or driver(), targets, rebuilds=NO_REBUILDS, unknown=unknown or {}, now=NOW)


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition."""
    return {item["type"]: (item["status"], item["reason"]) for item in status["conditions"]}


seconds = st.integers(0, 4_000_000_000).map(float)
texts = st.text(max_size=20).map(printable)
entries = st.builds(
    entry,
    st.sampled_from(TargetState),
    nodes=st.integers(0, 9),
    ready_nodes=st.integers(0, 9),
    reason=texts,
    message=texts,
    image=texts,
    digest=texts,
    key=texts,
    since=seconds,
)
failing = st.builds(entry, st.just(TargetState.FAILED), failures=st.integers(1, 9), last_failure=seconds, since=seconds)


@given(entries | failing)
def test_what_is_written_is_read_back(written: TargetStatus) -> None:
    """Everything that the next reconcile needs survives the way through the API server."""
    assert previous_targets(rendered(written)) == {written.target: written}


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({}, id="empty"),
        pytest.param({"kernel": KERNEL, "os": "debian:12", "architecture": "amd64"}, id="incomplete"),
        pytest.param("text", id="no object"),
        pytest.param(None, id="null"),
    ],
)
def test_entries_of_another_shape_are_dropped(broken: Any) -> None:
    """What an older version or a person wrote is no reason to stop."""
    good = rendered(entry())["targets"][0]
    assert len(previous_targets({"targets": [broken, good]})) == 1


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"state": "Dreaming"}, id="unknown state"),
        pytest.param({"nodes": "many"}, id="count that is none"),
        pytest.param({"lastTransitionTime": "yesterday"}, id="time that is none"),
        pytest.param({"lastFailureTime": 5}, id="time that is a number"),
    ],
)
def test_an_entry_with_a_wrong_field_is_dropped(changes: dict[str, Any]) -> None:
    """One bad field makes the entry unknown."""
    assert previous_targets({"targets": [{**rendered(entry())["targets"][0], **changes}]}) == {}


def test_no_status_is_no_targets() -> None:
    """A new object has none."""
    assert previous_targets({}) == previous_targets({"targets": None}) == {}


@pytest.mark.parametrize(
    ("targets", "ready", "progressing", "degraded"),
    [
        pytest.param([], ("False", "NoMatchingNodes"), ("False", "NothingToDo"), ("False", "AsExpected"), id="none"),
        pytest.param(
            [TargetState.READY],
            ("True", "AllNodesReady"),
            ("False", "NothingToDo"),
            ("False", "AsExpected"),
            id="ready",
        ),
        pytest.param(
            [TargetState.BUILDING],
            ("False", "AReason"),
            ("True", "TargetsPending"),
            ("False", "AsExpected"),
            id="building",
        ),
        pytest.param(
            [TargetState.READY, TargetState.ROLLING_OUT],
            ("False", "AReason"),
            ("True", "TargetsPending"),
            ("False", "AsExpected"),
            id="one ready, one rolling out",
        ),
        pytest.param(
            [TargetState.READY, TargetState.FAILED],
            ("False", "AReason"),
            ("False", "NothingToDo"),
            ("True", "AReason"),
            id="one ready, one failed",
        ),
        pytest.param(
            [TargetState.BLOCKED], ("False", "AReason"), ("False", "NothingToDo"), ("True", "AReason"), id="blocked"
        ),
        pytest.param(
            [TargetState.PENDING], ("False", "AReason"), ("False", "NothingToDo"), ("True", "AReason"), id="pending"
        ),
        pytest.param(
            [TargetState.SKIPPED],
            ("False", "NoMatchingNodes"),
            ("False", "NothingToDo"),
            ("False", "AsExpected"),
            id="skipped",
        ),
        pytest.param(
            [TargetState.READY, TargetState.SKIPPED],
            ("True", "AllNodesReady"),
            ("False", "NothingToDo"),
            ("False", "AsExpected"),
            id="one ready, one skipped",
        ),
    ],
)
def test_conditions_sum_the_targets_up(
    targets: list[TargetState], ready: tuple[str, str], progressing: tuple[str, str], degraded: tuple[str, str]
) -> None:
    """Ready: all wanted targets. Progressing: any that moves. Degraded: any that needs somebody."""
    kernels = (KERNEL, OTHER_KERNEL)
    status = rendered(*(entry(state, kernel=kernel) for state, kernel in zip(targets, kernels, strict=False)))
    assert conditions(status) == {"Ready": ready, "Progressing": progressing, "Degraded": degraded}


def test_a_wrong_spec_is_neither_ready_nor_well() -> None:
    """The message of the error is the message of the conditions."""
    status = rendered(container=driver(spec_changes={"image": "x"}))
    assert conditions(status)["Ready"] == ("False", "InvalidSpec")
    assert conditions(status)["Degraded"] == ("True", "InvalidSpec")
    assert "spec.image" in status["conditions"][0]["message"]


def test_a_paused_driver_does_not_progress() -> None:
    """Paused is said where one looks for progress."""
    assert conditions(rendered(entry(TargetState.BUILDING), container=driver(paused=True)))["Progressing"] == (
        "False",
        "Paused",
    )


def test_nodes_without_kernel_are_reported() -> None:
    """A selected node that has no target makes the driver degraded."""
    status = rendered(entry(), unknown={"b": "node b has no label", "a": "node a has no label"})
    assert conditions(status)["Degraded"] == ("True", "KernelMismatch")
    message = status["conditions"][2]["message"]
    assert message == with_remedy("KernelMismatch", "node a has no label; node b has no label")


def test_a_condition_names_five_and_counts_the_others() -> None:
    """A fleet on a thousand kernels has a status that still fits; what each target says stands in its entry."""
    for state, kind in ((TargetState.FAILED, "Degraded"), (TargetState.BUILDING, "Progressing")):
        targets = [entry(state, kernel=f"6.1.0-{number}-amd64", message="m") for number in range(1000)]
        (said,) = [item for item in rendered(*targets)["conditions"] if item["type"] == kind]
        assert said["message"].endswith("6.1.0-4-amd64: m; and 995 more")
    unknown = {f"node-{number}": f"node-{number} has no kernel label" for number in range(6)}
    (said,) = [item for item in rendered(unknown=unknown)["conditions"] if item["type"] == "Degraded"]
    assert without_remedy("KernelMismatch", said["message"]).endswith("node-4 has no kernel label; and 1 more")
    (said,) = [item for item in rendered(*targets[:5])["conditions"] if item["type"] == "Progressing"]
    assert "more" not in said["message"]


ETCD_BYTES = 1_500_000
"""An object beyond etcd's limit (1.5 MiB) is not stored. Go's JSON has ``<`` as six bytes."""


@pytest.mark.parametrize("letter", ["x", '"', "\U0001f600", "<"], ids=["ASCII", "escaped", "four bytes", "HTML"])
def test_the_status_of_many_targets_stays_below_what_can_be_stored(letter: str) -> None:
    """500 failed targets, each with all the words that somebody can say, a refusal as long, and notes on nodes."""
    releases = [f"6.1.0-{number:05}-".ljust(64, "x") for number in range(500)]
    words: dict[str, Any] = {
        "reason": "SigningCertificateMissing",
        "message": letter * 10_000,
        "image": f"{'r' * 63}.example.com:5000/{'p' * 100}:{'t' * 128}",
        "digest": "sha256:" + "d" * 64,
        "key": "f" * 20,
        "failures": 99,
        "last_failure": NOW,
    }
    targets = [entry(TargetState.FAILED, kernel=release, **words) for release in releases]
    pools = [AheadStatus(stream="s" * 64, base_image="b" * 255, target=one, error=letter * 10_000, error_at=NOW)
             for one in targets[:20]]  # fmt: skip
    notes = [NodeNote(node=str(n).ljust(253, "n"), silent_since=NOW, reloads=n, last_reload=NOW) for n in range(10_000)]
    status = render(
        driver(), targets, rebuilds=NO_REBUILDS, unknown={}, refusal=letter * 10_000, now=NOW,
        ahead=render_ahead(pools), nodes=render_notes(bounded(notes)),
    )  # fmt: skip
    assert len(status["targets"]) == 500
    stored = json.dumps(status, ensure_ascii=False).replace("<", r"\u003c").encode()
    assert len(stored) < 0.8 * ETCD_BYTES


def test_what_to_do_is_never_cut() -> None:
    """Where there is no room for both, what is wrong is cut: target, Event and log have the rest."""
    failed = replace(entry(TargetState.FAILED, message='"<' * 10_000), reason=Reason.HEADERS_MISSING)
    degraded = rendered(failed)["conditions"][2]["message"]
    assert degraded.endswith(remedy_of(Reason.HEADERS_MISSING))
    (event,) = events({}, [failed])
    assert event.message.endswith(remedy_of(Reason.HEADERS_MISSING))


def test_messages_of_conditions_are_cut() -> None:
    """However long what they quote is: targets, nodes, a refused action, a bug of ours."""
    failed = entry(TargetState.FAILED, message="m" * 10_000)
    moving = entry(TargetState.BUILDING, message="m" * 10_000)
    trouble = Trouble(reason=Reason.INTERNAL_ERROR, message="m" * 10_000)
    statuses = (
        rendered(failed),
        rendered(moving),
        rendered(unknown={"a": "m" * 10_000}),
        render(driver(), [], rebuilds=NO_REBUILDS, unknown={}, refusal="m" * 10_000, now=NOW),
        render_trouble(driver(), trouble, now=NOW),
    )
    longest = [max(len(item["message"]) for item in status["conditions"]) for status in statuses]
    # A remedy follows the points of what was cut without a full stop.
    assert all(length in (MAX_MESSAGE - 1, MAX_MESSAGE) for length in longest)


def test_counts_leave_out_skipped_nodes() -> None:
    """Nodes that are to have no driver are not desired."""
    status = rendered(entry(), entry(TargetState.SKIPPED, kernel=OTHER_KERNEL))
    assert (status["desiredNodes"], status["readyNodes"], status["readyTargets"]) == (2, 2, "1/1")


def test_fields_that_nothing_acts_on_are_reported() -> None:
    """An admin who set one sees in the status that it does nothing."""
    assert "unusedFields" not in rendered(entry())
    status = rendered(entry(), container=driver(spec_changes={"validation": {"command": ["/test"]}}))
    assert status["unusedFields"] == ["spec.validation.command"]
    assert "DeprecatedFields" not in conditions(status)
    assert "unusedFields" not in rendered(entry(), container=driver(spec_changes={"version": "?"}))


def test_deprecated_fields_are_a_condition_and_an_event() -> None:
    """With what to do, once; the driver is as ready as without them."""
    changes = {"build": {"reuseAcrossKernels": False}, "retention": {"versions": 2}}
    status = rendered(entry(), container=driver(spec_changes=changes))
    assert status["unusedFields"] == ["spec.build.reuseAcrossKernels", "spec.retention"]
    assert conditions(status) == {**conditions(rendered(entry())), "DeprecatedFields": ("True", "FieldIgnored")}
    message = with_remedy("FieldIgnored", "ignored since 0.2: spec.build.reuseAcrossKernels, spec.retention")
    assert status["conditions"][-1]["message"] == message
    assert condition_events({}, status) == (Event(kind="Warning", reason="FieldIgnored", message=message),)
    assert condition_events(status, status) == ()


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    """The time of the last transition is that of a change of status, not of words."""
    old = rendered(entry(TargetState.BUILDING))
    later = render(driver(status=old), [entry(TargetState.ROLLING_OUT)], rebuilds=NO_REBUILDS, unknown={}, now=NOW + 60)
    assert later["conditions"][1]["lastTransitionTime"] == timestamp(NOW)
    done = render(driver(status=later), [entry()], rebuilds=NO_REBUILDS, unknown={}, now=NOW + 90)
    assert done["conditions"][1]["lastTransitionTime"] == timestamp(NOW + 90)


def test_the_status_says_which_generation_it_is_about() -> None:
    """After a change of the spec the status says whether it was seen."""
    status = rendered(entry())
    assert {status["observedGeneration"], *(item["observedGeneration"] for item in status["conditions"])} == {1}


@pytest.mark.parametrize(
    ("state", "kind", "reason"),
    [
        pytest.param(TargetState.BUILDING, "Normal", "BuildStarted", id="building"),
        pytest.param(TargetState.ROLLING_OUT, "Normal", "RollingOut", id="rolling out"),
        pytest.param(TargetState.READY, "Normal", "TargetReady", id="ready"),
        pytest.param(TargetState.SKIPPED, "Normal", "AReason", id="skipped"),
        pytest.param(TargetState.FAILED, "Warning", "AReason", id="failed"),
        pytest.param(TargetState.BLOCKED, "Warning", "AReason", id="blocked"),
        pytest.param(TargetState.PENDING, "Warning", "AReason", id="pending"),
    ],
)
def test_a_new_state_is_an_event(state: TargetState, kind: str, reason: str) -> None:
    """Each state has a word for Events, and the message names the target."""
    (event,) = events({}, [entry(state)])
    assert event == Event(kind=kind, reason=reason, message=f"{target().id}: some words")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        pytest.param({}, False, id="nothing"),
        pytest.param({"message": "other words"}, False, id="words"),
        pytest.param({"ready_nodes": 1}, False, id="counts"),
        pytest.param({"reason": "Other"}, True, id="reason"),
        pytest.param({"key": "other"}, True, id="build key"),
    ],
)
def test_only_news_is_reported(changes: dict[str, Any], told: bool) -> None:
    """Small steps are in the status; Events report turning points."""
    before = entry(TargetState.ROLLING_OUT)
    after = entry(TargetState.ROLLING_OUT, **changes)
    assert bool(events({before.target: before}, [after])) is told


def test_a_refused_action_makes_a_driver_degraded() -> None:
    """The API server's words stand in the condition until it takes the action, before what targets say themselves."""
    bad = entry(TargetState.FAILED)
    status = render(driver(), [bad], rebuilds=NO_REBUILDS, unknown={}, refusal="apply: 422: no", now=NOW)
    assert conditions(status)["Degraded"] == ("True", "ActionRefused")
    assert status["conditions"][2]["message"] == with_remedy("ActionRefused", "apply: 422: no")
    assert conditions(render(driver(status=status), [bad], rebuilds=NO_REBUILDS, unknown={}, now=NOW))["Degraded"] == (
        "True",
        "AReason",
    )


WRONG = driver(spec_changes={"image": "x"})


@pytest.mark.parametrize(
    ("container", "refusal", "told"),
    [
        pytest.param(driver(), "", [], id="all is well"),
        pytest.param(WRONG, "", ["InvalidSpec"], id="wrong spec"),
        pytest.param(driver(), "422", ["ActionRefused"], id="refused action"),
        pytest.param(WRONG, "422", ["InvalidSpec", "ActionRefused"], id="both"),
    ],
)
def test_what_is_wrong_with_the_driver_as_a_whole_is_reported_once(
    container: DriverContainer, refusal: str, told: list[str]
) -> None:
    """A Warning when it is new, none while it stays, and none when it is over."""
    status = render(container, [], rebuilds=NO_REBUILDS, unknown={}, refusal=refusal, now=NOW)
    news = condition_events({}, status)
    assert [(event.kind, event.reason) for event in news] == [("Warning", reason) for reason in told]
    assert condition_events(status, status) == ()
    assert condition_events(status, rendered()) == ()


def test_other_words_are_reported_again() -> None:
    """A spec that is wrong in another way, or another refusal, is news."""
    old = render(WRONG, [], rebuilds=NO_REBUILDS, unknown={}, refusal="403", now=NOW)
    worse = driver(spec_changes={"version": "!"})
    new = render(worse, [], rebuilds=NO_REBUILDS, unknown={}, refusal="422", now=NOW)
    invalid, refused = condition_events(old, new)
    assert "spec.version" in invalid.message
    assert refused.message == with_remedy("ActionRefused", "422")


def test_times_are_kubernetes_own() -> None:
    """To the second, in UTC, and back."""
    assert timestamp(NOW) == "2023-11-14T22:13:20Z"
    assert parse_timestamp("2023-11-14T22:13:20Z") == NOW
    assert parse_timestamp(None) is None
