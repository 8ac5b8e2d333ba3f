"""Kernel discoveries and prebuilds in single plans: the cases that a world does not reach by itself."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.api.build_settings import ConfigMapKey
from driver_builder.api.prebuild_status import AheadStatus, condition, previous_ahead, render_ahead
from driver_builder.base.reasons import Reason, TargetState
from driver_builder.model import permissions
from driver_builder.model.build_proxy import BuildProxy
from driver_builder.model.image_state import Absent, ImageState, Unauthorized
from driver_builder.model.repositories import Discovery, Repository
from driver_builder.nodes.changes import DiscoverKernels, StartBuild
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.objects.driver_keys import driver_keys
from driver_builder.plan.plan import Plan, plan
from driver_builder.prebuild import upgrade_labels
from driver_builder.prebuild.gate import Gate, gate
from driver_builder.prebuild.prebuild import DAY_SECONDS, RETRY_SECONDS, images_ahead
from driver_builder.prebuild.preflight import parse_target
from driver_builder.prebuild.upgrade_labels import images_of_moves, ready_for_label
from driver_builder.snapshot.snapshot import Snapshot, Suspension
from driver_builder.targets.resolve_node import resolve_for
from tests.support.driver_builder.changes import labels, patches
from tests.support.driver_builder.factories import (
    KERNEL,
    NOW,
    PRESENT,
    SETTINGS,
    driver,
    node,
    snapshot,
    spec_of,
    with_images,
    with_key,
)
from tests.support.driver_builder.snapshots import snapshots

NEWEST = "6.1.0-56-cloud-amd64"
DEBIAN = Repository("debian", "debian:bookworm-slim", "amd64")
ABSENT = Absent()
FOUND = Discovery(releases=(KERNEL, NEWEST), at=NOW - 10)


def following(**changes: Any) -> Any:
    """Make a driver that follows its nodes' repository."""
    return driver(spec_changes={"preflight": {"followRepository": True}, **changes.pop("spec", {})}, **changes)


def seen(*nodes: Any, discovery: Discovery | None = FOUND, ahead: ImageState = ABSENT, **changes: Any) -> Snapshot:
    """Make a snapshot in which the images of nodes exist, and prebuilt ones are as given."""
    drivers = changes.pop("drivers", (following(),))
    discoveries = {DEBIAN: discovery} if discovery is not None else {}
    made = with_images(snapshot(*nodes, drivers=drivers, discoveries=discoveries, **changes), PRESENT)
    coming = {
        item.image: with_key(ahead, item)
        for found in (images_ahead, images_of_moves)
        for _, item in found(made, SETTINGS.template_versions)
    }
    return replace(made, images={**coming, **made.images})


def decided(*words: Any, **changes: Any) -> Plan:
    """Plan for such a snapshot."""
    return plan(seen(*words, **changes), SETTINGS)


def only_entry(made: Plan) -> AheadStatus:
    """Return the only entry of the only driver."""
    (part,) = made.drivers
    assert part.ahead is not None
    (entry,) = part.ahead
    return entry


def of_kind(made: Plan, kind: type[Any]) -> list[Any]:
    """Return the actions of a kind."""
    return [action for action in made.actions if isinstance(action, kind)]


def test_the_prebuilt_image_is_the_one_that_preflight_builds() -> None:
    """One key for both: what a person pushed before is found."""
    world = seen()
    (action,) = of_kind(plan(world, SETTINGS), StartBuild)
    container = world.drivers[0]
    target = parse_target(kernel=NEWEST, os="debian:12", architecture="amd64")
    item = resolve_for(world, container, spec_of(container), target, SETTINGS.template_versions)
    assert item is not None
    assert (action.request, action.waiting) == (getattr(item, "request", None), 0)
    assert action.request.key in plan(world, SETTINGS).drivers[0].needed


def test_a_discovery_goes_the_way_of_builds() -> None:
    """One that a proxy or CAs lead to is another repository; without them the result of before counts."""
    build = {"proxy": {"httpProxy": "http://p:1"}, "caConfigMap": {"name": "ca"}}
    (action,) = of_kind(decided(drivers=(following(spec={"build": build}),)), DiscoverKernels)
    assert action.proxy == BuildProxy(http="http://p:1")
    assert action.ca_config_map == ConfigMapKey(name="ca", key="ca.crt")
    assert action.repository != DEBIAN
    assert (str(action.repository), repr(action.repository)) == (str(DEBIAN), repr(DEBIAN))
    assert not of_kind(decided(), DiscoverKernels)


@pytest.mark.parametrize(
    ("discovery", "is_due"),
    [
        pytest.param(None, True, id="never"),
        pytest.param(FOUND, False, id="just now"),
        pytest.param(replace(FOUND, at=NOW - DAY_SECONDS + 1), False, id="not yet a day ago"),
        pytest.param(replace(FOUND, at=NOW - DAY_SECONDS - RETRY_SECONDS), True, id="a day ago"),
        pytest.param(Discovery(error="away", error_at=NOW - 10), False, id="failed just now"),
        pytest.param(Discovery(error="away", error_at=NOW - RETRY_SECONDS), True, id="failed an hour ago"),
    ],
)
def test_a_repository_is_asked_once_a_day(discovery: Discovery | None, is_due: bool) -> None:
    """An hour after a failure; and the pass says when to come back."""
    made = decided(discovery=discovery)
    assert bool(of_kind(made, DiscoverKernels)) == is_due
    assert is_due or (made.requeue_at is not None and NOW < made.requeue_at <= NOW + DAY_SECONDS + RETRY_SECONDS)


def test_a_repository_that_is_being_asked_is_not_asked_again() -> None:
    """Its answer is waited for."""
    assert of_kind(decided(discovery=None, running_discoveries=frozenset([DEBIAN])), DiscoverKernels) == []


@pytest.mark.parametrize(
    ("discovery", "reason", "words"),
    [
        pytest.param(None, Reason.NOT_LOOKED_UP, "is being asked", id="not yet"),
        pytest.param(Discovery(error="no route", error_at=NOW), Reason.DISCOVERY_FAILED, "no route", id="failed"),
        pytest.param(Discovery(releases=("6.12.9+deb12-amd64",), at=NOW), Reason.NOT_LOOKED_UP,
                     "no kernel of this stream", id="none of the stream"),
    ],
)  # fmt: skip
def test_where_no_newest_kernel_is_known_the_status_says_why(
    discovery: Discovery | None, reason: str, words: str
) -> None:
    """Nothing is built for a guess."""
    entry = only_entry(decided(discovery=discovery))
    assert (entry.target.state, entry.target.reason, entry.target.kernel) == (TargetState.PENDING, reason, "")
    assert words in entry.target.message


def test_a_failed_kernel_discovery_changes_nothing_that_was_known() -> None:
    """Neither image nor label; the failure is reported beside them."""
    discovery = replace(FOUND, error="no route", error_at=NOW)
    made = decided(discovery=discovery, ahead=PRESENT)
    entry = only_entry(made)
    assert (entry.target.state, entry.error, entry.looked_up) == (TargetState.READY, "no route", FOUND.at)
    assert [label for _, label, _ in labels(made.actions) if "ready-for" in label] == [ready_for_label(NEWEST)]


def test_what_an_older_controller_wrote_is_known_until_something_newer_is() -> None:
    """Status first, then memory; another base image is another repository."""
    old = only_entry(decided())
    drivers = (following(status={"ahead": render_ahead([old])}),)
    assert only_entry(decided(discovery=None, drivers=drivers)).target.kernel == NEWEST
    fresh = Discovery(releases=("6.1.0-57-cloud-amd64",), at=NOW)
    assert only_entry(decided(discovery=fresh, drivers=drivers)).target.kernel == "6.1.0-57-cloud-amd64"
    stale = replace(fresh, at=NOW - 1000)
    assert only_entry(decided(discovery=stale, drivers=drivers)).target.kernel == NEWEST
    other = (following(status={"ahead": render_ahead([old])}, spec={"build": {"baseImage": "debian:other"}}),)
    assert only_entry(decided(discovery=None, drivers=other)).target.kernel == ""


def test_nothing_is_prebuilt_while_builds_are_suspended() -> None:
    """But for the probe, when it is due: otherwise nothing might ever find out that builds work again."""

    def suspended(probe_at: float) -> dict[str, Any]:
        return {"suspended": {"": Suspension(why="builds are suspended", probe_at=probe_at)}}

    made = decided(**suspended(NOW + 30))
    assert of_kind(made, StartBuild) == []
    assert (only_entry(made).target.reason, made.requeue_at) == (Reason.BUILDS_SUSPENDED, NOW + 30)
    assert len(of_kind(decided(**suspended(NOW)), StartBuild)) == 1


def test_a_registry_that_does_not_say_blocks() -> None:
    """As for every image: only a proven absence starts a build."""
    made = decided(ahead=Unauthorized(message="401"))
    assert of_kind(made, StartBuild) == []
    assert (only_entry(made).target.state, only_entry(made).target.message) == (TargetState.BLOCKED, "401")


def test_nodes_whose_kernel_nobody_packages_are_in_no_pool() -> None:
    """The condition says so, and nothing is asked."""
    made = decided(node(kernel="6.6.52-custom_"), discovery=None)
    assert made.drivers[0].ahead == ()
    assert of_kind(made, DiscoverKernels) == []


def test_pools_that_share_a_repository_ask_it_once() -> None:
    """Two flavours, one base image."""
    made = decided(node(), node("node-b", "6.1.0-55-amd64"), discovery=None)
    assert made.drivers[0].ahead is not None
    assert len(made.drivers[0].ahead) == 2
    assert len(of_kind(made, DiscoverKernels)) == 1


def test_a_node_newer_than_the_repository_is_left_alone() -> None:
    """No node is labelled for an older kernel."""
    made = decided(node(kernel="6.1.0-99-cloud-amd64"))
    assert (only_entry(made).target.reason, of_kind(made, StartBuild)) == (Reason.NEWEST_KERNEL_RUNS, [])


def test_labels_that_nobody_can_vouch_for_go() -> None:
    """Also one that somebody set by hand, and one with another value."""
    forged = {"driverwright.io/ready-for.6.1.0-99-cloud-amd64": "true", ready_for_label(NEWEST): "yes"}
    made = decided(node(labels=forged), ahead=PRESENT)
    told = {label: value for _, label, value in labels(made.actions) if "ready-for" in label}
    assert told == {"driverwright.io/ready-for.6.1.0-99-cloud-amd64": None, ready_for_label(NEWEST): "true"}


def test_a_mapping_that_skips_the_newest_kernel_needs_nothing_built() -> None:
    """The node may move: a person said that the driver is not wanted there."""
    rules = [{"literal": NEWEST, "skip": True}, {"regexp": ".*"}]
    made = decided(drivers=(following(spec={"kernelMappings": rules}),))
    assert of_kind(made, StartBuild) == []
    assert only_entry(made).is_ready
    assert ready_for_label(NEWEST) in [label for _, label, _ in labels(made.actions)]


def test_a_selector_that_names_a_kernel_meets_no_newer_one() -> None:
    """There is nothing to build, and the move is no concern of this driver's."""
    selector = {"feature.node.kubernetes.io/kernel-version.full": KERNEL}
    made = decided(drivers=(following(spec={"nodeSelector": selector}),))
    assert of_kind(made, StartBuild) == []
    assert only_entry(made).target.reason == Reason.NO_NODES
    assert only_entry(made).is_ready


def movable(made: Plan) -> set[str]:
    """Name the nodes that a plan labels as ready for the newest kernel."""
    return {name for name, label, value in labels(made.actions) if label == ready_for_label(NEWEST) and value}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note down for which nodes the gate is asked."""
    nodes: list[str] = []

    def note(world: Snapshot, name: str, *words: Any) -> Gate:
        nodes.append(name)
        return gate(world, name, *words)

    monkeypatch.setattr(upgrade_labels, "gate", note)
    return nodes


ANNOTATED = [node(f"n{number:02}", rebuild="1") for number in range(20)]
NAMES = {item.name for item in ANNOTATED}


def test_nodes_whose_requests_are_acknowledged_are_judged_together(asked: list[str]) -> None:
    """The annotation stays on a node; a look at all nodes for each of a thousand takes a pass half a minute."""
    (part,) = decided(*ANNOTATED).drivers
    heard = following(status={"rebuild": part.rebuilds.as_status()})
    asked.clear()
    assert movable(decided(*ANNOTATED, drivers=(heard,), ahead=PRESENT)) == NAMES
    assert asked == ["n00"]


def test_nodes_whose_requests_are_not_acknowledged_do_not_move(asked: list[str]) -> None:
    """They would take the request along to a kernel for which nothing is built that has it; the gate is not asked."""
    labelled = [replace(item, labels={**item.labels, ready_for_label(NEWEST): "true"}) for item in ANNOTATED]
    made = decided(*labelled, ahead=PRESENT)
    gone = [part for part in patches(made.actions, "label Node") if ready_for_label(NEWEST) in part.labels]
    assert {(part.node, part.labels[ready_for_label(NEWEST)], part.why) for part in gone} == {
        (name, None, "not built and verified: driverwright/edu") for name in NAMES
    }
    assert asked == []
    assert not gate(seen(*labelled, ahead=PRESENT), "n00", NEWEST, SETTINGS.template_versions).is_open


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"nodeSelector": {"pool": "other"}}, id="another driver's nodes"),
        pytest.param({"kernelMappings": [{"regexp": ".*", "image": "r.io/x:1"}]}, id="an image that is not built"),
        pytest.param({"kernelMappings": [{"literal": NEWEST, "skip": True}, {"regexp": ".*"}]}, id="skipped there"),
    ],
)
def test_a_request_is_of_drivers_that_build_for_the_node(other: dict[str, Any]) -> None:
    """A driver that never acknowledges it, or makes nothing of it, holds no node back."""
    (part,) = decided(*ANNOTATED).drivers
    heard = following(status={"rebuild": part.rebuilds.as_status()})
    module = {"module": {"names": ["other"]}}
    made = decided(*ANNOTATED, drivers=(heard, driver("other", spec_changes={**module, **other})), ahead=PRESENT)
    assert movable(made) == NAMES


def limited(limits: dict[str, str]) -> PlanSettings:
    """Return the settings of a plan with limits."""
    versions = replace(SETTINGS.template_versions, permissions=permissions.read(limits))
    return replace(SETTINGS, template_versions=versions)


def test_a_driver_that_is_not_allowed_keeps_only_nodes_that_have_it_from_moving() -> None:
    """Nodes with and without it are judged apart."""
    other = driver("other", spec_changes={"module": {"names": ["other"]}, "image": "evil.example/other"})
    nodes = (node("a"), node("b", labels={driver_keys(other.key).ready: "1"}))
    world = seen(*nodes, drivers=(following(), other), ahead=PRESENT)
    made = plan(world, limited({"allowed_registries": "registry.example.com:5000/*"}))
    assert movable(made) == {"a"}


@given(snapshots(), st.sampled_from([{}, {"allowed_registries": "none"}]))
def test_whatever_is_seen_labels_are_set_only_where_the_gate_is_open(world: Snapshot, limits: dict[str, str]) -> None:
    """And what is written of pools is read again."""
    settings = limited(limits)
    made = plan(world, settings)
    for part in made.drivers:
        entries = part.ahead or ()
        assert previous_ahead({"ahead": render_ahead(entries)}) == {entry.pool: entry for entry in entries}
        assert condition(entries)["status"] in ("True", "False", "Unknown")
    for name, label, value in labels(made.actions):
        if label == ready_for_label(NEWEST) and value is not None:
            assert gate(world, name, NEWEST, settings.template_versions).is_open


def test_a_discovery_in_the_future_counts_as_now() -> None:
    """A clock was wrong when it was noted: what is found out today counts, and the next time is tomorrow."""
    entry = only_entry(decided())
    year = 365 * DAY_SECONDS
    noted = replace(entry, looked_up=NOW + year, error_at=None)
    made = decided(discovery=None, drivers=(following(status={"ahead": render_ahead([noted])}),))
    assert only_entry(made).looked_up == NOW
    assert made.requeue_at is not None
    assert made.requeue_at <= NOW + DAY_SECONDS + RETRY_SECONDS


@pytest.mark.parametrize("limits", [{"allowed_registries": "none"}, {"allowed_node_labels": "pool=gpu"}])
def test_nothing_is_asked_for_a_driver_that_is_not_allowed(limits: dict[str, str]) -> None:
    """What asks is a container of an image that the driver's author chose, with the driver's credentials."""
    spec_changes = {"preflight": {"followRepository": True}, "build": {"baseImage": "evil.example/x:1"}}
    versions = replace(SETTINGS.template_versions, permissions=permissions.read(limits))
    seen = snapshot(node(), drivers=(driver(spec_changes=spec_changes),))
    assert of_kind(plan(seen, SETTINGS), DiscoverKernels) != []
    assert of_kind(plan(seen, replace(SETTINGS, template_versions=versions)), DiscoverKernels) == []
