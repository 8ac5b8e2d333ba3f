"""Tars that nobody trusts: what is read of them, and what is not."""

import io
import tarfile

import pytest

from driver_builder.archives import bounded_tar as module
from driver_builder.archives.bounded_tar import MAX_HEADER, TarTooLarge, bounded_tar, read_whole
from tests.support.driver_builder.image_tars import tar_of


def names(content: bytes) -> list[str]:
    """The members' names."""
    with bounded_tar(io.BytesIO(content)) as tar:
        return [member.name for member in tar]


def extended(headers: dict[str, str]) -> bytes:
    """A tar of one empty file with extended headers."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        entry = tarfile.TarInfo("a")
        entry.pax_headers = headers
        tar.addfile(entry)
    return buffer.getvalue()


def test_members_come_in_their_order_with_their_contents() -> None:
    """Members have the same order and contents as with tarfile."""
    with bounded_tar(io.BytesIO(tar_of({"a": b"one", "b/c": b"two"}))) as tar:
        assert [(member.name, tar.open(member).read()) for member in tar] == [("a", b"one"), ("b/c", b"two")]


def test_an_ordinary_extended_header_is_read() -> None:
    """Such as a label of SELinux, or a long name."""
    assert names(extended({"SCHILY.xattr.security.selinux": "x" * 60_000})) == ["a"]
    assert names(extended({"path": "p" * 4000})) == ["p" * 4000]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(extended({"comment": "x" * MAX_HEADER}), "have more than", id="a huge header"),
        pytest.param(extended({"path": "p" * 20_000}), "names of one member have", id="a long name"),
        pytest.param(extended({"comment": "x"})[:1024] * 900, "too many headers", id="headers of headers"),
    ],
)
def test_headers_that_take_memory_are_refused(content: bytes, message: str) -> None:
    """Python reads them whole, whatever they say their size is."""
    with pytest.raises(TarTooLarge, match=message):
        names(content)


def test_the_files_of_a_large_toolchain_are_read() -> None:
    """Where a distribution's headers are all sources of a Linux, they are a layer of a toolchain."""
    header = tarfile.TarInfo("usr/src/linux/f").tobuf()
    assert len(names(header * 50_001 + bytes(1024))) == 50_001


def test_a_tar_has_so_many_members_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so many characters in all of their names."""
    content = tar_of({f"{number:05}": b"" for number in range(20)})
    monkeypatch.setattr(module, "MAX_MEMBERS", 20)
    assert len(names(content)) == 20
    monkeypatch.setattr(module, "MAX_MEMBERS", 19)
    with pytest.raises(TarTooLarge, match="more than 19 members"):
        names(content)
    monkeypatch.setattr(module, "MAX_ALL_WORDS", 99)
    with pytest.raises(TarTooLarge, match="more than 99 characters"):
        names(content)


def test_a_file_is_read_up_to_a_limit() -> None:
    """One byte more, and there is nothing."""
    assert read_whole(io.BytesIO(b"123"), 3) == b"123"
    assert read_whole(io.BytesIO(b"1234"), 3) is None
