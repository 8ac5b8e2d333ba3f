"""One wedged node does not fail the next file."""

import signal

import pytest

from demo.scenario import DRIVER, Scenario
from tests.support.real_parts import acts, order

pytestmark = [pytest.mark.long]


def test_a_guest_that_answers_nobody_is_booted_anew(story: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps its driver pod, which no kubelet ends; afterwards the pod is gone and the node Ready in another boot."""
    guest = story.guests["guest-b"]
    story.apply_driver()
    story.wait_for_builds()
    story.wait_for_ready()
    before = guest.boot_id()
    story.ground.processes.signal(f"guest-{guest.name}", signal.SIGSTOP)
    monkeypatch.setattr(order, "PATIENCE", 20.0)
    order.restore(story)
    assert guest.boot_id() != before
    assert not story.cluster.driver_pods(DRIVER)
    acts.delete_driver(story)
