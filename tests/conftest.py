"""What all tests share: the testbeds, one of each kind per session, and how thoroughly Hypothesis looks.

``HYPOTHESIS_PROFILE=long`` (``make test-long``) looks harder, ``thorough`` harder still, ``fuzz`` (``make fuzz``)
hardest; the default keeps the unit tests within a minute.
"""

import os
import zoneinfo
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from hypothesis.internal.conjecture import providers

from testbed import diagnosis, fixtures
from testbed.fixtures import (
    control_plane_ground,
    custom_resources,
    engine_ground,
    ground,
    newer_kubernetes,
    own_control_plane,
    own_ground,
    parts_ground,
    scheduling_ground,
)
from tests.recording import RECORDER, Recorder, tested_on
from tests.support.chain import BrokenChainError, Chains
from tests.support.examples import IS_FAST

__all__ = [
    "control_plane_ground", "custom_resources", "engine_ground", "ground", "newer_kubernetes", "own_control_plane",
    "own_ground", "parts_ground", "scheduling_ground", "tested_on",
]  # fmt: skip

REAL_PARTS = ("api", "engine", "kernel", "cluster")
"""Folders of tests with real parts, and their markers."""
WITH_REAL_PARTS = 3600
"""Seconds until a test of these is given up. The first of a session counts the start of its testbed, which is built on
a fresh machine: twelve minutes, on two cores that nobody else uses."""

# Derandomized: what a change did not touch does not fail it.
settings.register_profile(
    "ci", max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", settings.get_profile("ci"), max_examples=100)
settings.register_profile("thorough", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fuzz", max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
if IS_FAST:
    # Examples would have constants of the modules that are imported by then: others in each run, as files are shared
    # out among processes, and half of the time that properties take. Hypothesis has no setting for it (6.170);
    # tests/unit/support/test_examples.py fails when it no longer looks for them here.
    providers._get_local_constants = lambda: providers._local_constants


# Time zones are those of the package tzdata, here and in processes that tests start: a machine's own may be years old.
os.environ["PYTHONTZPATH"] = ""
zoneinfo.reset_tzpath()


def pytest_configure(config: pytest.Config) -> None:
    """Let tests that build on each other end with the first one that fails, and record what tests ran on."""
    config.pluginmanager.register(Chains())
    config.pluginmanager.register(Recorder(), RECORDER)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by its folder, which says what it needs, and properties as ``costly``.

    Those of ``cluster`` share one, in one process.
    """
    for item in items:
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("costly")
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        if folder in REAL_PARTS:
            item.add_marker(folder)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(WITH_REAL_PARTS))
    # A fresh machine builds these programs while the other tests run.
    items.sort(key=lambda item: "newer_kubernetes" in getattr(item, "fixturenames", ()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a test that was run and failed how its testbeds were at that moment."""
    report = yield
    was_run = not (call.excinfo and call.excinfo.errisinstance(BrokenChainError))
    if report.failed and report.when != "teardown" and was_run:
        for ground in fixtures.running:
            report.sections.append((f"Testbed {ground.name}", diagnosis.write(ground, report.nodeid)))
    return report
