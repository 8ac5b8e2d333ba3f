"""What tests ask of a plan, and the snapshot that follows it."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from driver_builder.api import status
from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.status import TargetStatus
from driver_builder.model.build import BuildRequest
from driver_builder.nodes.ordinary import Ordinary
from driver_builder.nodes.plan_view import DriverPlan, PlanSettings
from driver_builder.plan import plan as plan_module
from driver_builder.plan.plan import Plan
from driver_builder.rollout.fleet import admit
from driver_builder.rollout.holds import Holds
from driver_builder.rollout.order import Order
from driver_builder.rollout.prepare import Prepared, prepare
from driver_builder.rollout.pulls import Pulls
from driver_builder.snapshot.snapshot import Snapshot
from tests.support.driver_builder.changes import done
from tests.support.driver_builder.factories import NAMESPACE, NOW, wanted

READY_LABEL = f"driverwright.io/{NAMESPACE}.edu.ready"


def verbs(decided: Plan) -> list[str]:
    """Name the actions of a plan in order."""
    return done(decided.actions)


def only_target(decided: Plan) -> TargetStatus:
    """Return the status of the only target of the only driver."""
    (part,) = decided.drivers
    (entry,) = part.targets
    return entry


def request_of(seen: Snapshot) -> BuildRequest:
    """Return the build request of the only target."""
    (item,) = wanted(seen)
    assert item.request is not None
    return item.request


def key_of(seen: Snapshot) -> str:
    """Return the build key of the only target."""
    return request_of(seen).key


def after(seen: Snapshot, decided: Plan) -> Snapshot:
    """Return the snapshot after a pass whose status was written."""
    drivers = tuple(
        driver_with_status(part.driver, status.render(part.driver, part.targets, rebuilds=part.rebuilds,
                                                      unknown=part.unknown, now=seen.now))
        for part in decided.drivers
    )  # fmt: skip
    return replace(seen, drivers=drivers)


def driver_with_status(container: DriverContainer, written: dict[str, Any]) -> DriverContainer:
    """Return a driver with another status."""
    return replace(container, status=written)


def plan_in_detail(seen: Snapshot, settings: PlanSettings) -> Plan:
    """Plan from a snapshot alone, and weigh every node: nothing is remembered, and no node is ordinary."""
    with patch.object(plan_module, "ordinary_nodes", lambda view, *_: Ordinary(elsewhere=frozenset(view.nodes))):
        return plan_module.plan(seen, settings)


def admitted(
    parts: Iterable[DriverPlan], max_nodes: int = 0, holds: Holds | None = None, pulls: Pulls | None = None
) -> tuple[DriverPlan, ...]:
    """Hold back what is too much at once, of drivers that do not depend on each other."""
    parts = tuple(parts)
    order = Order.of(parts, {}, Snapshot(now=NOW))
    return admit(parts, max_nodes, holds or Holds(), pulls or Pulls(), order, alone=unguarded)


def prepare_nodes(
    parts: Iterable[DriverPlan], seen: Snapshot, loader_image: str = "", pulls: Pulls | None = None
) -> Prepared:
    """Prepare nodes for drivers that do not depend on each other."""
    parts, pulls = tuple(parts), pulls or Pulls.of(seen.tasks, seen.now)
    order = Order.of(parts, {}, seen)
    return prepare(parts, seen, loader_image, pulls, order, drain_namespaces=None, alone=unguarded)


def unguarded(_part: DriverPlan, work: Callable[[], DriverPlan]) -> DriverPlan:
    """Do the work: the test fails with its error."""
    return work()
