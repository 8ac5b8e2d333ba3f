"""What an engine says during a build: its stream of JSON objects as log lines and one outcome. Pure.

Source: the Docker Engine API, ``POST /build``: objects with ``stream`` (output, in pieces that end anywhere),
``status`` (pulling, with a progress), ``aux`` (``ID`` of the finished image), or ``error`` and ``errorDetail`` (with
the exit code of the failed command). A failed command is such an object, not an HTTP status.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

KEPT_LINES = 5000
"""Enough for the first error of a compiler to be among them, however much make -k says after it."""

TAIL_LINES = 40

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_LINE_END = re.compile(r"\r\n|\n|\r")


class BuildOutput:
    """Takes the objects one by one; afterwards tells how the build ended.

    ``image_id`` is None unless it succeeded; ``error`` is empty unless the engine named one, and ``exit_code`` None
    unless a command failed. ``lines`` are the last lines, without colours (the engine wraps stderr in red).
    """

    def __init__(self) -> None:
        self.image_id: str | None = None
        self.error = ""
        self.exit_code: int | None = None
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._rest = ""

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines, few enough to show."""
        return tuple(self.lines)[-TAIL_LINES:]

    def take(self, item: Mapping[str, Any]) -> Iterator[str]:
        """Take in one object and yield the lines that it completes."""
        if "error" in item:
            self.error = str(item["error"])
            self.exit_code = (item.get("errorDetail") or {}).get("code")
        self.image_id = (item.get("aux") or {}).get("ID", self.image_id)
        if "stream" in item:
            yield from self._complete(item["stream"])
        elif item.get("status") and not item.get("progressDetail"):
            yield from self._complete(f"{item['id']}: {item['status']}\n" if item.get("id") else f"{item['status']}\n")

    def end(self) -> Iterator[str]:
        """Yield what is left of a last line without an end."""
        yield from self._complete("\n")

    def _complete(self, text: str) -> Iterator[str]:
        *whole, self._rest = _LINE_END.split(self._rest + text)
        for line in whole:
            plain = _COLOUR.sub("", line).rstrip()
            if plain:
                self.lines.append(plain)
                yield plain
