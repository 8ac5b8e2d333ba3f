"""README shows a driver that is accepted, and what kubectl prints of it."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from driver_builder.cli import main
from tests.support.driver_builder.factories import KERNEL
from tests.support.driver_builder.model_world import World

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
(MANIFEST,) = re.findall(r"^```yaml\n(apiVersion: driverwright\.io/.*?)^```", README, re.MULTILINE | re.DOTALL)
(PRINTED,) = re.findall(r"^\$ kubectl get dc [^\n]*\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_driver_is_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without an error and without a warning."""
    file = tmp_path / "driver.yaml"
    file.write_text(MANIFEST)
    assert main.main(["lint", str(file)]) == 0
    assert capsys.readouterr().out == "1 DriverContainer checked, no problems\n"


def test_the_driver_is_the_one_of_the_examples() -> None:
    """Name, version, nodes, image, source and module are those of examples/package-driver."""
    example = yaml.safe_load((ROOT / "examples/package-driver/driver-container.yaml").read_text())
    shown = yaml.safe_load(MANIFEST)
    assert shown["metadata"] == example["metadata"]
    fields = ("version", "nodeSelector", "image", "source")
    assert {name: shown["spec"][name] for name in fields} == {name: example["spec"][name] for name in fields}
    assert shown["spec"]["module"]["names"] == example["spec"]["module"]["names"]


def test_kubectl_prints_the_columns_of_the_definition() -> None:
    """By its short name; each row is of the driver above."""
    definition = yaml.safe_load((ROOT / "deploy/crds/drivercontainers.yaml").read_text())["spec"]
    columns: list[dict[str, Any]] = definition["versions"][0]["additionalPrinterColumns"]
    head, *rows = PRINTED.splitlines()
    assert "dc" in definition["names"]["shortNames"]
    assert head.split() == ["NAME", *(column["name"].upper() for column in columns if not column.get("priority"))]
    driver = yaml.safe_load(MANIFEST)
    assert {tuple(row.split()[:2]) for row in rows} == {(driver["metadata"]["name"], driver["spec"]["version"])}


def columns_of(world: World) -> list[str]:
    """Return what the columns TARGETS, READY and MESSAGE have of the driver."""
    status = world.status()
    (ready,) = (condition for condition in status["conditions"] if condition["type"] == "Ready")
    return [status["readyTargets"], ready["status"], ready["message"]]


def test_the_row_is_what_the_controller_reports_of_a_node_with_a_new_kernel() -> None:
    """One of three nodes boots the kernel of the row: while its driver is built, and once it is ready."""
    row = PRINTED.splitlines()[1]
    _, _, targets, ready, _, message = row.split(maxsplit=5)
    (kernel,) = re.findall(r"; (\S+):", message)
    world = World()
    for name in ("video-1", "video-2", "video-3"):
        world.add_node(name, KERNEL)
    world.add_driver()
    world.settle()
    world.reboot("video-3", kernel)
    world.reconcile()
    assert columns_of(world) == [targets, ready, message]
    world.settle()
    assert "this prints `{}`, `{}` and `{}`".format(*columns_of(world)) in README
