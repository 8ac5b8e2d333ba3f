"""What is done to a driver that works: forced rebuilds, other privileges, a validation that fails."""

from typing import Any

import pytest

from demo.cluster import NAMESPACE
from demo.scenario import CONTROLLER, DRIVER, READY_LABEL, Scenario
from driver_builder.objects import validated
from kube_api import names
from kube_api.resources import DRIVER_CONTAINERS, NODES
from tests.cluster.test_loop import assert_proven, delete_pods, wait_for_another_pod, watch_labels
from tests.support.real_parts import acts

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("working_driver")]


def test_an_annotation_on_a_node_rebuilds_that_nodes_target_alone(scenario: Scenario) -> None:
    """The other kernel keeps its image, and the status says who asked."""
    here, there = scenario.guests["guest-b"].kernel.release, scenario.guests["guest-a"].kernel.release
    before = {kernel: target["imageDigest"] for kernel, target in scenario.cluster.targets(DRIVER).items()}
    pods_before = acts.pod_uids(scenario)
    wish = {"metadata": {"annotations": {names.REBUILD_ANNOTATION: "once"}}}
    scenario.cluster.client.patch(NODES.path(name="guest-b"), wish)
    scenario.wait_for_image(here, acts.SILENT, not_digest=before[here])
    wait_for_another_pod(scenario, "guest-b", pods_before["guest-b"])
    scenario.wait_for_ready()
    assert_proven(scenario, "guest-b")
    assert scenario.cluster.targets(DRIVER)[there]["imageDigest"] == before[there]
    assert "Node/guest-b" in scenario.cluster.driver(DRIVER)["status"]["rebuild"]["requests"]
    pods = acts.pod_uids(scenario)
    assert (pods["guest-a"], pods["guest-b"] != pods_before["guest-b"]) == (pods_before["guest-a"], True)


def test_a_restart_of_the_controller_repeats_no_rebuild(scenario: Scenario) -> None:
    """Neither that nor the removal of the annotation rebuilds anything; nodes stay ready without a controller."""
    before = {kernel: target["imageDigest"] for kernel, target in scenario.cluster.targets(DRIVER).items()}
    node = NODES.path(name="guest-b")
    scenario.cluster.client.patch(node, {"metadata": {"annotations": {names.REBUILD_ANNOTATION: None}}})
    restart_controller(scenario)
    assert before == {kernel: target["imageDigest"] for kernel, target in scenario.cluster.targets(DRIVER).items()}
    assert {target["state"] for target in scenario.cluster.targets(DRIVER).values()} == {"Ready"}


def restart_controller(scenario: Scenario) -> None:
    """Delete the controller's pod, and wait for the next one; all nodes are ready at any time."""
    old = {pod["metadata"]["uid"] for pod in scenario.cluster.pods(CONTROLLER)}
    delete_pods(scenario, CONTROLLER)
    watch_labels(scenario, times=10)
    acts.wait_until(
        scenario,
        "the old controller is gone",
        lambda: old.isdisjoint(pod["metadata"]["uid"] for pod in scenario.cluster.pods(CONTROLLER)),
    )
    scenario.wait_for_controller()
    watch_labels(scenario, times=10)
    assert "starting" not in scenario.cluster.log_tail(CONTROLLER, 200)


def test_an_annotation_forces_a_rebuild_of_every_target(scenario: Scenario) -> None:
    """New images under new keys, rolled out and proven, and the request is acknowledged in the status."""
    for before, after in scenario.force_rebuild().values():
        assert before != after
    for guest in scenario.guests:
        assert_proven(scenario, guest)
    driver = scenario.cluster.driver(DRIVER)
    assert "DriverContainer" in driver["status"]["rebuild"]["requests"]


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


def test_a_ready_label_needs_the_validation_once_it_has_failed(scenario: Scenario) -> None:
    """A command that succeeds on the device takes no label and replaces no pod; one that fails takes the label.

    Then the pods are replaced by some that check the device node, and with that alone the nodes are ready again.
    """
    pods = acts.pod_uids(scenario)
    works = {
        "deviceNodes": ["/dev/edu0"],
        "image": scenario.images["edu-workload"],
        "command": ["/bin/factorial", "10"],
        "retries": 0,
    }
    validate(scenario, works)
    acts.wait_until(scenario, "both nodes are validated", lambda: validated_nodes(scenario) == set(scenario.guests))
    watch_labels(scenario, times=1)
    assert acts.pod_uids(scenario) == pods
    fails = ["/bin/busybox", "sh", "-c", "echo the device gave no answer >/dev/termination-log; exit 3"]
    validate(scenario, {"command": fails})
    for guest in scenario.guests.values():
        target = acts.wait_for_reason(scenario, guest.kernel.release, "ValidationFailed")
        assert target["message"] == f"{guest.name}: the command failed (3): the device gave no answer"
        assert READY_LABEL not in scenario.cluster.labels(guest.name)
        assert guest.run("cat /sys/module/edudrv/initstate")[1].strip() == "live"
    acts.wait_for_events(scenario, "ValidationFailed")
    for name, uid in pods.items():
        wait_for_another_pod(scenario, name, uid)
    validate(scenario, dict.fromkeys(("image", "command", "retries")))
    scenario.wait_for_ready()
    validate(scenario, None)
    acts.wait_until(scenario, "no Node has a record", lambda: validated_nodes(scenario) == set())
    scenario.wait_for_ready()


def validate(scenario: Scenario, validation: dict[str, Any] | None) -> None:
    """Let somebody change what a ready label needs besides the load."""
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER)
    scenario.cluster.client.patch(path, {"spec": {"validation": validation}})


def validated_nodes(scenario: Scenario) -> set[str]:
    """Name the nodes that record that a command succeeded."""
    key = validated.annotation(f"{NAMESPACE}/{DRIVER}")
    records = {name: scenario.cluster.node(name)["metadata"]["annotations"].get(key) for name in scenario.guests}
    return {name for name, text in records.items() if (found := validated.parse(text)) is not None and found.succeeded}


def privileged(scenario: Scenario) -> set[bool]:
    """Return whether what loads modules is privileged, in the driver's DaemonSets."""
    pods = [item["spec"]["template"]["spec"] for item in scenario.cluster.daemon_sets(DRIVER)]
    return {pod["initContainers"][1]["securityContext"]["privileged"] for pod in pods}
