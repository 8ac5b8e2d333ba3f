"""What a soak reads of its controllers."""

from __future__ import annotations

from pathlib import Path

from testbed import metrics
from tests.support.soak.controllers import RECONCILES, Controller


def test_a_controller_that_does_not_answer_has_no_count(tmp_path: Path) -> None:
    """It is not zero: a later count would be taken for reconciles that were waited for."""
    assert Controller("controller-0", tmp_path, [], tmp_path / "clock").passes() is None


def test_only_reconciles_that_succeeded_count() -> None:
    """One that failed has not seen what is wanted."""
    name = "driver_builder_reconcile_seconds_count"
    assert metrics.total(f'{name}{{result="Failed"}} 3.0\n{name}{{result="Succeeded"}} 2.0\n', RECONCILES) == 2.0
