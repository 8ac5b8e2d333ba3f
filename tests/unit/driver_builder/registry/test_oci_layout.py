"""A folder as an OCI image layout: what is in it, that nothing is half-written, and what is refused."""

import json
import os
from pathlib import Path

import pytest

from driver_builder.archives.image_archive import sha256
from driver_builder.base.errors import ConfigurationError, RegistryFull, RegistryRefused
from driver_builder.registry import oci_layout
from driver_builder.registry.oci_layout import REF_NAME, OciLayout, opened_layout, read_layout

CONTENT = b"content"
DIGEST = sha256(CONTENT)
ENTRY = {"digest": DIGEST, "size": 7, "mediaType": "x", "annotations": {REF_NAME: "r.io/team/edu:1"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that does not exist yet."""
    return tmp_path / "images"


def test_a_new_folder_becomes_a_layout(folder: Path) -> None:
    """With the files that the specification asks for, and no others."""
    with opened_layout(folder) as layout:
        layout.write(DIGEST, CONTENT)
        layout.put_entry(ENTRY)
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert json.loads(files.pop("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads(files.pop("index.json"))
    assert (index["schemaVersion"], index["mediaType"]) == (2, "application/vnd.oci.image.index.v1+json")
    assert index["manifests"] == [ENTRY]
    assert files == {f"blobs/sha256/{DIGEST.removeprefix('sha256:')}": CONTENT}


def test_a_name_is_listed_once(folder: Path) -> None:
    """A tag that moves takes its entry along; what has no name stays beside it."""
    other = {**ENTRY, "digest": sha256(b"other")}
    nameless = {"digest": DIGEST, "size": 7, "mediaType": "x"}
    with opened_layout(folder) as layout:
        for entry in (ENTRY, nameless, other, nameless):
            layout.put_entry(entry)
        assert layout.entries() == [other, nameless]


@pytest.mark.parametrize("name", ["blobs", "index"])
def test_a_write_that_is_cut_off_leaves_what_was_there(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed before it renames has changed nothing, and the next one removes its rest."""

    def killed(_file: int) -> None:
        raise KeyboardInterrupt

    with opened_layout(folder) as layout:
        layout.put_entry(ENTRY)
    left = folder / ".unfinished-of-a-killed-process"
    left.write_bytes(b"half")
    with opened_layout(folder) as layout:
        assert not left.exists()
        monkeypatch.setattr(os, "fsync", killed)
        with pytest.raises(KeyboardInterrupt):
            layout.write(DIGEST, CONTENT) if name == "blobs" else layout.put_entry(
                {**ENTRY, "digest": DIGEST[:-1] + "0"}
            )
        assert layout.entries() == [ENTRY]
        assert not layout.has(DIGEST)
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_a_disk_without_room_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a registry: it is worth trying again once there is room."""

    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    with opened_layout(folder) as layout:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(RegistryFull, match="cannot be written"):
            layout.write(DIGEST, CONTENT)
        assert not layout.has(DIGEST)


def test_content_of_another_digest_is_not_taken(folder: Path) -> None:
    """Nothing is written under a digest that is not its own."""
    with opened_layout(folder) as layout:
        with pytest.raises(RegistryRefused, match="another digest"):
            layout.write(DIGEST, b"something else")
        assert not layout.has(DIGEST)


def test_a_blob_that_was_changed_is_not_believed(folder: Path) -> None:
    """Neither as bytes nor as a file that is about to be uploaded."""
    with opened_layout(folder) as layout:
        layout.write(DIGEST, CONTENT)
    (folder / "blobs" / "sha256" / DIGEST.removeprefix("sha256:")).write_bytes(b"changed")
    layout = read_layout(folder)
    with pytest.raises(RegistryRefused, match="is damaged"):
        layout.read(DIGEST, 100)
    with pytest.raises(RegistryRefused, match="is damaged"):
        layout.file(DIGEST)


def test_only_one_process_writes(folder: Path) -> None:
    """Another one says so at once, and reading goes on."""
    with opened_layout(folder):
        with pytest.raises(ConfigurationError, match="another process writes to"), opened_layout(folder):
            pass
        assert read_layout(folder).entries() == []
    with opened_layout(folder) as layout:
        assert layout.entries() == []


@pytest.mark.parametrize(
    ("files", "words"),
    [
        pytest.param({"notes.txt": "mine"}, "is not an OCI image layout", id="something else"),
        pytest.param({"oci-layout": '{"imageLayoutVersion": "2.0.0"}'}, "only layouts of version 1.0.0", id="newer"),
    ],
)
def test_a_folder_with_something_else_is_left_alone(folder: Path, files: dict[str, str], words: str) -> None:
    """Nothing is written to it."""
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    with pytest.raises(ConfigurationError, match=words), opened_layout(folder):
        pass
    with pytest.raises(ConfigurationError, match=words):
        read_layout(folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == files


@pytest.mark.parametrize(
    "text", ["", "[]", '{"manifests": [{"digest": "sha256:../../etc/passwd"}]}', '{"manifests": [1]}']
)
def test_a_list_that_is_none_is_refused(folder: Path, text: str) -> None:
    """A digest is never a path."""
    with opened_layout(folder):
        pass
    (folder / "index.json").write_text(text)
    with pytest.raises(RegistryRefused, match="is not the index"):
        read_layout(folder).entries()
    with pytest.raises(RegistryRefused, match="is not a sha256 digest"):
        OciLayout(folder).read("sha256:../../etc/passwd", 10)
    assert oci_layout.DIGEST.fullmatch(DIGEST)
