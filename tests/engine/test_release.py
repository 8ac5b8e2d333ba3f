"""A release, made with a real engine: what is in it, and that others read it."""

import contextlib
import json
import os
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from driver_builder.cli.main import main
from driver_builder.registry.registry import RegistryClient
from testbed.command import run
from testbed.testbed import Testbed
from tests.support.loopback import LOOPBACK
from tests.support.spdx import problems
from tools import product_images
from tools.release import files, source_files
from tools.release.files import Made, make_release
from tools.release.image_sizes import LIMITS
from tools.release.origin import Origin, read_origin
from tools.release.plain_tar import read_tar_gz

pytestmark = pytest.mark.engine
NAMES = ("device-agent", "loader")
"""Those that are quick to make; all of them in `make test-long`."""


@pytest.fixture(scope="module")
def origin() -> Origin:
    """Return what this tree is made of, a trial where files differ."""
    return source_files.check_source(read_origin(product_images.REPOSITORY, os.environ), allow_dirty=True)


@pytest.fixture(scope="module")
def engine(engine_ground: Testbed) -> Iterator[docker.APIClient]:
    """Connect to the engine."""
    with contextlib.closing(engine_ground.engine.client(timeout=600)) as api:
        yield api


@pytest.fixture(scope="module")
def release(
    engine: docker.APIClient, engine_ground: Testbed, origin: Origin, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[Made]]:
    """Make a release with two images."""
    folder = tmp_path_factory.mktemp("release")
    made = make_release(engine, origin, folder, base_image=engine_ground.base_image, names=NAMES, say=lambda _: None)
    return folder, made


def archive(folder: Path) -> Path:
    """Return the archive of images."""
    (path,) = folder.glob("*-images-linux-*.tar")
    return path


def test_it_has_everything_and_its_digests(release: tuple[Path, list[Made]], origin: Origin) -> None:
    """Nothing else, and nothing is without a digest."""
    folder, _ = release
    stem = f"driverwright-{origin.version}"
    assert {path.name for path in folder.iterdir()} == {
        f"{stem}-py3-none-any.whl", f"{stem}.tar.gz", f"{stem}.tgz", f"{stem}-manifests.tar.gz",
        f"{stem}-images-linux-amd64.tar", *(f"{stem}-{name}.spdx.json" for name in NAMES), "SHA256SUMS",
    }  # fmt: skip
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, check=True, capture_output=True, text=True
    )
    assert len(checked.stdout.splitlines()) == len(list(folder.iterdir())) - 1


def test_the_images_say_what_they_are_made_of(release: tuple[Path, list[Made]], origin: Origin) -> None:
    """Labels of the image, which registries show, and the same in its manifest; the agent alone has its size."""
    _, made = release
    for item in made:
        found = {name.removeprefix("org.opencontainers.image."): text for name, text in item.image.labels.items()}
        assert (found["title"], found["version"]) == (item.name, origin.version)
        assert found["created"] == item.image.config["created"] == origin.created
        assert found["revision"].startswith(origin.revision)
        assert json.loads(item.image.manifest_bytes)["annotations"] == item.image.labels
    agent, loader = made
    assert 0 < agent.weight.over_base <= LIMITS["device-agent"]
    assert loader.weight.base == 0
    assert "python3.11-minimal (deb)" in dict(agent.weight.parts)


def test_an_older_engine_loads_the_archive(
    release: tuple[Path, list[Made]], engine: docker.APIClient, origin: Origin
) -> None:
    """Docker's since long before it read layouts; what is loaded runs."""
    folder, made = release
    for item in made:
        engine.remove_image(str(item.reference), force=True)
    with archive(folder).open("rb") as file:
        loaded = "".join(str(line) for line in engine.load_image(file))
    assert all(f"driverwright/{name}:{origin.version}" in loaded for name in NAMES), loaded
    reference = f"driverwright/device-agent:{origin.version}"
    made_container = engine.create_container(reference, command=["--version"])["Id"]
    try:
        engine.start(made_container)
        assert engine.wait(made_container)["StatusCode"] == 0
        assert origin.version in engine.logs(made_container).decode()
    finally:
        engine.remove_container(made_container, force=True)


def test_bundle_puts_the_images_into_a_registry(
    release: tuple[Path, list[Made]], engine_ground: Testbed, origin: Origin, tmp_path: Path
) -> None:
    """Below a path, with their bills of materials, and under the digests that these have."""
    folder, made = release
    (tmp_path / "images").mkdir()
    run(["tar", "--extract", "--file", archive(folder), "--directory", tmp_path / "images"])
    host = engine_ground.registry.host
    assert (
        main(["bundle", str(tmp_path / "images"), "--import", "--registry", f"{host}/team", "--registry-plain-http"])
        == 0
    )
    registry = RegistryClient(host, plain_http=True, reach=LOOPBACK)
    for item in made:
        manifest = registry.manifest(f"team/driverwright/{item.name}", origin.version)
        assert manifest is not None
        assert manifest.digest == item.image.digest


def test_the_bills_of_materials_are_valid_and_whole(release: tuple[Path, list[Made]]) -> None:
    """By SPDX's own library, with the licences that real packages have."""
    folder, made = release
    for item in made:
        (path,) = folder.glob(f"*-{item.name}.spdx.json")
        assert problems(path.read_bytes()) == []
    names = {
        item.name: {package["name"]: package for package in json.loads(item.materials)["packages"]} for item in made
    }
    agent = names["device-agent"]
    assert {"driverwright", "grpclib", "PyYAML", "python3.11-minimal", "libc6"} <= agent.keys()
    assert not {"kubernetes", "pip", "setuptools"} & agent.keys()
    assert agent["driverwright"]["licenseDeclared"] == "Apache-2.0"
    assert names["loader"].keys() >= {"busybox-static", "libc6-dev", "libzstd-dev"}
    assert "GPL-2.0" in names["loader"]["busybox-static"]["licenseDeclared"]


def test_the_wheel_is_made_of_the_source_distribution(
    release: tuple[Path, list[Made]], origin: Origin, tmp_path: Path
) -> None:
    """Both have the same files, so nothing that an installation needs is missing in the source."""
    folder, _ = release
    source = folder / f"driverwright-{origin.version}.tar.gz"
    entries = read_tar_gz(source)
    for entry in entries:
        path = tmp_path / "source" / entry.name
        path.parent.mkdir(parents=True, exist_ok=True)
        assert isinstance(entry.content, bytes)
        path.write_bytes(entry.content)
    (root,) = (tmp_path / "source").iterdir()
    product_images.make_wheel_of(root, tmp_path)
    (again,) = tmp_path.glob("*.whl")
    (wheel,) = folder.glob("*.whl")
    assert contents(again) == contents(wheel)


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel."""
    with zipfile.ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist()}


def test_packages_of_the_same_source_have_the_same_bytes(
    release: tuple[Path, list[Made]], origin: Origin, tmp_path: Path
) -> None:
    """Made anew, not taken from the cache."""
    folder, _ = release
    product_images.make_wheel(tmp_path)
    (tmp_path / "again").mkdir()
    source_files.make_packages(tmp_path / "again", origin)
    (wheel,) = folder.glob("*.whl")
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()
    (source,) = folder.glob(f"driverwright-{origin.version}.tar.gz")
    assert (tmp_path / "again" / source.name).read_bytes() == source.read_bytes()


@pytest.mark.long
def test_a_release_has_all_images_within_their_limits(
    engine: docker.APIClient, engine_ground: Testbed, origin: Origin, tmp_path: Path
) -> None:
    """And a valid bill of materials for each."""
    made = make_release(engine, origin, tmp_path, base_image=engine_ground.base_image, say=lambda _: None)
    assert {item.name for item in made} == set(files.NAMES)
    assert [problems(item.materials) for item in made] == [[]] * len(made)
