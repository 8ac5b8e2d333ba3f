"""Files whose tests build on each other (marker ``chain``): when one fails, the later ones of its file fail at once.

Each would wait for what no longer comes, ten minutes and more, before it failed anyway.
"""

from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.outcomes import Failed


class BrokenChainError(Failed):
    """Why a test was not run."""


class Chains:
    """A plugin of pytest."""

    def __init__(self) -> None:
        self._failed: dict[Path, str] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Fail before any fixture is made."""
        if failed := self._failed.get(item.path):
            raise BrokenChainError(f"not run: it builds on {failed}, which failed", pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Remember the first failure of a chain."""
        report = yield
        if report.failed and item.get_closest_marker("chain"):
            self._failed.setdefault(item.path, item.nodeid)
        return report
