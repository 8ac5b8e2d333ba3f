"""A small DRA driver below a real kubelet (1.34 and later): a pod gets its device by a claim, and drains see the pod.

``tests/api/test_dra_stage.py`` has the same driver as a stage, before an API server of any version.
"""

import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from demo.cluster import Cluster
from driver_builder.cluster import resource_api
from driver_builder.cluster.read_claims import with_claims
from driver_builder.cluster.read_node_pods import read_node_pods
from kube_api.client import Client
from kube_api.errors import NotFound
from kube_api.resources import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Resource
from testbed.testbed import Testbed
from tests.support.real_parts.cluster_setup import Json, admin, create_quietly, make_namespace
from tests.support.real_parts.dra_driver import DEVICE

pytestmark = [pytest.mark.chain, pytest.mark.long]

NAMESPACE, GPU, NAME = "dra-on-node", "gpu.example.com", "with-a-device"
GROUP, VERSION = RESOURCE_CLAIMS.group, RESOURCE_CLAIMS.version
CLASSES = Resource(GROUP, VERSION, "deviceclasses", "DeviceClass", namespaced=False)
TEMPLATES = Resource(GROUP, VERSION, "resourceclaimtemplates", "ResourceClaimTemplate")
POD = PODS.path(namespace=NAMESPACE, name=NAME)
PROCESS, ROOT = "dra-driver", Path(__file__).parents[2]
SECONDS = 600.0


@pytest.fixture(scope="module")
def root(ground: Testbed) -> Iterator[Client]:
    """Start the driver beside the kubelet, with a class of its devices and a template of claims."""
    client = admin(ground)
    if VERSION not in resource_api.served_versions(client):
        pytest.skip(f"Kubernetes {ground.binaries.release} has no {GROUP}/{VERSION}: it came with 1.34")
    make_namespace(client, NAMESPACE)
    selector = {"cel": {"expression": f"device.driver == '{GPU}'"}}
    create_quietly(client, CLASSES.path(), {"metadata": {"name": GPU}, "spec": {"selectors": [selector]}})
    request = {"name": "gpu", "exactly": {"deviceClassName": GPU}}
    template = {"metadata": {"name": "gpu"}, "spec": {"spec": {"devices": {"requests": [request]}}}}
    create_quietly(client, TEMPLATES.path(namespace=NAMESPACE), template)
    environment = {"NODE_NAME": ground.host_node_name, "PYTHONPATH": str(ROOT), "KUBECONFIG": str(ground.kubeconfig)}
    command = [sys.executable, "-m", "tests.support.real_parts.dra_driver", GPU, "/"]
    ground.processes.spawn(PROCESS, command, env=environment)
    yield client
    ground.processes.kill(PROCESS)
    with suppress(NotFound):
        client.delete(POD)
    client.delete(CLASSES.path(name=GPU))


@pytest.fixture(scope="module")
def cluster(root: Client) -> Cluster:
    """Give the cluster, to wait for what happens there."""
    return Cluster(root)


def pod(node: str) -> Json:
    """Make a pod that says which device it got."""
    container = {
        "name": "main",
        "command": ["sh", "-c", 'echo "got $DRA_DEVICE"; trap exit TERM; while :; do sleep 1; done'],
        "resources": {"claims": [{"name": "gpu"}]},
    }
    spec = {
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {"kubernetes.io/hostname": node},
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME}, "spec": spec}


def slices(client: Client) -> list[str]:
    """Return the nodes that have a slice of the driver."""
    found = [item["spec"] for item in client.list(RESOURCE_SLICES.path()).items]
    return [spec["nodeName"] for spec in found if spec["driver"] == GPU]


def test_the_kubelet_registers_it_and_it_publishes(ground: Testbed, root: Client, cluster: Cluster) -> None:
    """One ResourceSlice, of this node."""
    log = ground.processes.log(PROCESS)
    cluster.wait("it is registered", lambda: "registered" in log.read_text() or None, timeout=SECONDS)
    cluster.wait("its slice", lambda: slices(root) == [ground.host_node_name] or None, timeout=SECONDS)


def test_a_pod_with_a_claim_gets_the_device(ground: Testbed, root: Client, cluster: Cluster) -> None:
    """By the file of CDI that the driver wrote for its claim."""
    body = pod(ground.host_node_name)
    body["spec"]["containers"][0]["image"] = ground.small_image
    root.create(PODS.path(namespace=NAMESPACE), body)
    log = PODS.path(namespace=NAMESPACE, name=NAME, subresource="log")

    def said() -> bool | None:
        is_running = root.get(POD)["status"]["phase"] == "Running"
        return (is_running and f"got {DEVICE}" in root.get_text(log)) or None

    cluster.wait(f"the pod says {DEVICE}", said, timeout=SECONDS, seen=lambda: str(root.get(POD)["status"]))


def test_a_drain_sees_who_uses_it(ground: Testbed, root: Client) -> None:
    """The pod requests no resource: its claim names the driver that allocated it."""
    node = ground.host_node_name
    found = with_claims(root, read_node_pods(root, [node]), {node})[node]
    drivers = {f"{one.namespace}/{one.name}": one.claim_drivers for one in found.pods if one.claim_drivers}
    assert (drivers, found.unseen) == ({f"{NAMESPACE}/{NAME}": frozenset({GPU})}, "")


def test_a_pod_that_ends_gives_its_device_back(root: Client, cluster: Cluster) -> None:
    """The claim goes with its pod."""
    root.delete(POD)
    claims = partial(root.list, RESOURCE_CLAIMS.path(namespace=NAMESPACE))
    cluster.wait("no claim is left", lambda: not claims().items or None, timeout=SECONDS)


def test_a_driver_that_is_gone_loses_its_slice(ground: Testbed, root: Client, cluster: Cluster) -> None:
    """The kubelet deletes it, after half a minute, and with it `plug` falls."""
    ground.processes.kill(PROCESS)
    cluster.wait("no slice is left", lambda: not slices(root) or None, timeout=SECONDS)
