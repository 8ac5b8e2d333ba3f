"""Host: reads below one root, and the difference between not there and not readable."""

import errno
import os
from pathlib import Path

import pytest

from nfd_worker.errors import HostReadError
from nfd_worker.host import BOOT_ID, Host
from tests.support.nfd_worker.trees import host


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


def test_a_file_that_may_not_be_read_is_reported_once_and_taken_for_absent(
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
    """The first readable place wins; what is no file there is passed over, and an I/O error ends the search."""
    it = host(tmp_path, {"a/is-a-directory": "", "b": "here"})
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "broken").symlink_to("/proc/self/mem")
    assert it.find_first(("missing", "b", "a")) == ("b", b"here")
    assert it.find_first(("a", "loop", "x" * 300, "endless", "b")) == ("b", b"here")
    assert it.find_first(("a",)) is None
    with pytest.raises(HostReadError, match="Input/output error"):
        it.find_first(("broken", "b"))


def test_a_number_may_be_hexadecimal_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is not a number is left out alone; the log names the file and what it holds, once."""
    it = host(tmp_path, {"ten": "10\n", "hex": "0x10\n", "word": "many\n", "huge": "9" * 5000, "empty": "\n"})
    assert (it.find_int("ten"), it.find_int("hex")) == (10, 16)
    assert [it.find_int(name) for name in ("word", "huge", "empty", "word")] == [None] * 4
    assert caplog.text.count("which is not a number; left out") == 3
    assert "word holds 'many\\n'" in caplog.text


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


def test_the_files_of_a_directory_come_together_and_trimmed(tmp_path: Path) -> None:
    """Without those that are not there; names may lead further down."""
    it = host(tmp_path, {"sys/d/vendor": "0x10de\n", "sys/d/group/type": " DMA \n", "sys/d/x/y": ""})
    assert it.find_all("sys/d", ("vendor", "device", "group/type")) == {"vendor": "0x10de", "group/type": "DMA"}
    assert it.find_all("sys/gone", ("vendor",)) == {}
    with pytest.raises(HostReadError, match=r"cannot read .*/sys/d/x: Is a directory"):
        it.find_all("sys/d", ("x",))


def test_a_directory_that_leads_to_itself_cannot_be_read(tmp_path: Path) -> None:
    """A symbolic link loop is a failed read, not a missing directory."""
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(HostReadError, match="Too many levels"):
        Host(str(tmp_path)).find_all("loop", ("x",))


def test_the_start_of_a_long_file_is_enough_where_it_is_asked_for(tmp_path: Path) -> None:
    """A caller can read only the start of a file of any length, such as one in /proc."""
    it = host(tmp_path, {"proc/cpuinfo": "x" * 200_000})
    assert it.find_start("proc/cpuinfo") == "x" * 65536
    assert it.find_start("proc/gone") is None


def test_a_pipe_in_place_of_a_file_does_not_stop_the_worker(tmp_path: Path) -> None:
    """A pipe instead of a file reads as empty and does not block."""
    os.mkfifo(tmp_path / "pipe")
    assert Host(str(tmp_path)).find("pipe") == ""


def test_content_is_parsed_once_until_it_changes(tmp_path: Path) -> None:
    """The parsed result is kept as long as the content is equal."""
    it = Host(str(tmp_path))
    first = it.parsed("f", b"a", bytearray)
    assert it.parsed("f", b"a", bytearray) is first
    assert it.parsed("f", b"b", bytearray) == b"b"
    assert it.parsed("other", b"a", bytearray) is not first


def test_a_directory_that_every_node_has_is_asked_for_by_its_mount(tmp_path: Path) -> None:
    """When a directory that every node has is missing, the message names the mount to add."""
    it = host(tmp_path, {"sys/bus/x": ""})
    it.require("sys/bus")
    with pytest.raises(HostReadError, match=r"cannot read proc/bus below .*: is the host's /proc mounted there\?"):
        it.require("proc/bus")


def test_a_warning_comes_once_and_memory_of_it_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """A file that says something new in every cycle costs no memory for ever."""
    it = Host("/")
    for number in (*range(256), *range(256)):
        it.warn_once(f"number {number}")
    assert caplog.messages == [f"number {number}" for number in range(256)]
    it.warn_once("one more")
    it.warn_once("number 0")
    assert caplog.messages[256:] == ["one more", "number 0"]


@pytest.mark.parametrize("size", [0, 10, 11])
def test_only_short_files_of_others_are_read(tmp_path: Path, size: int) -> None:
    """A file of exactly the limit is read; a longer one is not."""
    it = host(tmp_path, {"f": b"x" * size})
    assert it.find_regular("f", 10) == (b"x" * size if size <= 10 else None)


def test_a_directory_among_files_of_others_is_passed_over_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A directory among the files is skipped without a warning."""
    assert host(tmp_path, {"d/x": ""}).find_regular("d", 10) is None
    assert not caplog.records


def test_what_is_remembered_of_a_device_goes_with_it(tmp_path: Path) -> None:
    """A device is read once; one in its place is read anew, one that is gone is forgotten, and nothing is not kept."""
    it = host(tmp_path, {"sys/a/x": "", "sys/b/x": "", "other/x": ""})
    asked: list[str] = []

    def read(name: str) -> str | None:
        asked.append(name)
        return None if name == "b" else f"{name}{len(asked)}"

    assert it.remembered("sys", read) == {"a": "a1"}
    assert it.remembered("sys", read) == {"a": "a1"}
    (tmp_path / "sys/a").rename(tmp_path / "gone")
    assert it.remembered("sys", read) == {}
    (tmp_path / "other").rename(tmp_path / "sys/a")
    assert it.remembered("sys", read) == {"a": "a5"}
    assert asked == ["a", "b", "b", "b", "a", "b"]
