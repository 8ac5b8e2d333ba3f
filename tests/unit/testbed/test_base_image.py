"""Which base image of the cache is used, and when it is made anew."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from testbed import base_image
from testbed.apt_sources import Archive
from testbed.base_image import base_image_archive
from testbed.cache import _is_as_made
from testbed.errors import ArchiveError
from testbed.progress import Silent

DAY = 86400.0


class Machine:
    """A machine on which images are made at once; the archive may be away, and time may pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._made = 0
        self.is_away = False
        monkeypatch.setattr(base_image, "_make", self._make)
        monkeypatch.setattr(base_image, "release_codename", lambda: "bookworm")
        archive = Archive(uri="http://mirror.test/debian", suite="bookworm", components=("main",))
        monkeypatch.setattr(base_image, "archives_of", lambda codename: [replace(archive, suite=codename)])

    def _make(self, folder: Path, *_: object) -> None:
        if self.is_away:
            raise ArchiveError("the archive is away", hint="wait")
        self._made += 1
        (folder / "image.tar").write_text(f"image {self._made}")

    def image(self, *, days: float = 0, codename: str = "") -> str:
        """Return what a run uses that begins so many days from now."""
        _is_as_made.cache_clear()
        now = time.time() + days * DAY
        with self._monkeypatch.context() as later:
            later.setattr("time.time", lambda: now)
            return base_image_archive(Silent(), codename).read_text()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return Machine(monkeypatch)


def test_an_image_is_made_anew_each_week(machine: Machine) -> None:
    """And the one before is not kept."""
    assert [machine.image(days=days) for days in (0, 6, 8, 9)] == ["image 1", "image 1", "image 2", "image 2"]


def test_each_release_has_an_image_of_its_own(machine: Machine) -> None:
    """One does not take the other's place."""
    made = [machine.image(codename=name) for name in ("bookworm", "trixie", "", "trixie")]
    assert made == ["image 1", "image 2", "image 1", "image 2"]


def test_an_old_image_stays_in_use_while_the_archive_is_away(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    """That is said, with the reason."""
    machine.image()
    machine.is_away = True
    assert machine.image(days=30) == "image 1"
    said = capsys.readouterr().err
    assert "the base image of 30 days ago is used:\nthe archive is away" in said


def test_no_image_at_all_is_the_archives_error(machine: Machine) -> None:
    """With what helps."""
    machine.is_away = True
    with pytest.raises(ArchiveError, match="the archive is away\n  hint: wait"):
        machine.image()


def test_a_damaged_image_is_made_anew(machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the day on which it was made, and on another."""
    for days, made in ((0, "image 2"), (1, "image 3")):
        machine.image()
        (archive,) = tmp_path.glob("driverwright/base-image-*/image.tar")
        archive.write_text("imagE")
        assert machine.image(days=days) == made
        assert "is damaged, it has to be made anew: image.tar" in capsys.readouterr().err
