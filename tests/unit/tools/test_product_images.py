"""What the programs' wheel is made of."""

from pathlib import Path

import pytest

from tools import product_images


def test_what_python_keeps_beside_modules_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process makes such files there and renames them while this one copies."""
    for path in ("kube_api/client.py", "kube_api/__pycache__/client.cpython-311.pyc.4711", "LICENSE"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    monkeypatch.setattr(product_images, "REPOSITORY", tmp_path)
    monkeypatch.setattr(product_images, "_SOURCE", ("kube_api", "LICENSE"))
    with product_images._copied_source() as source:
        assert {str(path.relative_to(source)) for path in source.rglob("*")} == {
            "kube_api", "kube_api/client.py", "LICENSE",
        }  # fmt: skip
