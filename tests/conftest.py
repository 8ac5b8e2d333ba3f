"""What all tests share: the proving grounds, one of each kind per session, and how thoroughly Hypothesis looks.

``HYPOTHESIS_PROFILE=thorough pytest`` looks harder; the default keeps the unit tests within seconds.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.proving_ground.fixtures import control_plane_ground, engine_ground, ground

__all__ = ["control_plane_ground", "engine_ground", "ground"]

settings.register_profile("ci", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


GROUPS = {"engine_ground": "engine", "control_plane_ground": "control-plane"}
"""Fixture to xdist group: tests that share a ground run one after another, in one process."""


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of one ground together, and begin with the longest.

    All tests on real kernels are one group: two cores emulate two machines, and no more, fast enough to wait for.
    """
    for item in items:
        fixtures: tuple[str, ...] = getattr(item, "fixturenames", ())
        group = next((GROUPS[name] for name in GROUPS if name in fixtures), None)
        if item.get_closest_marker("e2e") or "ground" in fixtures:
            group = "cluster"
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """0 for tests on real kernels, 1 for those with other real parts, 2 for the rest; each in its own order."""
    marks = {mark.name for mark in item.iter_markers()}
    return 0 if "e2e" in marks else 1 if "integration" in marks else 2
