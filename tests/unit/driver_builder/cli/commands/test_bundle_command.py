"""``bundle``: images into a folder, and from there into a registry, as they were."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driver_builder.api.driver_container import parse
from driver_builder.archives.image_archive import ImageArchive, read_image_archive
from driver_builder.cli import main
from driver_builder.cli.commands.bundle_command import moved
from driver_builder.model.image_state import Present
from driver_builder.model.images import ImageRef
from driver_builder.model.toolchain import toolchain_image
from driver_builder.registry.registry import RegistryClient
from tests.support.driver_builder.factories import driver_object, node, snapshot, wanted
from tests.support.driver_builder.image_tars import docker_20, tar_of
from tests.support.driver_builder.scripted_registry import MemoryRegistry, ScriptedRegistry, scripted_registry
from tests.support.driver_builder.snapshot_files import file_of, node_object
from tests.support.loopback import LOOPBACK


@pytest.fixture(autouse=True)
def no_docker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Docker has no configuration."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "no-docker"))


@pytest.fixture
def image(tmp_path: Path) -> ImageArchive:
    """An image."""
    return read_image_archive(docker_20(tmp_path / "image.tar", [tar_of({"a": b"b"})]), tmp_path / "layers")


@pytest.fixture
def origin() -> Iterator[ScriptedRegistry]:
    """The registry that has the images."""
    with scripted_registry(MemoryRegistry()) as server:
        yield server


@pytest.fixture
def inside() -> Iterator[ScriptedRegistry]:
    """The one behind the air gap."""
    with scripted_registry(MemoryRegistry(keeps_referrers=True)) as server:
        yield server


def bundle(*words: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]]]:
    """Run the command; returns exit code and results."""
    code = main.main(["bundle", "--registry-plain-http", "-o", "json", *map(str, words)])
    return code, json.loads(capsys.readouterr().out or "[]")


def test_an_image_goes_out_and_in(
    origin: ScriptedRegistry,
    inside: ScriptedRegistry,
    image: ImageArchive,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Under another host and path, by the same digest; a second time it is there."""
    client = RegistryClient(origin.host, plain_http=True, reach=LOOPBACK)
    client.tag("team/edu", client.push("team/edu", image), "v1")
    folder, name = tmp_path / "images", f"{origin.host}/team/edu:v1"
    copied = {"image": name, "verdict": "copied", "digest": image.digest, "message": ""}
    assert bundle(folder, name, capsys=capsys) == (0, [copied])
    to = f"{inside.host}/mirror"
    assert bundle(folder, "--import", "--registry", to, capsys=capsys) == (0, [copied])
    there = RegistryClient(inside.host, plain_http=True, reach=LOOPBACK)
    assert there.inspect("mirror/team/edu", "v1") == Present(digest=image.digest)
    assert bundle(folder, "--import", "--registry", to, capsys=capsys) == (0, [{**copied, "verdict": "present"}])


def test_the_images_of_a_snapshot_are_those_of_its_drivers(
    origin: ScriptedRegistry, image: ImageArchive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the digest that the cluster has, whatever the tag names now. An image that is not there fails alone."""
    container = driver_object(spec_changes={"image": f"{origin.host}/team/edu", "registry": {"plainHttp": True}})
    (item,) = wanted(snapshot(node(), drivers=(parse(container),)))
    client = RegistryClient(origin.host, plain_http=True, reach=LOOPBACK)
    digest = client.push("team/edu", image)
    client.tag("team/edu", client.push("team/edu", image.with_labels({"of": "later"})), item.image.reference)
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps(file_of(node_object(), container, images={item.image: Present(digest=digest)})))
    gone = f"{origin.host}/gone:1"
    code, (first, second) = bundle(tmp_path / "images", gone, "--snapshot", file, capsys=capsys)
    assert (second["image"], second["digest"], second["verdict"]) == (str(item.image), digest, "copied")
    assert (first["verdict"], first["message"], code) == ("FAILED", "gone has no image 1", 1)


def test_toolchains_of_a_snapshot_go_with_its_drivers(
    origin: ScriptedRegistry,
    inside: ScriptedRegistry,
    image: ImageArchive,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One that does not exist is no failure; behind the air gap it is beside the image, where a build looks for it."""
    container = driver_object(spec_changes={"image": f"{origin.host}/team/edu", "registry": {"plainHttp": True}})
    seen = snapshot(node(), drivers=(parse(container),))
    (item,) = wanted(seen)
    assert item.request is not None
    toolchain = toolchain_image(item.request, item.image)
    assert toolchain is not None
    file, folder = tmp_path / "snapshot.json", tmp_path / "images"
    file.write_text(json.dumps(file_of(node_object(), container, sources=seen.sources)))
    missing = {"image": str(toolchain), "verdict": "absent", "digest": "", "message": ""}
    assert bundle(folder, "--snapshot", file, "--toolchains", capsys=capsys) == (0, [missing])
    client = RegistryClient(origin.host, plain_http=True, reach=LOOPBACK)
    client.tag("team/edu", client.push("team/edu", image), toolchain.reference)
    copied = {**missing, "verdict": "copied", "digest": image.digest}
    assert bundle(folder, "--snapshot", file, "--toolchains", capsys=capsys) == (0, [copied])
    assert bundle(folder, "--snapshot", file, capsys=capsys) == (0, [])
    assert bundle(folder, "--import", "--registry", f"{inside.host}/mirror", capsys=capsys) == (0, [copied])
    there = RegistryClient(inside.host, plain_http=True, reach=LOOPBACK)
    assert there.inspect("mirror/team/edu", toolchain.reference) == Present(digest=image.digest)


def test_a_registry_that_is_away_ends_it_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The images after it are not tried: the next run goes on."""
    code, found = bundle(tmp_path / "i", "127.0.0.1:1/a/b:1", "127.0.0.1:1/a/c:1", capsys=capsys)
    assert code == 3
    assert [item["verdict"] for item in found] == ["FAILED"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(["DIR"], "nothing to copy", id="nothing"),
        pytest.param(["DIR", "r.io/a/b:1", "--import"], "leave out IMAGE", id="both"),
        pytest.param(["DIR", "r.io/a/b:1", "--registry", "r.io"], "--import pushes to", id="registry"),
        pytest.param(["DIR", "r.io/a/b:1", "--toolchains"], "--toolchains: give --snapshot", id="toolchains"),
        pytest.param(["DIR", "linbit/drbd9:1"], "names no registry", id="without a registry"),
        pytest.param(["DIR", "debian"], "'debian' is not an image reference", id="a short name"),
        pytest.param(["DIR", "--import"], "is not an OCI image layout", id="no layout"),
    ],
)
def test_wrong_usage_copies_nothing(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and what to write."""
    folder = tmp_path / "images"
    assert main.main(["bundle", *(str(folder) if word == "DIR" else word for word in words)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("to", "name"),
    [("", "r.io/team/edu:1"), ("in.io:5000", "in.io:5000/team/edu:1"), ("in.io/a/b/", "in.io/a/b/team/edu:1")],
)
def test_an_image_keeps_its_path_below_another_one(to: str, name: str) -> None:
    """Without another registry it stays where it was."""
    assert str(moved(ImageRef("r.io", "team/edu", "1"), to)) == name
