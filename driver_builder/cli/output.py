"""How commands print: a table for people, JSON or YAML for programs."""

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

import yaml

from driver_builder.base.reasons import remedy_of
from driver_builder.model.driver_key import DriverKey

FORMATS = ("table", "json", "yaml")
_BARS, _PLAIN_BARS = "█░", "#."
_BAR = 12
"""Characters of a bar."""


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Lay out columns the way kubectl does: three blanks between, headers in capitals."""
    lines = [[str(cell) for cell in row] for row in (headers, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def bars(stream: TextIO | None = None) -> str:
    """Return the characters of a full and of an empty part of a bar, on a terminal; elsewhere there are no bars.

    ``stream`` is standard output unless another one is given.
    """
    stream = stream or sys.stdout
    if not stream.isatty():
        return ""
    return _BARS if (stream.encoding or "").lower().replace("-", "") == "utf8" else _PLAIN_BARS


def counted(part: int, whole: int, bars: str) -> str:
    """Write ``3/10``, after a bar where there are characters for one."""
    if not bars or not whole:
        return f"{part}/{whole}"
    full = _BAR * min(part, whole) // whole
    return f"{bars[0] * full}{bars[1] * (_BAR - full)} {part}/{whole}"


class InPlace:
    """Lines on a terminal, each time over those of the time before."""

    def __init__(self) -> None:
        self._height = 0

    def draw(self, lines: Sequence[str]) -> None:
        """Draw the lines."""
        up = f"\x1b[{self._height}A\r\x1b[J" if self._height else ""
        print(up + "\n".join(lines), flush=True)
        self._height = len(lines)


def with_remedies(text: str, reasons: Iterable[str]) -> str:
    """Add the remedies to a table: a line for each reason in it."""
    remedies = [f"{reason}: {remedy_of(reason)}" for reason in dict.fromkeys(reasons) if remedy_of(reason)]
    return "\n\n".join(filter(None, [text, "\n".join(remedies)]))


class _Dumper(yaml.SafeDumper):
    """Writes keys of drivers as the texts that they are."""


_Dumper.add_representer(DriverKey, _Dumper.represent_str)


def document(data: Any, form: str) -> str:
    """Write plain data as JSON or YAML."""
    if form == "json":
        return json.dumps(data, indent=2, sort_keys=True)
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=True)).rstrip()


def progress(words: str) -> None:
    """Show in place what is being done, until the next call; empty words clear it. A log file gets nothing of it."""
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns - 1
        words = "".join(letter if letter.isprintable() else " " for letter in words)
        print(f"\r{words[:width]}\x1b[K", end="", file=sys.stderr, flush=True)
