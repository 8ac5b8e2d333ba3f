"""All drivers together: one works on a node at a time, and no more nodes are worked on than a setting allows. Pure.

Place in the flow: ``plan`` has planned each driver alone; :func:`admit` holds back what would be too much at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from driver_builder.planning.actions import TakeNode
from driver_builder.planning.plan_view import DriverPlan
from driver_builder.rollout.holds import Holds
from driver_builder.rollout.order import Order
from driver_builder.rollout.pulls import Pulls
from driver_builder.rollout.waves import MAX_LISTED
from kube_api.text import first_few


@dataclass(slots=True)
class _Work:
    """Who works where: ``at`` is the driver that works on a node, ``taken`` are the nodes that waves answer for.

    ``holds`` is what is written on the nodes.
    """

    max_nodes: int
    holds: Holds
    pulls: Pulls
    order: Order | None = None
    at: dict[str, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def waits(self, node: str, part: DriverPlan) -> bool:
        """Return whether a node does not have the image yet that it gets next."""
        image = part.images.get(node)
        return image is not None and not self.pulls.is_proven(part.driver.key, node, image)

    def other(self, node: str, driver: str) -> str:
        """Return who else is at work on a node, or why it is left alone; empty if nothing is known against it."""
        if self.at.get(node, driver) != driver:
            return f"driver {self.at[node]} is being loaded there"
        return self.holds.obstacle(node, driver)

    def obstacle(self, node: str, driver: str, action: TakeNode | None) -> str:
        """Return why a driver may not be replaced on a node now, its image apart; empty if it may."""
        if why := self.other(node, driver):
            return why
        if self.order is not None and action is not None and (why := self.order.obstacle(action, driver)):
            return why
        if self.max_nodes and node not in self.taken and len(self.taken) >= self.max_nodes:
            words = f"--max-unavailable-nodes allows {self.max_nodes} for all drivers together"
            return f"{words}: {first_few(sorted(self.taken), MAX_LISTED)}"
        return ""

    def begin(self, node: str, driver: str) -> None:
        """Note that a driver is replaced on a node."""
        self.at[node] = driver
        self.taken.add(node)


def admit(
    parts: Iterable[DriverPlan],
    max_nodes: int = 0,
    holds: Holds | None = None,
    pulls: Pulls | None = None,
    order: Order | None = None,
) -> tuple[DriverPlan, ...]:
    """Hold back the replacements that cost a working driver where somebody else is at work; the first key goes first.

    In place of a node that is held back the next one goes. ``max_nodes`` are the nodes that waves of all drivers
    together may answer for, 0 if they are not limited. ``holds`` is what is written on nodes: one that a driver
    has locked goes before the others. ``pulls`` says which nodes have their next image: the others wait for it, and of
    those that could go otherwise :attr:`DriverPlan.images` is left. ``order`` says which drivers wait for those that
    they depend on.
    """
    parts = tuple(parts) if order is None else tuple(map(order.without_waiting, parts))
    holds = Holds() if holds is None else holds
    work = _Work(max_nodes, holds, Pulls() if pulls is None else pulls, order)
    for part in parts:
        at_once = (
            action.node for action in part.actions if isinstance(action, TakeNode) and action.node not in part.budgeted
        )
        for node in (*part.busy, *at_once):
            work.at.setdefault(node, part.driver.key)
        work.taken |= part.taken
    return tuple(_admitted(_begun_first(part, holds), work) if part.budgeted or part.images else part for part in parts)


def _begun_first(part: DriverPlan, holds: Holds) -> DriverPlan:
    """Let nodes that the driver has locked go in place of others: what is begun there is not begun anew elsewhere."""
    late = [action for action in part.reserve if holds.is_begun(action.node, part.driver.key)]
    fresh = [node for node in sorted(part.budgeted, reverse=True) if not holds.is_begun(node, part.driver.key)]
    instead = dict(zip(fresh, late, strict=False))
    if not instead:
        return part
    going = {action.node for action in instead.values()}
    waiting = [action for action in part.actions if isinstance(action, TakeNode) and action.node in instead]
    staying = (action for action in part.actions if action not in waiting)
    others = (action for action in part.reserve if action.node not in going)
    return replace(
        part,
        actions=(*staying, *instead.values()),
        budgeted=part.budgeted.difference(instead) | going,
        reserve=(*sorted(waiting, key=lambda action: action.node), *others),
    )


def _admitted(part: DriverPlan, work: _Work) -> DriverPlan:
    """Return a part with the replacements that may be made now."""
    key = part.driver.key
    held: dict[str, str] = {}
    pulled: list[str] = []
    taken = {action.node: action for action in part.actions if isinstance(action, TakeNode)}
    for node in sorted(part.budgeted):
        if why := work.obstacle(node, key, taken.get(node)):
            held[node] = why
        elif work.waits(node, part):
            pulled.append(node)
        else:
            work.begin(node, key)
    part = replace(part, images=_pulled_now(part, work)) if part.images else part
    if not held and not pulled:
        return part
    instead: list[TakeNode] = []
    for action in part.reserve:
        is_free = len(instead) < len(held) + len(pulled) and not work.waits(action.node, part)
        if is_free and not work.obstacle(action.node, key, action):
            work.begin(action.node, key)
            instead.append(action)
    late = {node: why for node in pulled if (why := work.pulls.failure(key, node, part.images[node]))}
    held |= {node: f"the next image cannot be pulled there: {why}" for node, why in late.items()}
    waiting = [node for node in pulled if node not in late]
    words = [f"held back: {first_few(held, MAX_LISTED)}: {next(iter(held.values()))}"] if held else []
    words += [f"pulling the next image on {first_few(waiting, MAX_LISTED)}"] if waiting else []
    wave = replace(part.wave, message="; ".join((*words, part.wave.message))) if part.wave is not None else None
    held |= dict.fromkeys(pulled, "")
    staying = (action for action in part.actions if not (isinstance(action, TakeNode) and action.node in held))
    return replace(
        part,
        actions=(*staying, *instead),
        budgeted=part.budgeted.difference(held).union(action.node for action in instead),
        wave=wave,
    )


def _pulled_now(part: DriverPlan, work: _Work) -> dict[str, str]:
    """Return the images of the nodes that could go, or do: where somebody else is at work nothing is prepared yet."""
    driver = part.driver.key
    return {node: image for node, image in part.images.items() if not work.other(node, driver)}
