"""Nodes that have left the selector and returned: when the driver's pods may come to them again."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.api.rebuild_status import Rebuilds
from driver_builder.model.driver_key import DriverKey
from driver_builder.nodes import held_out
from driver_builder.nodes.plan_view import DriverView
from driver_builder.objects import loaded
from driver_builder.objects.driver_keys import driver_keys
from driver_builder.objects.loaded import Load, Loaded
from driver_builder.objects.slots import SECOND, Place, Slot
from driver_builder.objects.yielding import OUTSIDE, Yielding, render_yielding
from driver_builder.snapshot.inventory import Node
from kube_api import names
from tests.support.driver_builder.factories import BOOT_ID, KERNEL, NAMESPACE, SETTINGS, daemon_set, driver, node
from tests.support.driver_builder.factories import snapshot as seen_by

KEY = DriverKey(f"{NAMESPACE}/edu")
SEEN = seen_by()
OLD = daemon_set(SEEN)
BUILT = tuple(OLD.expected.items())
LOAD = Load(target=OLD.target, kernel=KERNEL, boot_id=BOOT_ID, modules=BUILT, fingerprint=OLD.fingerprint)
OTHER = replace(OLD, fingerprint="v2:other", expected={"edudrv": "FFFF"})
SAME_BUILD = replace(OLD, fingerprint="v2:other")
WAVE = names.wave_label(NAMESPACE, "edu")
PARAMETERS = {"module": {"names": ["edudrv"], "parameters": {"edudrv": ["level=2"]}}}
NO_REBUILDS = Rebuilds(requests={}, tokens={})


def kept_out(*loads: Load, first: str = "", **labels: str) -> Node:
    """Make a node that pods are kept from; perhaps the driver yields to a ``first`` one there."""
    made = node()
    record = (
        {names.YIELDING_ANNOTATION: render_yielding(Yielding(first=DriverKey(first), drivers=(KEY,)))} if first else {}
    )
    annotations = {**made.annotations, **record, loaded.annotation(KEY): loaded.render(Loaded(loads=loads))}
    return replace(made, annotations=annotations, labels={**made.labels, driver_keys(KEY).yields: OUTSIDE, **labels})


def waits(where: Node, *daemon_sets: Any, written: frozenset[str] = frozenset(), **changes: Any) -> bool:
    """Return whether a node has to wait for a wave or an image."""
    container = driver(spec_changes=changes.pop("spec", {}))
    seen = seen_by(where, drivers=(container,), daemon_sets=daemon_sets)
    view = replace(DriverView.of(seen, container, SETTINGS), **changes)
    return bool(held_out.waiting(view, [where.name, "gone"], OLD.target, written))


@pytest.mark.parametrize(
    ("where", "daemon_sets", "changes", "expected"),
    [
        pytest.param(kept_out(LOAD), (OLD,), {}, False, id="the same"),
        pytest.param(kept_out(LOAD), (OTHER,), {}, True, id="another build"),
        pytest.param(kept_out(LOAD), (SAME_BUILD,), {"spec": PARAMETERS}, True, id="perhaps other parameters"),
        pytest.param(kept_out(LOAD), (SAME_BUILD,), {}, False, id="the same build"),
        pytest.param(kept_out(LOAD), (SAME_BUILD,), {"rebuilds": replace(NO_REBUILDS, tokens={"*": "t"})}, True,
                     id="a rebuild"),
        pytest.param(kept_out(replace(LOAD, fingerprint="")), (OLD,), {}, False, id="an earlier record, same build"),
        pytest.param(kept_out(replace(LOAD, fingerprint="")), (OTHER,), {}, True, id="an earlier record"),
        pytest.param(kept_out(replace(LOAD, target="abcdef01")), (OLD,), {}, True, id="of another target"),
        pytest.param(kept_out(LOAD), (), {}, True, id="no image yet"),
        pytest.param(kept_out(LOAD), (OLD,), {"written": frozenset([OLD.name])}, True, id="it is being written"),
        pytest.param(kept_out(replace(LOAD, boot_id="before")), (OTHER,), {}, False, id="nothing is loaded"),
        pytest.param(kept_out(), (), {}, False, id="nothing was loaded"),
        pytest.param(kept_out(LOAD, first=f"{NAMESPACE}/ofed"), (OTHER,), {}, True, id="it is to yield later"),
        pytest.param(kept_out(LOAD, first=f"{NAMESPACE}/ofed", **{driver_keys(KEY).yields: "ofed"}), (OTHER,), {},
                     False, id="it yields"),
        pytest.param(kept_out(LOAD, first=f"{NAMESPACE}/outside"), (OTHER,), {}, False,
                     id="it yields to one of that name"),
        pytest.param(node(), (OTHER,), {}, False, id="pods may come"),
    ],
)  # fmt: skip
def test_a_node_waits_where_its_next_pod_would_load_something_else(
    where: Node, daemon_sets: Any, changes: dict[str, Any], expected: bool
) -> None:
    """By what the Node records, and the DaemonSet of its target."""
    assert waits(where, *daemon_sets, **changes) is expected


@pytest.mark.parametrize(("value", "expected"), [(f"{OLD.target}-b", True), ("", False)], ids=["moved", "not moved"])
def test_in_a_wave_it_counts_what_the_node_would_get(value: str, expected: bool) -> None:
    """By its wave label."""
    new = replace(OTHER, slot=Slot(SECOND, Place.MOVED), name=f"{OLD.name}-b")
    old = replace(OLD, slot=Slot("", Place.OTHERS))
    assert waits(kept_out(LOAD, **{WAVE: value}), old, new) is expected
