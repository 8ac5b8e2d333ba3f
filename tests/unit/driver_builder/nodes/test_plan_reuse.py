"""Which images of other kernels are candidates for a build, and what is reported of an image with re-used modules."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.api.rebuild_status import NODE
from driver_builder.model.build import BuildRequest, SourceFiles
from driver_builder.model.image_state import Absent, Present
from driver_builder.model.images import REUSED_LABEL, ImageRef
from driver_builder.nodes import plan_reuse
from driver_builder.nodes.actions import ReuseCandidate, StartBuild
from driver_builder.nodes.plan_reuse import MAX_CANDIDATES, Reusable
from driver_builder.plan.plan import plan
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets.desired_target import ImageTarget, PrebuiltTarget, TargetToBuild
from tests.support.driver_builder.factories import (
    DIGEST,
    IMAGE_LABELS,
    KERNEL,
    PRESENT,
    SETTINGS,
    Json,
    driver,
    node,
    snapshot,
    target,
    wanted,
    with_images,
)

NEW = "6.1.0-56-cloud-amd64"


def fleet(*kernels: str, present: tuple[str, ...] = (), spec: Json | None = None, **changes: object) -> Snapshot:
    """A fleet of one node for each kernel, with the images of some."""
    nodes = tuple(node(f"n{number}", kernel, **changes) for number, kernel in enumerate(kernels))  # type: ignore[arg-type]
    seen = snapshot(*nodes, drivers=(driver(spec_changes=spec),))
    states = {item.image: PRESENT if item.target.kernel_version in present else Absent() for item in wanted(seen)}
    return replace(seen, images=states)


def told(seen: Snapshot, kernel: str = NEW) -> tuple[ReuseCandidate, ...]:
    """The candidates of a kernel's build."""
    (action,) = [
        action
        for action in plan(seen, SETTINGS).actions
        if isinstance(action, StartBuild) and action.request.target.kernel_version == kernel
    ]
    return action.reuse


def test_an_image_of_another_live_kernel_is_a_candidate() -> None:
    """By its tag and its build key."""
    (candidate,) = told(fleet(KERNEL, NEW, present=(KERNEL,)))
    (other,) = [item for item in wanted(fleet(KERNEL, NEW)) if item.target.kernel_version == KERNEL]
    assert other.request is not None
    assert candidate == ReuseCandidate(kernel=KERNEL, image=other.image, key=other.request.key)


def test_an_image_that_is_not_built_yet_is_one_too() -> None:
    """Two new kernels are seen at once; by the time the second one's turn comes the first one is built."""
    seen = fleet(KERNEL, NEW)
    assert [candidate.kernel for candidate in told(seen, NEW)] == [KERNEL]
    assert [candidate.kernel for candidate in told(seen, KERNEL)] == [NEW]


def test_the_likeliest_come_first_and_no_more_than_a_few() -> None:
    """What is there, what is of the same flavour, what is newest."""
    kernels = ("6.1.0-9-amd64", "6.1.0-10-cloud-amd64", "6.1.0-9-cloud-amd64", "6.1.0-8-cloud-amd64", "6.1.0-7-amd64")
    seen = fleet(NEW, *kernels, present=("6.1.0-8-cloud-amd64", "6.1.0-9-amd64"))
    assert [candidate.kernel for candidate in told(seen)] == [
        "6.1.0-8-cloud-amd64",
        "6.1.0-9-amd64",
        "6.1.0-10-cloud-amd64",
    ]
    assert MAX_CANDIDATES == 3


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"build": {"reuseAcrossKernels": False}}, id="forbidden"),
        pytest.param({"kernelMappings": [{"literal": KERNEL, "skip": True}, {"regexp": ".*"}]}, id="skipped"),
        pytest.param({"kernelMappings": [{"literal": KERNEL, "image": "r.io/x:1"}, {"regexp": ".*"}]}, id="prebuilt"),
        pytest.param({"kernelMappings": [{"literal": KERNEL, "args": {"A": "1"}}, {"regexp": ".*"}]}, id="arguments"),
        pytest.param({"kernelMappings": [{"literal": KERNEL, "template": "x"}, {"regexp": ".*"}]}, id="no template"),
    ],
)
def test_what_is_made_of_other_parts_is_none(spec: Json) -> None:
    """Nor anything where the admin forbids it."""
    assert told(fleet(KERNEL, NEW, spec=spec)) == ()


def test_another_distribution_is_another_matter() -> None:
    """Its compiler and its headers differ, and so may what lies beside the modules."""
    seen = snapshot(node("a", KERNEL, os_version="13"), node("b", NEW))
    assert told(with_images(seen, Absent())) == ()


def test_a_rebuild_of_one_kernel_is_a_build() -> None:
    """Somebody asked for it, and the other kernel's modules are what there was before."""
    asked = driver(status={"rebuild": {"requests": {f"{NODE}b": "1"}, "tokens": {f"{NEW}/debian:12/amd64": "abc"}}})
    seen = snapshot(node("a", KERNEL), node("b", NEW, rebuild="1"), drivers=(asked,))
    assert told(with_images(seen, Absent())) == ()


def test_newer_kernels_of_its_own_flavour_do_not_hide_the_others() -> None:
    """A kernel is no candidate for itself; where its flavour has too few, others follow."""
    kernels = ("6.1.0-9-a", "6.1.0-8-a", "6.1.0-7-a", "6.1.0-2-b", "6.1.0-1-c")
    assert [candidate.kernel for candidate in told(fleet(*kernels), "6.1.0-9-a")] == [
        "6.1.0-8-a",
        "6.1.0-7-a",
        "6.1.0-2-b",
    ]
    assert [candidate.kernel for candidate in told(fleet(*kernels), "6.1.0-1-c")] == list(kernels[:3])


def as_defined(
    known: tuple[ImageTarget, ...], there: list[ImageTarget], item: ImageTarget
) -> tuple[ReuseCandidate, ...]:
    """Compare a target with all others, which takes quadratic time for all: what an index must find as well."""

    def unlikeliness(other: ImageTarget) -> tuple[bool, bool, tuple[int, ...], str]:
        mine, theirs = item.target.kernel_version, other.target.kernel_version
        flavours = [re.sub("[0-9]+", "", kernel) for kernel in (mine, theirs)]
        newest = tuple(-int(number) for number in re.findall("[0-9]+", theirs))
        return not any(other is one for one in there), flavours[0] != flavours[1], newest, theirs

    def has_same_parts(one: BuildRequest, other: BuildRequest) -> bool:
        if (one.target.os, one.target.architecture) != (other.target.os, other.target.architecture):
            return False
        return replace(one, target=other.target) == other

    found = [
        (
            unlikeliness(other),
            ReuseCandidate(kernel=other.target.kernel_version, image=other.image, key=other.request.key),
        )
        for other in known
        if isinstance(item, TargetToBuild) and other.request is not None and has_same_parts(other.request, item.request)
        if other.target.kernel_version != item.target.kernel_version
    ]
    return tuple(candidate for _, candidate in sorted(found, key=lambda pair: pair[0])[:MAX_CANDIDATES])


KERNELS = st.builds("6.{}.0-{}{}".format, st.integers(0, 12), st.integers(0, 12), st.sampled_from(["", "-a", "-cloud"]))
TARGETS = st.builds(
    target,
    KERNELS,
    os_version=st.sampled_from(["12", "12", "12", "13"]),
    architecture=st.sampled_from(["amd64", "amd64", "amd64", "arm64"]),
)


@st.composite
def some_wanted(draw: st.DrawFn) -> tuple[ImageTarget, ...]:
    """Make what a driver may want: of few parts, so that many are alike."""
    (plain,) = wanted(snapshot())
    made: list[ImageTarget] = []
    for one in draw(st.lists(TARGETS, max_size=30, unique=True)):
        request = replace(
            plain.request or pytest.fail("it is built"),
            target=one,
            args=draw(st.sampled_from([{}, {}, {}, {"A": "1"}])),
            rebuild=draw(st.sampled_from(["", "", "", "token"])),
            source=SourceFiles(files={"a": draw(st.sampled_from([b"", b"", b"", b"x"]))}),
        )
        image = ImageRef("r.io", "edu", request.key)
        is_prebuilt = draw(st.integers(0, 9)) == 0
        made.append(
            PrebuiltTarget(target=one, nodes=plain.nodes, image=image)
            if is_prebuilt
            else TargetToBuild(target=one, nodes=plain.nodes, image=image, request=request)
        )
    return tuple(made)


@given(some_wanted(), st.data())
def test_the_index_finds_what_a_look_at_all_others_would(every: tuple[ImageTarget, ...], data: st.DataObject) -> None:
    """For each target, also for one that is not among them, such as a kernel that is prebuilt."""
    there = {number for number in range(len(every)) if data.draw(st.booleans())}
    present = [every[number] for number in there]
    known = data.draw(st.sampled_from([every, every[1:]]))
    index = Reusable(known, lambda item: any(item is one for one in present))
    for item in every:
        assert index.candidates(item) == as_defined(known, present, item)


def test_a_thousand_new_kernels_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is compared with an example of its parts: once as one of the images, once as what is to be built."""
    compare, compared = plan_reuse._has_same_parts, 0

    def count(one: BuildRequest, other: BuildRequest) -> bool:
        nonlocal compared
        compared += 1
        return compare(one, other)

    monkeypatch.setattr(plan_reuse, "_has_same_parts", count)
    kernels = [f"6.1.0-{number}-cloud-amd64" for number in range(100)]
    assert len(plan(fleet(*kernels), SETTINGS).actions) == len(kernels)
    assert compared <= 2 * len(kernels)


@pytest.mark.parametrize(
    ("label", "words"),
    [
        pytest.param(
            json.dumps({"kernel": KERNEL, "digest": DIGEST, "compared": 11}),
            f"re-used the modules of kernel {KERNEL}: 11 symbol CRCs agree",
            id="told",
        ),
        pytest.param("{}", "", id="another shape"),
        pytest.param("x", "", id="no JSON"),
    ],
)
def test_the_status_says_whose_modules_they_are(label: str, words: str) -> None:
    """As the image itself does."""
    seen = with_images(snapshot(), Present(digest=DIGEST, labels={**IMAGE_LABELS, REUSED_LABEL: label}))
    (target,) = plan(seen, SETTINGS).drivers[0].targets
    assert target.message.partition("pod yet; ")[2] == words
