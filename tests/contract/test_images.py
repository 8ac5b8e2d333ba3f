"""The Dockerfiles of the programs fit each other, the manifests, and what a release says of them."""

import re
import tomllib
from pathlib import Path

import pytest

from tools.product_images import EVERY
from tools.release.files import NAMES
from tools.release.image_sizes import LIMITS

ROOT = Path(__file__).parents[2]
PROGRAMS = ("nfd-worker", "driver-builder", "device-agent")


def dockerfile(name: str) -> str:
    """Read the Dockerfile of an image."""
    return (ROOT / "dockerfiles" / name / "Dockerfile").read_text()


def labels(name: str) -> dict[str, str]:
    """Return the labels in a Dockerfile."""
    return dict(re.findall(r'org\.opencontainers\.image\.([\w.]+)="([^"]+)"', dockerfile(name)))


def last_stage(name: str) -> list[str]:
    """Return the instructions of the stage that is the image."""
    stage = re.split(r"(?m)^FROM .*\n", dockerfile(name))[-1]
    lines = [line for line in stage.splitlines() if not line.startswith("#")]
    return re.split(r"\n(?=[A-Z]+ )", "\n".join(lines).strip())


@pytest.mark.parametrize("name", NAMES)
def test_each_image_says_what_it_is(name: str) -> None:
    """Title, description and licence; version, commit and time come from `make images` and `make release`."""
    found = labels(name)
    assert found.keys() == {"title", "description", "licenses"}
    assert found["title"] == name
    own = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]
    assert own in found["licenses"].split(" AND ")


def test_a_release_has_every_image_that_an_installation_needs() -> None:
    """All but that of the example."""
    assert set(NAMES) == set(EVERY) - {"edu-workload"}
    assert set(LIMITS) == set(PROGRAMS)


def test_the_programs_share_a_layer() -> None:
    """The same instruction on the same base is one layer, which a node has once."""
    first = {name: last_stage(name)[0] for name in PROGRAMS}
    assert first["nfd-worker"].startswith("RUN apt-get update")
    assert len(set(first.values())) == 1


@pytest.mark.parametrize("name", [name for name in NAMES if name != "loader"])
def test_licences_of_debian_stay(name: str) -> None:
    """Documentation goes, copyright files do not: packages are given on with them."""
    (installed,) = [text for text in last_stage(name) if text.startswith("RUN apt-get update")]
    assert "find /usr/share/doc -mindepth 2 ! -name copyright ! -type d -delete" in installed
    assert "rm -rf" not in "".join(text for text in dockerfile(name).split("&&") if "/usr/share/doc" in text)


def test_windows_use_the_time_zones_of_the_package() -> None:
    """Those of the base image may be older, and Python would take them first."""
    (variables,) = [text for text in last_stage("driver-builder") if text.startswith("ENV ")]
    assert variables.split()[-1] == "PYTHONTZPATH="
