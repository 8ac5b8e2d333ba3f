"""When waiting for an image is in vain."""

from typing import Any

import pytest

from demo.stage import hopeless


@pytest.mark.parametrize(
    ("target", "why"),
    [
        pytest.param({}, None, id="nothing is known yet"),
        pytest.param({"state": "Building", "reason": "KernelMismatch", "failures": 0}, None, id="a first try"),
        pytest.param({"state": "Failed", "reason": "BuildError", "failures": 2}, None, id="may still work"),
        pytest.param({"state": "Blocked", "reason": "RegistryUnreachable"}, None, id="blocked is not failed"),
        pytest.param({"state": "Pending", "reason": "SourceMissing"}, None, id="the source may come"),
        pytest.param(
            {"state": "Failed", "reason": "BuildError", "failures": 3, "message": "no"}, "BuildError (3 times): no",
            id="the third failure",
        ),
        pytest.param(
            {"state": "Building", "reason": "KernelMismatch", "failures": 3, "message": "try 4"},
            "KernelMismatch (3 times): try 4", id="the fourth try",
        ),
        pytest.param(
            {"state": "Failed", "reason": "HeadersMissing", "failures": 1, "message": "no headers"},
            "HeadersMissing: no headers", id="no retry finds headers",
        ),
        pytest.param(
            {"state": "Failed", "reason": "WrongVermagic", "failures": 1, "message": "m"}, "WrongVermagic: m",
            id="no retry mends a module",
        ),
        pytest.param(
            {"state": "Skipped", "reason": "NoKernelMapping", "message": "no rule"}, "NoKernelMapping: no rule",
            id="the driver is not for this kernel",
        ),
    ],
)  # fmt: skip
def test_hopeless(target: dict[str, Any], why: str | None) -> None:
    """A retry that can help is waited for; what only a person can mend is said at once."""
    assert hopeless(target) == why
