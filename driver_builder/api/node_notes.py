"""What a driver's status records of single nodes: since when one is silent, how often a driver was loaded again.

Only nodes with something to report have an entry, and their number is bounded, because a status has to stay small.
Everything is in the status, so a controller that restarts continues as before. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kube_api.timestamps import parse_timestamp, timestamp

Json = dict[str, Any]

MAX_SILENT = 50
MAX_RELOADED = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNote:
    """One node: ``reloads`` counts its pods that were replaced because a module had changed, see ``drift``."""

    node: str
    silent_since: float | None = None
    reloads: int = 0
    last_reload: float | None = None


def previous_notes(status: Mapping[str, Any]) -> dict[str, NodeNote]:
    """Read ``status.nodes`` by node; entries of another shape are dropped and written again."""
    known: dict[str, NodeNote] = {}
    for entry in status.get("nodes") or ():
        try:
            note = NodeNote(
                node=str(entry["name"]),
                silent_since=parse_timestamp(entry.get("silentSince")),
                reloads=int(entry.get("reloads", 0)),
                last_reload=parse_timestamp(entry.get("lastReloadTime")),
            )
        except (KeyError, ValueError, TypeError, AttributeError):
            continue
        known[note.node] = note
    return known


def bounded(notes: Iterable[NodeNote]) -> tuple[NodeNote, ...]:
    """Keep the notes with content, and no more than a status can hold, in the order of their nodes."""
    ordered = sorted(notes, key=lambda note: note.node)
    reloaded = [note for note in ordered if note.reloads][:MAX_RELOADED]
    silent = [note for note in ordered if not note.reloads and note.silent_since is not None][:MAX_SILENT]
    return tuple(sorted((*reloaded, *silent), key=lambda note: note.node))


def render_notes(notes: Iterable[NodeNote]) -> list[Json]:
    """Write ``status.nodes``."""
    return [_render(note) for note in notes]


def _render(note: NodeNote) -> Json:
    entry: Json = {"name": note.node}
    if note.silent_since is not None:
        entry["silentSince"] = timestamp(note.silent_since)
    if note.reloads and note.last_reload is not None:
        entry |= {"reloads": note.reloads, "lastReloadTime": timestamp(note.last_reload)}
    return entry
