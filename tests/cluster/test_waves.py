"""Waves on real kernels: a canary that is watched, what happens to the other node meanwhile, and the way back.

The tests build on each other, in the order they are written in.
"""

from typing import Any

import pytest

from demo.cluster import NAMESPACE
from demo.scenario import DRIVER, EXAMPLE, READY_LABEL, Scenario
from kube_api import names
from kube_api.resources import DRIVER_CONTAINERS, NODES, PODS
from testbed.guest.guest import Guest
from tests.cluster.test_loop import assert_proven, wait_for_another_pod
from tests.support.real_parts import acts

pytestmark = [pytest.mark.long]

CANARY, OTHER = "guest-a", "guest-b"
PATH = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER)
BEGIN = "static int __init edu_init(void)\n{\n"


@pytest.fixture(scope="module", autouse=True)
def first(scenario: Scenario) -> dict[str, str]:
    """The driver at work on both nodes, with the modules that they have; then another version, which soaks."""
    scenario.apply_driver(driver_spec={"rollout": {"canary": 1, "soak": "12h"}})
    scenario.wait_for_builds()
    scenario.wait_for_ready()
    modules = {name: version_on(guest) for name, guest in scenario.guests.items()}
    code = (EXAMPLE / "src/edudrv.c").read_text()
    assert code.count(BEGIN) == 1
    scenario.apply_source(
        replace={"edudrv.c": code.replace(BEGIN, f'{BEGIN}\tpr_info("edudrv: another version\\n");\n')}
    )
    acts.wait_until(scenario, "the canary soaks", lambda: wave(scenario).get("phase") == "Soaking")
    return modules


def test_the_canary_alone_has_the_new_version(scenario: Scenario, first: dict[str, str]) -> None:
    """It is named by a label; the other node keeps pod and module."""
    assert version_on(scenario.guests[CANARY]) != first[CANARY]
    assert version_on(scenario.guests[OTHER]) == first[OTHER]
    assert moved(scenario) == [CANARY]
    assert len(scenario.cluster.daemon_sets(DRIVER)) == 2 * len(scenario.guests)
    assert all(READY_LABEL in scenario.cluster.labels(name) for name in scenario.guests)


def test_a_node_that_reboots_without_a_registry_loads_what_it_had(scenario: Scenario, first: dict[str, str]) -> None:
    """The image of before is in its own store."""
    guest, registry = scenario.guests[OTHER], scenario.ground.registry
    registry.stop()
    try:
        guest.reboot()
        guest.wait_ready(timeout=acts.SETTLE_SECONDS)
        acts.wait_until(scenario, f"{OTHER} has its driver again", lambda: is_proven_on(scenario, guest))
    finally:
        registry.start()
    assert version_on(guest) == first[OTHER]
    assert moved(scenario) == [CANARY]


def test_a_pod_that_is_deleted_comes_back_as_it_was(scenario: Scenario, first: dict[str, str]) -> None:
    """On the canary with the new version, on the other node with the one of before."""
    new = version_on(scenario.guests[CANARY])
    before = acts.pod_uids(scenario)
    for pod in scenario.cluster.driver_pods(DRIVER):
        scenario.cluster.client.delete(PODS.path(namespace=NAMESPACE, name=pod["metadata"]["name"]))
    for name, uid in before.items():
        wait_for_another_pod(scenario, name, uid)
    assert {name: version_on(guest) for name, guest in scenario.guests.items()} == {CANARY: new, OTHER: first[OTHER]}


def test_a_cordoned_node_stays_as_it_is(scenario: Scenario, first: dict[str, str]) -> None:
    """The wave goes on after the soak; the node is counted as left out, and stays cordoned."""
    before = acts.pod_uids(scenario)[OTHER]
    cordon(scenario, yes=True)
    patch_driver(scenario, spec={"rollout": {"canary": None, "soak": None}})
    acts.wait_until(scenario, f"{OTHER} is left out", lambda: wave(scenario).get("leftOutNodes") == 1)
    assert OTHER in wave(scenario)["message"]
    assert acts.pod_uids(scenario)[OTHER] == before
    assert version_on(scenario.guests[OTHER]) == first[OTHER]
    assert scenario.cluster.node(OTHER)["spec"]["unschedulable"] is True


def test_an_undone_wave_takes_the_new_version_back(scenario: Scenario, first: dict[str, str]) -> None:
    """The canary has the module of before again, and stays ready."""
    brought = ",".join(wave(scenario)["targets"].values())
    patch_driver(scenario, metadata={"annotations": {names.UNDO_ROLLOUT_ANNOTATION: brought}})
    acts.wait_until(scenario, f"{CANARY} has moved back", lambda: moved(scenario) == [])
    acts.wait_until(
        scenario,
        f"{CANARY} has the module of before",
        lambda: version_on(scenario.guests[CANARY]) == first[CANARY] and READY_LABEL in scenario.cluster.labels(CANARY),
    )
    assert wave(scenario)["phase"] == "Halted"
    cordon(scenario, yes=False)


def test_a_corrected_version_reaches_both_nodes_and_nothing_of_the_wave_is_left(scenario: Scenario) -> None:
    """One DaemonSet for each target, no label of a wave, no wave in the status."""
    code = (EXAMPLE / "src/edudrv.c").read_text()
    scenario.apply_source(replace={"edudrv.c": code.replace(BEGIN, f'{BEGIN}\tpr_info("edudrv: corrected\\n");\n')})
    acts.wait_until(
        scenario,
        "both nodes have the corrected version, and the wave has ended",
        lambda: not wave(scenario) and len(scenario.cluster.daemon_sets(DRIVER)) == len(scenario.guests),
    )
    acts.wait_until(scenario, "no label of the wave is left", lambda: moved(scenario) == [])
    for name in scenario.guests:
        assert_proven(scenario, name)
    acts.delete_driver(scenario)


def wave(scenario: Scenario) -> dict[str, Any]:
    """Return the wave in the driver's status, empty while there is none."""
    found: dict[str, Any] = (scenario.cluster.driver(DRIVER).get("status") or {}).get("rollout") or {}
    return found


def moved(scenario: Scenario) -> list[str]:
    """Name the nodes with the label of a wave."""
    label = names.wave_label(NAMESPACE, DRIVER)
    return [name for name in sorted(scenario.guests) if label in scenario.cluster.labels(name)]


def version_on(guest: Guest) -> str:
    """Return the srcversion of the module that is live on a guest, empty while there is none."""
    return guest.run("cat /sys/module/edudrv/srcversion")[1].strip() if is_loaded(guest) else ""


def is_loaded(guest: Guest) -> bool:
    """Return whether a guest has the module."""
    return guest.run("test -e /sys/module/edudrv/srcversion")[0] == 0


def is_proven_on(scenario: Scenario, guest: Guest) -> bool:
    """Return whether a node has its ready label for the boot that it is in."""
    node = scenario.cluster.node(guest.name)["metadata"]
    place = (node.get("annotations") or {}).get(READY_LABEL, "")
    return READY_LABEL in node["labels"] and place.startswith(guest.boot_id())


def cordon(scenario: Scenario, *, yes: bool) -> None:
    """Cordon the other node, as kubectl does, or undo that."""
    scenario.cluster.client.patch(NODES.path(name=OTHER), {"spec": {"unschedulable": yes or None}})


def patch_driver(scenario: Scenario, **body: Any) -> None:
    """Edit the DriverContainer."""
    scenario.cluster.client.patch(PATH, body)
