"""Modules that are not what they were are loaded again, each time later."""

from dataclasses import replace

from driver_builder.api.node_notes import MAX_RELOADED, NodeNote, render_notes
from driver_builder.nodes.plan_view import DriverView
from driver_builder.plan import drift
from driver_builder.plan.plan import plan
from driver_builder.rollout.plan_target import plan_target
from driver_builder.snapshot.snapshot import Snapshot
from tests.support.driver_builder.changes import pods_replaced
from tests.support.driver_builder.factories import GONE, NOW, SETTINGS, driver, ready_snapshot, spec_of, wanted


def drifted(*notes: NodeNote) -> Snapshot:
    """Make a node whose module somebody removed, and what the status keeps of nodes."""
    seen = ready_snapshot()
    container = driver(status={"nodes": render_notes(notes)})
    return replace(seen, drivers=(container,), pods=(replace(seen.pods[0], ready=False, contrary=GONE),))


def replaced(seen: Snapshot) -> list[str]:
    """Name the nodes whose pods are replaced."""
    return [action.node for action in pods_replaced(plan(seen, SETTINGS).actions)]


def test_the_first_time_it_is_done_at_once() -> None:
    """And noted, so that a controller that is restarted waits before the next."""
    decided = plan(drifted(), SETTINGS)
    (action,) = pods_replaced(decided.actions)
    assert (action.node, action.why) == ("node-a", "NotLive: module edudrv is not live")
    assert decided.drivers[0].notes == (NodeNote(node="node-a", reloads=1, last_reload=NOW),)


def test_the_next_time_waits() -> None:
    """The plan says when to look again."""
    seen = drifted(NodeNote(node="node-a", reloads=1, last_reload=NOW - 59))
    assert replaced(seen) == []
    assert plan(seen, SETTINGS).requeue_at == NOW + 1
    assert replaced(drifted(NodeNote(node="node-a", reloads=1, last_reload=NOW - 60))) == ["node-a"]


def test_a_time_in_the_future_counts_as_now() -> None:
    """A clock that went back does not leave a node without its driver for ever."""
    seen = drifted(NodeNote(node="node-a", reloads=1, last_reload=NOW + 1e9))
    assert plan(seen, SETTINGS).requeue_at == NOW + 60


def test_a_node_that_was_well_for_long_starts_anew() -> None:
    """Two waits without a replacement."""
    note = NodeNote(node="node-a", reloads=3, last_reload=NOW - 480)
    well = replace(ready_snapshot(), drivers=(driver(status={"nodes": render_notes([note])}),))
    assert plan(well, SETTINGS).drivers[0].notes == ()
    later = replace(well, now=NOW - 1)
    assert plan(later, SETTINGS).drivers[0].notes == (note,)


def test_where_too_many_drift_those_that_cannot_be_remembered_wait() -> None:
    """Without a note the same pod would be replaced in each reconcile."""
    full = [NodeNote(node=f"n{number}", reloads=1, last_reload=NOW) for number in range(MAX_RELOADED)]
    assert replaced(drifted(*full)) == []


def test_a_pod_that_leaves_or_has_no_daemon_set_is_left_alone() -> None:
    """It is replaced already, or it is not to come again."""
    seen = drifted()
    assert replaced(replace(seen, pods=(replace(seen.pods[0], deleting=True),))) == []
    assert replaced(replace(seen, daemon_sets=())) == []


def test_the_wait_has_an_upper_end() -> None:
    """The delay never exceeds one hour."""
    note = NodeNote(node="node-a", reloads=10**9, last_reload=NOW)
    assert plan(drifted(note), SETTINGS).requeue_at == NOW + drift.RETRY.most


def test_on_a_node_that_the_driver_leaves_nothing_is_loaded_again() -> None:
    """The module is on its way out there: neither a pod is replaced nor a replacement noted."""
    seen = drifted()
    (container,) = seen.drivers
    view = replace(DriverView.of(seen, container, SETTINGS), wanted=wanted(seen))
    parts = [plan_target(view, spec_of(container), item) for item in wanted(seen)]
    assert [action.node for action in pods_replaced(drift.repair(view, parts).actions)] == ["node-a"]
    left = drift.repair(view, parts, frozenset({"node-a"}))
    assert (left.actions, left.requeue_at) == ((), None)
    assert [note.reloads for note in left.notes] == [0]


def test_drift_of_a_driver_that_goes_is_not_repaired() -> None:
    """Deleted, or of a kernel that is skipped now."""
    skipped = {"kernelMappings": [{"regexp": ".*", "skip": True}]}
    for going in (driver(deleting=True), driver(spec_changes=skipped)):
        assert replaced(replace(drifted(), drivers=(going,))) == []
