"""Targets: nodes of one kernel, operating system and architecture share one, whatever versions their labels name."""

from dataclasses import replace
from unittest import mock

import pytest

from driver_builder.api.rebuild_status import Rebuilds
from driver_builder.model import images
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.image_state import Absent, Present
from driver_builder.model.kernels import KernelTarget
from driver_builder.nodes.changes import StartBuild
from driver_builder.plan.plan import plan
from driver_builder.prebuild.gate import gate
from driver_builder.snapshot.snapshot import DaemonSet, Snapshot
from driver_builder.targets.desired_target import BlockedTarget, ImageTarget, SkippedTarget, TargetToBuild
from driver_builder.targets.resolve import Resolved, resolve, stock_of
from driver_builder.targets.resolve_all import ResolveMemory, resolve_all
from driver_builder.targets.resolve_node import resolve_for
from kube_api import names
from tests.support.driver_builder.changes import applied
from tests.support.driver_builder.factories import (
    KERNEL,
    NAMESPACE,
    OTHER_KERNEL,
    PRESENT,
    SETTINGS,
    driver,
    node,
    snapshot,
    spec_of,
    target,
    wanted,
    with_images,
)


def recorded(os_version: str, kernel: str = KERNEL, **changes: str) -> DaemonSet:
    """Make a DaemonSet of a target with a version of the operating system."""
    made = DaemonSet(
        namespace=NAMESPACE, name=f"edu-{os_version}", uid=f"uid-{os_version}", driver=DriverKey(f"{NAMESPACE}/edu"),
        target=target(kernel, os_version=os_version).short_hash, image="r.io/edu@sha256:1", fingerprint="old",
        kernel=kernel, os_version=os_version,
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def test_our_own_status_resolves_nothing_anew() -> None:
    """Except for what it records: the version of the operating system that an image was built for."""
    memory, seen = ResolveMemory(), snapshot(node("a", os_version="12"), node("b", os_version="13"))
    (one,) = seen.drivers

    def resolved(status: dict[str, object]) -> Resolved:
        changed = replace(seen, drivers=(replace(one, status=status),))
        return resolve_all(changed, SETTINGS.template_versions, memory)[one.key]

    first = resolved({})
    assert [item.target.os_version for item in first.targets] == ["12"]
    assert resolved({"targets": [status_of("debian:13", digest="")]}) is first
    later = resolved({"targets": [status_of("debian:13")]})
    assert [item.target.os_version for item in later.targets] == ["13"]
    assert resolved({"targets": [{**status_of("debian:13"), "readyNodes": 2}]}) is later


def grouped(seen: Snapshot) -> dict[str, tuple[str, ...]]:
    """Return the nodes of each target by the version that it is recorded with."""
    stock = stock_of(seen, seen.drivers[0], spec_of(seen.drivers[0]))
    return {item.os_version: names_ for item, names_ in stock.targets.items()}


def status_of(os: str, digest: str = "sha256:1") -> dict[str, object]:
    """Make an entry of a driver's status."""
    return {
        "kernel": KERNEL, "os": os, "architecture": "amd64", "nodes": 1, "readyNodes": 1, "state": "Ready",
        "imageDigest": digest, "stream": "6.1 cloud-amd64", "baseImage": "debian:12",
    }  # fmt: skip


ANY_VERSION = {"build": {"baseImage": "debian:bookworm-slim"}}
NODES = (node("a", os_version="12"), node("b", os_version="12.9"), node("c", os_version="12.10"))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({}, "12", id="nothing recorded, as many of each: the lowest"),
        pytest.param({"targets": [status_of("debian:11")]}, "11", id="an image of the status exists"),
        pytest.param({"targets": [status_of("debian:11", "")]}, "12", id="no image exists yet"),
        pytest.param({"targets": [status_of("debian:12.10"), status_of("debian:12.9")]}, "12.9", id="numbers"),
        pytest.param({"targets": [status_of("rocky:9")]}, "12", id="another operating system"),
        pytest.param({"targets": [status_of("debian:1 2")]}, "12", id="no version"),
        pytest.param({"ahead": [status_of("debian:13")]}, "13", id="built ahead"),
    ],
)
def test_all_nodes_of_a_kernel_are_served_as_one_target(status: dict[str, object], expected: str) -> None:
    """The version is that of an image that exists, else that of most nodes, and of equals the lower."""
    assert grouped(snapshot(*NODES, drivers=(driver(status=status),))) == {expected: ("a", "b", "c")}


def test_most_nodes_decide_where_nothing_is_recorded() -> None:
    """The version of two nodes wins over a lower one of a single node."""
    assert grouped(snapshot(*NODES, node("d", os_version="12.9"))) == {"12.9": ("a", "b", "c", "d")}


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(recorded("11"), id="in an annotation or the selector"),
        pytest.param(recorded("11", target="another hash"), id="not the DaemonSet of that target"),
        pytest.param(recorded("11", kernel=OTHER_KERNEL), id="of another kernel"),
        pytest.param(replace(recorded("11"), os_version=None), id="not recorded"),
        pytest.param(replace(recorded("11"), os_version="1 1"), id="no version"),
        pytest.param(recorded("11", driver=f"{NAMESPACE}/other"), id="of another driver"),
    ],
)
def test_the_version_of_a_daemon_set_counts_first(known: DaemonSet) -> None:
    """It is in the DaemonSet's name and selector, which must not change; one that is damaged counts for nothing."""
    status = {"targets": [status_of("debian:13")]}
    seen = snapshot(*NODES, drivers=(driver(status=status),), daemon_sets=(known,))
    assert grouped(seen) == {"11" if known == recorded("11") else "13": ("a", "b", "c")}


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        pytest.param(("11", "12"), {"11": ("n0",), "12": ("n1",)}, id="both have nodes: both stay"),
        pytest.param(("11", "12", "13"), {"11": ("n0",), "12": ("n1",), "13": ("n2",)}, id="a third version"),
        pytest.param(("12", "13"), {"12": ("n0", "n1")}, id="one has no node any more: the other takes all"),
        pytest.param(("13",), {"11": ("n0",)}, id="neither has: the lower takes all"),
    ],
)
def test_two_daemon_sets_of_one_kernel_stay_until_one_has_no_nodes(
    versions: tuple[str, ...], expected: dict[str, tuple[str, ...]]
) -> None:
    """What an earlier release made is kept: each selects its version of the operating system."""
    nodes = [node(f"n{number}", os_version=version) for number, version in enumerate(versions)]
    seen = snapshot(*nodes, drivers=(driver(spec_changes=ANY_VERSION),), daemon_sets=(recorded("11"), recorded("12")))
    assert grouped(seen) == expected
    seen = with_images(seen)
    made = [action.manifest for action in applied(plan(seen, SETTINGS).actions)]
    selected = [item["spec"]["template"]["spec"]["nodeSelector"].get(names.OS_VERSION_LABEL) for item in made]
    assert selected == ([*expected] if len(expected) > 1 else [None])


def test_an_image_that_exists_is_taken_instead_of_building_another() -> None:
    """Where versions differ and nothing is recorded, the registry is asked for the image of each."""
    seen = snapshot(*NODES, drivers=(driver(spec_changes=ANY_VERSION),))
    (container,) = seen.drivers
    asked = {
        item.target.os_version: item.image
        for resolved in resolve_all(seen, SETTINGS.template_versions).values()
        for item in resolved.images
    }
    assert set(asked) == {"12", "12.9", "12.10"}
    labels = {
        images.DRIVER_LABEL: container.key, images.KERNEL_LABEL: KERNEL, images.OS_LABEL: "debian:12.10",
        images.ARCHITECTURE_LABEL: "amd64",
    }  # fmt: skip
    seen = replace(seen, images={**dict.fromkeys(asked.values(), Absent()), asked["12.10"]: Present(digest="sha256:1")})
    assert grouped(seen) == {"12": ("a", "b", "c")}, "it does not say what it was built for"
    seen = replace(seen, images={**seen.images, asked["12.10"]: Present(digest="sha256:1", labels=labels)})
    assert grouped(seen) == {"12.10": ("a", "b", "c")}


def test_a_kernel_that_no_node_runs_yet_is_asked_about_in_the_same_way() -> None:
    """What runs the kernel already says which image is meant, for a node that moves to it as for preflight."""
    here, there = node("a", os_version="12.9"), node("b", OTHER_KERNEL, os_version="12")
    seen = snapshot(here, there, daemon_sets=(recorded("12", OTHER_KERNEL),))
    (container,) = seen.drivers
    asked = resolve_for(
        seen, container, spec_of(container), target(OTHER_KERNEL, os_version="12.9"), SETTINGS.template_versions
    )
    assert asked is not None
    assert asked.target == target(OTHER_KERNEL)
    assert gate(with_images(seen), "a", OTHER_KERNEL, SETTINGS.template_versions).is_open


def test_a_rebuild_that_was_asked_for_before_is_still_in_the_key() -> None:
    """Tokens are kept by the target's id, which has the recorded version in it whatever nodes say today."""
    known = Rebuilds(requests={}, tokens={target().id: "token"}).as_status()
    seen = snapshot(
        node(os_version="12.9"), drivers=(driver(status={"rebuild": known}),), daemon_sets=(recorded("12"),)
    )
    (item,) = resolve(seen, seen.drivers[0], spec_of(seen.drivers[0]), SETTINGS.template_versions).targets
    assert isinstance(item, ImageTarget)
    assert isinstance(item, TargetToBuild)
    assert item.request.rebuild == ".token"


@pytest.mark.parametrize("owner", [KERNEL, OTHER_KERNEL])
def test_of_two_targets_with_one_name_the_second_is_refused(owner: str) -> None:
    """The target that the DaemonSet was made for keeps it, and the other one's status says so."""
    with mock.patch.object(KernelTarget, "short_hash", property(lambda _: "deadbeef")):
        seen = snapshot(node("a"), node("b", OTHER_KERNEL), daemon_sets=(recorded("12", owner),))
        items = resolve(seen, seen.drivers[0], spec_of(seen.drivers[0]), SETTINGS.template_versions).targets
        assert [item.target.kernel_version for item in items if isinstance(item, ImageTarget)] == [owner]
        (refused,) = [item for item in items if isinstance(item, SkippedTarget | BlockedTarget)]
        assert (refused.state, refused.reason) == ("Blocked", "TargetNameTaken")
        assert owner in refused.message
        decided = plan(with_images(seen, PRESENT), SETTINGS)
        rolled_out = [item.target for item in applied(decided.actions)]
    assert rolled_out == [target(owner).id]


def test_without_a_daemon_set_the_first_of_two_with_one_name_has_it() -> None:
    """The order of kernels decides, the same in every reconcile."""
    with mock.patch.object(KernelTarget, "short_hash", property(lambda _: "deadbeef")):
        seen = snapshot(node("a"), node("b", OTHER_KERNEL))
        items = resolve(seen, seen.drivers[0], spec_of(seen.drivers[0]), SETTINGS.template_versions).targets
    assert [type(item) for item in items] == [TargetToBuild, BlockedTarget]


def rebuilt(nodes: tuple[str, str]) -> Snapshot:
    """Make two nodes of one kernel, by their versions, and two DaemonSets of it, whose targets were both rebuilt."""
    tokens = {target(os_version=version).id: f"of-{version}" for version in ("11", "12")}
    known = {"rebuild": Rebuilds(requests={}, tokens=tokens).as_status()}
    return snapshot(
        *(node(name, os_version=version) for name, version in zip("ab", nodes, strict=True)),
        drivers=(driver(spec_changes=ANY_VERSION, status=known),),
        daemon_sets=(recorded("11"), recorded("12")),
    )


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        pytest.param(("12", "12"), "12", id="the node of the lower one was updated"),
        pytest.param(("11", "11"), "11", id="the node of the higher one was set up anew"),
        pytest.param(("13", "13"), "11", id="both were updated"),
    ],
)
def test_two_targets_that_become_one_build_nothing_anew(nodes: tuple[str, str], left: str) -> None:
    """The one that is left has the key that it had; the rebuild token of the one that goes stays in the status."""
    before = with_images(rebuilt(("11", "12")))
    keys = {item.target.os_version: item.request.key for item in wanted(before) if item.request}
    after = replace(rebuilt(nodes), images=before.images)
    assert {item.target.os_version: item.request.key for item in wanted(after) if item.request} == {left: keys[left]}
    decided = plan(after, SETTINGS)
    assert not any(isinstance(action, StartBuild) for action in decided.actions)
    assert decided.drivers[0].rebuilds.tokens == {target(os_version=it).id: f"of-{it}" for it in ("11", "12")}


def test_a_target_that_comes_back_has_the_rebuild_that_it_had() -> None:
    """While it had no nodes its token was kept: its image is the one that was built for it."""
    before = with_images(rebuilt(("11", "12")))
    alone = plan(replace(rebuilt(("12", "12")), images=before.images), SETTINGS)
    status = {"rebuild": alone.drivers[0].rebuilds.as_status()}
    back = replace(rebuilt(("11", "12")), drivers=(driver(spec_changes=ANY_VERSION, status=status),))
    assert [item.image for item in wanted(back)] == [item.image for item in wanted(before)]
