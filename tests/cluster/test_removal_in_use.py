"""A driver that is deleted while its device is used: until its user ends, and beyond the deadline; it comes back."""

import pytest

from demo.cluster import NAMESPACE
from demo.scenario import DRIVER, READY_LABEL, Scenario
from kube_api.resources import DRIVER_CONTAINERS
from testbed.guest.guest import Guest
from tests.cluster.test_loop import assert_gone, assert_proven
from tests.support.real_parts import acts

pytestmark = [pytest.mark.chain, pytest.mark.long, pytest.mark.usefixtures("working_driver")]


def hold_device(guest: Guest) -> None:
    """Let a process of the guest use the driver's device until :func:`release_device`."""
    acts.hold_device(guest, "/run/user-of-edu")
    assert guest.run("cat /sys/module/edudrv/refcnt")[1].strip() != "0"


def words_of_events(scenario: Scenario, reason: str) -> list[str]:
    """Return what Events of the driver say for a reason; they come after the status that they are about."""
    return [event["message"] for event in scenario.cluster.events(DRIVER) if event["reason"] == reason]


def release_device(guest: Guest) -> None:
    """End the device's user."""
    assert guest.run("kill $(cat /run/user-of-edu)")[0] == 0


def test_a_driver_in_use_beyond_the_deadline_stays_loaded_and_is_let_go(scenario: Scenario) -> None:
    """An Event says that it is in use, the next that it stays until the node reboots; the finalizer is released."""
    user, other = scenario.guests["guest-b"], scenario.guests["guest-a"]
    hold_device(user)
    scenario.cluster.client.delete(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER))
    acts.wait_until(
        scenario, "the module is reported as in use", lambda: acts.unloading(scenario).get("reason") == "InUse"
    )
    acts.wait_for_events(scenario, "InUse")
    acts.wait_until(scenario, "the other node is unloaded", lambda: other.run("ls /sys/module/edudrv")[0] != 0)
    # A setting ends the ten minutes: the deadline counts from the deletion.
    with acts.controller_with(scenario, DRIVER_BUILDER_UNLOAD_DEADLINE_SECONDS="1"):
        scenario.wait_until_driver_is_gone()
        acts.wait_for_events(scenario, "StaysLoaded")
    words = "until the node reboots: guest-b: module edudrv is in use (refcnt 1, "
    assert any(words in said for said in words_of_events(scenario, "StaysLoaded"))
    assert user.run("cat /sys/module/edudrv/initstate")[1].strip() == "live"
    release_device(user)


def test_a_driver_that_comes_back_finds_its_module_live(scenario: Scenario) -> None:
    """It is proven with what stayed loaded, and is unloaded with the next removal."""
    scenario.apply_driver()
    scenario.wait_for_ready()
    assert_proven(scenario, "guest-b")


def test_a_driver_deleted_in_use_is_unloaded_when_its_user_ends(scenario: Scenario) -> None:
    """The condition names the node and what holds the module; the other node is unloaded at once.

    Then labels, DaemonSets, pods and modules are gone with the DriverContainer.
    """
    user, other = scenario.guests["guest-b"], scenario.guests["guest-a"]
    told_before = words_of_events(scenario, "StaysLoaded")
    hold_device(user)
    scenario.cluster.client.delete(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER))
    acts.wait_until(
        scenario, "the module is reported as in use", lambda: acts.unloading(scenario).get("reason") == "InUse"
    )
    assert "guest-b: module edudrv is in use (refcnt 1, " in acts.unloading(scenario)["message"]
    acts.wait_until(scenario, "the other node is unloaded", lambda: other.run("ls /sys/module/edudrv")[0] != 0)
    assert READY_LABEL not in scenario.cluster.labels(user.name)
    assert user.run("cat /sys/module/edudrv/initstate")[1].strip() == "live"
    release_device(user)
    scenario.wait_until_driver_is_gone()
    assert words_of_events(scenario, "StaysLoaded") == told_before
    assert_gone(scenario)
