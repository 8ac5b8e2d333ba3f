"""A node that is not heard of for longer than Kubernetes waits: no evidence against its driver, so nothing is taken."""

import time
from collections.abc import Iterator

import pytest

from demo.scenario import DRIVER, READY_LABEL, Scenario
from testbed.api import is_node_ready
from testbed.guest.guest import Guest
from tests.support.real_parts import acts

pytestmark = [pytest.mark.long]

SILENCE_SECONDS = 330.0
"""Beyond the five minutes after which Kubernetes evicts the pods of a node that does not answer."""


@pytest.fixture
def silent(scenario: Scenario) -> Iterator[Guest]:
    """A node at work, whose kubelet is then frozen."""
    guest = scenario.guests["guest-b"]
    scenario.apply_driver()
    scenario.wait_for_builds()
    scenario.wait_for_ready()
    guest.check("killall -STOP kubelet")
    yield guest
    guest.check("killall -CONT kubelet")
    acts.delete_driver(scenario)


def test_a_node_that_is_not_heard_of_keeps_its_label_and_its_modules(scenario: Scenario, silent: Guest) -> None:
    """NotReady for five minutes: label, pod, module and reference count stay, and the status says since when."""
    pods, module = acts.pod_uids(scenario), acts.live_module(silent)
    acts.wait_for("the node is NotReady", lambda: not is_node_ready(silent.node()))
    end = time.monotonic() + SILENCE_SECONDS
    while time.monotonic() < end:
        assert READY_LABEL in scenario.cluster.labels(silent.name)
        time.sleep(2.0)
    assert not is_node_ready(silent.node())
    assert f"{silent.name}: no report since " in scenario.cluster.targets(DRIVER)[silent.kernel.release]["message"]
    assert (acts.pod_uids(scenario), acts.live_module(silent)) == (pods, module)
    silent.check("killall -CONT kubelet")
    silent.wait_ready(timeout=acts.SETTLE_SECONDS)
    scenario.wait_for_ready()
    assert (acts.pod_uids(scenario), acts.live_module(silent)) == (pods, module)
