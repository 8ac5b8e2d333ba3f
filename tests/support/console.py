"""Sessions that a page of the documentation shows: each command, and what it says that the command prints."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_AGE = re.compile(r"\b(?:\d+[dhms]){1,2}\b")


class Said(NamedTuple):
    """A command of a page, and what the page says that it prints; empty if nothing."""

    command: str
    printed: str


def blocks(page: str, language: str) -> list[str]:
    """Return the blocks of a page that are marked as one language."""
    return [text for marked, text in _BLOCK.findall((ROOT / page).read_text()) if marked == language]


def session(page: str) -> list[Said]:
    """Return the commands of a page's ``console`` blocks in their order; each begins with ``$ ``."""
    said = []
    for block in blocks(page, "console"):
        before, *parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
        assert not before, f"{page}: a console block begins with a command"
        said += [Said(*_split(part)) for part in parts]
    return said


def _split(part: str) -> tuple[str, str]:
    command, _, printed = part.partition("\n")
    return command, printed


def alike(text: str) -> list[list[str]]:
    """Return the words of each line, with ages made alike; what is about widths of columns means nothing."""
    return [_AGE.sub("AGE", line).split() for line in text.splitlines() if line.strip()]
