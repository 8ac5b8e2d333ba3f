"""Any snapshot, likely or not, for properties that hold whatever is seen."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from driver_builder.image_state import Absent, ImageState, Invalid, Present, Unauthorised, Unreachable
from driver_builder.proof import Proof
from driver_builder.snapshot import FailedBuild, Snapshot, Source, SourceMissing
from tests.unit.driver_builder.factories import (
    DIGEST,
    KERNEL,
    LOADED,
    NAMESPACE,
    NOW,
    OTHER_KERNEL,
    PRESENT,
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
node_labels = st.sampled_from([{}, {"pool": "x"}, {READY_LABEL: "1.0.0"}])
proofs = st.sampled_from([None, LOADED, loaded(OTHER_KERNEL), loaded(identity="x"),
                          Proof(result="WrongKernel", kernel=KERNEL, boot_id="x")])  # fmt: skip
states: st.SearchStrategy[ImageState] = st.sampled_from(
    [
        PRESENT,
        Present(digest=DIGEST),
        Absent(),
        Unauthorised(message="m"),
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
            spec_changes={"kernelMappings": draw(mappings), "image": draw(st.sampled_from(["r.io/edu", "bad"]))},
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
    items = [item for part in drivers if not isinstance(part.spec, Exception) for item in wanted(seen, part)]
    keys = [item.request.key for item in items if item.request is not None]
    return replace(
        seen,
        images={item.image: draw(states) for item in items},
        running_builds=frozenset(draw(st.lists(st.sampled_from(keys))) if keys else []),
        failed_builds={key: failed(draw(st.floats(0, 1e6))) for key in keys if draw(st.booleans())},
    )
