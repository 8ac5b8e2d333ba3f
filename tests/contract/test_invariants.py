"""The invariants of worlds outlive every planner: they read requests and objects, and import nothing that plans."""

import ast
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support/driver_builder"
ALLOWED = ("driver_builder.objects.manifests", "kube_api", "tests.support.driver_builder.journal")
"""What they may import besides the standard library: keys of objects, and how objects are read."""


@pytest.mark.parametrize("name", ["invariants", "journal"])
def test_invariants_import_nothing_that_plans(name: str) -> None:
    """Neither do the journals that they are about."""
    tree = ast.parse((SUPPORT / f"{name}.py").read_text())
    imports = [item for item in ast.walk(tree) if isinstance(item, ast.ImportFrom)]
    modules = {f"{item.module}.{alias.name}" for item in imports for alias in item.names}
    modules |= {alias.name for item in ast.walk(tree) if isinstance(item, ast.Import) for alias in item.names}
    ours = [module for module in sorted(modules) if module.startswith(("driver_builder", "kube_api", "tests"))]
    assert [module for module in ours if not module.startswith(ALLOWED)] == []
