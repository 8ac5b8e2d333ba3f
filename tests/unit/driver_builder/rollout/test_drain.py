"""What leaves a node before its driver is replaced: which pods, in which order, and until when they are waited for."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.api.rollout_settings import DrainSettings
from driver_builder.model.driver_key import DriverKey
from driver_builder.objects.manifests import DRIVER_LABEL
from driver_builder.objects.stage_labels import Stage, stage_label
from driver_builder.rollout.drain import Progress, progress, waits
from driver_builder.rollout.draining import Draining, parse_draining, render_draining
from driver_builder.snapshot.node_pods import EvictionRefused, NodePod, NodePods
from tests.support.driver_builder.factories import NOW

SETTINGS = DrainSettings(
    resources=("example.com/fpga",), dra_drivers=("fpga.example.com",), pod_selector={"uses": "fpga"},
    wait_for={"kind": "job"}, deadline_seconds=300.0, pause_labels=("example.com/fpga.deploy.plugin",),
)  # fmt: skip
RECORD = Draining(driver="ns/edu", since=int(NOW))
BUDGET = EvictionRefused(message="the disruption budget web needs 1", at=NOW)


OTHER: dict[str, Any] = {"resources": frozenset({"example.com/gpu"})}


def pod(name: str, **changes: Any) -> NodePod:
    """Make a pod that requests the driver's resource."""
    values: dict[str, Any] = {"resources": frozenset({"example.com/fpga"}), **changes}
    return NodePod(namespace="apps", name=name, uid=name, **values)


def step(*pods: NodePod, refused: dict[str, EvictionRefused] | None = None, later: float = 0.0) -> Progress:
    """Decide on some pods."""
    return progress(SETTINGS, RECORD, NodePods(pods=pods), refused or {}, NOW + later)


def evicted(found: Progress) -> list[str]:
    """Name the pods that are evicted now."""
    return [item.name for item in found.evicted]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, ["a"], id="requests the resource"),
        pytest.param({"resources": frozenset(), "labels": {"uses": "fpga"}}, ["a"], id="has the labels"),
        pytest.param({"resources": frozenset({"example.com/gpu"})}, None, id="another resource"),
        pytest.param({"claim_drivers": {"fpga.example.com"}, **OTHER}, ["a"], id="has a claim"),
        pytest.param({"claim_drivers": {"gpu.example.com"}, **OTHER}, None, id="has a claim of another driver"),
        pytest.param({"claims": {"one"}, **OTHER}, None, id="has a claim that no driver allocated"),
        pytest.param(
            {"is_daemon": True, "claim_drivers": {"fpga.example.com"}, **OTHER}, [], id="of a DaemonSet, with a claim"
        ),
        pytest.param({"is_daemon": True}, [], id="of a DaemonSet"),
        pytest.param({"is_mirror": True}, [], id="mirror pod"),
        pytest.param({"is_daemon": True, **OTHER}, None, id="of a DaemonSet, which does not use it"),
        pytest.param({"is_mirror": True, **OTHER}, None, id="mirror pod, which does not use it"),
        pytest.param({"has_ended": True, "is_bare": True}, None, id="has ended"),
        pytest.param({"is_ours": True}, None, id="of ours"),
        pytest.param({"labels": {DRIVER_LABEL: "edu"}}, ["a"], id="with our label"),
        pytest.param({"is_bare": True}, [], id="nothing creates it again"),
        pytest.param({"has_local_data": True}, [], id="files of its own"),
        pytest.param({"is_bare": True, "has_local_data": True, **OTHER}, None, id="bare, and does not use it"),
        pytest.param({"deleting": True}, [], id="on its way"),
        pytest.param({"labels": {"kind": "job"}}, [], id="waited for"),
        pytest.param({"resources": frozenset(), "labels": {"kind": "job"}}, [], id="waited for, without the resource"),
        pytest.param(
            {"is_daemon": True, "node_selector": frozenset(SETTINGS.pause_labels)}, [], id="of a paused DaemonSet"
        ),
    ],
)
def test_which_pods_leave(changes: dict[str, Any], expected: list[str] | None) -> None:
    """Those that use the driver are evicted; others are waited for, or are left alone (None)."""
    found = step(pod("a", **changes))
    assert (None if found.is_drained else evicted(found)) == expected
    assert ("pod apps/a" in found.words) is (expected is not None)


@pytest.mark.parametrize(
    ("resource", "leaves"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/gpu.shared", True),
        ("nvidia.com/mig-1g.5gb", True),
        ("gpu.nvidia.com/a", False),
        ("example.com/fpga", False),
    ],
)
def test_an_entry_of_a_domain_covers_whatever_requests_name_in_it(resource: str, leaves: bool) -> None:
    """Which resources of it there are depends on the devices."""
    settings = DrainSettings(resources=("nvidia.com/",))
    found = progress(settings, RECORD, NodePods(pods=(pod("a", resources=frozenset({resource})),)), {}, NOW)
    assert evicted(found) == (["a"] if leaves else [])
    assert found.is_drained is not leaves


@pytest.mark.parametrize(
    ("resource", "leaves"),
    [("nvidia.com/mig-1g.5gb", True), ("nvidia.com/mig-3g.20gb", True), ("nvidia.com/gpu", False)],
)
def test_an_entry_with_a_star_covers_the_names_that_begin_so(resource: str, leaves: bool) -> None:
    """As a profile of MIG names them."""
    settings = DrainSettings(resources=("nvidia.com/mig-*",))
    found = progress(settings, RECORD, NodePods(pods=(pod("a", resources=frozenset({resource})),)), {}, NOW)
    assert evicted(found) == (["a"] if leaves else [])


@pytest.mark.parametrize(
    ("changes", "settings", "words"),
    [
        pytest.param({"is_bare": True}, {}, "nothing creates it again (rollout.drain.force evicts it)", id="bare"),
        pytest.param({"is_bare": True}, {"force": True}, "", id="bare, by force"),
        pytest.param({"has_local_data": True}, {"force": True}, "its emptyDir would be lost", id="files"),
        pytest.param({"has_local_data": True}, {"delete_empty_dir_data": True}, "", id="files that may be lost"),
        pytest.param(
            {"is_bare": True, "has_local_data": True},
            {"delete_empty_dir_data": True},
            "creates it again",
            id="one of two",
        ),
        pytest.param(
            {"is_bare": True, "has_local_data": True}, {"force": True, "delete_empty_dir_data": True}, "", id="both"
        ),
    ],
)
def test_pods_that_do_not_come_back_are_evicted_only_where_the_spec_says_so(
    changes: dict[str, Any], settings: dict[str, Any], words: str
) -> None:
    """As kubectl drain has it; while such a pod runs no other one is evicted, and after the deadline it is named."""
    every = NodePods(pods=(pod("notebook", **changes), pod("web")))
    found = progress(replace(SETTINGS, **settings), RECORD, every, {}, NOW)
    assert evicted(found) == ([] if words else ["notebook", "web"])
    assert words in found.words
    late = progress(replace(SETTINGS, **settings), RECORD, every, {}, NOW + 300)
    assert late.has_failed
    assert words in late.words
    assert waits(replace(SETTINGS, **settings), DriverKey("ns/edu"), every, None) is bool(words)


@pytest.mark.parametrize(
    ("namespaces", "changes", "words"),
    [
        pytest.param(None, {}, "", id="any namespace"),
        pytest.param(None, {"namespace": "kube-system"}, "", id="kube-system"),
        pytest.param(None, {"is_critical": True}, "", id="critical elsewhere"),
        pytest.param(
            None, {"namespace": "kube-system", "is_critical": True}, "is not evicted: it is critical", id="critical"
        ),
        pytest.param(
            None, {"namespace": "kube-system", "is_critical": True, **OTHER}, "", id="critical, and does not use it"
        ),
        pytest.param(("kube-system",), {"namespace": "kube-system", "is_critical": True}, "", id="critical, and named"),
        pytest.param(("apps", "jobs"), {}, "", id="named"),
        pytest.param(("jobs",), {}, "--drain-namespaces of driver-builder does not name its namespace", id="another"),
        pytest.param((), {"labels": {"uses": "fpga"}, **OTHER}, "does not name its namespace", id="none"),
        pytest.param((), OTHER, "", id="none, and it does not use the driver"),
    ],
)
def test_pods_are_evicted_where_the_controller_may(
    namespaces: tuple[str, ...] | None, changes: dict[str, Any], words: str
) -> None:
    """Others that the spec selects are waited for: what an author writes costs the author's node its upgrade."""
    one = replace(pod("dns"), **changes)
    found = progress(SETTINGS, RECORD, NodePods(pods=(one,)), {}, NOW, namespaces=namespaces)
    is_user = changes.get("resources") != OTHER["resources"] or "labels" in changes
    assert (evicted(found), found.is_drained) == (["dns"] if is_user and not words else [], not is_user)
    assert words in found.words


def test_claims_that_are_not_seen_are_said_when_the_rest_is_drained() -> None:
    """The module may be in use all the same; the wave says why."""
    unseen = NodePods(pods=(pod("web"),), unseen="ResourceClaims are not seen: x")
    assert evicted(progress(SETTINGS, RECORD, unseen, {}, NOW)) == ["web"]
    over = progress(SETTINGS, RECORD, replace(unseen, pods=()), {}, NOW)
    assert (over.is_drained, over.note) == (True, "drained, but ResourceClaims are not seen: x")


def test_jobs_come_first() -> None:
    """What they need may be among the others."""
    job = pod("job", labels={"kind": "job"})
    assert evicted(step(job, pod("web"))) == []
    assert evicted(step(pod("web"))) == ["web"]


@pytest.mark.parametrize(("later", "expected"), [(0, []), (9, []), (10, ["web"]), (-1, ["web"])])
def test_a_budget_is_asked_again_after_a_while(later: float, expected: list[str]) -> None:
    """The message says which pod stays, and why."""
    found = step(pod("web"), refused={"web": BUDGET}, later=later)
    assert evicted(found) == expected
    assert found.words == "pod apps/web: web stays: the disruption budget web needs 1"


def test_after_the_deadline_the_drain_has_failed() -> None:
    """Nobody is evicted any more; the words name the pod that a budget holds before those on their way."""
    found = step(pod("a", deleting=True), pod("web"), refused={"web": BUDGET}, later=300.0)
    assert found.has_failed
    assert evicted(found) == []
    assert found.words == "pod apps/web, pod apps/a: web stays: the disruption budget web needs 1"
    assert step(later=300.0).is_drained


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(progress(SETTINGS, RECORD, NodePods(unread="403 pods"), {}, NOW), id="listing pods"),
        pytest.param(
            step(pod("web"), refused={"web": EvictionRefused(message="403 pods", at=NOW, is_forbidden=True)}),
            id="evicting them",
        ),
    ],
)
def test_without_rights_the_wave_goes_on(found: Progress) -> None:
    """The note says what was left out, and what would allow it."""
    assert found.is_drained
    assert found.note == "not drained: apply deploy/driver-builder/drain.yaml to allow it; 403 pods"


def test_pods_that_are_not_read_yet_are_waited_for() -> None:
    """The next reconcile lists them."""
    assert progress(SETTINGS, RECORD, None, {}, NOW) == Progress(words="its pods are not read yet")


@pytest.mark.parametrize(
    "record",
    [
        RECORD,
        Draining(driver="ns/edu", since=7, is_drained=True, note="n", labels={"a": "", "b": "true"}),
        Draining(driver="ns/edu", failed="pod a", retry_at=9),
    ],
)
def test_a_record_is_read_as_it_was_written(record: Draining) -> None:
    """Also by a controller that has just started."""
    assert parse_draining(render_draining(record)) == record


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"driver":"a","since":-1}', '{"driver":"a","labels":7}', "nu"])
def test_a_record_that_cannot_be_read_is_nobodys(text: str) -> None:
    """It names no driver, and nothing that could be restored."""
    assert parse_draining(text) == Draining()


@pytest.mark.parametrize(
    ("changes", "is_last", "drained"),
    [
        pytest.param(OTHER, False, False, id="leaves with the label"),
        pytest.param(OTHER, True, True, id="leaves after the drain"),
        pytest.param({"claim_drivers": {"fpga.example.com"}, **OTHER}, True, False, id="has a claim"),
    ],
)
def test_a_daemon_set_that_selects_run_is_waited_for_where_that_goes_first(
    changes: dict[str, Any], is_last: bool, drained: bool
) -> None:
    """With a plugin that leaves last the label is still there: to wait for it would be for ever."""
    own = pod("a", is_daemon=True, node_selector=frozenset({stage_label(DriverKey("ns/edu"), Stage.RUN)}), **changes)
    settings = replace(SETTINGS, plugin_leaves_last=is_last)
    assert progress(settings, RECORD, NodePods(pods=(own,)), {}, NOW).is_drained is drained
