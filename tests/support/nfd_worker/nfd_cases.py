"""Known answers of Node Feature Discovery as data (tests/data/nfd_cases.yaml), handed to tests by kind."""

from typing import Any

import pytest

from tests.support.nfd_worker.trees import DATA
from tests.support.yaml_files import read_yaml

_DOCUMENT = read_yaml((DATA / "nfd_cases.yaml").read_text())

CASES: dict[str, dict[str, Any]] = {case["id"]: case for case in _DOCUMENT["cases"]}
FIXTURES: dict[str, Any] = _DOCUMENT["fixtures"]


def of(kind: str) -> pytest.MarkDecorator:
    """Parametrise a test with all cases of a kind, as the argument ``case``; ``here`` is expected where it differs."""
    cases = [
        pytest.param({**case, "expect": case.get("here", case["expect"])}, id=case["id"])
        for case in CASES.values()
        if case["kind"] == kind
    ]
    assert cases, f"no case of kind {kind}"
    return pytest.mark.parametrize("case", cases)
