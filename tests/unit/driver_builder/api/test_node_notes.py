"""What a status keeps of single nodes: little, bounded, and read back as it was written."""

from typing import Any

import pytest

from driver_builder.api.node_notes import MAX_RELOADED, MAX_SILENT, NodeNote, bounded, previous_notes, render_notes
from tests.support.driver_builder.factories import NOW

NOTES = (
    NodeNote(node="a", silent_since=NOW),
    NodeNote(node="b", reloads=2, last_reload=NOW),
    NodeNote(node="c", silent_since=NOW - 5, reloads=1, last_reload=NOW),
)


def test_notes_are_read_as_they_were_written() -> None:
    """A controller that is restarted knows what the one before knew."""
    assert tuple(previous_notes({"nodes": render_notes(NOTES)}).values()) == NOTES


def test_a_node_with_nothing_to_say_has_no_note() -> None:
    """Most nodes of a fleet."""
    assert bounded([NodeNote(node="x"), *reversed(NOTES)]) == NOTES


def test_there_are_no_more_notes_than_a_status_can_hold() -> None:
    """When the network of a rack fails, not every node of it is named; what was loaded anew is remembered first."""
    silent = [NodeNote(node=f"s{number:04}", silent_since=NOW) for number in range(5000)]
    reloaded = [NodeNote(node=f"r{number:04}", reloads=1, last_reload=NOW) for number in range(5000)]
    kept = bounded([*silent, *reloaded])
    assert len(kept) == MAX_SILENT + MAX_RELOADED
    assert sum(note.reloads for note in kept) == MAX_RELOADED


@pytest.mark.parametrize(
    "entry",
    [{}, {"name": "a", "reloads": "many"}, {"name": "a", "silentSince": "soon"}, {"name": "a", "silentSince": 5}, 5]
)  # fmt: skip
def test_an_entry_of_another_shape_is_dropped(entry: Any) -> None:
    """It is ours to write anew."""
    assert previous_notes({"nodes": [entry]}) == {}
