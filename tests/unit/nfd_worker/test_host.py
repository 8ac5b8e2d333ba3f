"""Host: reads below one root, and the difference between not there and not readable."""

import errno
import os
from pathlib import Path

import pytest

from nfd_worker.errors import HostReadError
from nfd_worker.host import BOOT_ID, Host
from tests.unit.nfd_worker.trees import host


def test_paths_with_and_without_a_leading_slash_are_below_the_root(tmp_path: Path) -> None:
    """An absolute path cannot leave the root."""
    it = host(tmp_path, {"etc/os-release": "ID=x\n"})
    assert it.read("/etc/os-release") == it.read("etc/os-release") == "ID=x\n"


def test_a_missing_file_is_no_error_where_it_is_an_answer(tmp_path: Path) -> None:
    """Find gives None, entries gives nothing, read raises."""
    it = Host(str(tmp_path))
    assert it.find("sys/nothing") is None
    assert it.find_int("sys/nothing") is None
    assert it.find_first(("a", "b")) is None
    assert it.entries("sys/nothing") == []
    assert not it.has("sys/nothing")
    with pytest.raises(HostReadError, match=r"cannot read .*/sys/nothing: No such file"):
        it.read("sys/nothing")


def test_a_file_that_is_there_and_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """A directory where a file should be is not taken for absence."""
    it = host(tmp_path, {"proc/modules/oops": ""})
    with pytest.raises(HostReadError, match="Is a directory"):
        it.find("proc/modules")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(HostReadError, match="Too many levels"):
        it.entries("loop")


def test_a_file_that_may_not_be_read_is_told_once_and_taken_for_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A policy does not pass like an I/O error: one denied file must not cost a source all its labels."""
    it = host(tmp_path, {"sys/fs/selinux/enforce": "1", "boot/config": "x"})

    def refuse(path: str, _directory: int | None = None) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr("nfd_worker.host._open", refuse)
    assert it.find("sys/fs/selinux/enforce") is None
    assert it.find_first(("sys/fs/selinux/enforce", "boot/config")) is None
    assert caplog.text.count("not allowed to read") == 2
    with pytest.raises(HostReadError, match="Permission denied"):
        it.read("boot/config")


def test_find_first_goes_on_after_what_is_not_there(tmp_path: Path) -> None:
    """The first readable place wins; one that fails ends the search."""
    it = host(tmp_path, {"a/is-a-directory": "", "b": "here"})
    assert it.find_first(("missing", "b", "a")) == ("b", b"here")
    with pytest.raises(HostReadError, match="Is a directory"):
        it.find_first(("a", "b"))


def test_a_number_may_be_hexadecimal_and_nothing_else(tmp_path: Path) -> None:
    """What is not a number names the file and what it holds."""
    it = host(tmp_path, {"ten": "10\n", "hex": "0x10\n", "word": "many\n"})
    assert (it.find_int("ten"), it.find_int("hex")) == (10, 16)
    with pytest.raises(HostReadError, match=r"word holds 'many\\n', which is not a number"):
        it.find_int("word")


def test_files_longer_than_one_read_come_whole(tmp_path: Path) -> None:
    """Content is not cut at the size of the buffer."""
    content = os.urandom(200_000)
    assert host(tmp_path, {"boot/config": content}).read_bytes("boot/config") == content


def test_bytes_that_are_not_utf8_do_not_fail(tmp_path: Path) -> None:
    """DMI strings of some vendors are latin-1."""
    assert host(tmp_path, {"x": b"a\xffb"}).read("x") == "a\ufffdb"


def test_only_the_running_machine_is_live(tmp_path: Path) -> None:
    """A recorded tree has another boot id, or none."""
    assert Host("/").is_live
    assert not Host(str(tmp_path)).is_live
    assert not host(tmp_path, {BOOT_ID: "0f5a8a0e-3a39-4f0d-8f3b-2f0bb0a2a7d1\n"}).is_live


def test_a_mounted_view_of_this_machine_is_live(tmp_path: Path) -> None:
    """The image's link of /host/proc to /proc makes the container's root live."""
    (tmp_path / "proc").symlink_to("/proc")
    assert Host(str(tmp_path)).is_live


def test_the_machine_of_a_recorded_host_is_its_own(tmp_path: Path) -> None:
    """A recorded arm64 host stays one on an x86 machine; one that does not tell has none."""
    assert host(tmp_path, {"proc/sys/kernel/arch": "aarch64\n"}).machine == "aarch64"
    assert Host(str(tmp_path / "empty")).machine == ""
    assert Host("/").machine == os.uname().machine
