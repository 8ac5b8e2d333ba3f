"""What a build Job leaves goes through the registry and comes out as it was; what a build planted does not."""

import argparse
import json
from pathlib import Path
from typing import Any, cast

import pytest

from driver_builder import config
from driver_builder.archives.image_archive import sha256
from driver_builder.base.errors import RegistryRefused
from driver_builder.builds.job import upload
from driver_builder.builds.job.upload import IMAGE, fetch_build, push_build
from driver_builder.builds.kernel_metadata import COMPILER, SYMVERS
from driver_builder.cli.commands import upload_command
from driver_builder.config import settings
from driver_builder.model.setting import Group
from driver_builder.registry.registry import RegistryClient


class Store:
    """Keeps what is pushed, as a registry does."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}

    def upload(self, _repository: str, digest: str, body: bytes) -> None:
        """Keep a blob."""
        assert sha256(body) == digest
        self.blobs[digest] = body

    def put_manifest(self, _repository: str, content: bytes) -> str:
        """Keep a manifest, by its digest alone."""
        for layer in json.loads(content)["layers"]:
            assert layer["size"] == len(self.blobs[layer["digest"]])
        self.manifests[sha256(content)] = content
        return sha256(content)

    def fetch_manifest(self, _repository: str, digest: str) -> dict[str, Any] | None:
        """Return a manifest."""
        return json.loads(self.manifests[digest]) if digest in self.manifests else None

    def fetch_blob(self, _repository: str, digest: str) -> bytes:
        """Return a blob."""
        return self.blobs[digest]


@pytest.fixture
def store() -> Store:
    """An empty registry."""
    return Store()


@pytest.fixture
def registry(store: Store) -> RegistryClient:
    """The same, for who wants a client."""
    return cast(RegistryClient, cast(Any, store))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The folder that a build leaves."""
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / IMAGE).write_bytes(b"image" * 5)
    (folder / SYMVERS).write_text("0x1\n")
    (folder / COMPILER).write_text("gcc\n")
    return folder


def test_all_files_come_out_as_they_went_in(
    registry: RegistryClient, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces, none larger than an answer that is read; the digest says all."""
    monkeypatch.setattr(upload, "PIECE_BYTES", 7)
    digest = push_build(registry, "r", out)
    assert push_build(registry, "r", out) == digest
    for _ in range(2):
        fetch_build(registry, "r", digest, tmp_path)
        assert (tmp_path / IMAGE).read_bytes() == b"image" * 5
        assert (tmp_path / SYMVERS).read_text() == "0x1\n"
        assert (tmp_path / COMPILER).read_text() == "gcc\n"


def test_a_link_is_not_followed(store: Store, registry: RegistryClient, out: Path, tmp_path: Path) -> None:
    """A build that leaves a link to the registry's password in place of a file gets nothing pushed for it."""
    password = tmp_path / "config.json"
    password.write_text("password")
    (out / COMPILER).unlink()
    (out / COMPILER).symlink_to(password)
    (out / SYMVERS).unlink()
    (out / SYMVERS).mkdir()
    digest = push_build(registry, "r", out)
    assert b"password" not in store.blobs.values()
    fetched = tmp_path / "fetched"
    fetched.mkdir()
    fetch_build(registry, "r", digest, fetched)
    assert {path.name for path in fetched.iterdir()} == {IMAGE}


def test_only_known_names_are_written(store: Store, registry: RegistryClient, out: Path, tmp_path: Path) -> None:
    """Whatever a manifest calls its files."""
    manifest = json.loads(store.manifests[push_build(registry, "r", out)])
    for layer in manifest["layers"]:
        layer["annotations"][upload.TITLE] = "../evil"
    digest = store.put_manifest("r", json.dumps(manifest).encode())
    fetched = tmp_path / "fetched"
    fetched.mkdir()
    fetch_build(registry, "r", digest, fetched)
    assert list(fetched.iterdir()) == []
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("content", [None, {"layers": []}], ids=["nothing", "another artefact"])
def test_what_is_no_build_is_refused(
    store: Store, registry: RegistryClient, tmp_path: Path, content: dict[str, Any] | None
) -> None:
    """The garbage collection was faster, or the digest is of something else."""
    digest = "sha256:0" if content is None else store.put_manifest("r", json.dumps(content).encode())
    with pytest.raises(RegistryRefused, match="not a build's upload"):
        fetch_build(registry, "r", digest, tmp_path)


def flags(tmp_path: Path, *words: str) -> argparse.Namespace:
    """Parse what the Job's manifest gives."""
    parser = argparse.ArgumentParser()
    config.add_flags(parser, Group.CONNECTION)
    upload_command.add_flags(parser)
    message = f"--message={tmp_path / 'message'}"
    return parser.parse_args(["--host=127.0.0.1:1", "--repository=r", f"--folder={tmp_path}", message, *words])


def test_a_registry_that_is_away_is_reported_as_such(tmp_path: Path) -> None:
    """An unreachable registry is reported as a temporary failure, so the controller retries."""
    (tmp_path / IMAGE).write_bytes(b"image")
    given = flags(tmp_path, "--plain-http", "--registry-allowed-hosts=127.0.0.1:1")
    assert upload_command.run(given, settings(given, {})) == 1
    told = json.loads((tmp_path / "message").read_text())
    assert told["refused"] is False
    assert "127.0.0.1:1: connection refused" in told["error"]


def test_a_registry_on_this_host_is_not_asked_without_the_setting(tmp_path: Path) -> None:
    """The pod of a build has the node's network where there is no other: the flag of the controller reaches it."""
    (tmp_path / IMAGE).write_bytes(b"image")
    given = flags(tmp_path, "--plain-http")
    assert upload_command.run(given, settings(given, {})) == 1
    told = json.loads((tmp_path / "message").read_text())
    assert told["refused"] is True
    assert "--registry-allowed-hosts" in told["error"]


def test_a_secret_for_another_registry_is_refused(tmp_path: Path) -> None:
    """Trying again would change nothing."""
    (tmp_path / ".dockerconfigjson").write_text('{"auths": {"other.example": {"username": "u", "password": "p"}}}')
    given = flags(tmp_path, f"--credentials={tmp_path}")
    assert upload_command.run(given, settings(given, {})) == 1
    told = json.loads((tmp_path / "message").read_text())
    assert told["refused"] is True
    assert "no credentials for 127.0.0.1:1" in told["error"]
