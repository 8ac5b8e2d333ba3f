"""All drivers together: one works on a node at a time, and no more nodes are worked on than a setting allows. Pure.

Place in the flow: ``plan`` has planned each driver alone; :func:`admit` holds back what would be too much at once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from driver_builder.model.driver_key import DriverKey
from driver_builder.nodes.changes import Taking, takes_driver
from driver_builder.nodes.plan_view import Alone, DriverPlan
from driver_builder.rollout.holds import Holds
from driver_builder.rollout.order import Order
from driver_builder.rollout.pulls import Pulls
from driver_builder.rollout.wave_fleet import MAX_LISTED
from driver_builder.tasks.pull_pod import PULL
from kube_api.text import first_few


@dataclass(slots=True)
class _Work:
    """Who works where: ``at`` is the driver that works on a node, ``taken`` are the nodes that waves answer for.

    ``holds`` is what is written on the nodes.
    """

    max_nodes: int
    holds: Holds
    pulls: Pulls
    order: Order
    at: dict[str, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def missing(self, action: Taking, part: DriverPlan) -> dict[DriverKey, str]:
        """Return the images that are not on a node yet and have to be before a driver is replaced, by driver.

        Drivers that depend on it are unloaded meanwhile: theirs have to be there as well.
        """
        own = {part.driver.key: part.images[action.node]} if action.node in part.images else {}
        wanted = {**own, **self.order.images(action, part.driver.key)}
        return {key: image for key, image in wanted.items() if not self.pulls.is_proven(key, action.node, image)}

    def failure(self, node: str, missing: Mapping[DriverKey, str]) -> str:
        """Return why one of the images that are missing on a node cannot be pulled; empty if nothing is known to."""
        found = (self.pulls.failure(driver, node, image) for driver, image in missing.items())
        return next(filter(None, found), "")

    def other(self, node: str, driver: DriverKey) -> str:
        """Return who else is at work on a node, or why it is left alone; empty if nothing is known against it."""
        if self.at.get(node, driver) != driver:
            return f"driver {self.at[node]} is being loaded there"
        return self.holds.obstacle(node, driver)

    def obstacle(self, node: str, driver: DriverKey, action: Taking | None) -> str:
        """Return why a driver may not be replaced on a node now, its image apart; empty if it may."""
        if why := self.other(node, driver):
            return why
        if action is not None and (why := self.order.obstacle(action, driver)):
            return why
        if self.max_nodes and node not in self.taken and len(self.taken) >= self.max_nodes:
            words = f"--max-unavailable-nodes allows {self.max_nodes} for all drivers together"
            return f"{words}: {first_few(sorted(self.taken), MAX_LISTED)}"
        return ""

    def begin(self, node: str, driver: DriverKey) -> None:
        """Note that a driver is replaced on a node."""
        self.at[node] = driver
        self.taken.add(node)


def admit(
    parts: Iterable[DriverPlan], max_nodes: int, holds: Holds, pulls: Pulls, order: Order, *, alone: Alone
) -> tuple[DriverPlan, ...]:
    """Hold back the replacements that cost a working driver where somebody else is at work; the first key goes first.

    In place of a node that is held back the next one goes. ``max_nodes`` are the nodes that waves of all drivers
    together may answer for, 0 if they are not limited. ``holds`` is what is written on nodes: one that a driver
    has locked goes before the others. ``pulls`` says which nodes have their next image: the others wait for it, and of
    those that could go otherwise :attr:`DriverPlan.images` is left. ``order`` says which drivers wait for those that
    they depend on. Nothing is decided for a driver whose work ends in an error: ``alone`` returns its plan then.
    """
    parts = tuple(alone(part, partial(order.without_waiting, part)) for part in parts)
    work = _Work(max_nodes, holds, pulls, order)
    for part in parts:
        at_once = (action.node for action in part.actions if takes_driver(action) and action.node not in part.budgeted)
        # Of one of which nothing is decided it is known where it has begun.
        begun = holds.begun(part.driver.key) if part.trouble is not None else ()
        for node in (*part.busy, *at_once, *begun):
            work.at.setdefault(node, part.driver.key)
        work.taken |= part.taken.union(begun)
    dependents = _of_dependents(parts, work)

    def admitted(part: DriverPlan) -> DriverPlan:
        found = _admitted(_begun_first(part, holds), work) if part.budgeted or part.images else part
        return _with_images(found, dependents) if dependents else found

    return tuple(alone(part, partial(admitted, part)) for part in parts)


@dataclass(slots=True)
class _Needed:
    """The images that a driver needs on nodes because of other ones' waves.

    ``first`` are needed before it yields there, ``by_wave`` so many at once on those nodes; ``later`` until it is back.
    """

    first: dict[str, str] = field(default_factory=dict)
    later: dict[str, str] = field(default_factory=dict)
    by_wave: list[tuple[frozenset[str], int]] = field(default_factory=list)


def _of_dependents(parts: Iterable[DriverPlan], work: _Work) -> dict[DriverKey, _Needed]:
    """Return what drivers need where those that they depend on are replaced, now or soon."""
    order = work.order
    found: dict[DriverKey, _Needed] = {}
    for part in parts:
        key = part.driver.key
        if not order.known.has_dependents(key):
            continue
        taken = (action for action in part.actions if takes_driver(action) and action.node in part.budgeted)
        wanted: dict[DriverKey, dict[str, str]] = {}
        for action in (*sorted(taken, key=lambda action: action.node), *part.reserve):
            for other, image in {} if work.other(action.node, key) else order.images(action, key).items():
                wanted.setdefault(other, {})[action.node] = image
        for other, images in wanted.items():
            needed = found.setdefault(other, _Needed())
            needed.first |= images
            needed.by_wave.append((frozenset(images), max(part.pulls, 1)))
    for other, images in order.images_of_yielding().items():
        found.setdefault(other, _Needed()).later |= images
    return found


def _with_images(part: DriverPlan, dependents: Mapping[DriverKey, _Needed]) -> DriverPlan:
    needed = dependents.get(part.driver.key)
    if needed is None:
        return part
    # Its own wave says better what a node gets.
    images = {**needed.first, **part.images}
    waves = ((frozenset(part.images), part.pulls), (frozenset(needed.later), PULL.most), *needed.by_wave)
    return replace(part, images={**images, **needed.later, **images}, pulled_for=waves)


def _begun_first(part: DriverPlan, holds: Holds) -> DriverPlan:
    """Let nodes that the driver has locked go in place of others: what is begun there is not begun anew elsewhere."""
    late = [action for action in part.reserve if holds.is_begun(action.node, part.driver.key)]
    fresh = [node for node in sorted(part.budgeted, reverse=True) if not holds.is_begun(node, part.driver.key)]
    instead = dict(zip(fresh, late, strict=False))
    if not instead:
        return part
    going = {action.node for action in instead.values()}
    waiting = [action for action in part.actions if takes_driver(action) and action.node in instead]
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
    pulled: dict[str, dict[DriverKey, str]] = {}
    taken = {action.node: action for action in part.actions if takes_driver(action)}
    for node in sorted(part.budgeted):
        if why := work.obstacle(node, key, taken.get(node)):
            held[node] = why
        elif node in taken and (missing := work.missing(taken[node], part)):
            pulled[node] = missing
        else:
            work.begin(node, key)
    part = replace(part, images=_pulled_now(part, work)) if part.images else part
    if not held and not pulled:
        return part
    failures = {node: work.failure(node, missing) for node, missing in pulled.items()}
    late = {node: why for node, why in failures.items() if why}
    # Nodes on which a drain would wait for pods let others have their image first.
    first = len(pulled.keys() - late.keys() - part.drained_last)
    instead: list[Taking] = []
    for action in part.reserve:
        most = len(held) + len(pulled) - (first if action.node in part.drained_last else 0)
        is_free = len(instead) < most and not work.obstacle(action.node, key, action)
        if is_free and not work.missing(action, part):
            work.begin(action.node, key)
            instead.append(action)
    held |= {node: f"the next image cannot be pulled there: {why}" for node, why in late.items()}
    waiting = [node for node in pulled if node not in late]
    words = [f"held back: {first_few(held, MAX_LISTED)}: {next(iter(held.values()))}"] if held else []
    words += [f"pulling the next image on {first_few(waiting, MAX_LISTED)}"] if waiting else []
    wave = replace(part.wave, message="; ".join((*words, part.wave.message))) if part.wave is not None else None
    held |= dict.fromkeys(pulled, "")
    staying = (action for action in part.actions if not (takes_driver(action) and action.node in held))
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
