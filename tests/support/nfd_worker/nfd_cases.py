"""Known answers of Node Feature Discovery as data (tests/data/nfd_cases.yaml), handed to tests by kind."""

from typing import Any

import pytest
import yaml

from tests.support.nfd_worker.trees import DATA

# By libyaml, where PyYAML has it: each process of the tests reads it, and it is long.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DOCUMENT = yaml.load((DATA / "nfd_cases.yaml").read_text(), _LOADER)  # noqa: S506 - a safe one

CASES: dict[str, dict[str, Any]] = {case["id"]: case for case in _DOCUMENT["cases"]}
FIXTURES: dict[str, Any] = _DOCUMENT["fixtures"]


def of(kind: str) -> pytest.MarkDecorator:
    """Parametrise a test with all cases of a kind, as the argument ``case``."""
    cases = [pytest.param(case, id=case["id"]) for case in CASES.values() if case["kind"] == kind]
    assert cases, f"no case of kind {kind}"
    return pytest.mark.parametrize("case", cases)
