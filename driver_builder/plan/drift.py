"""Loads a module again that has changed on its node: its pod is replaced, with growing waits. Pure.

The result of ``hold`` starts it: a module was removed by hand, another build took its place, or its device is gone. The
first replacement is immediate; each further one waits twice as long as the one before, up to an hour. A node that
needed none for two such waits starts from the beginning. A program of the image's own that loads again by itself is
left alone (:mod:`driver_builder.nodes.proofs`).
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace

from driver_builder.api.node_notes import MAX_RELOADED, NodeNote
from driver_builder.base.retry import Retry
from driver_builder.nodes.changes import Change, DeleteObject, PatchNode, replace_pod
from driver_builder.nodes.evidence import NodeEvidence
from driver_builder.nodes.plan_labels import evidence_of_weighed
from driver_builder.nodes.plan_view import DriverView, TargetPart
from driver_builder.nodes.proofs import is_reloading

RETRY = Retry(30.0, 3600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """Changes for now, notes about nodes, and when to look again."""

    actions: tuple[Change, ...] = ()
    notes: tuple[NodeNote, ...] = ()
    requeue_at: float | None = None


def repair(view: DriverView, parts: Iterable[TargetPart], leaving: Set[str] = frozenset()) -> Repair:
    """Replace the pods whose modules have changed, and note which nodes are silent.

    On nodes that the driver leaves, and if another driver keeps the module, nothing is loaded again.
    """
    others = leaving | {name for conflict in view.conflicts for name in conflict.nodes}
    now = view.snapshot.now
    parts = tuple(parts)
    every = [action for part in parts for action in part.actions]
    replaced = {action.uid for action in every if isinstance(action, DeleteObject)}
    moved = {action.node for action in every if isinstance(action, PatchNode) and action.takes}
    actions: list[Change] = []
    notes: list[NodeNote] = []
    times: list[float] = []
    room = MAX_RELOADED - sum(note.reloads > 0 for note in view.notes.values())
    for node, found in evidence_of_weighed(view, parts).items():
        note = _settled(view.notes.get(node, NodeNote(node=node)), found, now)
        pods = view.pods_on(node) if node not in others | moved else []
        drifted = [pod for pod in pods if pod.contrary is not None and not pod.deleting and not is_reloading(pod)]
        drifted = [pod for pod in drifted if pod.uid not in replaced and pod.target in view.daemon_sets]
        due_at = _due_at(note)
        if drifted and found.version is None and due_at > now:
            times.append(due_at)
        elif drifted and found.version is None and (note.reloads or room > 0):
            room -= not note.reloads
            note = replace(note, reloads=note.reloads + 1, last_reload=float(int(now)))
            actions += (replace_pod(pod, why=found.why, noted=True) for pod in drifted)
        notes.append(note)
    return Repair(actions=tuple(actions), notes=tuple(notes), requeue_at=min(times, default=None))


def _settled(note: NodeNote, found: NodeEvidence, now: float) -> NodeNote:
    """Update a note: whether its node is silent, and whether its last replacement is long ago."""
    silent_since = None
    if found.version is not None and not found.works:
        silent_since = min(found.silent_since or note.silent_since or now, now)
    last = min(note.last_reload, now) if note.last_reload is not None else None
    if last is None or (found.works and now >= last + 2 * RETRY.by_attempt(note.reloads + 1)):
        return NodeNote(node=note.node, silent_since=silent_since)
    return replace(note, silent_since=silent_since, last_reload=last)


def _due_at(note: NodeNote) -> float:
    return note.last_reload + RETRY.by_attempt(note.reloads + 1) if note.last_reload is not None else 0.0
