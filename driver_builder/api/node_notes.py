"""What a driver's status records of single nodes: since when one is silent or drained, how often it was loaded again.

Only nodes with something to report have an entry, and their number is bounded, because a status has to stay small.
Everything is in the status, so a controller that restarts continues as before. Pure.

``status.draining`` has what also stands on the Node, in an annotation that people and tools may remove: so labels are
restored and the deadline counts whatever becomes of the annotation.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from driver_builder.api.status import Json, readable
from kube_api.timestamps import parse_timestamp, timestamp

MAX_SILENT = 50
MAX_RELOADED = 500
MAX_DRAINED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNote:
    """One node: ``reloads`` counts its pods that were replaced because a module had changed, see ``drift``."""

    node: str
    silent_since: float | None = None
    reloads: int = 0
    last_reload: float | None = None


def previous_notes(status: Mapping[str, Any]) -> dict[str, NodeNote]:
    """Read ``status.nodes`` by node."""
    return {note.node: note for note in readable(status.get("nodes"), _parse)}


def _parse(entry: Json) -> NodeNote:
    return NodeNote(
        node=str(entry["name"]),
        silent_since=parse_timestamp(entry.get("silentSince")),
        reloads=int(entry.get("reloads", 0)),
        last_reload=parse_timestamp(entry.get("lastReloadTime")),
    )


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


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunDrain:
    """Since when a node is drained, and the values that paused labels had."""

    since: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)


def previous_drains(status: Mapping[str, Any]) -> dict[str, BegunDrain]:
    """Read ``status.draining`` by node."""
    entries = status.get("draining")
    return dict(readable(entries.items() if isinstance(entries, Mapping) else (), _parse_drain))


def _parse_drain(item: tuple[str, Json]) -> tuple[str, BegunDrain]:
    node, entry = item
    labels = {str(key): str(value) for key, value in (entry.get("labels") or {}).items()}
    return str(node), BegunDrain(since=int(parse_timestamp(entry.get("startTime")) or 0), labels=labels)


def render_drains(drains: Mapping[str, BegunDrain]) -> Json:
    """Write ``status.draining``."""
    return {
        node: {"startTime": timestamp(found.since), **({"labels": dict(found.labels)} if found.labels else {})}
        for node, found in sorted(drains.items())[:MAX_DRAINED]
    }
