"""Any snapshot, likely or not, for properties that hold whatever is seen."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from driver_builder.model.image_state import Absent, ImageState, Invalid, Present, Unauthorized, Unreachable
from driver_builder.model.repositories import Discovery, Repository
from driver_builder.objects.load_report import LoadReport
from driver_builder.prebuild.prebuild import images_ahead
from driver_builder.prebuild.upgrade_labels import images_of_moves, ready_for_label
from driver_builder.snapshot.snapshot import FailedBuild, Snapshot, Source, SourceMissing
from tests.support.driver_builder.factories import (
    DIGEST,
    KERNEL,
    LOADED,
    NAMESPACE,
    NOW,
    OTHER_KERNEL,
    PRESENT,
    SETTINGS,
    SOURCE,
    daemon_set,
    driver,
    loaded,
    node,
    pod,
    snapshot,
    target,
    wanted,
)

READY_LABEL = f"driverwright.io/{NAMESPACE}.edu.ready"

words = st.sampled_from(["a", "b", "c"])
kernel_labels = st.sampled_from([KERNEL, OTHER_KERNEL, "junk!", None])
NEWEST = "6.1.0-56-cloud-amd64"
node_labels = st.sampled_from(
    [{}, {"pool": "x"}, {READY_LABEL: "1.0.0"}, {ready_for_label(NEWEST): "true"}, {ready_for_label("6.9.9"): "x"}]
)
DEBIAN = Repository("debian", "debian:bookworm-slim", "amd64")
discoveries = st.sampled_from([
    Discovery(),
    Discovery(releases=(KERNEL, NEWEST), at=NOW - 10),
    Discovery(releases=(OTHER_KERNEL, "junk!"), at=NOW - 2e5, error="away", error_at=NOW - 10),
])  # fmt: skip
ahead_before: st.SearchStrategy[dict[str, Any]] = st.sampled_from([{}, {"ahead": [{"kernel": "x"}]}, {"ahead": [{
    "kernel": NEWEST, "os": "debian:12", "architecture": "amd64", "stream": "6.1 cloud-amd64", "nodes": 1,
    "baseImage": "debian:bookworm-slim", "state": "Building", "reason": "x", "message": "m",
    "lookedUpTime": "2023-11-14T22:13:00Z", "lastTransitionTime": "2023-11-14T22:13:00Z",
}]}])  # fmt: skip
proofs = st.sampled_from([None, LOADED, loaded(OTHER_KERNEL), loaded(identity="x"),
                          LoadReport(result="WrongKernel", kernel=KERNEL, boot_id="x")])  # fmt: skip
states: st.SearchStrategy[ImageState] = st.sampled_from(
    [
        PRESENT,
        Present(digest=DIGEST),
        Absent(),
        Unauthorized(message="m"),
        Unreachable(message="m"),
        Invalid(message="m"),
    ]
)
mappings = st.sampled_from(
    [None, [], [{"regexp": ".*", "skip": True}], [{"literal": KERNEL}], [{"regexp": "6.*", "image": "r.io/x:1"}]]
)
sources: st.SearchStrategy[Source] = st.sampled_from([SOURCE, SourceMissing(message="the ConfigMap does not exist")])


def failed(seconds_ago: float, reason: str = "CompileError") -> FailedBuild:
    """Make a failed build."""
    return FailedBuild(reason=reason, message="edudrv.c:1: error", at=NOW - seconds_ago)


def _drivers(draw: st.DrawFn) -> tuple[Any, ...]:
    return tuple(
        driver(
            name,
            spec_changes={
                "kernelMappings": draw(mappings),
                "image": draw(st.sampled_from(["r.io/edu", "bad"])),
                "preflight": {"followRepository": draw(st.booleans())},
            },
            status=draw(ahead_before),
            paused=draw(st.booleans()),
            deleting=draw(st.booleans()),
            finalizer=draw(st.booleans()),
            rebuild=draw(st.none() | words),
        )
        for name in draw(st.lists(st.sampled_from(["edu", "other"]), unique=True))
    )


def _pods(draw: st.DrawFn, base: Snapshot) -> tuple[Any, ...]:
    return tuple(
        replace(
            pod(base, draw(words)),
            target=target(draw(st.sampled_from([KERNEL, OTHER_KERNEL]))).short_hash,
            fingerprint=draw(words),
            proof=draw(proofs),
            ready=draw(st.booleans()),
            deleting=draw(st.booleans()),
        )
        for _ in range(draw(st.integers(0, 3)))
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Any snapshot: parts need not fit each other."""
    nodes = tuple(
        node(name, draw(kernel_labels), labels=draw(node_labels), rebuild=draw(st.none() | words))
        for name in draw(st.lists(words, unique=True))
    )
    drivers = _drivers(draw)
    base = snapshot(node(), drivers=(driver(),))
    seen = Snapshot(
        now=NOW,
        nodes=nodes,
        drivers=drivers,
        sources={item.key: draw(sources) for item in drivers if draw(st.booleans())},
        pods=_pods(draw, base),
        daemon_sets=tuple(daemon_set(base, old=old) for old in draw(st.lists(st.booleans(), max_size=1))),
    )
    seen = replace(
        seen,
        discoveries={DEBIAN: draw(discoveries)} if draw(st.booleans()) else {},
        running_discoveries=frozenset([DEBIAN] if draw(st.booleans()) else []),
    )
    items = [item for part in drivers if not isinstance(part.spec, Exception) for item in wanted(seen, part)]
    items += [item for find in (images_ahead, images_of_moves) for _, item in find(seen, SETTINGS.template_versions)]
    keys = [item.request.key for item in items if item.request is not None]
    return replace(
        seen,
        images={item.image: draw(states) for item in items},
        running_builds=frozenset(draw(st.lists(st.sampled_from(keys))) if keys else []),
        failed_builds={key: failed(draw(st.floats(0, 1e6))) for key in keys if draw(st.booleans())},
    )
