"""Archives without traces of the machine and the moment."""

import gzip
import tarfile
from pathlib import Path

from tools.release.plain_tar import Entry, read_tar_gz, write_tar

ENTRIES = [Entry("a/z.sh", b"#!/bin/sh\n", is_program=True), Entry("a/b", b"text"), Entry("a/empty", b"")]


def test_the_same_files_have_the_same_bytes(tmp_path: Path) -> None:
    """Whatever their order, and whatever the archive is called."""
    write_tar(tmp_path / "x.tgz", ENTRIES, epoch=1_700_000_000)
    write_tar(tmp_path / "y.tar.gz", ENTRIES[::-1], epoch=1_700_000_000)
    assert (tmp_path / "x.tgz").read_bytes() == (tmp_path / "y.tar.gz").read_bytes()


def test_members_are_roots_and_of_the_time_that_is_given(tmp_path: Path) -> None:
    """Programs stay programs; the stream itself has the same time."""
    write_tar(tmp_path / "x.tgz", ENTRIES, epoch=1_700_000_000)
    with tarfile.open(tmp_path / "x.tgz") as tar:
        members = tar.getmembers()
    assert [(member.name, member.mode) for member in members] == [("a/b", 0o644), ("a/empty", 0o644), ("a/z.sh", 0o755)]
    assert {(member.uid, member.gid, member.uname, member.mtime) for member in members} == {(0, 0, "", 1_700_000_000)}
    with gzip.open(tmp_path / "x.tgz") as stream:
        stream.read(1)
        assert stream.mtime == 1_700_000_000


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """So an archive of another tool can be written anew."""
    write_tar(tmp_path / "x.tgz", ENTRIES, epoch=0)
    assert read_tar_gz(tmp_path / "x.tgz") == sorted(ENTRIES)


def test_large_files_are_taken_from_where_they_are(tmp_path: Path) -> None:
    """And an archive with another name is not compressed."""
    (tmp_path / "blob").write_bytes(b"x" * 5000)
    write_tar(tmp_path / "x.tar", [Entry("blobs/1", tmp_path / "blob")], epoch=0)
    with tarfile.open(tmp_path / "x.tar", "r:") as tar:
        content = tar.extractfile("blobs/1")
        assert content is not None
        assert content.read() == b"x" * 5000
