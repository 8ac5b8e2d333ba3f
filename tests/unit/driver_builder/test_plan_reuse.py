"""Which images of other kernels a build is told of, and what is said of an image whose modules are another kernel's."""

import json
from dataclasses import replace

import pytest

from driver_builder.model.image_state import Absent, Present
from driver_builder.model.images import REUSED_LABEL
from driver_builder.planning.actions import ReuseCandidate, StartBuild
from driver_builder.planning.plan import plan
from driver_builder.planning.plan_reuse import MAX_CANDIDATES
from driver_builder.planning.rebuild import NODE
from driver_builder.planning.snapshot import Snapshot
from tests.unit.driver_builder.factories import (
    DIGEST,
    IMAGE_LABELS,
    KERNEL,
    PRESENT,
    SETTINGS,
    Json,
    driver,
    node,
    snapshot,
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
    """What the build for a kernel is told of."""
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
        pytest.param({"kernelMappings": [{"literal": KERNEL, "image": "r/x:1"}, {"regexp": ".*"}]}, id="prebuilt"),
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
