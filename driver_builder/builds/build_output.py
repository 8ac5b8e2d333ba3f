"""What an engine prints during a build: its stream of JSON objects as log lines and one result. Pure.

Source: the Docker Engine API, ``POST /build``: objects with ``stream`` (output, in pieces that end anywhere),
``status`` (pulling, with a progress), ``aux`` (``ID`` of the finished image), or ``error`` and ``errorDetail`` (with
the exit code of the failed command). A failed command is such an object, not an HTTP status.

The engine reads standard output and standard error of a command apart, and a piece of one may end in the middle of a
line: the other one's next piece does not continue it. Pieces of standard error are red.

The driver decides what a build prints: every line is made printable and cut, and everything takes linear time.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from driver_builder.base.errors import BuildFailed
from driver_builder.base.reasons import Reason

KEPT_LINES = 5000
"""Enough to have the first error of a compiler among them, however much make -k prints after it."""
KEPT_CHARACTERS = 4 << 20
"""Characters of all kept lines together: 800 for each of them, and a compiler's are shorter."""
TAIL_LINES = 40

MAX_LINE = 8000
"""Characters. The longest useful lines repeat a whole RUN command: of our templates, 5,000."""
_LINE_END_KEPT = 2000
"""Of a line that is cut, the end stays: there buildah prints the exit code of a command."""
_CUT = " ... "

MAX_OUTPUT = 256 << 20
"""Characters. The largest known build, NVIDIA's with all commands printed, has 10 MB."""

_LINE_END = re.compile(r"\r\n|\n|\r")
_STANDARD_ERROR = re.compile(r"\x1b\[91m.*\x1b\[0m", re.DOTALL)
_STEP = re.compile(r"Step [0-9]+/[0-9]+ : ")
"""What the engine announces: the command before it has ended, also a last line that it left without an end."""
_UNPRINTABLE = re.compile(
    # A terminal's sequences; other control characters; marks that turn the direction of text; what UTF-8 lacks.
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|[^\t\x20-\x7e\xa0-\U0010ffff]|[\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


def plain(text: str) -> str:
    """The text on one line, without sequences for the reader's terminal; its indentation stays."""
    return _UNPRINTABLE.sub("", _LINE_END.sub(" ", text))


class _OpenLine:
    """A line whose end has not come yet: its beginning and its end are kept, the middle is dropped."""

    def __init__(self) -> None:
        self._begin: list[str] = []
        self._room = MAX_LINE - _LINE_END_KEPT - len(_CUT)
        self._end = ""
        self._is_cut = False

    def add(self, text: str) -> None:
        """Add the next piece, in a time that depends on its own length alone."""
        self._begin.append(text[: self._room])
        self._end, rest = self._end + text[self._room :], len(text[: self._room])
        self._room -= rest
        if len(self._end) > _LINE_END_KEPT:
            self._end, self._is_cut = self._end[-_LINE_END_KEPT:], True

    def __str__(self) -> str:
        return "".join(self._begin) + (_CUT if self._is_cut else "") + self._end


class BuildOutput:
    """Takes the objects one by one; at the end it says how the build ended.

    ``image_id`` is None unless it succeeded; ``error`` is empty unless the engine named one, and ``exit_code`` None
    unless a command failed. ``lines`` are the last lines, printable (the engine wraps stderr in red).
    """

    def __init__(self) -> None:
        self.image_id: str | None = None
        self.error = ""
        self.exit_code: int | None = None
        self.lines: deque[str] = deque()
        self._kept = 0
        self._taken = 0
        self._open = {False: _OpenLine(), True: _OpenLine()}
        """Of standard output, and of standard error."""

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines, few enough to show."""
        return tuple(self.lines)[-TAIL_LINES:]

    def take(self, item: Mapping[str, Any]) -> Iterator[str]:
        """Add one object and yield the lines that it completes.

        Raises:
            BuildFailed: the build has printed more than is read.
        """
        if "error" in item:
            self.error = cut(plain(str(item["error"])))
            self.exit_code = (item.get("errorDetail") or {}).get("code")
        self.image_id = (item.get("aux") or {}).get("ID", self.image_id)
        if "stream" in item:
            text = item["stream"]
            if _STEP.match(text):
                yield from self.end()
            yield from self._complete(text, is_error=_STANDARD_ERROR.fullmatch(text) is not None)
        elif item.get("status") and not item.get("progressDetail"):
            yield from self._complete(f"{item['id']}: {item['status']}\n" if item.get("id") else f"{item['status']}\n")

    def end(self) -> Iterator[str]:
        """Yield the rest of last lines without an end."""
        yield from self._complete("\n")
        yield from self._complete("\n", is_error=True)

    def _complete(self, text: str, *, is_error: bool = False) -> Iterator[str]:
        self._taken += len(text)
        if self._taken > MAX_OUTPUT:
            raise BuildFailed(
                Reason.BUILD_ERROR,
                f"the build printed more than {MAX_OUTPUT} characters; make its commands print less",
                log_tail=self.tail,
            )
        *ended, rest = _LINE_END.split(text)
        for piece in ended:
            self._open[is_error].add(piece)
            line, self._open[is_error] = plain(str(self._open[is_error])).rstrip(), _OpenLine()
            if line:
                self._keep(line)
                yield line
        self._open[is_error].add(rest)

    def _keep(self, line: str) -> None:
        self.lines.append(line)
        self._kept += len(line)
        while len(self.lines) > KEPT_LINES or self._kept > KEPT_CHARACTERS:
            self._kept -= len(self.lines.popleft())


def cut(line: str) -> str:
    """A line of at most MAX_LINE characters, by leaving out its middle."""
    kept = _OpenLine()
    kept.add(line)
    return str(kept)
