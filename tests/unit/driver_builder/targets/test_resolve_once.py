"""A reconcile resolves each driver before the registries are asked: the plan is that of one that resolves again."""

from dataclasses import dataclass
from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.controller.read_images import ImageReader
from driver_builder.model import images
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.image_state import Absent, ImageState, NotAsked, Present, Unreachable
from driver_builder.model.images import ImageRef
from driver_builder.plan.plan import plan
from driver_builder.snapshot.snapshot import DaemonSet, Snapshot
from tests.support.driver_builder.factories import (
    DIGEST,
    IMAGE_LABELS,
    KERNEL,
    NAMESPACE,
    OTHER_KERNEL,
    SETTINGS,
    driver,
    node,
    snapshot,
    target,
)

KERNELS = (KERNEL, OTHER_KERNEL)
VERSIONS = ("12", "12.9", "12.10")
DRIVERS = ("edu", "other")
MAPPINGS = (None, [{"literal": KERNEL, "skip": True}, {"regexp": ".*"}], [{"literal": KERNEL, "image": "r.io/x:1"}])
seldom = st.integers(0, 7).map(lambda number: number == 7)


@dataclass(frozen=True)
class AnyAnswers:
    """Registries that answer anything: images may have been built for another version, kernel or driver."""

    data: st.DataObject

    def inspect(
        self,
        namespace: str,  # noqa: ARG002
        settings: RegistrySettings,  # noqa: ARG002
        image: ImageRef,
        architecture: str = "",  # noqa: ARG002
        *,
        signed_by: str | None = None,  # noqa: ARG002
    ) -> ImageState:
        """Draw an answer."""
        labels = {
            images.DRIVER_LABEL: f"{NAMESPACE}/{self.data.draw(st.sampled_from(DRIVERS))}",
            images.KERNEL_LABEL: self.data.draw(st.sampled_from(KERNELS)),
            images.OS_LABEL: f"debian:{self.data.draw(st.sampled_from((*VERSIONS, '13')))}",
            images.ARCHITECTURE_LABEL: "amd64",
            images.KEY_LABEL: str(image).rpartition("-")[2],
        }
        found = Present(digest=DIGEST, labels={**IMAGE_LABELS, **labels})
        answers: tuple[ImageState, ...] = (found, found, Absent(), NotAsked(), Unreachable(message="m"))
        return self.data.draw(st.sampled_from(answers))


def entry(kernel: str, os_version: str) -> dict[str, Any]:
    """Make an entry of a status whose image existed."""
    return {
        "kernel": kernel, "os": f"debian:{os_version}", "architecture": "amd64", "nodes": 1, "readyNodes": 1,
        "state": "Ready", "imageDigest": DIGEST,
    }  # fmt: skip


def recorded(name: str, kernel: str, os_version: str) -> DaemonSet:
    """Make a DaemonSet of a target."""
    return DaemonSet(
        namespace=NAMESPACE, name=f"{name}-{kernel}-{os_version}", uid=f"{name}-{kernel}-{os_version}",
        driver=DriverKey(f"{NAMESPACE}/{name}"), target=target(kernel, os_version=os_version).short_hash,
        image=f"r.io/x@{DIGEST}", fingerprint="old", kernel=kernel, os_version=os_version,
    )  # fmt: skip


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Nodes of one kernel have several versions of their operating system; some targets are recorded, most are not."""
    places = tuple(product(KERNELS, VERSIONS))
    nodes = tuple(
        node(name, kernel, os_version=version, rebuild=draw(st.none() | st.just("x")))
        for name, (kernel, version) in zip(
            "abcd", draw(st.lists(st.sampled_from(places), min_size=2, max_size=4)), strict=False
        )
    )
    drivers = tuple(
        driver(
            name,
            spec_changes={
                "build": {"baseImage": "debian:12"},
                "kernelMappings": draw(st.sampled_from(MAPPINGS)),
                "preflight": {"followRepository": draw(st.booleans())},
            },
            status={"targets": [entry(*place) for place in places if draw(seldom)]},
            rebuild=draw(st.none() | st.just("x")),
        )
        for name in DRIVERS
    )
    sets = tuple(recorded(name, *place) for name, place in product(DRIVERS, places) if draw(seldom))
    return snapshot(*nodes, drivers=drivers, daemon_sets=sets)


@given(clusters(), st.data())
def test_images_that_become_known_change_the_plan_as_if_all_were_resolved_again(
    seen: Snapshot, data: st.DataObject
) -> None:
    """Also where an image that exists says which version of the operating system its kernel's nodes are served as."""
    reader = ImageReader(AnyAnswers(data), SETTINGS.template_versions)
    resolved = reader.resolve(seen)
    known = reader.read(seen, resolved)
    assert plan(known, SETTINGS, resolved) == plan(known, SETTINGS)
