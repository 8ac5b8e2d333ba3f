"""The one reader for files of others: what it opens, and how far it reads."""

import os
from pathlib import Path

import pytest

from nfd_worker.errors import UnfitFileError
from nfd_worker.guarded_file import read_descriptor, read_regular


@pytest.mark.parametrize("size", [0, 10, 1 << 16, (1 << 16) + 1])
def test_a_regular_file_comes_whole(tmp_path: Path, size: int) -> None:
    """Up to the limit itself, through a link as well."""
    (tmp_path / "f").write_bytes(b"x" * size)
    (tmp_path / "link").symlink_to("f")
    assert read_regular(str(tmp_path / "link"), size) == b"x" * size


def test_a_longer_file_is_not_read(tmp_path: Path) -> None:
    """A file whose size exceeds the limit is not read."""
    (tmp_path / "f").write_bytes(b"x" * 11)
    with pytest.raises(UnfitFileError, match="it has 11 bytes, and 10 is the most"):
        read_regular(str(tmp_path / "f"), 10)


def test_a_file_that_says_nothing_of_its_size_is_read_no_further_than_the_limit() -> None:
    """Files of /proc have none; this one has some hundred kilobytes on any machine, and its size is 0."""
    with pytest.raises(UnfitFileError, match="it grew beyond 100 bytes"):
        read_regular("/proc/kallsyms", 100)


def test_pipes_devices_and_directories_are_not_opened(tmp_path: Path) -> None:
    """A pipe without a writer would hold whoever opens it."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(UnfitFileError, match="it is not a regular file"):
            read_regular(str(path), 10)
    with pytest.raises(IsADirectoryError):
        read_regular(str(tmp_path), 10)


def test_a_pipe_that_takes_the_files_place_between_two_looks_holds_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is replaced by a pipe while it is opened is not read."""
    (tmp_path / "f").write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe")
    regular = (tmp_path / "f").stat()
    monkeypatch.setattr(os, "stat", lambda _path: regular)
    with pytest.raises(UnfitFileError, match="it is not a regular file"):
        read_regular(str(tmp_path / "pipe"), 10)


def test_a_stream_without_end_is_left_behind_the_limit() -> None:
    """Reading stops at the limit, whatever size was reported."""
    with open("/dev/zero", "rb", buffering=0) as zeros:  # noqa: PTH123 - a descriptor is wanted
        assert 10 < len(read_descriptor(zeros.fileno(), 10)) <= 1 << 17
