"""A folder of profiles, as the kubelet mounts a ConfigMap, and which of its keys counts."""

import os
import shutil
from pathlib import Path

import pytest

from device_agent.errors import ConfigurationError, ProfileRefused
from device_agent.profiles.current import ProfileFolder
from device_agent.profiles.folder import choose, read_profiles
from device_agent.profiles.parse import parse_profile
from device_agent.profiles.profile import Profile


def mounted(folder: Path, version: str, keys: dict[str, str]) -> Path:
    """Write a version of a ConfigMap as the kubelet does: its files, then the link ..data, then links of the keys."""
    (folder / version).mkdir(parents=True)
    for key, text in keys.items():
        (folder / version / key).write_text(text)
        if not (folder / key).is_symlink():
            (folder / key).symlink_to(f"..data/{key}")
    (folder / "..new").symlink_to(version)
    (folder / "..new").replace(folder / "..data")
    return folder


def test_a_mounted_config_map_is_read(tmp_path: Path) -> None:
    """And then its next version, without keys of the one before."""
    folder = mounted(tmp_path, "..1", {"default": "a", "slice-4": "b"})
    assert read_profiles(str(folder)).good == {"default": "a", "slice-4": "b"}
    mounted(folder, "..2", {"default": "c"})
    shutil.rmtree(folder / "..1")
    assert read_profiles(str(folder)) == ({"default": "c"}, {})


def test_a_plain_folder_is_read(tmp_path: Path) -> None:
    """Hidden files, folders, pipes and names that no key has are left out."""
    (tmp_path / "default").write_text("a")
    (tmp_path / "b.yaml").write_text("b")
    (tmp_path / ".hidden").write_text("c")
    (tmp_path / "no key").write_text("d")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert read_profiles(str(tmp_path)) == ({"b.yaml": "b", "default": "a"}, {})


def test_a_key_that_is_no_text_is_refused_alone(tmp_path: Path) -> None:
    """The other keys are read."""
    (tmp_path / "a").write_bytes(b"version: v1 # \xff")
    (tmp_path / "b").write_text("version: v1")
    texts = read_profiles(str(tmp_path)).good
    with pytest.raises(ProfileRefused, match="profile a is not YAML"):
        parse_profile(texts["a"], "a")
    parse_profile(texts["b"], "b")


@pytest.mark.parametrize(
    ("count", "size", "message"),
    [
        pytest.param(0, 0, "cannot read the profiles in .*: No such file or directory", id="no folder"),
        pytest.param(65, 1, "has 65 files: at most 64 profiles are read", id="too many keys"),
        pytest.param(2, 1 << 20, "are longer than 1048576 bytes", id="more than a ConfigMap can hold"),
    ],
)
def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, count: int, size: int, message: str) -> None:
    """With the reason."""
    folder = tmp_path / "profiles"
    if count:
        folder.mkdir()
    for number in range(count):
        (folder / str(number)).write_bytes(b"#" * size)
    with pytest.raises(ConfigurationError, match=message):
        read_profiles(str(folder))


def test_a_broken_link_is_refused_alone(tmp_path: Path) -> None:
    """It may be a version that is just being removed, so it is tried again first; the other keys are read."""
    (tmp_path / "key").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "default").write_text("version: v1")
    texts = read_profiles(str(tmp_path))
    assert texts.good == {"default": "version: v1"}
    assert texts.keys == ("default", "key", "loop")
    with pytest.raises(ProfileRefused, match="profile key cannot be read: No such file or directory"):
        texts.text("key")
    with pytest.raises(ProfileRefused, match="profile loop cannot be read: Too many levels of symbolic links"):
        texts.text("loop")


def test_one_of_many_keys_that_is_refused_is_named_with_all(tmp_path: Path) -> None:
    """A key that cannot be read, and one that is not valid; of an unknown one the error itself names them."""
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "bad").write_text("version: v2")
    (tmp_path / "good").write_text("version: v1")
    folder = ProfileFolder(str(tmp_path))
    assert {key: folder.read(key).keys for key in ("gone", "bad", "unknown")} == {
        "gone": ("bad", "gone", "good"), "bad": ("bad", "gone", "good"), "unknown": (),
    }  # fmt: skip
    assert folder.read("gone").error == "profile gone cannot be read: No such file or directory"


def test_the_profile_before_is_read_beside(tmp_path: Path) -> None:
    """As long as the folder has a good one, and only where it is another one."""
    (tmp_path / "default").write_text("version: v2")
    (tmp_path / "slice-4").write_text("version: v1")
    folder = ProfileFolder(str(tmp_path))
    found = folder.read("", "slice-4").before
    assert found is not None
    assert (found.key, found.profile) == ("slice-4", Profile())
    assert [folder.read(*asked).before for asked in (("slice-4", "slice-4"), ("", "gone"), ("slice-4", "default"))] == [
        None, None, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "default", "expected"),
    [
        pytest.param("slice-4", "other", "slice-4", id="the label"),
        pytest.param("", "other", "other", id="the flag"),
        pytest.param("", "", "default", id="neither"),
    ],
)
def test_which_key_counts(asked: str, default: str, expected: str) -> None:
    """The label's, else that of --default-profile, else ``default``."""
    assert choose(["default", "other", "slice-4"], asked, default) == expected


@pytest.mark.parametrize(
    ("keys", "asked", "default", "message"),
    [
        pytest.param(["b", "a"], "slice-4", "a", "no profile slice-4, which is asked for by the label "
                     "nvidia.com/device-plugin.config: there are a, b", id="the label"),
        pytest.param(["a"], "", "b", "no profile b, which is asked for by --default-profile: there are a",
                     id="the flag"),
        pytest.param([], "", "", "no profile default, which is asked for by default: there are none", id="neither"),
    ],
)  # fmt: skip
def test_an_unknown_key_is_refused(keys: list[str], asked: str, default: str, message: str) -> None:
    """The message names who asks, and which keys there are; another one is not taken in its place."""
    with pytest.raises(ProfileRefused, match=message):
        choose(keys, asked, default)
