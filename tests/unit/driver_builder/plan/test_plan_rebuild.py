"""Rebuild annotations: a new value is a new key, once."""

from dataclasses import replace

from driver_builder.model.image_state import Absent
from driver_builder.plan.plan import plan
from tests.support.driver_builder.factories import (
    KERNEL,
    NOW,
    OTHER_KERNEL,
    SETTINGS,
    driver,
    node,
    snapshot,
    wanted,
    with_images,
)
from tests.support.driver_builder.plans import after, key_of, verbs


def test_a_rebuild_annotation_changes_every_key() -> None:
    """An annotated driver is built anew for each of its kernels, though all images are there."""
    nodes = (node("a"), node("b", OTHER_KERNEL))
    before = with_images(snapshot(*nodes))
    seen = replace(with_images(snapshot(*nodes, drivers=(driver(rebuild="1"),)), Absent()), now=NOW)
    seen = replace(seen, images={**before.images, **seen.images})
    assert verbs(plan(seen, SETTINGS)) == ["StartBuild", "StartBuild"]


def test_a_rebuild_annotation_on_a_node_changes_its_target_only() -> None:
    """An annotated node is built anew for its own kernel alone."""
    plain = with_images(snapshot(node("a"), node("b", OTHER_KERNEL)))
    annotated = snapshot(node("a", rebuild="1"), node("b", OTHER_KERNEL))
    keys = {item.target.kernel_version: item.request.key for item in wanted(plain) if item.request}
    new_keys = {item.target.kernel_version: item.request.key for item in wanted(annotated) if item.request}
    assert keys[KERNEL] != new_keys[KERNEL]  # type: ignore[index]
    assert keys[OTHER_KERNEL] == new_keys[OTHER_KERNEL]  # type: ignore[index]


def test_a_rebuild_that_was_done_is_not_done_again() -> None:
    """The status remembers the value: the same value, or none, means the image that was built for it."""
    seen = with_images(snapshot(drivers=(driver(rebuild="1"),)))
    written = after(seen, plan(seen, SETTINGS)).drivers[0].status
    for later in (driver(rebuild="1", status=written), driver(status=written)):
        assert wanted(snapshot(drivers=(later,)))[0].image == wanted(seen)[0].image


def test_a_restart_before_the_status_was_written_makes_the_same_key() -> None:
    """Killed between the build's start and the status, the next controller asks for the very same image."""
    assert key_of(snapshot(drivers=(driver(rebuild="1"),))) == key_of(snapshot(drivers=(driver(rebuild="1"),)))
