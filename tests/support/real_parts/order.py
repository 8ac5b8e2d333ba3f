"""The cluster as each file of end-to-end tests finds it: every node Ready, no driver, nothing of an earlier test.

What is in order costs a few requests. A guest that keeps a pod which should be gone, or whose node is not Ready, is
booted anew, after what it looked like was written down: one wedged node does not fail the next file.
"""

import time
from collections.abc import Iterator

from demo.cluster import NAMESPACE, Json
from demo.scenario import Scenario
from kube_api.resources import DEPLOYMENTS, DRIVER_CONTAINERS, NODES, PODS
from testbed import diagnosis
from testbed.api import is_node_ready
from testbed.guest.guest import Guest
from tests.support.real_parts import acts

PATIENCE = 600.0
"""Seconds: an emulated node on a busy machine takes its time to end a pod."""


def restore(scenario: Scenario) -> None:
    """Bring the cluster into the state that the scenario's fixture left."""
    _restore_registry(scenario)
    _restore_controller(scenario)
    _delete_strangers(scenario)
    deadline = time.monotonic() + PATIENCE
    while (wedged := _wedged(scenario)) and time.monotonic() < deadline:
        time.sleep(0.5)
    for guest in wedged:
        _boot_anew(scenario, guest)
    scenario.wait_until_driver_is_gone()


def _restore_registry(scenario: Scenario) -> None:
    registry = scenario.ground.registry
    if not registry.is_ready():
        registry.start()
    if registry.username is not None:
        registry.set_auth(None)


def _restore_controller(scenario: Scenario) -> None:
    if acts.engines(scenario) == [False]:
        scenario.cluster.client.delete(acts.DEPLOYMENT)
        scenario.apply(item for item in scenario.manifests() if item["kind"] == DEPLOYMENTS.kind)
        acts.wait_for("the controller has an engine again", lambda: acts.engines(scenario) == [True])


def _delete_strangers(scenario: Scenario) -> None:
    client, ground = scenario.cluster.client, scenario.ground
    drivers = client.list(DRIVER_CONTAINERS.path(namespace=NAMESPACE)).items
    pods = [pod for pod in _pods(scenario) if not pod["metadata"].get("ownerReferences")]
    paths = [DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=item["metadata"]["name"]) for item in drivers]
    paths += [PODS.path(namespace=NAMESPACE, name=pod["metadata"]["name"]) for pod in pods]
    for name in set(ground.guests.names()) - set(scenario.guests):
        ground.guests.remove(name)
    ours = {ground.host_node_name, *scenario.guests}
    nodes = [node["metadata"]["name"] for node in client.list(NODES.path()).items]
    paths += [NODES.path(name=name) for name in nodes if name not in ours]
    for path in paths:
        _delete(scenario, path)


def _delete(scenario: Scenario, path: str, *, grace_seconds: int | None = None) -> None:
    query = "" if grace_seconds is None else f"?gracePeriodSeconds={grace_seconds}"
    scenario.ground.api.delete(path + query)


def _pods(scenario: Scenario) -> list[Json]:
    return list(scenario.cluster.client.list(PODS.path(namespace=NAMESPACE)).items)


def _wedged(scenario: Scenario) -> list[Guest]:
    """Return the guests that are not Ready, or still have a pod of a driver."""
    keeping = {pod["spec"].get("nodeName") for pod in _driver_pods(scenario)}
    return [
        guest
        for guest in scenario.guests.values()
        if guest.name in keeping or not guest.is_running() or not is_node_ready(guest.node())
    ]


def _driver_pods(scenario: Scenario) -> Iterator[Json]:
    for pod in _pods(scenario):
        if "driverwright.io/driver-container" in (pod["metadata"].get("labels") or {}):
            yield pod


def _boot_anew(scenario: Scenario, guest: Guest) -> None:
    said = diagnosis.write(scenario.ground, f"wedged-{guest.name}")
    print(f"\n{guest.name} is wedged and is booted anew\n{said}")
    guest.power_cut()
    for pod in _driver_pods(scenario):
        if pod["spec"].get("nodeName") == guest.name:
            _delete(scenario, PODS.path(namespace=NAMESPACE, name=pod["metadata"]["name"]), grace_seconds=0)
    guest.boot(guest.kernel)
    guest.wait_ready(timeout=acts.SETTLE_SECONDS)
    scenario.wait_for_kernel_label(guest, acts.SILENT)
