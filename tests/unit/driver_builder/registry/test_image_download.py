"""An image comes out of a registry as it was pushed, or not at all."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from driver_builder.archives.image_archive import ImageArchive, read_image_archive, sha256
from driver_builder.base.errors import RegistryRefused
from driver_builder.registry.image_download import download
from driver_builder.registry.registry import RegistryClient
from tests.support.driver_builder.image_tars import docker_20, read_files, tar_of
from tests.support.driver_builder.scripted_registry import MemoryRegistry, scripted_registry
from tests.support.loopback import LOOPBACK

REPOSITORY = "team/edu"


def an_image(tmp_path: Path) -> ImageArchive:
    """An image of two layers with a label."""
    tars = [tar_of({"bin/busybox": b"x"}), tar_of({"driver/kernel": b"6.1\n"})]
    return read_image_archive(docker_20(tmp_path / "image.tar", tars), tmp_path / "old").with_labels({"a": "b"})


def test_what_was_pushed_comes_back(tmp_path: Path) -> None:
    """Layers, config and all: the same digest."""
    image = an_image(tmp_path)
    with scripted_registry(MemoryRegistry()) as server:
        client = RegistryClient(server.host, plain_http=True, reach=LOOPBACK)
        found = download(client, REPOSITORY, client.push(REPOSITORY, image), tmp_path / "new")
    assert found.digest == image.digest
    assert read_files(found, "/") == read_files(image, "/")


def put(memory: MemoryRegistry, content: bytes) -> str:
    """Put a blob; returns its digest."""
    memory.blobs[sha256(content)] = content
    return sha256(content)


def changed(change: Callable[[dict[str, Any], MemoryRegistry], None], tmp_path: Path) -> None:
    """Fetch an image whose manifest was changed, under the digest that it has then."""
    memory = MemoryRegistry()
    with scripted_registry(memory) as server:
        client = RegistryClient(server.host, plain_http=True, reach=LOOPBACK)
        digest = client.push(REPOSITORY, an_image(tmp_path))
        manifest = memory.manifest(digest)
        change(manifest, memory)
        digest = client.put_manifest(REPOSITORY, json.dumps(manifest).encode())
        download(client, REPOSITORY, digest, tmp_path / "new")


def swap(manifest: dict[str, Any], _memory: MemoryRegistry) -> None:
    """Exchange the layers."""
    manifest["layers"].reverse()


def unpack(manifest: dict[str, Any], memory: MemoryRegistry) -> None:
    """Store a layer that is not compressed."""
    layer = manifest["layers"][0]
    layer["digest"] = put(memory, gzip.decompress(memory.blobs[layer["digest"]]))


def cut(manifest: dict[str, Any], memory: MemoryRegistry) -> None:
    """Store half a layer."""
    layer = manifest["layers"][0]
    layer["digest"] = put(memory, memory.blobs[layer["digest"]][:-20])


def lose(manifest: dict[str, Any], memory: MemoryRegistry) -> None:
    """Lose a layer."""
    del memory.blobs[manifest["layers"][0]["digest"]]


def no_config(manifest: dict[str, Any], memory: MemoryRegistry) -> None:
    """Have something else for a config."""
    manifest["config"]["digest"] = put(memory, b"[]")


@pytest.mark.parametrize("change", [swap, unpack, cut, lose, no_config])
def test_what_is_no_whole_image_is_refused(
    change: Callable[[dict[str, Any], MemoryRegistry], None], tmp_path: Path
) -> None:
    """An incomplete or malformed image from a registry is rejected."""
    with pytest.raises(RegistryRefused):
        changed(change, tmp_path)


def test_an_image_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """It may have been deleted a moment ago."""
    with scripted_registry(MemoryRegistry()) as server, pytest.raises(RegistryRefused, match="there is no team/edu@"):
        download(
            RegistryClient(server.host, plain_http=True, reach=LOOPBACK), REPOSITORY, f"sha256:{'0' * 64}", tmp_path
        )
