"""The manifests that a cluster is compared with are found where the package is."""

import sys
from pathlib import Path

import pytest

from driver_builder.base.errors import ConfigurationError
from driver_builder.cli.examination import manifests


@pytest.mark.parametrize("installed", ["deploy", "share/driverwright/deploy"])
def test_the_manifests_are_found(installed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a checkout, or below the interpreter's prefix; without them the message names both places."""
    monkeypatch.setattr(
        manifests, "__file__", str(tmp_path / "driver_builder" / "cli" / "examination" / "manifests.py")
    )
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(ConfigurationError, match=rf"{tmp_path}/{installed}/driver-builder/rbac\.yaml"):
        manifests.roles()
    (tmp_path / installed / "driver-builder").mkdir(parents=True)
    (tmp_path / installed / "driver-builder" / "rbac.yaml").write_text("kind: Role\n---\n---\nkind: RoleBinding\n")
    assert [item["kind"] for item in manifests.roles()] == ["Role", "RoleBinding"]
