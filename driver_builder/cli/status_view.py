"""All drivers at one moment: a live table for terminals, and rows of which each is printed when it changes. Pure.

Place in the flow: ``driver-builder status -w`` shows them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from driver_builder.api.status import TargetStatus
from driver_builder.base.reasons import WITHOUT_DRIVER, TargetState
from driver_builder.cli import output
from driver_builder.cli.rollout_view import Outcome, RolloutView, WaveView
from kube_api.text import printable

ROW_WIDTHS = (12, 12, 24, 13, 5, 5, 11, 12, 7)
"""The least widths of the columns: later rows may need more than the first ones."""
ROW_HEADERS = ("NAMESPACE", "DRIVER", "KERNEL", "OS", "NODES", "READY", "STATE", "REASON", "MESSAGE")
GONE = "Gone"
"""The state of a target or a wave that is not there any more."""
_NO_TARGET = "-"
_HEADERS = ("DRIVER", "READY", "STATE", "MESSAGE")
_OUTCOMES = {Outcome.DONE: "Ready", Outcome.UNDER_WAY: "Progressing", Outcome.STUCK: "Degraded"}

Row = tuple[str, ...]


def live_lines(views: Iterable[RolloutView], *, bars: str, columns: int, height: int, note: str = "") -> list[str]:
    """Write a line for each driver and each of its targets, cut to a terminal.

    Where they have no room, targets at rest are left out first; what is left out is counted. ``note`` comes last.
    """
    # Besides headers and cursor.
    room = max(height - 2 - bool(note), 2)
    every = [line for view in views for line in _lines_of(view, bars)]
    shown = _fitting(every, room)
    lines = output.table(_HEADERS, [line.cells for line in shown]).splitlines() if shown else ["no DriverContainer"]
    if len(shown) < len(every):
        lines.append(f"and {len(every) - len(shown)} more lines")
    return [_cut(line, columns - 1) for line in (*lines, *([note] if note else ()))]


def rows_of(views: Iterable[RolloutView]) -> dict[Row, Row]:
    """Write a row for each target and each wave, by what it is about."""
    rows: dict[Row, Row] = {}
    for view in views:
        name = (view.driver.namespace, view.driver.name)
        if view.wave is not None:
            rows[(*name, "wave", "-")] = (str(view.wave.nodes), str(view.wave.updated), *_wave_cells(view.wave))
        for target in view.targets:
            cells = (str(target.nodes), str(target.ready_nodes), target.state.value, target.reason or "-")
            rows[(*name, target.kernel, _os(target))] = (*cells, printable(target.message))
        if not view.targets:
            rows[(*name, _NO_TARGET, "-")] = ("0", "0", "-", "-", view.note or view.headline)
    return rows


def changed_rows(before: Mapping[Row, Row], after: Mapping[Row, Row]) -> list[Row]:
    """Give the rows that are new or differ, and one for each that is gone."""
    news = [(*about, *cells) for about, cells in after.items() if before.get(about) != cells]
    # A driver that has targets by now has not gone.
    drivers = {about[:2] for about in after}
    gone = (about for about in before if about not in after and (about[2] != _NO_TARGET or about[:2] not in drivers))
    return news + [(*about, "0", "0", GONE, "-", "") for about in gone]


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the table; ``is_at_rest`` where nothing happens and nothing needs a person."""

    cells: Row
    is_at_rest: bool = False


def _fitting(lines: Sequence[_Line], room: int) -> list[_Line]:
    """Choose so many lines, or one fewer where the others have to be counted; in their order."""
    if len(lines) <= room:
        return list(lines)
    first = sorted(range(len(lines)), key=lambda place: (lines[place].is_at_rest, place))
    return [lines[place] for place in sorted(first[: room - 1])]


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: max(width - 3, 0)].rstrip()}..."


def _lines_of(view: RolloutView, bars: str) -> Iterable[_Line]:
    ready, nodes = sum(target.ready_nodes for target in view.wanted), sum(target.nodes for target in view.wanted)
    yield _Line((f"{view.driver} {view.version}", output.counted(ready, nodes, bars), *_state(view)))
    for target in view.targets:
        count = output.counted(target.ready_nodes, target.nodes, bars)
        yield _Line(
            (f"  {target.kernel} {_os(target)}", count, target.state.value, printable(target.message)),
            is_at_rest=target.state is TargetState.READY or target.state in WITHOUT_DRIVER,
        )


def _state(view: RolloutView) -> tuple[str, str]:
    """Say in a word and a sentence what the driver as a whole does: its wave first."""
    if not view.is_observed:
        return "NotObserved", "the controller has not observed this version of the spec yet"
    paused = "paused: " if view.is_paused else ""
    if view.wave is not None:
        phase, _, message = _wave_cells(view.wave)
        return phase, f"{paused}{message}"
    return "Paused" if view.is_paused else _OUTCOMES[view.outcome], "" if view.wanted else view.note


def _wave_cells(wave: WaveView) -> Row:
    counts = [f"{wave.updated} of {wave.nodes} updated", f"{wave.unavailable} unavailable"]
    counts += [f"{wave.failed} failed"] if wave.failed else []
    return wave.phase, "-", ", ".join(counts) + (f"; {wave.message}" if wave.message else "")


def _os(target: TargetStatus) -> str:
    return f"{target.os}/{target.architecture}"


def joined(row: Sequence[str], widths: Sequence[int]) -> str:
    """Lay out one row below others."""
    return "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def widths_of(rows: Iterable[Sequence[str]], least: Sequence[int]) -> tuple[int, ...]:
    """Give the widths of the columns of some rows, each of them at least as wide as before."""
    return tuple(map(max, zip(least, *(map(len, row) for row in rows), strict=True)))
