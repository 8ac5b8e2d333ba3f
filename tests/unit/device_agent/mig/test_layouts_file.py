"""The mounted file with MIG layouts: whatever is there, it is layouts or an error text."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.mig.layouts_file import FILE_NAME, read_layouts
from device_agent.mig.parse import LONGEST_FILE, parse_layouts

GOOD = """\
version: v1
mig-configs:
  all-1g: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}]
  wrong: [{devices: all}]
"""


def mount(folder: Path, text: bytes, version: str = "..1") -> None:
    """Write the file as the kubelet mounts a ConfigMap: a link to a link, which is replaced."""
    (folder / version).mkdir()
    (folder / version / FILE_NAME).write_bytes(text)
    (folder / "..data_tmp").symlink_to(version)
    (folder / "..data_tmp").rename(folder / "..data")
    if not (folder / FILE_NAME).is_symlink():
        (folder / FILE_NAME).symlink_to(f"..data/{FILE_NAME}")


def test_a_key_has_its_layouts(tmp_path: Path) -> None:
    """Those of the parser; and others as soon as the kubelet has brought them."""
    mount(tmp_path, GOOD.encode())
    path = str(tmp_path / FILE_NAME)
    assert read_layouts(str(tmp_path), "all-1g").entries == parse_layouts(GOOD, path, "all-1g")
    mount(tmp_path, GOOD.replace("all-1g", "other").encode(), "..2")
    assert read_layouts(str(tmp_path), "other").entries == parse_layouts(GOOD, path, "all-1g")
    assert "no key all-1g" in read_layouts(str(tmp_path), "all-1g").error


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(None, "it does not exist; is the ConfigMap there?", id="missing"),
        pytest.param(b"x" * (LONGEST_FILE + 1), f"longer than {LONGEST_FILE} bytes", id="too long"),
        pytest.param(b"\xff\xfe", "config.yaml", id="no UTF-8"),
        pytest.param(b"mig-configs: [", "config.yaml", id="no YAML"),
        pytest.param(b"", "config.yaml", id="empty"),
        pytest.param(GOOD.encode().replace(b"all-1g", b"b"), "there is no key all-1g; there are b", id="no such key"),
        pytest.param(GOOD.encode().replace(b"1g.5gb", b"giant"), "is not a MIG profile", id="a wrong field"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: bytes | None, words: str) -> None:
    """With the file; nothing is left of an earlier one."""
    if text is not None:
        mount(tmp_path, text)
    found = read_layouts(str(tmp_path), "all-1g")
    assert words in found.error
    assert str(tmp_path / FILE_NAME) in found.error
    assert (found.key, found.entries) == ("all-1g", ())


def test_without_a_folder_the_flag_is_named() -> None:
    """No file of the working directory is read instead."""
    assert "--mig-config" in read_layouts("", "all-1g").error


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    """A pipe would never end."""
    os.mkfifo(tmp_path / FILE_NAME)
    assert "it is not a regular file" in read_layouts(str(tmp_path), "a").error
    (tmp_path / "b" / FILE_NAME).mkdir(parents=True)
    assert "it is not a regular file" in read_layouts(str(tmp_path / "b"), "a").error


@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: GOOD.encode() + text.encode(errors="replace")))
def test_any_file_is_layouts_or_an_error(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    """And never both, and never an exception."""
    folder = tmp_path_factory.mktemp("mig")
    (folder / FILE_NAME).write_bytes(text)
    found = read_layouts(str(folder), "all-1g")
    assert bool(found.error) is not bool(found.entries)
