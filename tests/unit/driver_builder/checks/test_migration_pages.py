"""The pages of docs/migrate: what they say can be applied is accepted."""

import re
from pathlib import Path

import pytest

from driver_builder.cli import main

PAGES = Path(__file__).parents[4] / "docs/migrate"
MANIFEST = re.compile(r"^```yaml\n(apiVersion: driverwright\.io/.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_driver_below_the_gpu_operator_is_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without an error and without a warning."""
    (manifest,) = MANIFEST.findall((PAGES / "gpu-operator.md").read_text())
    file = tmp_path / "driver.yaml"
    file.write_text(manifest)
    assert main.main(["lint", str(file)]) == 0
    assert capsys.readouterr().out == "1 DriverContainer checked, no problems\n"
