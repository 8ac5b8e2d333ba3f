"""README shows a driver that is accepted, and what kubectl prints of it."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from driver_builder.cli import main

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
