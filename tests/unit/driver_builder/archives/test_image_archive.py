"""Images read from archives of every engine version, looked into, labelled, and described for a registry."""

import gzip
import hashlib
import json
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from driver_builder.archives import image_archive, image_files
from driver_builder.archives.image_archive import ImageArchive, read_image_archive
from driver_builder.base.errors import VerificationFailed
from driver_builder.base.reasons import Reason
from tests.support.driver_builder.image_tars import (
    Entry,
    config_of,
    docker_20,
    docker_25,
    oci_layout,
    read_files,
    special,
    tar_of,
)

LOWER = tar_of({"driver/": special(tarfile.DIRTYPE), "driver/loader.sh": b"one", "./driver/modules": b"edu\n"})
UPPER = tar_of({"driver/loader.sh": b"two"})


def image_of(directory: Path, *layers: bytes) -> ImageArchive:
    """An image with these layers, read back."""
    return read_image_archive(docker_20(directory / "image.tar", layers), directory)


def gzipped_layout(path: Path, layers: Sequence[bytes]) -> Path:
    """What an engine with containerd's image store saves."""
    return docker_25(path, layers, [gzip.compress(layer) for layer in layers])


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(docker_20, id="docker 20.10"),
        pytest.param(docker_25, id="docker 25"),
        pytest.param(gzipped_layout, id="docker with containerd's image store"),
        pytest.param(oci_layout, id="OCI layout"),
    ],
)
def test_every_layout_gives_the_same_image(layout: Callable[[Path, Sequence[bytes]], Path], tmp_path: Path) -> None:
    """The digest does not depend on which engine saved the image."""
    image = read_image_archive(layout(tmp_path / "image.tar", [LOWER, UPPER]), tmp_path)
    assert image.digest == image_of(tmp_path, LOWER, UPPER).digest
    assert read_files(image, "/driver") == {"/driver/loader.sh": b"two", "/driver/modules": b"edu\n"}


def test_the_manifest_describes_the_blobs_on_disk(tmp_path: Path) -> None:
    """Every digest and size in the manifest is that of the bytes which will be pushed."""
    image = image_of(tmp_path, LOWER, UPPER)
    manifest = json.loads(image.manifest_bytes)
    blobs = [image.config_bytes, *(layer.path.read_bytes() for layer in image.layers)]
    described = [manifest["config"], *manifest["layers"]]
    assert [(entry["digest"], entry["size"]) for entry in described] == [
        (f"sha256:{hashlib.sha256(blob).hexdigest()}", len(blob)) for blob in blobs
    ]
    assert [gzip.decompress(blob) for blob in blobs[1:]] == [LOWER, UPPER]
    assert json.loads(image.config_bytes)["config"] == {"Entrypoint": ["/driver/loader.sh"]}


def test_provenance_is_in_config_and_manifest(tmp_path: Path) -> None:
    """As labels, which engines show, and as annotations, which a registry shows without the config."""
    image = image_of(tmp_path, LOWER)
    assert "annotations" not in json.loads(image.manifest_bytes)
    told = image.with_provenance({"a": "1"}).with_provenance({"b": "2"})
    assert told.labels == {"a": "1", "b": "2"}
    assert json.loads(told.manifest_bytes)["annotations"] == {"a": "1", "b": "2"}
    assert told.digest == image.with_provenance({"b": "2", "a": "1"}).digest != image.digest


def test_another_run_of_the_builder_changes_no_digest(tmp_path: Path) -> None:
    """Time stamps, history and ids of containers are not part of what the image is."""
    first = image_of(tmp_path, LOWER)
    other = config_of([LOWER], created="2027-01-01T00:00:00Z", container="ffff", history=[])
    second = read_image_archive(docker_20(tmp_path / "other.tar", [LOWER], other), tmp_path)
    assert second.digest == first.digest


def test_labels_are_added_and_change_the_digest(tmp_path: Path) -> None:
    """The new image carries old and new labels; the old value is as it was."""
    image = image_of(tmp_path, LOWER)
    once = image.with_labels({"a": "1", "b": "1"})
    twice = once.with_labels({"b": "2"})
    assert (image.labels, once.labels, twice.labels) == ({}, {"a": "1", "b": "1"}, {"a": "1", "b": "2"})
    assert len({image.digest, once.digest, twice.digest}) == 3
    assert twice.layers == image.layers


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        pytest.param({"a/x": b"1"}, {"a/y": b"2"}, {"/a/x": b"1", "/a/y": b"2"}, id="layers add up"),
        pytest.param({"a/x": b"1"}, {"a/x": b"2"}, {"/a/x": b"2"}, id="the upper file wins"),
        pytest.param({"a/x": b"1", "a/y": b"2"}, {"a/.wh.x": b""}, {"/a/y": b"2"}, id="a whiteout hides a file"),
        pytest.param({"a/x": b"1", "ab": b"2"}, {".wh.a": b""}, {"/ab": b"2"}, id="a whiteout hides a directory"),
        pytest.param(
            {"a/x": b"1", "a/b/y": b"2"}, {"a/z": b"3", "a/.wh..wh..opq": b""}, {"/a/z": b"3"}, id="opaque directory"
        ),
        pytest.param({"a/x": b"1"}, {"a": b"2"}, {"/a": b"2"}, id="a file replaces a directory"),
        pytest.param({"a": b"1"}, {"a/": special(tarfile.DIRTYPE), "a/x": b"2"}, {"/a/x": b"2"}, id="and the reverse"),
        pytest.param({"a/x": b"1"}, {"a/": special(tarfile.DIRTYPE)}, {"/a/x": b"1"}, id="a directory hides nothing"),
        pytest.param({"a/x": b"1"}, {"a/x": special(tarfile.SYMTYPE, "y")}, {}, id="a link replaces a file"),
        pytest.param(
            {"a/x": b"1", "a/y": special(tarfile.LNKTYPE, "a/x")}, {}, {"/a/x": b"1", "/a/y": b"1"}, id="hard link"
        ),
        pytest.param(
            {"../../etc/x": b"1", "/abs": b"2"}, {}, {"/etc/x": b"1", "/abs": b"2"}, id="no way out of the root"
        ),
    ],
)
def test_layers_merge_as_in_a_container(
    lower: dict[str, bytes], upper: dict[str, bytes], expected: dict[str, bytes], tmp_path: Path
) -> None:
    """Files, whiteouts and replaced entries give what a process in the container would see."""
    assert read_files(image_of(tmp_path, tar_of(lower), tar_of(upper)), "/") == expected


def test_a_prefix_is_a_folder_and_not_a_beginning(tmp_path: Path) -> None:
    """/lib/modules/6.1 does not take in /lib/modules/6.1-rt."""
    image = image_of(tmp_path, tar_of({"m/6.1/a": b"1", "m/6.1-rt/a": b"2"}))
    assert read_files(image, "m/6.1/") == {"/m/6.1/a": b"1"}
    assert read_files(image, "/m/6.1/a") == {"/m/6.1/a": b"1"}


def damaged(path: Path, content: bytes) -> Path:
    """A file with this content."""
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda path: damaged(path, b""), "cannot be read", id="empty"),
        pytest.param(
            lambda path: damaged(path, docker_20(path, [LOWER]).read_bytes()[:2000]), "image.tar", id="cut off"
        ),
        pytest.param(lambda path: damaged(path, tar_of({"a": b"1"})), "not an image as docker save", id="another tar"),
        pytest.param(
            lambda path: damaged(path, tar_of({"manifest.json": b"[]"})), "not an image as docker save", id="no image"
        ),
        pytest.param(
            lambda path: damaged(path, tar_of({"manifest.json": b"{"})), "not an image as docker save", id="no JSON"
        ),
        pytest.param(
            lambda path: docker_20(path, [UPPER], config_of([LOWER])), "not those its config", id="other layers"
        ),
        pytest.param(lambda path: docker_25(path, [LOWER], [b"\x28\xb5\x2f\xfd..."]), "zstd", id="zstd layers"),
        pytest.param(
            lambda path: docker_25(path, [LOWER], [gzip.compress(LOWER)[:-9]]), "cannot be read", id="gzip cut"
        ),
        pytest.param(
            lambda path: docker_20(path, [LOWER], b'{"rootfs": 5}'), "not an image as docker save", id="odd config"
        ),
    ],
)
def test_a_damaged_archive_is_refused(make: Callable[[Path], Path], message: str, tmp_path: Path) -> None:
    """No foreign exception escapes, and the message says what is wrong."""
    with pytest.raises(VerificationFailed, match=message) as caught:
        read_image_archive(make(tmp_path / "image.tar"), tmp_path)
    assert caught.value.reason is Reason.IMAGE_INVALID


def linked(target: str) -> bytes:
    """A layer with a file, a hard link to it, and a link of that link."""
    first, second = special(tarfile.LNKTYPE, target), special(tarfile.LNKTYPE, "m/link")
    return tar_of({"m/file": b"content", "m/link": first, "m/again": second})


def test_a_hard_link_reads_as_the_file_it_is(tmp_path: Path) -> None:
    """In one pass over the layer, however many there are."""
    content = b"content"
    assert read_files(image_of(tmp_path, linked("m/file")), "/") == {
        "/m/file": content, "/m/link": content, "/m/again": content,
    }  # fmt: skip
    with pytest.raises(VerificationFailed, match="/m/link in the image is a link to /elsewhere, which is not in"):
        read_files(image_of(tmp_path, linked("elsewhere")), "/")


def test_of_a_file_that_is_there_twice_the_last_one_counts(tmp_path: Path) -> None:
    """A tar may have a name more than once."""
    layer = tar_of({"a": b"old"})[:1024] + tar_of({"a": b"new"})
    assert read_files(image_of(tmp_path, layer), "/") == {"/a": b"new"}


def test_no_more_is_read_than_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one file into memory, of all files together, of all layers onto the disk."""
    image = image_of(tmp_path, tar_of({"a": b"12345", "b": b"12345"}))
    files = image.files("/a")
    with pytest.raises(VerificationFailed, match="/a has 5 bytes; the limit for such a file is 4"):
        next(files).read(4)
    monkeypatch.setattr(image_files, "MAX_IMAGE", 9)
    with pytest.raises(VerificationFailed, match="below / have more than 9 bytes"):
        read_files(image, "/")
    monkeypatch.setattr(image_archive, "MAX_IMAGE", 9)
    with pytest.raises(VerificationFailed, match="layers of the image have more than 9 bytes"):
        image_of(tmp_path, tar_of({"a": b""}))


def test_a_layer_that_is_there_twice_is_a_link(tmp_path: Path) -> None:
    """As Docker 20 writes it."""
    layer = tar_of({"a": b"1"})
    archive = docker_20(tmp_path / "image.tar", [layer, layer])
    with tarfile.open(archive) as tar:
        names = [name for name in tar.getnames() if name.endswith("layer.tar")]
        files: dict[str, Entry] = {member.name: file.read() for member in tar if (file := tar.extractfile(member))}
    files[names[1]] = special(tarfile.SYMTYPE, f"../{names[0]}")
    archive.write_bytes(tar_of(files))
    assert len(read_image_archive(archive, tmp_path).layers) == 2
