"""Recorded hosts: all labels of each, as Node Feature Discovery would name them."""

import pytest
import yaml

from nfd_worker.config import Settings
from nfd_worker.cycle import run_cycle
from tests.unit.nfd_worker.trees import HOSTS, RECORDED, recorded


@pytest.mark.parametrize("name", RECORDED)
def test_the_labels_of_a_recorded_host(name: str) -> None:
    """Nothing more, nothing less, on whatever machine the test runs."""
    report = run_cycle(recorded(name), Settings(), {})
    assert report.labels == yaml.safe_load((HOSTS / f"{name}.labels.yaml").read_text())
    assert not report.failed
    assert not report.warnings
