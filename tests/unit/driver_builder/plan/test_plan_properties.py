"""What holds of ``plan`` whatever is seen: it is total and pure, and does nothing that was not proven to be needed."""

from hypothesis import given

from driver_builder.api import status
from driver_builder.base.reasons import REASONS, Reason
from driver_builder.model.image_state import Absent
from driver_builder.nodes.changes import StartBuild
from driver_builder.plan.plan import plan
from driver_builder.snapshot.snapshot import Snapshot
from tests.support.driver_builder.changes import labels, pods_replaced
from tests.support.driver_builder.factories import SETTINGS
from tests.support.driver_builder.snapshots import snapshots


@given(snapshots())
def test_a_plan_exists_for_whatever_is_seen(seen: Snapshot) -> None:
    """``plan`` is total, is the same each time, and its status can be written and read back."""
    decided = plan(seen, SETTINGS)
    assert plan(seen, SETTINGS) == decided
    for part in decided.drivers:
        written = status.render(part.driver, part.targets, rebuilds=part.rebuilds, unknown=part.unknown, now=seen.now)
        read = status.previous_targets(written)
        assert set(read) == {entry.target for entry in part.targets}
    for action in decided.actions:
        assert str(action)


@given(snapshots())
def test_targets_have_the_states_that_the_table_of_reasons_gives(seen: Snapshot) -> None:
    """What documentation and remedies rest on."""
    for part in plan(seen, SETTINGS).drivers:
        for entry in part.targets:
            assert entry.state in REASONS[Reason(entry.reason)].states, entry


@given(snapshots())
def test_what_to_do_is_in_a_status_once(seen: Snapshot) -> None:
    """In a condition, never in a target's message, which the next reconcile reads back."""
    for part in plan(seen, SETTINGS).drivers:
        written = status.render(part.driver, part.targets, rebuilds=part.rebuilds, unknown=part.unknown, now=seen.now)
        for meaning in REASONS.values():
            if meaning.remedy:
                assert sum(meaning.remedy in item["message"] for item in written["conditions"]) <= 1
                assert all(meaning.remedy not in item["message"] for item in written["targets"])


@given(snapshots())
def test_no_plan_builds_what_is_there_or_labels_what_is_not_selected(seen: Snapshot) -> None:
    """Whatever is seen: builds only for proven absences, labels only for selected nodes, and never two of a key."""
    builds = [action for action in plan(seen, SETTINGS).actions if isinstance(action, StartBuild)]
    assert all(isinstance(seen.images[action.image], Absent) for action in builds)
    assert all(action.request.key not in seen.running_builds for action in builds)
    assert len({action.request.key for action in builds}) == len(builds)
    nodes = {item.name: item for item in seen.nodes}
    for name, _, value in labels(plan(seen, SETTINGS).actions):
        assert value is None or nodes[name].labels["pool"] == "edu"


@given(snapshots())
def test_no_plan_touches_a_node_that_the_selector_does_not_pick(seen: Snapshot) -> None:
    """Outside the selector a node loses a label that nobody proves, and nothing else happens there."""
    outside = {item.name for item in seen.nodes if item.labels.get("pool") != "edu"}
    changes = plan(seen, SETTINGS).actions
    assert all(value is None for name, _, value in labels(changes) if name in outside)
    assert outside.isdisjoint(change.node for change in pods_replaced(changes))
