"""A real Prometheus asks the programs: it answers every query of the dashboard, and the alerts do what they say.

No API server is needed. The programs' endpoints are their own; what they show is made (tests/support/monitoring.py).
"""

import math
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.packages import why_unsupported
from tests.support import monitoring
from tests.support.monitoring import ALERTS, Trouble
from tests.support.real_parts.prometheus import Prometheus, program, prometheus

CASES = Path(__file__).parents[1] / "data" / "alerts" / "test.yaml"
DEVICE_CASES = CASES.with_name("devices.yaml")
PATIENCE = 180.0
"""Seconds: a busy machine is no fault of a query."""
NOT_IN_THIS_TROUBLE = {"DriverBuilderGone", "NfdWorkersGone", "DriverBuilderCacheStale"}
"""The programs are there, and the cache has just been filled."""

pytestmark = pytest.mark.skipif(why_unsupported() is not None, reason=str(why_unsupported()))


@pytest.fixture(scope="module")
def troubled() -> Iterator[Trouble]:
    """Return a fleet in trouble."""
    with monitoring.trouble() as made:
        yield made


@pytest.fixture(scope="module")
def server(troubled: Trouble, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Run a Prometheus that asks the three programs."""
    folder = tmp_path_factory.mktemp("prometheus")
    with monitoring.served(troubled) as ports, prometheus(folder, ports.values(), ALERTS) as running:
        yield running


def is_answered(server: Prometheus, expr: str) -> bool:
    """Tell whether there is a number."""
    return any(not math.isnan(float(series["value"][1])) for series in server.query(expr))


def test_every_query_of_the_dashboard_is_answered(server: Prometheus, troubled: Trouble) -> None:
    """With at least one number, as soon as there are two scrapes to compare."""
    silent, deadline = dict(monitoring.queries()), time.monotonic() + PATIENCE
    while silent and time.monotonic() < deadline:
        troubled.happen()
        time.sleep(1)
        silent = {name: expr for name, expr in silent.items() if not is_answered(server, expr)}
    assert not silent


def test_every_alert_is_raised_by_what_the_programs_say(server: Prometheus, troubled: Trouble) -> None:
    """Pending or firing, by the rules as they are; no rule fails on the labels that the series have."""
    wanted = {rule["alert"] for rule in monitoring.alerts()} - NOT_IN_THIS_TROUBLE
    raised: set[str] = set()
    deadline = time.monotonic() + PATIENCE
    while raised != wanted and time.monotonic() < deadline:
        troubled.happen()
        time.sleep(1)
        raised = {name for name, rule in server.rules().items() if rule["state"] != "inactive"}
    assert raised == wanted
    assert {name: rule.get("lastError") for name, rule in server.rules().items() if rule["health"] != "ok"} == {}


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("check", "rules", str(ALERTS)), id="check"),
        pytest.param(("test", "rules", str(CASES)), id="test"),
        pytest.param(("check", "rules", str(monitoring.DEVICE_ALERTS)), id="check devices"),
        pytest.param(("test", "rules", str(DEVICE_CASES)), id="test devices"),
    ],
)
def test_promtool_finds_nothing_wrong(arguments: tuple[str, ...]) -> None:
    """The rules are valid, their annotations too, and each fires and does not fire when the cases say so."""
    done = subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
