"""What of the cache is kept, and used."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.cache import _is_as_made, cached_folder, forget_old, kept_folder, remove_entry
from testbed.errors import ArchiveError


def test_what_was_used_last_is_kept(tmp_path: Path) -> None:
    """The one that is used now first of all; what another run is making has a name of its own, and stays."""
    for age, name in enumerate(("new", "middle", "used", ".being-made")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    forget_old(tmp_path / "used", 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".being-made", "new", "used"]


def test_what_another_run_removes_meanwhile_is_passed_over(tmp_path: Path) -> None:
    """It is listed, and then it is not there: a link that leads nowhere plays it."""
    for age, name in enumerate(("used", "middle", "old")):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    (tmp_path / "gone").symlink_to("nowhere")
    forget_old(tmp_path / "used", 2)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"used", "middle"}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """Call it for an entry of the cache, as a run that begins then; its file ``count`` says how often it was made."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    times: list[None] = []

    def make(folder: Path) -> None:
        times.append(None)
        (folder / "bin").mkdir()
        (folder / "bin/program").write_text("content")
        (folder / "bin/link").symlink_to("program")
        (folder / "count").write_text(str(len(times)))

    def entry() -> Path:
        _is_as_made.cache_clear()
        return cached_folder("folder/entry", make)

    return entry


def flip(path: Path) -> None:
    """Change a bit, as a disk does it: size and times stay."""
    was = path.stat()
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


def test_what_is_as_it_was_made_is_used(made: Callable[[], Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is said of it."""
    made()
    assert (made() / "count").read_text() == "1"
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        pytest.param(lambda entry: flip(entry / "bin/program"), "bin/program not as made", id="a flipped byte"),
        pytest.param(
            lambda entry: (entry / "bin/program").write_text(""), "bin/program not as made", id="a lost write"
        ),
        pytest.param(lambda entry: (entry / "bin/program").unlink(), "bin/program not as made", id="a lost file"),
        pytest.param(lambda entry: (entry / "more").touch(), "more not as made", id="a file more"),
        pytest.param(lambda entry: flip(entry / ".sha256sums"), "not as made", id="a flipped byte of the checksums"),
        pytest.param(lambda entry: (entry / ".sha256sums").write_text(""), "not as made", id="no checksum"),
        pytest.param(lambda entry: (entry / ".sha256sums").unlink(), ".sha256sums", id="no file of checksums"),
    ],
)
def test_what_is_not_as_it_was_made_is_named_and_made_anew(
    made: Callable[[], Path], capsys: pytest.CaptureFixture[str], damage: Callable[[Path], object], said: str
) -> None:
    """It is never used, and nothing of it is left."""
    entry = made()
    damage(entry)
    assert (made() / "count").read_text() == "2"
    assert (entry / "bin/program").read_text() == "content"
    assert capsys.readouterr().err.count(said) == 1
    assert [path.name for path in entry.parent.iterdir()] == ["entry"]
    assert (made() / "count").read_text() == "2"


def test_what_is_damaged_stays_unused_where_it_cannot_be_made_anew(
    made: Callable[[], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """An archive may be away."""
    flip(made() / "bin/program")
    _is_as_made.cache_clear()

    def fail(_: Path) -> None:
        raise ArchiveError("the archive is away", hint="wait")

    for _ in range(2):
        with pytest.raises(ArchiveError, match="the archive is away"):
            cached_folder("folder/entry", fail)
    assert kept_folder("folder/entry") is None
    assert capsys.readouterr().err.count("is damaged") == 1


def test_the_checksums_are_those_of_sha256sum(made: Callable[[], Path]) -> None:
    """So that they can be compared by hand."""
    line = (made() / ".sha256sums").read_text().splitlines()[0]
    assert line == f"{hashlib.sha256(b'content').hexdigest()}  bin/program"


def test_what_is_not_checked_has_no_checksums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is used as it is."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):
        entry = cached_folder("entry", lambda folder: (folder / "file").touch(), is_checked=False)
        assert [path.name for path in entry.iterdir()] == ["file"]


def test_an_entry_whose_removal_is_ended_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No half of it is left to be used."""
    (tmp_path / "entry").mkdir()

    def ended(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("shutil.rmtree", ended)
    with pytest.raises(KeyboardInterrupt):
        remove_entry(tmp_path / "entry")
    assert not (tmp_path / "entry").exists()


def test_what_a_killed_run_has_left_is_removed(tmp_path: Path, made: Callable[[], Path]) -> None:
    """Half an entry takes no room for ever: the next run that makes the entry removes it."""
    left = tmp_path / "driverwright/folder/.entry-abcdef"
    left.mkdir(parents=True)
    (left / "half").touch()
    assert made().is_dir()
    assert not left.exists()
