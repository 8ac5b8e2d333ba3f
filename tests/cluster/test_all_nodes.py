"""What is done to a driver on all of its nodes at once; ``test_loop.py`` has what is done on one of them."""

import pytest

from demo.scenario import DRIVER, Scenario
from tests.cluster.test_loop import assert_proven, wait_for_another_pod
from tests.support.real_parts import acts

pytestmark = [pytest.mark.long]


@pytest.fixture(scope="module", autouse=True)
def _driver(scenario: Scenario) -> None:
    """The driver, at work on both nodes."""
    scenario.apply_driver()
    scenario.wait_for_builds()
    scenario.wait_for_ready()


def test_an_annotation_forces_a_rebuild_of_every_target(scenario: Scenario) -> None:
    """New images under new keys, rolled out and proven, and the request is acknowledged in the status."""
    for before, after in scenario.force_rebuild().values():
        assert before != after
    for guest in scenario.guests:
        assert_proven(scenario, guest)
    driver = scenario.cluster.driver(DRIVER)
    assert set(driver["status"]["rebuild"]["requests"]) == {"DriverContainer"}


def test_least_privileges_are_taken_up_by_the_next_pod(scenario: Scenario) -> None:
    """The setting moves no pod and no module; a pod that is replaced for another reason loads with it."""
    guest = scenario.guests["guest-a"]
    pods, module = acts.pod_uids(scenario), acts.live_module(guest)
    with acts.controller_with(scenario, DRIVER_BUILDER_LOADER_PRIVILEGES="least"):
        acts.wait_until(scenario, "the DaemonSets have the setting", lambda: privileged(scenario) == {False})
        scenario.wait_for_ready()
        assert (acts.pod_uids(scenario), acts.live_module(guest)) == (pods, module)
        assert guest.run("rmmod edudrv")[0] == 0
        wait_for_another_pod(scenario, guest.name, pods[guest.name])
        scenario.wait_for_ready()
        assert_proven(scenario, guest.name)
    acts.wait_until(scenario, "the DaemonSets have the default again", lambda: privileged(scenario) == {True})
    scenario.wait_for_ready()
    assert acts.pod_uids(scenario)["guest-b"] == pods["guest-b"]


def privileged(scenario: Scenario) -> set[bool]:
    """Return whether what loads modules is privileged, in the driver's DaemonSets."""
    pods = [item["spec"]["template"]["spec"] for item in scenario.cluster.daemon_sets(DRIVER)]
    return {pod["initContainers"][1]["securityContext"]["privileged"] for pod in pods}
