"""One wedged node does not fail the next file."""

import signal

import pytest

from demo.scenario import DRIVER, Scenario
from tests.support.real_parts import acts, order

pytestmark = [pytest.mark.long]


def test_a_guest_that_answers_nobody_is_booted_anew(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps its driver pod, which no kubelet ends; afterwards the pod is gone and the node Ready in another boot."""
    guest = scenario.guests["guest-b"]
    scenario.apply_driver()
    scenario.wait_for_builds()
    scenario.wait_for_ready()
    before = guest.boot_id()
    scenario.ground.processes.signal(f"guest-{guest.name}", signal.SIGSTOP)
    monkeypatch.setattr(order, "PATIENCE", 20.0)
    order.restore(scenario)
    assert guest.boot_id() != before
    assert not scenario.cluster.driver_pods(DRIVER)
    acts.delete_driver(scenario)
