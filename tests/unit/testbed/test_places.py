"""What is done with the remains of dead testbeds."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import places


class Listed:
    """A folder whose listing is older than what is in it."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders

    def glob(self, _pattern: str) -> Iterator[Path]:
        """Yield what was there."""
        yield from self._folders


def test_remains_that_somebody_else_removes_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions that begin side by side find the same ones; the next ones are removed all the same, but for logs."""
    dead = tmp_path / "dw-dead"
    (dead / "logs").mkdir(parents=True)
    (dead / "state.json").write_text("{}")
    os.utime(dead, (1000, 1000))
    monkeypatch.setattr(places, "base", lambda: Listed(tmp_path / "dw-gone", dead))
    places.remove_remains()
    assert [path.name for path in dead.iterdir()] == ["logs"]
