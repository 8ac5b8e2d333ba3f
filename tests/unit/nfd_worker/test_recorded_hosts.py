"""Recorded hosts: all labels of each, and what the sources found of some, as Node Feature Discovery would name them."""

from typing import Any

import pytest
import yaml

from nfd_worker.config.config import Settings
from nfd_worker.cycle import run_cycle
from nfd_worker.labels.node_content import Refusal
from tests.support.nfd_worker.trees import HOSTS, RECORDED, recorded

EXPECTED_REFUSALS = {"feature-files": {"kernel.io/reserved ", "value-with-equals"}}
"""Keys of labels that a host asks for and that Kubernetes does not take."""

WITH_FEATURES = tuple(name for name in RECORDED if (HOSTS / f"{name}.features.yaml").exists())


@pytest.mark.parametrize("name", RECORDED)
def test_the_labels_of_a_recorded_host(name: str) -> None:
    """Nothing more, nothing less, on whatever machine the test runs."""
    report = run_cycle(recorded(name), Settings(), {})
    assert report.content.labels == yaml.safe_load((HOSTS / f"{name}.labels.yaml").read_text())
    assert not report.failed
    assert keys(report.refusals) == EXPECTED_REFUSALS.get(name, set())


@pytest.mark.parametrize("name", WITH_FEATURES)
def test_the_features_of_a_recorded_host(name: str) -> None:
    """What its file names is there, to the letter and in its order."""
    found = run_cycle(recorded(name), Settings(), {}).features
    expected: dict[str, dict[str, Any]] = yaml.safe_load((HOSTS / f"{name}.features.yaml").read_text())
    for kind, features in expected.items():
        told = getattr(found, kind)
        assert {key: plain(told[key]) for key in features} == features


def keys(refusals: tuple[Refusal, ...]) -> set[str]:
    """Name what was refused."""
    return {refusal.key for refusal in refusals}


def plain(feature: Any) -> Any:
    """Make lists and dictionaries of a feature, as YAML has them."""
    return dict(feature) if hasattr(feature, "keys") else [dict(each) for each in feature]
