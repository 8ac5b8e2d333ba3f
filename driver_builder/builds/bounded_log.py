"""The output of a build, within bounds: its beginning and its end are kept, lines of the middle are counted. Pure.

Place in the flow: the build queue adds each redacted line; :mod:`build_logs` keeps the lines of a failed build,
:mod:`log_artifacts` attaches those of a successful one to the image.
"""

import gzip
from collections import deque
from collections.abc import Sequence

MAX_BYTES = 8 << 20
"""Bytes of one build's lines in memory: half for the beginning, half for the end."""
_LINE_COST = 64
"""Bytes that Python needs for a line besides its text: a log may have millions of short lines."""


class BoundedLog:
    """The lines of one build; ``limit`` is how many bytes of them are kept."""

    def __init__(self, limit: int = MAX_BYTES) -> None:
        self._half = limit // 2
        self._head: list[str] = []
        self._head_size = 0
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._left_out = 0

    def add(self, line: str) -> None:
        """Add a line."""
        size = _size(line)
        if not self._tail and self._head_size + size <= self._half:
            self._head.append(line)
            self._head_size += size
            return
        self._tail.append(line)
        self._tail_size += size
        while self._tail_size > self._half:
            self._tail_size -= _size(self._tail.popleft())
            self._left_out += 1

    def lines(self) -> list[str]:
        """Return the kept lines, and say where lines are missing."""
        missing = [_missing(self._left_out)] if self._left_out else []
        return [*self._head, *missing, *self._tail]


def packed(lines: Sequence[str], limit: int) -> bytes:
    """Compress lines (gzip) into at most ``limit`` bytes, without those of the middle if there are too many."""
    kept = list(lines)
    while len(content := gzip.compress("".join(f"{line}\n" for line in kept).encode(), mtime=0)) > limit and kept:
        half = len(kept) // 4
        ends = [*kept[:half], *kept[len(kept) - half :]] if half else []
        kept = [*ends[:half], _missing(len(lines) - len(ends)), *ends[half:]] if ends else []
    return content


def unpacked(content: bytes) -> str:
    """Return the text of packed lines."""
    return gzip.decompress(content).decode(errors="replace")


def _size(line: str) -> int:
    return len(line.encode()) + _LINE_COST


def _missing(count: int) -> str:
    return f"... {count} lines were left out here, because the log is too long ..."
