"""Programs of the machine that a few unit tests ask."""

import shutil

import pytest

from testbed.packages import why_unsupported


def require_program(name: str) -> None:
    """Skip a test whose program is not installed; where every test can run, that is a failure."""
    if shutil.which(name) is not None:
        return
    if reason := why_unsupported():
        pytest.skip(f"{name} is not installed: {reason}")
    pytest.fail(f"{name} is not installed")
