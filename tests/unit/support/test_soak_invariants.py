"""What a soak calls a violation, and what not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driver_builder.objects.slots import Place
from tests.support.soak import invariants
from tests.support.soak.controllers import Ended, Said
from tests.support.soak.invariants import At, DriverFace, NodeFace, PodFace, PullFace, Pushed, SetFace

KEY = "0123456789abcdef0123"
HERE, THERE = "boot-1 6.1.0-55", "boot-2 6.1.0-55"


def node(place: str = HERE, ready: str | None = None, proven_on: str = "", request: str = "") -> NodeFace:
    """Make a node."""
    return NodeFace(place=place, ready=ready, proven_on=proven_on, request=request)


def pod(proven_on: str = HERE, *, is_deleted: bool = False, refuted_on: str = "") -> PodFace:
    """Make a pod."""
    return PodFace(
        node="a",
        target="t",
        fingerprint="f1",
        proven_on=proven_on,
        is_deleted=is_deleted,
        refuted_on=refuted_on,
    )


def wanted(fingerprint: str = "f1", version: str = "1", rebuild: str = "", digest: str = "d") -> SetFace:
    """Make a DaemonSet."""
    return SetFace(
        target="t",
        kernel="6.1.0-55",
        fingerprint=fingerprint,
        version=version,
        rebuild=rebuild,
        digest=digest,
        modules=frozenset({("edu", "abc")}),
    )


def said(at: float, text: str, *, controller: str = "one", life: int = 1) -> Said:
    """Let a controller tell of a build."""
    return Said(at=at, controller=controller, life=life, key=KEY, text=text)


def a_build(began: float, *, controller: str = "one", life: int = 1, end: str = "done in 1 s") -> list[Said]:
    """Let a controller build for four seconds."""
    texts = ("starting ns/edu", "Step 1/3 : FROM debian", "verified dw_helper", end)
    return [said(began + at, text, controller=controller, life=life) for at, text in enumerate(texts)]


def killed(at: float, why: str = "killed") -> Ended:
    """End the first life of the first controller."""
    return Ended(at=at, controller="one", life=1, why=why)


PUSHED = Pushed(at=10.0, tag=f"1.0.0-{KEY}", digest="d")


def test_a_label_needs_a_proof_of_its_boot() -> None:
    """When it is set and when it moves to another boot, and of that node."""
    history = {"a": [At(1, node()), At(2, node(ready="1", proven_on=HERE)), At(3, node(THERE, "1", HERE))]}
    moved = {"a": [*history["a"], At(4, node(THERE, "1", THERE))]}
    assert list(invariants.unproven_labels(history, {("a", HERE)})) == []
    assert len(list(invariants.unproven_labels(history, {("b", HERE)}))) == 1
    assert len(list(invariants.unproven_labels(moved, {("a", HERE)}))) == 1


@pytest.mark.parametrize(
    ("after", "violations"),
    [(node(), 1), (node(THERE), 0), (node(ready="2", proven_on=HERE), 0), (None, 0)],
    ids=["same boot", "another boot", "another version", "the node is gone"],
)
def test_a_label_stays_while_its_proof_holds(after: NodeFace | None, violations: int) -> None:
    """It goes with the boot that it was proven on."""
    history = {"a": [At(1, node(ready="1", proven_on=HERE)), At(2, after)]}
    assert len(list(invariants.lost_labels(history, {}))) == violations


@pytest.mark.parametrize(
    ("said", "violations"),
    [
        ([At(1, pod()), At(5, pod(refuted_on=HERE))], 0),
        ([At(1, pod(refuted_on=HERE)), At(4, pod())], 0),
        ([At(1, pod(refuted_on=HERE)), At(2, pod())], 1),
        ([At(1, pod()), At(7, pod(refuted_on=HERE))], 1),
        ([At(1, pod()), At(5, pod(refuted_on=THERE))], 1),
    ],
    ids=["said so", "said so when the label was set", "before the label was set", "afterwards", "of another boot"],
)
def test_a_label_goes_by_contrary_evidence(said: list[At[PodFace]], violations: int) -> None:
    """A pod of the node says so on this boot, while the label is there."""
    history = {"a": [At(1, node()), At(3, node(ready="1", proven_on=HERE)), At(6, node())]}
    assert len(list(invariants.lost_labels(history, {"p": said}))) == violations


@pytest.mark.parametrize(("absence", "violations"), [(range(4, 7), 0), (range(7, 9), 1)])
def test_a_label_goes_with_its_driver(absence: range, violations: int) -> None:
    """From its deletion on, until it is back."""
    history = {"a": [At(3, node(ready="1", proven_on=HERE)), At(6, node())]}
    assert len(list(invariants.lost_labels(history, {}, [absence]))) == violations


@pytest.mark.parametrize(
    ("nodes", "sets", "violations"),
    [
        ([At(1, node())], [At(1, wanted())], 1),
        ([At(1, node())], [At(1, wanted()), At(4, wanted("f2"))], 0),
        ([At(1, node())], [At(1, wanted()), At(9, wanted("f2"))], 1),
        ([At(1, node())], [At(1, wanted()), At(4, None)], 0),
        ([At(1, node()), At(4, node(THERE))], [At(1, wanted())], 0),
        ([At(1, node()), At(4, None)], [At(1, wanted())], 0),
    ],
    ids=["no cause", "something else wanted", "wanted later", "no DaemonSet", "rebooted", "node gone"],
)
def test_a_working_pod_is_deleted_with_cause_alone(
    nodes: list[At[NodeFace]], sets: list[At[SetFace]], violations: int
) -> None:
    """The cause comes before the deletion; that it ends later is no second one."""
    history = {"p": [At(2, pod("")), At(3, pod()), At(5, pod(is_deleted=True)), At(6, None)]}
    assert len(list(invariants.harmed_pods(history, {"a": nodes}, {"t": sets}))) == violations


def test_a_pod_that_lost_its_module_may_be_deleted() -> None:
    """It does not work."""
    history = {"p": [At(2, pod()), At(3, pod(refuted_on=HERE)), At(5, None)]}
    assert list(invariants.harmed_pods(history, {"a": [At(1, node())]}, {"t": [At(1, wanted())]})) == []


@pytest.mark.parametrize(
    ("requested_at", "fingerprint", "violations"),
    [(4, "f2", 0), (0, "f1", 1), (1, "f2", 0), (6, "f1", 1)],
    ids=["older than the request", "no request", "something else wanted", "requested afterwards"],
)
def test_only_the_pod_of_the_node_that_requests_a_rebuild_is_replaced(
    requested_at: int, fingerprint: str, violations: int
) -> None:
    """And only one that was there by then."""
    nodes = [At(0, node()), *([At(requested_at, node(request="r"))] if requested_at else [])]
    history = {"p": [At(2, pod()), At(5, None)]}
    found = invariants.harmed_pods(history, {"a": nodes}, {"t": [At(1, wanted(fingerprint))]})
    assert len(list(found)) == violations


def test_a_pod_with_a_fingerprint_that_is_kept_works() -> None:
    """Another node requested the rebuild."""
    history = {"p": [At(2, pod()), At(5, None)]}
    kept = replace(wanted("f2", rebuild="r"), kept=frozenset({"f1"}))
    assert len(list(invariants.harmed_pods(history, {"a": [At(1, node())]}, {"t": [At(1, kept)]}))) == 1


@pytest.mark.parametrize(
    ("wave", "fingerprint", "place", "violations"),
    [("t-b", "f2", "others", 0), ("t-b", "f1", "others", 1), ("", "f2", "others", 1), ("", "f2", "moved", 0),
     ("t-b", "f2", "all", 1)],
    ids=["moved", "moved for nothing", "not moved", "moved back", "the wave is over"],
)  # fmt: skip
def test_a_pod_whose_node_a_wave_has_moved_is_deleted(wave: str, fingerprint: str, place: str, violations: int) -> None:
    """If something else is wanted there, by the DaemonSet that the node's label names."""
    target = "t-b" if place == "moved" else "t"
    other = "t" if place == "moved" else "t-b"
    history = {"p": [At(2, replace(pod(), target=target)), At(5, None)]}
    sets = {target: [At(1, replace(wanted(), place=Place(place)))], other: [At(1, wanted(fingerprint))]}
    found = invariants.harmed_pods(history, {"a": [At(1, replace(node(), wave=wave))]}, sets)
    assert len(list(found)) == violations


@pytest.mark.parametrize(
    ("pulls", "ready", "digest", "violations"),
    [
        ([At(3, PullFace(node="a", digest="d2", has_run=False)), At(4, PullFace(node="a", digest="d2", has_run=True))],
         "1", "d1", 0),
        ([], "1", "d1", 1),
        ([At(3, PullFace(node="a", digest="d2", has_run=False))], "1", "d1", 1),
        ([At(6, PullFace(node="a", digest="d2", has_run=True))], "1", "d1", 1),
        ([At(3, PullFace(node="a", digest="d1", has_run=True))], "1", "d1", 1),
        ([At(3, PullFace(node="b", digest="d2", has_run=True))], "1", "d1", 1),
        ([], None, "d1", 0),
        ([], "1", "d2", 0),
    ],
    ids=["there", "no pull pod", "it has not run", "afterwards", "another image", "another node",
         "the driver is not proven", "the same image"],
)  # fmt: skip
def test_a_working_pod_goes_when_the_next_image_is_there(
    pulls: list[At[PullFace]], ready: str | None, digest: str, violations: int
) -> None:
    """A container has run with that image on that node before."""
    history = {"p": [At(2, replace(pod(), digest=digest)), At(5, None)]}
    nodes = {"a": [At(1, node(ready=ready, proven_on=HERE if ready else ""))]}
    sets = {"t": [At(1, wanted("f2", digest="d2"))]}
    assert len(list(invariants.unpulled_images(history, nodes, sets, {"q": pulls}))) == violations


def tainted(place: str = HERE) -> NodeFace:
    """Make a node that has the taint."""
    return replace(node(place), is_tainted=True)


PROVEN = node(ready="1", proven_on=HERE)


@pytest.mark.parametrize(
    ("history", "violations"),
    [
        ([node(), tainted(), PROVEN], 0),
        ([PROVEN, tainted(THERE), node(THERE, "1", THERE)], 0),
        ([PROVEN, node(), tainted()], 1),
        ([tainted(), node()], 1),
        ([tainted(), node(THERE, "1", HERE)], 1),
        ([tainted(), node(), tainted()], 2),
        ([tainted(), None], 0),
    ],
    ids=["until proven", "another boot", "it had worked", "not proven", "proven on another boot", "twice", "gone"],
)
def test_a_taint_stays_until_the_driver_is_proven(history: list[NodeFace | None], violations: int) -> None:
    """And it comes once for each boot, where the driver has not worked."""
    found = invariants.wrong_taints({"a": [At(version, face) for version, face in enumerate(history, 1)]})
    assert len(list(found)) == violations


def test_a_taint_goes_with_its_driver() -> None:
    """And comes with the next one of that name."""
    # A label stays for a while when its driver is deleted.
    faces = (tainted(), PROVEN, replace(PROVEN, request="r"), node(), tainted(), node(), tainted(), PROVEN)
    history = {"a": [At(version, face) for version, face in enumerate(faces, 1)]}
    assert list(invariants.wrong_taints(history, [range(3, 5), range(6, 7)])) == []


def test_what_a_node_has_changes_with_version_and_rebuild_alone() -> None:
    """And no rebuild comes of itself."""
    good = [At(1, wanted()), At(2, wanted("f2", "2")), At(3, wanted("f3", "2", "r"))]
    assert list(invariants.needless_changes({"t": good}, 1)) == []
    assert len(list(invariants.needless_changes({"t": good}, 0))) == 1
    assert len(list(invariants.needless_changes({"t": [*good, At(4, wanted("f4", "2", "r"))]}, 1))) == 1
    assert list(invariants.unknown_images({"t": good}, {"d"})) == []
    assert len(list(invariants.unknown_images({"t": [At(1, wanted())]}, set()))) == 1


def test_a_rebuild_that_a_node_requests_makes_an_image_alone() -> None:
    """At most one for each request."""
    images = {"t": [At(1, wanted()), At(2, wanted(digest="e"))]}
    assert len(list(invariants.needless_changes(images, 0))) == 1
    assert list(invariants.needless_changes(images, 0, 1)) == []
    assert len(list(invariants.needless_changes({"t": [*images["t"], At(3, wanted("f2"))]}, 0, 1))) == 1


@pytest.mark.parametrize(("modules", "violations"), [({("edu", "abc")}, 0), ({("edu", "cba")}, 1)])
def test_a_daemon_set_expects_the_modules_of_its_image(modules: set[tuple[str, str]], violations: int) -> None:
    """As far as the image was looked into."""
    assert len(list(invariants.wrong_modules({"t": [At(1, wanted())]}, {"d": modules}))) == violations
    assert list(invariants.wrong_modules({"t": [At(1, wanted())]}, {})) == []


@pytest.mark.parametrize(
    ("uid", "heard", "violations"),
    [("u", 1599.0, 1), ("u", 1600.0, 0), ("u", 1000.0, 0), ("u", 10.0, 0), ("v", 1001.0, 0)],
    ids=["too early", "in time", "not again", "the clock was set back", "another driver"],
)
def test_nodes_are_heard_seldom(uid: str, heard: float, violations: int) -> None:
    """Those of one target."""
    history = {"edu": [At(1, DriverFace(uid="u", heard={"t": 1000.0})), At(2, DriverFace(uid=uid, heard={"t": heard}))]}
    assert len(list(invariants.hurried_rebuilds(history, 600.0))) == violations


def test_a_tagged_key_is_not_built_again() -> None:
    """To find the image there is no build."""
    found = [said(20, "starting ns/edu"), said(21, "r/edu:1 exists already: d"), said(22, "done in 1 s: d")]
    once = invariants.builds_of([*a_build(5), *found], [])
    assert list(invariants.built_again(once, [PUSHED])) == []
    assert len(list(invariants.built_again(invariants.builds_of(a_build(20), []), [PUSHED]))) == 1


@pytest.mark.parametrize(
    ("ended", "violations"),
    [([], 1), ([killed(2)], 0), ([killed(3.5)], 0), ([killed(2, "stopped")], 0)],
    ids=["both live", "killed before", "killed then", "stopped"],
)
def test_a_key_is_built_once_at_a_time(ended: list[Ended], violations: int) -> None:
    """Unless its first builder was killed, stopped or lost the Lease."""
    builds = invariants.builds_of([*a_build(1), *a_build(3, controller="two")], ended)
    assert len(list(invariants.built_twice_at_once(builds, ended))) == violations
    one_after_the_other = invariants.builds_of([*a_build(1), *a_build(5)], [])
    assert list(invariants.built_twice_at_once(one_after_the_other, [])) == []


def test_what_is_tagged_was_verified() -> None:
    """By a build of its key."""
    assert list(invariants.unverified_pushes(invariants.builds_of(a_build(1), []), [PUSHED])) == []
    unverified = [line for line in a_build(1) if "verified" not in line.text]
    assert len(list(invariants.unverified_pushes(invariants.builds_of(unverified, []), [PUSHED]))) == 1


def test_a_tag_is_not_moved() -> None:
    """The same digest may be pushed twice."""
    assert list(invariants.moved_tags([PUSHED, PUSHED])) == []
    other = Pushed(at=11.0, tag=PUSHED.tag, digest="e")
    assert len(list(invariants.moved_tags([PUSHED, other]))) == 1


@pytest.mark.parametrize(
    ("resident", "growth"), [([50, 60], 0), ([50, 90, 52, 55, 54, 54, 56, 57, 90], 5), ([50, 60, 70], 20)]
)
def test_memory_is_compared_between_thirds(resident: list[float], growth: float) -> None:
    """By their medians: one checkpoint may come at a bad moment."""
    assert invariants.growth(resident) == growth
