"""A driver is upgraded while a pod uses its device: the pod is named, evicted within its budget, and comes back."""

import contextlib
from collections.abc import Iterator

import pytest

from demo.cluster import NAMESPACE, Json
from demo.scenario import DRIVER, EXAMPLE, Scenario
from kube_api import names
from kube_api.client import Client
from kube_api.errors import NotFound
from kube_api.resources import DEPLOYMENTS, NODES
from testbed.guest.guest import Guest
from tests.support.real_parts import acts
from tests.support.real_parts.cluster_setup import documents, path_of
from tests.support.real_parts.device_user import deployment

pytestmark = [pytest.mark.long]

USER = "edu-user"
LABELS = {"app": USER}
DRAIN = {"podSelector": LABELS, "deadline": "30m"}
USES_THE_DEVICE = ["/busybox", "sh", "-c", "exec /busybox sleep 100000 </dev/edu0"]


def holder(image: str, node: str) -> Json:
    """Make a Deployment of one pod that holds the device of a node."""
    container: Json = {
        "image": image,
        "command": USES_THE_DEVICE,
        # Without a device plugin only a privileged container may open a device of the node.
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "dev", "mountPath": "/dev"}],
    }
    return deployment(USER, node, container, ({"name": "dev", "hostPath": {"path": "/dev", "type": "Directory"}},))


def budgets(client: Client) -> tuple[str, str]:
    """Return the version of PodDisruptionBudgets that the server prefers, and where they are."""
    version: str = client.get("/apis/policy")["preferredVersion"]["groupVersion"]
    return version, f"/apis/{version}/namespaces/{NAMESPACE}/poddisruptionbudgets"


@pytest.fixture
def user(scenario: Scenario) -> Iterator[Guest]:
    """Let a pod hold the device of a node, which its budget keeps; the controller may drain."""
    guest, client = scenario.guests["guest-b"], scenario.cluster.client
    rights = tuple(documents("driver-builder/drain.yaml"))
    scenario.apply(rights)
    scenario.apply_driver(driver_spec={"rollout": {"drain": DRAIN}})
    scenario.wait_for_builds()
    scenario.wait_for_ready()
    scenario.apply([holder(scenario.images["loader"], guest.name)])
    acts.wait_until(scenario, "the device is in use", lambda: is_running(scenario))
    version, where = budgets(client)
    budget = {
        "apiVersion": version,
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep-the-user"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": LABELS}},
    }
    client.create(where, budget)
    yield guest
    left = [DEPLOYMENTS.path(namespace=NAMESPACE, name=USER), f"{where}/keep-the-user", *map(path_of, rights)]
    for path in left:
        with contextlib.suppress(NotFound):
            client.delete(path)
    acts.delete_driver(scenario)


@pytest.fixture
def cordoned(scenario: Scenario) -> Iterator[Guest]:
    """Cordon the other node by hand."""
    guest = scenario.guests["guest-a"]
    cordon(scenario, guest, yes=True)
    yield guest
    cordon(scenario, guest, yes=False)


def cordon(scenario: Scenario, guest: Guest, *, yes: bool) -> None:
    """Cordon a node, or let pods on it again."""
    scenario.cluster.client.patch(NODES.path(name=guest.name), {"spec": {"unschedulable": yes or None}})


def is_running(scenario: Scenario) -> bool:
    """Return whether the pod that uses the device runs."""
    pods = scenario.cluster.pods(f"app={USER}")
    return [pod["status"].get("phase") for pod in pods if "deletionTimestamp" not in pod["metadata"]] == ["Running"]


def users(scenario: Scenario) -> set[str]:
    """Return the uids of the pods that use the device."""
    return {pod["metadata"]["uid"] for pod in scenario.cluster.pods(f"app={USER}")}


def message(scenario: Scenario) -> str:
    """Return what the status says of the wave."""
    rollout: Json = scenario.cluster.driver(DRIVER)["status"].get("rollout") or {}
    return str(rollout.get("message", ""))


def test_a_driver_in_use_is_drained_within_its_budget_and_a_cordoned_node_stays_so(
    scenario: Scenario, user: Guest, cordoned: Guest
) -> None:
    """The status names pod and budget while it waits; afterwards the pod is back on a node without our traces."""
    before, module, pods = users(scenario), acts.live_module(user), acts.pod_uids(scenario)
    code = (EXAMPLE / "src/edudrv.c").read_text()
    scenario.apply_source(replace={"edudrv.c": f'{code}\nMODULE_INFO(upgraded, "by a drain");\n'})
    acts.wait_until(scenario, "the budget is named", lambda: "keep-the-user" in message(scenario))
    assert next(iter(scenario.cluster.pods(f"app={USER}")))["metadata"]["name"] in message(scenario)
    node = scenario.cluster.node(user.name)
    assert names.UPGRADING_TAINT in {taint["key"] for taint in node["spec"]["taints"]}
    assert f"{NAMESPACE}/{DRIVER}" in node["metadata"]["annotations"][names.LOCK_ANNOTATION]
    assert (users(scenario), acts.live_module(user)) == (before, module)
    _, where = budgets(scenario.cluster.client)
    scenario.cluster.client.delete(f"{where}/keep-the-user")
    acts.wait_until(
        scenario,
        "the node is upgraded",
        lambda: pods[user.name] != acts.pod_uids(scenario).get(user.name, pods[user.name]),
    )
    scenario.wait_for_ready_label(user, acts.SILENT)
    acts.wait_until(scenario, "the pod is back", lambda: is_running(scenario) and users(scenario).isdisjoint(before))
    assert acts.live_module(user).splitlines()[1] != module.splitlines()[1]

    def is_released() -> bool:
        node = scenario.cluster.node(user.name)
        kept = {names.LOCK_ANNOTATION, names.DRAINING_ANNOTATION} & node["metadata"]["annotations"].keys()
        return not kept and not node["spec"].get("taints")

    acts.wait_until(scenario, "nothing of the drain is left", is_released)
    assert scenario.cluster.node(cordoned.name)["spec"]["unschedulable"] is True
    assert acts.pod_uids(scenario)[cordoned.name] == pods[cordoned.name]
    cordon(scenario, cordoned, yes=False)
    acts.wait_until(
        scenario, "the wave is over", lambda: "rollout" not in scenario.cluster.driver(DRIVER).get("status", {})
    )
    assert acts.pod_uids(scenario)[cordoned.name] != pods[cordoned.name]
