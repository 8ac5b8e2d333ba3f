"""Whatever step of a plan ends in an error, and for however long: nothing is begun or ended on a guess."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.api.driver_container import DriverContainer
from driver_builder.base.reasons import Reason
from driver_builder.nodes.changes import Change, PatchNode
from driver_builder.nodes.plan_view import DriverPlan, DriverView
from driver_builder.plan import leave
from driver_builder.plan import plan as plan_module
from driver_builder.plan.plan import Plan
from driver_builder.rollout import fleet, prepare
from driver_builder.rollout.clearance import Clearance
from driver_builder.rollout.hold_node import Hold
from driver_builder.rollout.holds import Holds
from driver_builder.rollout.order import Order
from driver_builder.rollout.pulls import Pulls
from driver_builder.snapshot.snapshot import Snapshot
from kube_api import names
from kube_api.node_lock import parse_lock
from kube_api.resources import NODES
from tests.support.driver_builder.changes import holds, labels
from tests.support.driver_builder.factories import KERNEL, NAMESPACE
from tests.support.examples import few
from tests.unit.driver_builder.world.test_world_drain import drained_world
from tests.unit.driver_builder.world.test_world_order import (
    FIRST,
    SECOND,
    OrderWorld,
    assert_all_is_well,
    drivers_of,
    ordered,
)
from tests.unit.driver_builder.world.test_world_rollout import GOOD

STEPS: dict[str, tuple[object, str]] = {
    name: (owner, name.rpartition(".")[2])
    for owner, every in {
        plan_module: (
            "label_moves", "conflicts", "resource_conflicts", "dependencies", "held_waves", "of_pending",
            "written_needs", "share_of", "admit", "prepare", "without_label",
        ),
        fleet: ("_admitted", "_of_dependents", "_with_images"),
        prepare: ("_prepared", "with_pulls"),
        leave: ("hold_back", "_held_back"),
        Holds: ("Holds.of",),
        Pulls: ("Pulls.of",),
        Order: ("Order.of", "Order.without_waiting", "Order.obstacle"),
        Clearance: ("Clearance.clearing", "Clearance.may_return"),
        Hold: ("Hold.take", "Hold.go_on", "Hold.clear", "Hold.has_to_clear"),
    }.items()
    for name in every
}  # fmt: skip
LONE = "lone"


def names_of(value: object) -> Iterator[str]:
    """Name the drivers that a value is about."""
    match value:
        case DriverPlan() | DriverView():
            yield value.driver.name
        case DriverContainer():
            yield value.name
        case Hold():
            yield value.driver.rpartition("/")[2]
        case Snapshot():
            yield from (driver.name for driver in value.drivers)
        case str():
            yield value.rpartition("/")[2]
        case list() | tuple():
            for item in value:
                yield from names_of(item)


@contextmanager
def raising(step: str, driver: str = "") -> Iterator[None]:
    """Let a step of all plans end in an error, or those that are about one driver."""
    owner, name = STEPS[step]
    plain: Callable[..., object] = getattr(owner, name)

    def broken(*values: Any, **others: Any) -> object:
        about = min(filter(None, (set(names_of(value)) for value in values)), key=len, default=set[str]())
        if not driver or driver in about:
            raise RuntimeError("a bug")
        return plain(*values, **others)

    with patch.object(owner, name, broken):
        yield


def is_harmless(action: Change) -> bool:
    """Return whether an action neither begins nor ends anything: it keeps a lock, or takes a label that is refuted."""
    parts = [action] if isinstance(action, PatchNode) else []
    renewed = (part.annotations.get(names.LOCK_ANNOTATION) for part in holds(parts) if len(part.annotations) == 1)
    gone = [value for _, _, value in labels(parts) if value is None]
    return len(parts) == len(gone) + sum(text is not None for text in renewed) > 0


def undecided(decided: Plan) -> set[str]:
    """Name the drivers for which an error left nothing decided, and look at what is done for them all the same."""
    parts = [part for part in decided.drivers if part.trouble is not None]
    assert all(is_harmless(action) for part in parts for action in part.actions)
    assert all(part.trouble.reason is Reason.INTERNAL_ERROR for part in parts if part.trouble)
    return {part.driver.name for part in parts}


edits = st.sampled_from([(FIRST, "int y;"), (FIRST, "int z;"), (SECOND, "int y;"), (FIRST, "delete"), ("", "")])
errors = st.tuples(edits, st.integers(0, 12), st.sampled_from(sorted(STEPS)), st.sampled_from(["", FIRST, SECOND]))


def live_through(world: OrderWorld, history: list[tuple[tuple[str, str], int, str, str]]) -> None:
    """Let somebody edit drivers, and errors come and go; each pass keeps what works within the budget."""
    for (name, text), rounds, step, whose in history:
        if text == "delete" and SECOND in drivers_of(world):
            # Another driver depends on it: it stays, and the object as well.
            world.delete_driver(name)
        elif name and text != "delete":
            world.edit(name, text)
        world.rounds(rounds)
        with raising(step, whose):
            for _ in range(6):
                undecided(world.reconcile(world.look))
                world.finish_builds()
                world.turn()
                world.now += 100.0


@pytest.mark.costly
@few(12)
@given(st.lists(errors, min_size=1, max_size=3))
def test_no_error_in_a_plan_does_harm(history: list[tuple[tuple[str, str], int, str, str]]) -> None:
    """Two drivers of which one depends on the other: no module goes under another one, and all is well in the end."""
    world = ordered(2)
    deleted = any(text == "delete" for (_, text), *_ in history)
    live_through(world, history)
    world.arrive()
    assert world.failed == []
    if not deleted:
        assert_all_is_well(world)
    assert drivers_of(world) == [FIRST, SECOND]


@pytest.mark.parametrize("step", sorted(STEPS))
@pytest.mark.parametrize("whose", ["", FIRST])
def test_a_deleted_driver_stays_for_its_dependent_through_any_error(step: str, whose: str) -> None:
    """What says that another one depends on it may be what cannot be computed."""
    world = ordered(1)
    before = dict(world.live["node-0"])
    world.delete_driver(FIRST)
    with raising(step, whose):
        for _ in range(3):
            decided = world.reconcile(world.look)
            undecided(decided)
            world.turn()
    assert world.live["node-0"] == before
    assert names.ready_label(NAMESPACE, FIRST) in world.client.objects[NODES.path(name="node-0")]["metadata"]["labels"]


@pytest.mark.parametrize("step", ["conflicts", "dependencies", "resource_conflicts", "_prepared", "with_pulls",
                                  "_held_back", "without_label", "share_of"])  # fmt: skip
def test_an_error_belongs_to_the_driver_that_raises_it_and_to_those_it_is_related_to(step: str) -> None:
    """A driver that has nothing to do with them gets its upgrade."""
    world = ordered(1)
    world.add(LONE)
    world.rounds(8)
    before = dict(world.live["node-0"])
    world.edit(LONE, "int y;")
    with raising(step, FIRST):
        assert undecided(world.decide()) in ({FIRST}, {FIRST, SECOND})
        world.rounds(12)
    after = world.live["node-0"]
    assert {name for name in after if after[name] != before[name]} == {f"{LONE}drv"}


def test_while_nothing_is_decided_locks_are_renewed_and_refuted_labels_go() -> None:
    """What was begun on a node is not over; a label that the node refutes is not believed for that long."""
    world = drained_world(KERNEL, KERNEL)
    world.edit_source(GOOD[1])
    while not any("taint" in item for item in world.leftovers()):
        world.rounds(1)
    live, left = {name: dict(modules) for name, modules in world.live.items()}, world.leftovers()
    world.remove_module("node-1")
    with raising("admit"):
        for _ in range(60):
            assert undecided(world.reconcile(world.look)) == {"edu"}
            world.now += 60.0
    node = world.client.objects[NODES.path(name="node-0")]["metadata"]
    assert not parse_lock(node["annotations"][names.LOCK_ANNOTATION]).is_expired(world.now)
    assert (world.leftovers(), world.live["node-0"]) == (left, live["node-0"])
    assert names.ready_label(NAMESPACE, "edu") not in world.nodes()["node-1"]
    assert names.ready_label(NAMESPACE, "edu") in world.nodes()["node-0"]
    world.arrive()
    assert world.leftovers() == []
