"""Files that change: whatever way they do, and wherever they come from."""

import os
import select
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from file_watch import inotify
from file_watch.inotify import Changes, FileWatch, Place, parse_events, watch_files


@pytest.fixture
def watches() -> Iterator[Callable[..., FileWatch]]:
    """Make watches that are closed after the test."""
    made: list[FileWatch] = []

    def make(*places: Place) -> FileWatch:
        made.append(FileWatch(places))
        return made[-1]

    yield make
    for watch in made:
        watch.close()


def changes(watch: FileWatch, seconds: float = 0.0) -> frozenset[str]:
    """Take all that is there; wait for the first."""
    found: frozenset[str] = frozenset()
    while select.select([watch], [], [], seconds)[0]:
        found |= watch.drain().triggers
        seconds = 0.0
    return found


def mounted(directory: Path, files: dict[str, str], version: str) -> None:
    """Write a ConfigMap volume as the kubelet does: a directory of its own, and ``..data`` swapped to it."""
    (directory / version).mkdir(parents=True)
    for name, content in files.items():
        (directory / version / name).write_text(content)
    (directory / "..data_tmp").symlink_to(version)
    (directory / "..data_tmp").rename(directory / "..data")
    for name in files:
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"..data/{name}")


def written(directory: Path) -> None:
    """Write a file in place."""
    (directory / "a").write_text("new")


def renamed_in(directory: Path) -> None:
    """Put a file in another's stead, as careful programs do."""
    (directory.parent / "new").write_text("new")
    (directory.parent / "new").rename(directory / "a")


def renamed_away(directory: Path) -> None:
    """Move a file out."""
    (directory / "a").rename(directory.parent / "gone")


def deleted(directory: Path) -> None:
    """Delete a file."""
    (directory / "a").unlink()


def linked(directory: Path) -> None:
    """Put a symbolic link there."""
    (directory / "b").symlink_to("a")


def made_readable(directory: Path) -> None:
    """Change a mode: what could not be read can be now."""
    (directory / "a").chmod(0o600)


def removed(directory: Path) -> None:
    """Delete the whole directory."""
    shutil.rmtree(directory)


def moved(directory: Path) -> None:
    """Rename the directory's parent."""
    directory.parent.rename(directory.parent.parent / "elsewhere")


@pytest.mark.parametrize(
    "change", [written, renamed_in, renamed_away, deleted, linked, made_readable, removed, moved],
    ids=lambda change: change.__name__,
)  # fmt: skip
def test_a_change_in_a_directory_is_seen(
    change: Callable[[Path], None], tmp_path: Path, watches: Callable[..., FileWatch]
) -> None:
    """Every way in which feature files change is seen."""
    directory = tmp_path / "node" / "features.d"
    directory.mkdir(parents=True)
    (directory / "a").write_text("old")
    watch = watches(Place(str(directory), "file"))
    assert not changes(watch)
    change(directory)
    assert changes(watch, 1.0) == {"file"}
    assert not changes(watch)


def test_reading_and_hidden_files_and_neighbours_are_no_change(
    tmp_path: Path, watches: Callable[..., FileWatch]
) -> None:
    """A cycle reads the files; editors leave hidden ones; /etc is busy."""
    directory = tmp_path / "features.d"
    directory.mkdir()
    (directory / "a").write_text("old")
    watch = watches(Place(str(directory), "file"))
    (directory / "a").read_text()
    (directory / ".a.swp").write_text("")
    (tmp_path / "neighbour").write_text("")
    assert not changes(watch, 0.1)


def test_a_directory_that_comes_later_is_seen_with_its_files(tmp_path: Path, watches: Callable[..., FileWatch]) -> None:
    """Also when several directories above it are missing, and when it goes and comes again."""
    directory = tmp_path / "etc" / "kubernetes" / "features.d"
    watch = watches(Place(str(directory), "file"))
    for _ in range(2):
        directory.mkdir(parents=True)
        (directory / "a").write_text("x")
        assert changes(watch, 1.0) == {"file"}
        (directory / "a").write_text("y")
        assert changes(watch, 1.0) == {"file"}
        shutil.rmtree(tmp_path / "etc")
        assert changes(watch, 1.0) == {"file"}


def test_files_written_into_a_new_directory_at_once_are_not_missed(
    tmp_path: Path, watches: Callable[..., FileWatch]
) -> None:
    """Between the coming of a directory and the watch on it there is no event; the coming counts."""
    directory = tmp_path / "features.d"
    watch = watches(Place(str(directory), "file"))
    directory.mkdir()
    (directory / "a").write_text("x")
    assert watch.drain().triggers == {"file"}


def test_what_is_written_counts_only_where_contents_do(tmp_path: Path, watches: Callable[..., FileWatch]) -> None:
    """In /dev somebody always writes to /dev/null; what comes and goes is seen."""
    (tmp_path / "inner").mkdir()
    file = tmp_path / "inner" / "null"
    file.touch()
    watch = watches(Place(str(tmp_path), "devices", levels=2, contents=False))
    file.write_text("x")
    file.chmod(0o600)
    assert changes(watch) == set()
    file.unlink()
    assert changes(watch, 1.0) == {"devices"}


def test_sub_directories_are_watched_one_level_deep(tmp_path: Path, watches: Callable[..., FileWatch]) -> None:
    """As custom.d is read; those that come later, too."""
    (tmp_path / "custom.d" / "one" / "deep").mkdir(parents=True)
    watch = watches(Place(str(tmp_path / "custom.d"), "file", levels=2))
    (tmp_path / "custom.d" / "one" / "rules.yaml").write_text("x")
    assert changes(watch, 1.0) == {"file"}
    (tmp_path / "custom.d" / "two").mkdir()
    assert changes(watch, 1.0) == {"file"}
    (tmp_path / "custom.d" / "two" / "rules.yaml").write_text("x")
    assert changes(watch, 1.0) == {"file"}
    (tmp_path / "custom.d" / "one" / "deep" / "rules.yaml").write_text("x")
    assert not changes(watch, 0.1)


def test_the_swap_of_a_mounted_config_map_is_seen(tmp_path: Path, watches: Callable[..., FileWatch]) -> None:
    """The files themselves never change."""
    mounted(tmp_path / "rules.d", {"a.yaml": "[]"}, "..v1")
    watch = watches(Place(str(tmp_path / "rules.d"), "file"))
    mounted(tmp_path / "rules.d", {"a.yaml": "[1]"}, "..v2")
    assert changes(watch, 1.0) == {"file"}


def test_one_file_of_a_mounted_config_map_is_seen(tmp_path: Path, watches: Callable[..., FileWatch]) -> None:
    """A change of a configuration file in a mounted ConfigMap is noticed."""
    mounted(tmp_path, {"nfd-worker.conf": "core: {}"}, "..v1")
    watch = watches(Place(str(tmp_path / "nfd-worker.conf"), "config", levels=0))
    mounted(tmp_path, {"nfd-worker.conf": "core: {noPublish: true}"}, "..v2")
    assert changes(watch, 1.0) == {"config"}


def test_one_file_is_watched_and_not_its_neighbours(tmp_path: Path, watches: Callable[..., FileWatch]) -> None:
    """A change of another file in the same directory does not count."""
    watch = watches(
        Place(str(tmp_path / "nfd-worker.conf"), "config", levels=0), Place(str(tmp_path / "features.d"), "file")
    )
    (tmp_path / "other").write_text("x")
    assert not changes(watch, 0.1)
    (tmp_path / "nfd-worker.conf").write_text("x")
    assert changes(watch, 1.0) == {"config"}
    (tmp_path / "features.d").mkdir()
    assert changes(watch, 1.0) == {"file"}


def test_a_symbolic_link_above_that_is_turned_elsewhere_is_seen(
    tmp_path: Path, watches: Callable[..., FileWatch]
) -> None:
    """``/etc/kubernetes`` may be a link into a data partition."""
    for name in ("old", "new"):
        (tmp_path / name / "features.d").mkdir(parents=True)
    (tmp_path / "link").symlink_to("old")
    watch = watches(Place(str(tmp_path / "link" / "features.d"), "file"))
    (tmp_path / "link2").symlink_to("new")
    (tmp_path / "link2").rename(tmp_path / "link")
    assert changes(watch, 1.0) == {"file"}
    (tmp_path / "new" / "features.d" / "a").write_text("x")
    assert changes(watch, 1.0) == {"file"}


def test_an_overflow_of_the_queue_counts_as_a_change_of_everything(
    tmp_path: Path, watches: Callable[..., FileWatch]
) -> None:
    """Some events are lost: the rest of the kernel's queue says so."""
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    directory = tmp_path / "features.d"
    directory.mkdir()
    (directory / ".a").touch()
    (directory / ".b").touch()
    watch = watches(Place(str(directory), "file"), Place(str(tmp_path / "none" / "file"), "config", levels=0))
    for number in range(limit + 10):
        os.utime(directory / (".a", ".b")[number % 2])  # the quickest event there is, and of no interest
    assert changes(watch) == {"config", "file"}


def test_other_places_take_the_stead_of_the_old(tmp_path: Path, watches: Callable[..., FileWatch]) -> None:
    """After a change of configuration the new directories are watched, and no others."""
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    watch = watches(Place(str(tmp_path / "old"), "file"))
    watch.watch([Place(str(tmp_path / "new"), "rules")])
    (tmp_path / "old" / "a").write_text("x")
    assert not changes(watch, 0.1)
    (tmp_path / "new" / "a").write_text("x")
    assert changes(watch, 1.0) == {"rules"}


def test_without_an_instance_the_worker_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The limit of the user may be used up by another pod: the interval finds changes then."""

    def refused(_places: object) -> FileWatch:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(inotify, "FileWatch", refused)
    assert watch_files([]) is None
    assert "Too many open files" in caplog.text


def test_events_are_read_one_after_the_other() -> None:
    """``struct inotify_event`` has a name of any length, padded with zeros; a short rest is no event."""
    first = (3).to_bytes(4, "little") + (8).to_bytes(4, "little") + bytes(4) + (16).to_bytes(4, "little")
    second = (-1).to_bytes(4, "little", signed=True) + (0x4000).to_bytes(4, "little") + bytes(8)
    content = first + b"name".ljust(16, b"\0") + second + b"\1\2"
    assert list(parse_events(content)) == [(3, 8, "name"), (-1, 0x4000, "")]


def test_a_file_that_was_only_begun_is_not_complete(tmp_path: Path, watches: Callable[..., FileWatch]) -> None:
    """It is when it is closed, renamed or deleted: then it can be read at once."""
    watch = watches(Place(str(tmp_path), "file"))
    with (tmp_path / "a").open("w") as file:
        file.write("a=")
        file.flush()
        assert watch.drain() == Changes(frozenset({"file"}))
    assert watch.drain() == Changes(frozenset({"file"}), frozenset({"file"}))
    (tmp_path / "a").rename(tmp_path / "b")
    assert watch.drain().complete == {"file"}
    (tmp_path / "b").unlink()
    assert watch.drain().complete == {"file"}
    (tmp_path / "link").symlink_to("nowhere")
    assert watch.drain() == Changes(frozenset({"file"}))
