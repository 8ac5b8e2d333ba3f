"""What may run on nodes: a tag alone proves nothing, and a refusal takes nothing away."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.api import driver_container
from driver_builder.base.reasons import TargetState
from driver_builder.model.image_state import Absent, ImageState, Present, Unreachable
from driver_builder.model.images import KEY_LABEL
from driver_builder.plan.plan import plan
from driver_builder.rollout import image_trust
from driver_builder.snapshot.snapshot import Snapshot
from kube_api import names
from tests.support.driver_builder.changes import applied
from tests.support.driver_builder.factories import (
    DIGEST,
    IMAGE_LABELS,
    NAMESPACE,
    PRESENT,
    SETTINGS,
    driver,
    driver_object,
    ready_snapshot,
    snapshot,
    spec_of,
    wanted,
    with_images,
)
from tests.support.driver_builder.plans import after, only_target, verbs

MOVED = "sha256:" + "e" * 64
SIGNING = {"signing": {"imageKeySecretRef": {"name": "image-key"}}}
PREBUILT = {"kernelMappings": [{"regexp": ".*", "image": "r.io/vendor/edu:1"}]}
BY_DIGEST = {"kernelMappings": [{"regexp": ".*", "image": f"r.io/vendor/edu@{DIGEST}"}]}
TRUSTED = {"module": {"names": ["edudrv"], "trustImage": True}}


def rolled_out(**changes: Any) -> Snapshot:
    """A driver that works, as its status says."""
    seen = ready_snapshot(driver=driver(spec_changes=changes))
    if changes.get("signing"):
        seen = with_images(seen, replace(PRESENT, is_signed=True))
    return after(seen, plan(seen, SETTINGS))


def moved(seen: Snapshot, **image: Any) -> Snapshot:
    """Let the tag name another image, with the key and identities of before."""
    return with_images(seen, replace(PRESENT, digest=MOVED, **image))


@pytest.mark.parametrize("changes", [{}, SIGNING, PREBUILT], ids=["built", "to be signed", "prebuilt"])
def test_a_tag_that_moved_replaces_nothing(changes: dict[str, Any]) -> None:
    """It is reported; the digest that was rolled out is kept, and so it is the pass after, and when it comes back."""
    seen = moved(rolled_out(**changes))
    for _ in range(2):
        decided = plan(seen, SETTINGS)
        assert verbs(decided) == []
        entry = only_target(decided)
        assert (entry.state, entry.reason, entry.digest) == (TargetState.BLOCKED, "TagMoved", DIGEST)
        assert f"{names.ACCEPT_DIGEST_ANNOTATION}={MOVED}" in entry.message
        assert entry.ready_nodes == 1
        seen = after(seen, decided)
    back = with_images(seen, replace(PRESENT, is_signed=True))
    assert only_target(plan(back, SETTINGS)).state is TargetState.READY


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        pytest.param({}, Unreachable(message="no"), id="outage"),
        pytest.param({}, Absent(is_fresh=False), id="old absence"),
        pytest.param(PREBUILT, Absent(), id="prebuilt: nothing is built"),
    ],
)
def test_the_digest_is_kept_while_nothing_is_built(changes: dict[str, Any], state: ImageState) -> None:
    """An outage, or a deleted tag, between two looks at it is no way to another image."""
    seen = with_images(rolled_out(**changes), state)
    seen = after(seen, plan(seen, SETTINGS))
    assert only_target(plan(moved(seen), SETTINGS)).reason == "TagMoved"


def test_a_build_of_what_the_registry_lost_makes_the_next_digest() -> None:
    """Whoever is the controller when it ends: what a controller pushed is in its memory only."""
    seen = with_images(rolled_out(), Absent())
    decided = plan(seen, SETTINGS)
    assert verbs(decided) == ["StartBuild"]
    assert new_digests(moved(after(seen, decided))) == [MOVED]


def test_what_the_daemon_set_has_is_no_tag_that_moved() -> None:
    """The controller ended after it was applied, and before the status was written."""
    seen = moved(rolled_out())
    (item,) = wanted(seen)
    seen = replace(seen, daemon_sets=(replace(seen.daemon_sets[0], image=str(item.image.at(MOVED))),))
    assert only_target(plan(seen, SETTINGS)).digest == MOVED


def test_the_command_is_never_cut() -> None:
    """An image's name may be longer than a message."""
    changes = {"image": "r.io/" + "/".join(["long-name-of-a-team"] * 10)}
    seen = moved(rolled_out(**changes))
    (entry,) = after(seen, plan(seen, SETTINGS)).drivers[0].status["targets"]
    assert f"{names.ACCEPT_DIGEST_ANNOTATION}={MOVED} " in entry["message"]


def new_digests(seen: Snapshot) -> list[str]:
    """The digests that nodes are to be given."""
    actions = applied(plan(seen, SETTINGS).actions)
    pods = [action.manifest["spec"]["template"]["spec"] for action in actions]
    return [container["image"].partition("@")[2] for pod in pods for container in pod["containers"]]


def test_a_tag_that_we_moved_is_taken() -> None:
    """Our own build of this key ended with that image."""
    seen = moved(rolled_out())
    (item,) = wanted(seen)
    assert new_digests(replace(seen, pushed={item.image: MOVED})) == [MOVED]
    assert new_digests(replace(seen, pushed={item.image: DIGEST})) == []


@pytest.mark.parametrize(("is_signed", "expected"), [(True, [MOVED]), (False, [])])
def test_a_tag_that_names_a_signed_image_is_taken(is_signed: bool, expected: list[str]) -> None:
    """The image key is nobody else's."""
    assert new_digests(moved(rolled_out(**SIGNING), is_signed=is_signed)) == expected


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        pytest.param(MOVED, [MOVED], id="this image"),
        pytest.param(f"{DIGEST}, {MOVED}", [MOVED], id="several"),
        pytest.param(DIGEST, [], id="another image"),
        pytest.param(MOVED[:-1], [], id="not whole"),
        pytest.param("true", [], id="no image"),
    ],
)
def test_an_admin_accepts_a_tag_that_moved(annotation: str, expected: list[str]) -> None:
    """By the digest, with an annotation on the DriverContainer."""
    seen = moved(rolled_out())
    obj = driver_object(status=dict(seen.drivers[0].status), annotations={names.ACCEPT_DIGEST_ANNOTATION: annotation})
    assert new_digests(replace(seen, drivers=(driver_container.parse(obj),))) == expected


def test_another_image_is_another_pin() -> None:
    """A new version is a new tag: what was rolled out of the old one says nothing of it."""
    seen = rolled_out()
    changed = replace(seen, drivers=(driver(spec_changes={"version": "2.0.0"}, status=dict(seen.drivers[0].status)),))
    assert new_digests(moved(changed)) == [MOVED]


@pytest.mark.parametrize("labels", [{}, {KEY_LABEL: "other"}], ids=["none", "another"])
def test_an_image_of_another_build_is_not_given_to_nodes(labels: dict[str, str]) -> None:
    """The key is public and proves nothing alone; without it a tag is somebody's mistake."""
    state = Present(digest=DIGEST, labels={KEY_LABEL: "", **IMAGE_LABELS, **labels})
    decided = plan(with_images(snapshot(), state), SETTINGS)
    assert verbs(decided) == []
    assert (only_target(decided).state, only_target(decided).reason) == (TargetState.BLOCKED, "WrongBuildKey")


@pytest.mark.parametrize(
    ("changes", "is_signed", "reason"),
    [
        pytest.param(SIGNING, True, "WaitingForNodes", id="built, signed"),
        pytest.param(SIGNING, False, "ImageNotSigned", id="built, not signed"),
        pytest.param(SIGNING, None, "ImageNotSigned", id="built, not looked at"),
        pytest.param({**SIGNING, **PREBUILT}, False, "ImageNotSigned", id="prebuilt, not signed"),
        pytest.param({**SIGNING, **PREBUILT}, True, "WaitingForNodes", id="prebuilt, signed"),
        pytest.param({**SIGNING, **BY_DIGEST}, None, "WaitingForNodes", id="named by digest"),
        pytest.param({}, None, "WaitingForNodes", id="no key"),
    ],
)
def test_with_an_image_key_nothing_runs_unsigned(changes: dict[str, Any], is_signed: bool | None, reason: str) -> None:
    """The signature is looked at before anything is given to nodes."""
    seen = with_images(snapshot(drivers=(driver(spec_changes=changes),)), replace(PRESENT, is_signed=is_signed))
    decided = plan(seen, SETTINGS)
    assert only_target(decided).reason == reason
    assert bool(verbs(decided)) is (reason == "WaitingForNodes")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(SIGNING, "image-key", id="built"),
        pytest.param({**SIGNING, **PREBUILT}, "image-key", id="prebuilt"),
        pytest.param({**SIGNING, **BY_DIGEST}, None, id="named by digest"),
        pytest.param({}, None, id="no key"),
    ],
)
def test_the_key_of_an_image_is_that_of_its_driver(changes: dict[str, Any], expected: str | None) -> None:
    """Registries are asked about signatures only where one is wanted."""
    seen = snapshot(drivers=(driver(spec_changes=changes),))
    (item,) = wanted(seen)
    assert image_trust.image_key(spec_of(seen.drivers[0]), item) == expected


@pytest.mark.parametrize("changes", [PREBUILT, BY_DIGEST], ids=["by tag", "by digest"])
def test_an_image_without_identities_is_given_to_no_node_that_has_it_not(changes: dict[str, Any]) -> None:
    """Whatever module has the name would prove it; what runs stays, and a field of the spec allows it."""
    nameless = Present(digest=DIGEST, labels={})
    blocked = plan(with_images(snapshot(drivers=(driver(spec_changes=changes),)), nameless), SETTINGS)
    assert verbs(blocked) == []
    assert (only_target(blocked).state, only_target(blocked).reason) == (TargetState.BLOCKED, "NoIdentity")
    working = plan(with_images(rolled_out(**changes), replace(nameless, digest=MOVED)), SETTINGS)
    assert verbs(working) == []
    assert only_target(working).ready_nodes == 1
    trusted = with_images(snapshot(drivers=(driver(spec_changes={**changes, **TRUSTED}),)), nameless)
    assert new_digests(trusted) == [DIGEST]


@pytest.mark.parametrize("changes", [PREBUILT, BY_DIGEST], ids=["by tag", "by digest"])
def test_an_image_without_identities_that_is_rolled_out_stays(changes: dict[str, Any]) -> None:
    """It is no news: the DaemonSet of a version before goes on, without the version of the operating system."""
    seen = with_images(ready_snapshot(driver=driver(spec_changes=changes)), Present(digest=DIGEST, labels={}))
    old = replace(seen.daemon_sets[0], fingerprint="old", template="", expected={}, selects_os_version=True)
    seen = replace(seen, daemon_sets=(old,), pods=(replace(seen.pods[0], fingerprint="old", expected={}),))
    decided = plan(seen, SETTINGS)
    assert verbs(decided) == ["apply DaemonSet"]
    assert only_target(decided).state is TargetState.READY


def test_the_namespace_of_the_command_is_the_drivers() -> None:
    """What a person copies from the message works."""
    message = only_target(plan(moved(rolled_out()), SETTINGS)).message
    assert f"kubectl -n {NAMESPACE} annotate drivercontainer edu --overwrite" in message
