"""Which nodes of a driver get the new image next: canary, soak, then a few at a time. Pure.

Place in the flow: ``plan`` has weighed every target (:mod:`driver_builder.nodes.standing`); :func:`next_nodes`
decides over all of them at once, because the budget is the driver's. It starts from what it sees: only the moment when
the canary was proven, and which nodes were broken before, come from the status.

Nodes where the driver does not work from the image of before lose nothing, and get the new one at once. Nodes that an
admin leaves out, and those that are not Ready or are cordoned and still have the image of before, are left alone and
not waited for. A node that got the new image counts as unavailable until it is proven there, also when it reboots or
is not Ready.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from driver_builder.api.rollout_settings import RolloutSettings, Strategy
from driver_builder.api.rollout_status import MAX_FAILED_BEFORE, MAX_FAILED_ON, Phase, Wave
from driver_builder.nodes.standing import OUTDATED, NodeStanding, Standing, TargetStanding
from driver_builder.rollout import windows
from driver_builder.rollout.wave_fleet import (
    MAX_LISTED,
    MAX_RESERVE,
    OWED,
    Seen,
    WaveFleet,
    goes_anyway,
    is_left_out,
    listed,
)
from kube_api.text import first_few
from kube_api.timestamps import timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """``chosen`` are the nodes whose pods are replaced now, ``budgeted`` those of them that cost a working driver.

    ``reserve`` are nodes, in their order, that may go in place of budgeted ones. ``coming`` are those that are next, of
    which ``pulls`` at once may get their image before it is their turn. ``busy`` are the nodes that the driver
    works on already, ``taken`` those that the wave answers for. ``returned`` are those that get the image of before
    again. ``wave`` is None while there is nothing to replace.
    """

    returned: tuple[NodeStanding, ...] = ()
    chosen: tuple[NodeStanding, ...] = ()
    budgeted: frozenset[str] = frozenset()
    reserve: tuple[NodeStanding, ...] = ()
    coming: tuple[NodeStanding, ...] = ()
    pulls: int = 0
    busy: frozenset[str] = frozenset()
    taken: frozenset[str] = frozenset()
    wave: Wave | None = None
    requeue_at: float | None = None


def next_nodes(settings: RolloutSettings, seen: Seen, before: Wave | None, now: float) -> Decision:
    """Decide which nodes are next; ``before`` is the wave in the driver's status."""
    brought = before.targets if before is not None else {}
    owed = {target: found for target, found in seen.imageless.items() if target in brought}
    wave = _continued(seen, owed, before, now)
    is_at_once = settings.strategy is Strategy.IMMEDIATE
    wave = replace(wave, failed_on={} if is_at_once else _failed_on(wave)) if wave is not None else None
    fleet = WaveFleet(settings, seen, wave, chain.from_iterable(owed.values()))
    if wave is None and owed and before is not None:
        waiting = replace(before, phase=Phase.WAITING, message="the next image is not there yet")
        return Decision(busy=fleet.busy, taken=fleet.taken, wave=waiting)
    if wave is None:
        return Decision(busy=fleet.busy)
    if is_at_once and not (fleet.is_undone or wave.refused):
        chosen = tuple(fleet.ready_to_go(*OUTDATED))
        return Decision(
            chosen=chosen, busy=fleet.busy, taken=fleet.taken, wave=fleet.counted(wave, Phase.ROLLING, fleet.progress)
        )
    return _Step(settings, fleet, wave, now).decide()


def _continued(
    seen: Seen, imageless: Mapping[str, tuple[NodeStanding, ...]], before: Wave | None, now: float
) -> Wave | None:
    """Return the wave that is under way; a new one where another image is wanted than it brings."""
    targets = seen.targets
    owed: Collection[str] = imageless.keys()
    wanted = {
        item.target: item.fingerprint
        for item in targets
        if item.has_image
        if item.waiting or any(map(_is_in_wave, item.nodes))
    }
    if before is not None:
        before = replace(before, failed_before=_still_failing(before, targets, imageless))
        current = {item.target: item.fingerprint for item in targets}
        # A target without nodes, or whose image is not there now, is not known to be wanted otherwise.
        is_same = all(value in (OWED, current.get(target, value)) for target, value in before.targets.items())
        unsettled = {
            item.target
            for item in targets
            if item.target in before.targets
            if any(_is_unsettled(node) and node.node not in before.failed_before for node in item.nodes)
        }
        held = {item.target for item in targets if not item.has_image and item.target in before.targets}
        # What is not built yet waits for the soak as well, also where the canary is all that has an image.
        is_early = bool(seen.imageless) and before.phase in (Phase.CANARY, Phase.SOAKING)
        if is_same and (wanted or unsettled or held or is_early):
            return replace(before, targets={**before.targets, **wanted})
        owed = {*owed, *unsettled, *held}
    if not wanted:
        return None
    wanted = {**dict.fromkeys(owed, OWED), **wanted}
    broken = {node.node for item in targets for node in item.nodes if node.standing is Standing.BROKEN}
    if before is not None:
        # The others are broken since that wave, which has to answer for them.
        broken.intersection_update(before.failed_before)
    failed_before = tuple(sorted(broken)[:MAX_FAILED_BEFORE])
    # Where the image of before is not proven again yet, the next wave answers for that.
    back = {
        node.node for item in targets for node in item.nodes if node.standing in (Standing.SILENT, Standing.BOOTING)
    }
    returned = tuple(node for node in before.returned if node in back) if before is not None else ()
    started = float(int(now))
    return Wave(phase=Phase.ROLLING, started=started, targets=wanted, failed_before=failed_before, returned=returned)


def _failed_on(wave: Wave) -> Mapping[str, str]:
    """Return the nodes where a wave has failed that goes on: all that returned, where an older schema drops names."""
    is_dropped = wave.failed > 0 and not wave.failed_on and wave.phase is not Phase.HALTED
    return dict.fromkeys(wave.returned, "it failed there") if is_dropped else wave.failed_on


def _still_failing(
    wave: Wave, targets: Iterable[TargetStanding], imageless: Mapping[str, tuple[NodeStanding, ...]]
) -> tuple[str, ...]:
    """Return the nodes that were broken before a wave took them, without those that have worked since."""
    every = chain(*(item.nodes for item in targets), *imageless.values())
    without = {node.node for node in every if node.standing in _WITHOUT_DRIVER}
    late = {
        node.node
        for item in targets
        if item.lanes is not None
        for node in item.nodes
        if node.standing is Standing.BROKEN and node.moves and node.node not in wave.returned
    }
    return tuple(sorted(late.union(wave.failed_before) & without)[:MAX_FAILED_BEFORE])


_WITHOUT_DRIVER = frozenset({Standing.BROKEN, Standing.FAILED, Standing.UNPROVEN, Standing.NEW, Standing.HELD})


def _is_in_wave(node: NodeStanding) -> bool:
    """Return whether a node is still to get what is wanted, or got it and could return: a status may be lost."""
    return node.is_outdated or (node.can_return and _is_unsettled(node))


def _is_working(node: NodeStanding) -> bool:
    """Return whether there is more to lose than on a silent node, which goes first."""
    return node.standing is not Standing.SILENT


def _is_unsettled(node: NodeStanding) -> bool:
    return node.standing in (Standing.UNPROVEN, Standing.FAILED) and not is_left_out(node)


class _Step:
    """One step of a wave that has rules."""

    def __init__(self, settings: RolloutSettings, fleet: WaveFleet, wave: Wave, now: float) -> None:
        self._settings, self._fleet, self._wave, self._now = settings, fleet, wave, now

    def decide(self) -> Decision:
        """Return what is replaced now, and what the wave waits for."""
        fleet = self._fleet
        back = [node for node in fleet.failed if node.can_return]
        has_some = bool(back or fleet.given_back)
        missing = fleet.missing_canaries()
        number = len(fleet.names_of_failed(self._wave))
        has_too_many = number > min(self._settings.max_failed.of(fleet.total), MAX_FAILED_ON)
        is_end = has_some and (missing is None or not (fleet.outdated or fleet.unproven))
        if has_too_many or is_end or fleet.is_undone or self._wave.refused:
            return self._halted(is_found=has_too_many or is_end)
        whys = {node.node: node.why for node in back}
        self._wave = replace(self._wave, failed_on={**self._wave.failed_on, **whys}, returned=self._returned(back))
        return replace(self._going_on(missing), returned=tuple(back))

    def _going_on(self, missing: int | None) -> Decision:
        """Return what is replaced now of those where the new image has not failed."""
        if missing is None:
            return self._goes(Phase.WAITING, "no node with the labels of canaryNodeSelector can prove the image")
        if missing:
            return self._canary(missing)
        if self._settings.has_canary:
            known = self._wave.canary_proven
            proven_at = float(int(self._now if known is None else min(known, self._now)))
            self._wave = replace(self._wave, canary_proven=proven_at)
            soaked_at = proven_at + self._settings.soak_seconds
            if self._now < soaked_at:
                words = f"the canary is proven, and is watched until {timestamp(soaked_at)}"
                return self._goes(Phase.SOAKING, words, requeue_at=soaked_at)
        return self._in_window(Phase.ROLLING, self._waits_for(), self._candidates())

    def _halted(self, *, is_found: bool) -> Decision:
        """Replace no working driver; nodes where the new image failed get the one of before again, if it is known.

        If an admin undoes the wave, those where it works do so too, within the budget. ``is_found`` says that what
        halts it is seen now.
        """
        fleet = self._fleet
        whys = {**{node.node: node.why for node in fleet.failed}, **self._wave.failed_on} if is_found else {}
        known = sorted((*fleet.failed, *fleet.given_back), key=lambda node: node.node, reverse=True)
        back = (node for node in known if node.node in whys and (node.can_return or node.moves))
        refused = {**{node.target: f"{node.node}: {whys[node.node]}" for node in back}, **self._wave.refused}
        self._wave = replace(self._wave, refused=refused)
        returning = fleet.undone.union(refused)
        if whys:
            words = f"it failed on {first_few(sorted(whys), MAX_LISTED)}: {whys[min(whys)]}"
        elif fleet.is_undone:
            words = "an admin has undone the wave"
        else:
            words = f"it failed on {next(iter(refused.values()))}"
        front = [
            node
            for node in (*fleet.unproven, *fleet.outdated, *fleet.updated)
            if node.can_return and node.target in fleet.undone and not node.skips
        ]
        # A pod that is deleted or not ready leaves a driver loaded that works: that is not taken without the lock.
        loading = [node for node in front if node.standing in (Standing.UNPROVEN, Standing.BROKEN) and not node.is_live]
        failed = [node for node in fleet.failed if node.can_return and node.target in returning]
        failed += [
            node
            for node in fleet.outdated
            if node.is_half_done and node.can_return and node.target in refused and node.target not in fleet.undone
        ]
        # Registered anew on its way: nothing says which modules it has.
        front += [node for node in fleet.outdated if node.is_lost and not node.skips]
        free = (node for node in front if node.is_ready and not node.is_cordoned)
        working = self._affordable(node for node in free if node not in loading)
        returned = (*failed, *loading, *working)
        self._wave = replace(self._wave, returned=self._returned(returned))
        if self._wave.returned:
            words += f"; back to the image of before: {first_few(self._wave.returned, MAX_LISTED)}"
        return Decision(
            returned=returned,
            budgeted=frozenset(node.node for node in working),
            pulls=fleet.max_unavailable,
            busy=fleet.busy,
            taken=fleet.taken,
            wave=self._counted(Phase.HALTED, words),
        )

    def _returned(self, nodes: Iterable[NodeStanding]) -> tuple[str, ...]:
        """Name the nodes that have the image of before again, or get it now."""
        names = {*self._wave.returned, *(node.node for node in nodes)}
        return tuple(sorted(names)[:MAX_FAILED_BEFORE])

    def _canary(self, missing: int) -> Decision:
        self._wave = replace(self._wave, canary_proven=None)
        candidates = [node for node in self._candidates() if self._fleet.is_canary(node)]
        most = None if self._settings.canary_node_selector else max(0, missing - self._fleet.on_their_way)
        nodes = "1 more node" if missing == 1 else f"{missing} more nodes"
        words = "; ".join(item for item in (f"the canary needs its proof on {nodes}", self._waits_for()) if item)
        return self._in_window(Phase.CANARY, words, candidates, most)

    def _candidates(self) -> list[NodeStanding]:
        """Return which nodes the order lets go, those first that may be without a driver already."""
        found = self._fleet.ready_to_go(Standing.SILENT, Standing.WORKING)
        return sorted(filter(self._fleet.is_wanted, found), key=lambda node: (_is_working(node), node.node))

    def _in_window(self, phase: Phase, why: str, candidates: list[NodeStanding], most: int | None = None) -> Decision:
        is_open = windows.open_until(self._settings.windows, self._now) is not None
        if candidates and not is_open:
            opens_at = windows.next_opening(self._settings.windows, self._now)
            words = f"until {timestamp(opens_at)}" if opens_at is not None else "any more"
            return self._goes(Phase.WAITING, f"no maintenance window is open {words}", requeue_at=opens_at)
        if not candidates and not self._fleet.in_work and self._fleet.has_unwanted:
            return self._goes(Phase.WAITING, "no other node has the label of the new version")
        return self._goes(phase, why, candidates, most=most)

    def _waits_for(self) -> str:
        fleet = self._fleet
        held = [*fleet.failed, *fleet.broken, *fleet.unproven, *fleet.silent, *fleet.coming_back]
        return f"waits for {listed(held)}: {held[0].why}" if held else ""

    def _goes(
        self,
        phase: Phase,
        why: str,
        candidates: Iterable[NodeStanding] = (),
        *,
        most: int | None = None,
        requeue_at: float | None = None,
    ) -> Decision:
        """Replace what the budget allows, what nodes ask for themselves, and what does not work anyway.

        Of the candidates at most ``most`` go.
        """
        fleet = self._fleet
        asked = [node for node in fleet.ready_to_go(Standing.SILENT, Standing.WORKING) if goes_anyway(node)]
        others = self._drained_last([node for node in candidates if not goes_anyway(node)])
        why = "; ".join(filter(None, (why, self._said_of_last(others))))
        # What waits for the status comes last: if that is not written, nothing waits behind it.
        chosen = self._affordable(sorted((*asked, *others[:most]), key=lambda node: bool(node.noted)))
        # In place of a silent node, which is unavailable anyway, a working one would cost more.
        is_even = all(node.standing is Standing.WORKING for node in chosen)
        gone = frozenset(node.node for node in chosen)
        others = [node for node in others if node.standing is Standing.WORKING and node.node not in gone]
        # A node that asks for itself does not wait for the canary.
        pulls = fleet.max_unavailable if most is None else min(len(asked) + most, fleet.max_unavailable)
        return Decision(
            chosen=(*fleet.ready_to_go(Standing.BROKEN), *chosen),
            budgeted=gone,
            reserve=tuple(others[:MAX_RESERVE] if is_even else ()),
            coming=tuple(others[: fleet.max_unavailable + MAX_RESERVE]) if pulls and most != 0 else (),
            pulls=pulls,
            busy=fleet.busy,
            taken=fleet.taken,
            wave=self._counted(phase, why),
            requeue_at=requeue_at,
        )

    def _drained_last(self, nodes: list[NodeStanding]) -> list[NodeStanding]:
        """Of the nodes that may be next let those go last on which a drain would wait for pods."""
        most = self._fleet.max_unavailable + MAX_RESERVE
        return sorted(nodes[:most], key=lambda node: (_is_working(node), self._fleet.goes_last(node))) + nodes[most:]

    def _said_of_last(self, nodes: list[NodeStanding]) -> str:
        late = [node for node in nodes if self._fleet.goes_last(node)]
        is_news = bool(late) and len(late) < len(nodes)
        return f"after the others, because a drain waits for pods there: {listed(late)}" if is_news else ""

    def _affordable(self, candidates: Iterable[NodeStanding]) -> tuple[NodeStanding, ...]:
        """Take from the candidates what the budget allows; a silent node is unavailable already."""
        asked = tuple(candidates)
        in_work, silent = self._fleet.in_work, len(self._fleet.silent)
        # Those that are not proven any more are counted already, and nobody works on them before they are chosen.
        live = sum(node.is_live for node in asked)
        chosen: list[NodeStanding] = []
        for node in asked:
            is_silent = node.standing is Standing.SILENT
            idle = live if node.is_live else 0
            if node.is_half_done or in_work - idle + (0 if is_silent else silent) < self._fleet.max_unavailable:
                chosen.append(node)
                in_work += not node.is_live
                live -= node.is_live
                silent -= is_silent
        return tuple(chosen)

    def _counted(self, phase: Phase, why: str) -> Wave:
        words = "; ".join(item for item in (why, self._fleet.progress) if item)
        return self._fleet.counted(self._wave, phase, words)
