"""All nodes of a driver in a wave, in the order in which they go: what each is, and what they come to. Pure.

Place in the flow: :mod:`driver_builder.rollout.waves` decides by it which nodes are next.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from driver_builder.api.rollout_settings import Order, RolloutSettings, Strategy
from driver_builder.api.rollout_status import Phase, Wave
from driver_builder.nodes.standing import NodeStanding, Standing, TargetStanding
from kube_api.text import first_few

MAX_RESERVE = 20
"""So many nodes are named that may go in place of others."""
MAX_LISTED = 3
"""Nodes that a message names; it counts the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a wave is decided on.

    ``canary`` are the nodes that the selector names, ``wanted`` those that an admin lets have the new version. On those
    in ``last`` a drain would wait for pods.
    ``imageless`` are the targets whose image is not there now (it is being built, or a registry does not answer), with
    their nodes where a driver was loaded and does not work: what a wave took there it has to answer for.
    """

    targets: tuple[TargetStanding, ...] = ()
    imageless: Mapping[str, tuple[NodeStanding, ...]] = field(default_factory=dict)
    canary: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()
    last: frozenset[str] = frozenset()


OWED = ""
"""What a wave brings to a target that it only answers for: the wave before took nodes there that do not work yet."""


def _size(item: TargetStanding) -> int:
    return item.settled + len(item.nodes) + len(item.waiting)


class WaveFleet:
    """All nodes of a driver, in the order in which they go."""

    def __init__(self, settings: RolloutSettings, seen: Seen, wave: Wave | None, owed: Iterable[NodeStanding]) -> None:
        self._settings, self._seen = settings, seen
        answered = wave.targets if wave is not None else {}
        brought = {target for target, value in answered.items() if value != OWED}
        known = frozenset(wave.failed_before) if wave is not None else frozenset()
        failed_on = wave.failed_on if wave is not None else {}
        self.total = sum(map(_size, seen.targets))
        waiting = chain.from_iterable(map(self._waiting, seen.targets))
        every = sorted(chain(owed, waiting, *(item.nodes for item in seen.targets)), key=lambda node: node.node)
        self._useless_canaries = sum(self.is_canary(node) for node in every if node.standing is not Standing.UPDATED)
        self._returned = frozenset(wave.returned) if wave is not None else frozenset()
        self.left_out = [node for node in every if is_left_out(node) and not self._is_answered_for(node)]
        staying = [node for node in every if not is_left_out(node) or self._is_answered_for(node)]
        self.given_back = [node for node in staying if node.node in failed_on and node.moves]
        self.coming_back = [node for node in self.given_back if node.standing is not Standing.WORKING]
        staying = [node for node in staying if not (node.node in failed_on and node.moves)]
        self.outdated = [node for node in staying if node.is_outdated]
        self.failed = [
            node
            for node in staying
            if node.standing is Standing.FAILED and node.target in brought and node.node not in known
        ]
        owed_targets = answered.keys() - brought
        self.unproven = [
            node
            for node in staying
            if node.standing is Standing.UNPROVEN or (node.standing is Standing.FAILED and node.target in owed_targets)
            if node.node not in known
        ]
        self.broken = [node for node in self.outdated if node.standing is Standing.BROKEN and node.node not in known]
        self._booting = [node for node in self.outdated if node.standing is Standing.BOOTING]
        self.undone = {item.target for item in seen.targets if item.lanes is not None and item.is_undone}
        self.is_undone = any(item.is_undone for item in seen.targets)
        self.updated = [node for node in staying if node.standing is Standing.UPDATED and node.target in brought]
        self._settled = sum(item.settled for item in seen.targets if item.target in brought)
        self._in_wave = sum(_size(item) for item in seen.targets if item.target in brought)
        self._written = frozenset(item.target for item in seen.targets if item.is_written)
        self._answered, self._brought = answered, brought

    def _waiting(self, item: TargetStanding) -> Iterable[NodeStanding]:
        """Return the nodes that wait for the wave: no more than may be next, where they go by their names alone."""
        settings = self._settings
        is_by_name = settings.order is Order.NODE_NAME and not settings.canary_node_selector
        is_by_name = is_by_name and settings.strategy is not Strategy.IMMEDIATE
        most = 2 * self.max_unavailable + MAX_RESERVE if is_by_name else None
        standing, names = Standing.WORKING, item.waiting[:most]
        return (NodeStanding(node=name, target=item.target, standing=standing, moves=True) for name in names)

    def _is_answered_for(self, node: NodeStanding) -> bool:
        """Return whether a wave answers for a node that it has taken, and of which nothing is known since."""
        is_taken = node.can_return or node.node in self._returned
        return is_taken and node.standing in (Standing.SILENT, Standing.BOOTING) and not node.skips

    @property
    def in_work(self) -> int:
        """Count the nodes that a wave has taken: they do not work with its image, or not yet."""
        return len(self.unproven) + len(self.failed) + len(self.broken) + len(self.coming_back)

    def names_of_failed(self, wave: Wave) -> set[str]:
        """Name the nodes where what the wave brings has failed, also those that have the image of before again."""
        return {*wave.failed_on, *(node.node for node in self.failed)}

    @property
    def busy(self) -> frozenset[str]:
        """Return the nodes that the driver works on."""
        loading = (Standing.UNPROVEN, Standing.BOOTING)
        back = (node for node in self.given_back if node.standing in loading)
        found = (node for node in (*self.unproven, *self._booting, *back) if not (node.yields or node.works))
        return frozenset(node.node for node in found)

    @property
    def taken(self) -> frozenset[str]:
        """Return the nodes that a wave answers for."""
        back = (node for node in self._booting if node.node in self._returned)
        in_work = (*self.unproven, *self.failed, *self.broken, *self.coming_back, *back)
        return frozenset(node.node for node in in_work if node.target in self._answered)

    @property
    def on_their_way(self) -> int:
        """Count the nodes that have what the wave brings and have not proven it yet."""
        return sum(node.target in self._brought for node in self.unproven)

    @property
    def silent(self) -> list[NodeStanding]:
        """Return the outdated nodes of which nothing new is known: they may be without a driver already."""
        return self._of(Standing.SILENT, Standing.BOOTING)

    @property
    def proven(self) -> int:
        """Count the nodes where what the wave brings is proven."""
        return len(self.updated) + self._settled

    @property
    def max_unavailable(self) -> int:
        """Return the budget, at least one node."""
        return max(1, self._settings.max_unavailable.of(self.total))

    @property
    def has_unwanted(self) -> bool:
        """Return whether a node waits for an admin's label."""
        return not all(map(self.is_wanted, self.outdated))

    def ready_to_go(self, *standings: Standing) -> list[NodeStanding]:
        """Return the outdated nodes that stand there, and whose new pods would have the new image."""
        found = (node for node in self._of(*standings) if node.target in self._written)
        return [node for node in found if not is_left_out(node)]

    def is_wanted(self, node: NodeStanding) -> bool:
        """Return whether an admin lets a node go, where the order is theirs."""
        return self._settings.order is not Order.NODE_LABEL or node.node in self._seen.wanted

    def goes_last(self, node: NodeStanding) -> bool:
        """Return whether a drain of a node would wait for pods: another one goes first."""
        return node.node in self._seen.last

    def is_canary(self, node: NodeStanding) -> bool:
        """Return whether a node may go before the canary is proven."""
        return not self._settings.canary_node_selector or node.node in self._seen.canary

    def missing_canaries(self) -> int | None:
        """Count the nodes on which the canary is not proven yet; None where no node can prove it."""
        if self._settings.canary_node_selector:
            missing = sum(map(self.is_canary, (*self.outdated, *self.unproven, *self.failed)))
            return missing or (0 if len(self._seen.canary) > self._useless_canaries else None)
        if self._settings.canary is None:
            return 0
        others = (*self.left_out, *self.given_back)
        possible = self._in_wave - sum(node.target in self._brought for node in others)
        return max(0, min(self._settings.canary.of(self._in_wave), possible) - self.proven)

    @property
    def progress(self) -> str:
        """Say how far the wave is."""
        words = f"{self.proven} of {self._in_wave} nodes updated"
        out = f"; {len(self.left_out)} left out: {listed(self.left_out)}" if self.left_out else ""
        back = f"; back to the image of before, where it failed: {listed(self.given_back)}" if self.given_back else ""
        return words + out + back

    def counted(self, wave: Wave, phase: Phase, message: str) -> Wave:
        """Write down what is seen."""
        return replace(
            wave,
            phase=phase,
            message=message,
            nodes=self._in_wave,
            updated=self.proven,
            unavailable=self.in_work + len(self.silent),
            failed=len({*self.names_of_failed(wave), *(wave.returned if wave.refused else ())}),
            left_out=len(self.left_out),
            max_unavailable=self.max_unavailable,
        )

    def _of(self, *standings: Standing) -> list[NodeStanding]:
        return [node for node in self.outdated if node.standing in standings]


def is_left_out(node: NodeStanding) -> bool:
    """Return whether a wave leaves a node alone, and does not wait for it."""
    if node.standing is Standing.UPDATED:
        return False
    is_kept_away = not node.is_ready or (node.is_cordoned and not goes_anyway(node))
    return node.skips or (node.is_outdated and is_kept_away)


def goes_anyway(node: NodeStanding) -> bool:
    """Return whether a node waits for no canary, window or label: it asks for itself, or was begun and is finished."""
    return node.asked or node.is_half_done


def listed(nodes: Iterable[NodeStanding]) -> str:
    """Name the first few nodes, and count the others."""
    return first_few((node.node for node in nodes), MAX_LISTED)
