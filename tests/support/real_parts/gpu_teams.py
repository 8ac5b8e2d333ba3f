"""Teams that share GPUs on a real API server with its scheduler: their namespaces, pods, and what becomes of these."""

import dataclasses
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kube_api.client import Client
from kube_api.errors import NotFound
from kube_api.resources import NAMESPACES, PODS, SERVICE_ACCOUNTS, Resource
from testbed.testbed import Testbed
from tests.support.console import ROOT
from tests.support.real_parts.acts import wait_for
from tests.support.real_parts.cluster_setup import Json, admin, create_quietly, make_namespace
from tests.support.real_parts.scheduled_nodes import ScheduledNodes
from tests.support.yaml_files import read_documents

EXAMPLES = ROOT / "examples/nvidia"
PRIORITIES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
POOL = "example.com/gpu-pool"
PATIENCE = 240.0
"""Seconds for what takes a second or two; the machine may be busy."""
SMALL = {"cpu": "100m", "memory": "64Mi"}


def of_kind(name: str, kind: str) -> list[Json]:
    """Read the objects of one kind from an example."""
    return [item for item in read_documents((EXAMPLES / name).read_text()) if item["kind"] == kind]


def pod(name: str, devices: Mapping[str, int], **spec: Any) -> Json:
    """Make a pod that requests devices."""
    resources = {"requests": SMALL, "limits": {**SMALL, **{key: str(count) for key, count in devices.items()}}}
    containers = [{"name": "c", "image": "i", "resources": resources}]
    return {
        "metadata": {"name": name},
        "spec": {"containers": containers, "automountServiceAccountToken": False, **spec},
    }


def tolerating(*keys: str) -> list[Json]:
    """Make tolerations of any value."""
    return [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]


class Team:
    """A namespace of a cluster, and what its pods become."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    def make(self, made: Json) -> str:
        """Create a pod; returns its name."""
        self.client.create(PODS.path(namespace=self.namespace), made)
        name: str = made["metadata"]["name"]
        return name

    def node_of(self, name: str) -> str:
        """Return where a pod is; empty for nowhere."""
        found = self.client.get(PODS.path(namespace=self.namespace, name=name))
        return str(found["spec"].get("nodeName", ""))

    def why_not(self, name: str) -> str:
        """Return why the scheduler finds no place for a pod; empty if it has not said so."""
        found = self.client.get(PODS.path(namespace=self.namespace, name=name))
        conditions = found["status"].get("conditions", [])
        return next((one.get("message", "") for one in conditions if one.get("reason") == "Unschedulable"), "")

    def is_gone(self, name: str) -> bool:
        """Tell whether there is no such pod."""
        try:
            self.client.get(PODS.path(namespace=self.namespace, name=name))
        except NotFound:
            return True
        return False

    def comes_to(self, name: str, node: str) -> None:
        """Wait until a pod is on a node."""
        wait_for(f"{name} has a node", lambda: self.node_of(name) != "", timeout=PATIENCE)
        assert self.node_of(name) == node

    def waits(self, name: str, *words: str) -> None:
        """Wait until the scheduler says that there is no place for a pod, in words with these."""

        def is_said() -> bool:
            why = self.why_not(name)
            return bool(why) and all(word in why for word in words)

        wait_for(f"{name} has no place, because of {words}", is_said, timeout=PATIENCE)
        assert self.node_of(name) == ""


def team_in(client: Client, namespace: str) -> Team:
    """Make a namespace, and wait until pods can be made in it: they need its account."""
    make_namespace(client, namespace)
    path = SERVICE_ACCOUNTS.path(namespace=namespace)
    wait_for("there is an account", lambda: bool(client.list(path).items), timeout=PATIENCE)
    return Team(client, namespace)


def add_priorities(client: Client) -> None:
    """Make the priorities of the examples."""
    for priority in of_kind("priorities.yaml", "PriorityClass"):
        create_quietly(client, PRIORITIES.path(), priority)


@dataclasses.dataclass
class Cluster:
    """A cluster with a scheduler, and nodes that a test adds."""

    client: Client
    nodes: ScheduledNodes

    def team(self, name: str) -> Team:
        """Make a namespace without quotas; one of that name of another test may still be there."""
        return team_in(self.client, f"{name}-{time.monotonic_ns()}")


@contextmanager
def cluster_of(ground: Testbed) -> Iterator[Cluster]:
    """Make a cluster without nodes, which knows the priorities of the examples; take all away that was made in it."""
    client = admin(ground)
    add_priorities(client)
    before = {item["metadata"]["name"] for item in client.list(NAMESPACES.path()).items}

    def made() -> list[Json]:
        return [item for item in client.list(PODS.path()).items if item["metadata"]["namespace"] not in before]

    nodes = ScheduledNodes(ground, client)
    nodes.start()
    try:
        yield Cluster(client, nodes)
    finally:
        for item in client.list(NAMESPACES.path()).items:
            if item["metadata"]["name"] not in before:
                client.delete(NAMESPACES.path(name=item["metadata"]["name"]))
        wait_for("no pod is left", lambda: not made(), timeout=PATIENCE)
        nodes.stop()
