"""All drivers together: one works on a node at a time, and no more nodes are worked on than a setting allows. Pure.

Place in the flow: ``plan`` has planned each driver alone; :func:`admit` holds back what would be too much at once.
"""

from collections.abc import Iterable
from dataclasses import replace

from driver_builder.planning.actions import Action, ReplacePod
from driver_builder.planning.plan_view import DriverPlan
from driver_builder.rollout.waves import listed_names


def admit(parts: Iterable[DriverPlan], max_nodes: int = 0) -> tuple[DriverPlan, ...]:
    """Hold back the replacements that cost a working driver where another driver is at work; the first key goes first.

    ``max_nodes`` are the nodes that all drivers together may work on, 0 if they are not limited.
    """
    parts = tuple(parts)
    workers: dict[str, str] = {}
    for part in parts:
        for node in part.busy:
            workers.setdefault(node, part.driver.key)
    return tuple(_admitted(part, workers, max_nodes) if part.budgeted else part for part in parts)


def _admitted(part: DriverPlan, workers: dict[str, str], max_nodes: int) -> DriverPlan:
    """Return a part with the replacements that may be made now; ``workers`` gets its nodes."""
    key = part.driver.key
    held: dict[str, str] = {}
    for node in sorted(part.budgeted):
        if workers.get(node, key) != key:
            held[node] = f"driver {workers[node]} is being replaced there"
        elif max_nodes and node not in workers and len(workers) >= max_nodes:
            held[node] = f"--max-unavailable-nodes allows {max_nodes} for all drivers together"
        else:
            workers[node] = key
    if not held:
        return part
    words = f"held back: {listed_names(held)}: {next(iter(held.values()))}"
    wave = replace(part.wave, message=f"{words}; {part.wave.message}") if part.wave is not None else None
    return replace(
        part,
        actions=tuple(action for action in part.actions if not _is_held(action, held)),
        budgeted=part.budgeted.difference(held),
        wave=wave,
    )


def _is_held(action: Action, held: dict[str, str]) -> bool:
    return isinstance(action, ReplacePod) and action.node in held
