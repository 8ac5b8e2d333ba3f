"""Which nodes of a wave are drained next, so that those go last on which a drain would wait for pods. Pure.

Place in the flow: ``plan`` names them; the pods of only so many are read as are needed to find others, and it is
planned again with :attr:`Snapshot.drained_last`, by which :mod:`driver_builder.rollout.waves` orders the nodes.
"""

from dataclasses import dataclass

from driver_builder.api.rollout_settings import DrainSettings
from driver_builder.model.driver_key import DriverKey
from driver_builder.nodes.changes import takes_driver
from driver_builder.nodes.plan_view import DriverPlan
from driver_builder.rollout.drain import waits
from driver_builder.rollout.holds import Holds
from driver_builder.rollout.order import Order
from driver_builder.snapshot.node_pods import NodePods


@dataclass(frozen=True, slots=True, kw_only=True)
class NextDrains:
    """``number`` of these ``nodes``, which are in the order of the wave, are drained for ``driver`` next."""

    driver: DriverKey
    nodes: tuple[str, ...]
    number: int
    settings: DrainSettings
    namespaces: tuple[str, ...] | None = None
    """Where drains may evict pods; None for everywhere."""

    def waits_on(self, found: NodePods) -> bool:
        """Return whether the drain of a node with these pods would wait for some that it does not evict."""
        return waits(self.settings, self.driver, found, self.namespaces)


def next_drains(
    part: DriverPlan, holds: Holds, order: Order, namespaces: tuple[str, ...] | None = None
) -> NextDrains | None:
    """Return the drains that a driver's wave begins next; None where there is none, or no other node could go."""
    key, settings = part.driver.key, part.drain
    if settings is None or not part.reserve:
        return None
    kept = order.known.kept(key)
    fresh = sorted(
        action.node
        for action in part.actions
        if takes_driver(action) and action.node in part.budgeted and not kept.stay(action)
        # A node that requests a rebuild itself waits for no other one.
        if not holds.is_begun(action.node, key) and action.node not in part.rebuilds.pending
    )
    others = tuple(action.node for action in part.reserve)
    # Nodes where the drain has begun go in place of others.
    number = len(fresh) - sum(holds.is_begun(node, key) for node in others)
    if number < 1:
        return None
    return NextDrains(driver=key, nodes=(*fresh, *others), number=number, settings=settings, namespaces=namespaces)
