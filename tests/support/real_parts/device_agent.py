"""The device agent in a cluster: deployed on one node, and what its kubelet and pods say."""

from typing import Any

from demo.cluster import Cluster
from kube_api.client import Client
from kube_api.errors import NotFound
from kube_api.resources import CONFIG_MAPS, DAEMON_SETS, PODS
from testbed.ports import free_ports
from testbed.testbed import Testbed
from tests.support.real_parts import host_containers
from tests.support.real_parts.cluster_setup import FIELD_MANAGER, admin, documents, path_of

Json = dict[str, Any]

NAMESPACE = "driverwright"
AGENT = "app.kubernetes.io/name=device-agent"
DAEMON_SET = DAEMON_SETS.path(namespace=NAMESPACE, name="device-agent")
SECONDS = 600.0
"""On a guest each step takes minutes."""
MANIFESTS = (
    "namespace.yaml", "device-agent/serviceaccount.yaml", "device-agent/configmap.yaml", "device-agent/daemonset.yaml",
)  # fmt: skip


class Place:
    """A node with the agent, and a resource that it offers there."""

    def __init__(self, ground: Testbed, node: str, resource: str) -> None:
        self.ground = ground
        self.node = node
        self.resource = resource
        self.client: Client = admin(ground)
        self.cluster = Cluster(self.client)

    def deploy(self, image: str, configuration: str) -> None:
        """Apply the manifests of ``deploy/``, changed for a cluster without a pod network."""
        for obj in documents(*MANIFESTS):
            if obj["kind"] == CONFIG_MAPS.kind:
                obj["data"]["config.yaml"] = configuration
            if obj["kind"] == DAEMON_SETS.kind:
                self._fit(obj["spec"]["template"]["spec"], image)
            self.client.apply(path_of(obj), obj, field_manager=FIELD_MANAGER)

    def _fit(self, spec: Json, image: str) -> None:
        (port,) = free_ports(1)
        spec |= {"hostNetwork": True, "nodeSelector": {"kubernetes.io/hostname": self.node}}
        (container,) = spec["containers"]
        container |= {"image": image, "imagePullPolicy": "IfNotPresent", "args": ["run", f"--port={port}"], "ports": []}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            container[probe]["httpGet"]["port"] = port
            container[probe]["periodSeconds"] = 2

    def without_probes(self) -> None:
        """Replace the agent's pod by one that nobody asks, and wait until it has registered."""
        before = self.agent()["metadata"]["uid"]
        (container,) = self.client.get(DAEMON_SET)["spec"]["template"]["spec"]["containers"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            del container[probe]
        self.client.patch(DAEMON_SET, {"spec": {"template": {"spec": {"containers": [container]}}}})
        self.cluster.wait(
            "another pod of the agent", lambda: self.agent()["metadata"]["uid"] != before or None, timeout=SECONDS
        )
        self.cluster.wait("it has registered", lambda: self.registrations() or None, timeout=SECONDS)

    def remove(self) -> None:
        """Delete the agent and wait until its pods are gone."""
        self.client.delete(DAEMON_SET)
        self.cluster.wait("the agent is gone", lambda: not self.cluster.pods(AGENT) or None, timeout=SECONDS)

    def count(self, of: str) -> str | None:
        """Return how many devices the node has, in ``capacity`` or ``allocatable``."""
        amount: str | None = self.cluster.node(self.node)["status"][of].get(self.resource)
        return amount

    def wait_for(self, capacity: str, allocatable: str) -> None:
        """Wait until the kubelet reports these numbers."""
        self.cluster.wait(
            f"{capacity} devices, {allocatable} of them allocatable",
            lambda: (self.count("capacity"), self.count("allocatable")) == (capacity, allocatable) or None,
            timeout=SECONDS,
            seen=lambda: f"{self.count('capacity')}, {self.count('allocatable')}",
        )

    def start_pod(
        self, name: str, image: str, command: list[str], *, user: int = 65534, count: int = 1, restart: str = "Never"
    ) -> None:
        """Start a pod without capabilities that requests devices.

        ``restart``: its ``restartPolicy``.
        """
        spec = self.pod_spec(image, command, user=user, limits={self.resource: count})
        spec |= {"restartPolicy": restart, "tolerations": [{"operator": "Exists"}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
        self.client.create(PODS.path(namespace=NAMESPACE), body)

    def pod_spec(self, image: str, command: list[str], *, user: int, limits: dict[str, int]) -> Json:
        """Describe a pod of this node without capabilities."""
        container = {
            "name": "main",
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": command,
            "resources": {"limits": {resource: str(count) for resource, count in limits.items()}},
            "securityContext": {
                "runAsUser": user, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
            },
        }  # fmt: skip
        return {
            "containers": [container],
            "hostNetwork": True,
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": {"kubernetes.io/hostname": self.node},
        }

    def pod(self, name: str) -> Json:
        """Read a pod."""
        return self.client.get(PODS.path(namespace=NAMESPACE, name=name))

    def log_with(self, name: str, words: str) -> str:
        """Wait until a pod has said something; returns all that it said."""
        log = PODS.path(namespace=NAMESPACE, name=name, subresource="log")

        def said() -> str | None:
            text = "\n".join(self.client.follow(log)).strip()
            return text if words in text else None

        return self.cluster.wait(f"{name} says {words!r}", said, timeout=SECONDS, seen=lambda: self.why(name))

    def why(self, name: str) -> str:
        """Return what is known of a pod, for messages."""
        status = self.pod(name)["status"]
        return f"{status['phase']}: {status.get('message', '')} {status.get('containerStatuses', '')}"

    def delete_pod(self, name: str) -> None:
        """Delete a pod and wait until it is gone."""
        path = PODS.path(namespace=NAMESPACE, name=name)
        self.client.delete(path)

        def gone() -> bool | None:
            try:
                self.client.get(path)
            except NotFound:
                return True
            return None

        self.cluster.wait(f"{name} is gone", gone, timeout=SECONDS)

    def agent(self) -> Json:
        """Wait for a ready pod of the agent; ready means registered."""

        def ready() -> Json | None:
            pods = self.cluster.pods(AGENT)
            return next((pod for pod in pods if _is_ready(pod)), None)

        return self.cluster.wait("the agent is ready", ready, timeout=SECONDS, seen=self.logs)

    def logs(self) -> str:
        """Return the end of the agent's log."""
        return self.cluster.log_tail(AGENT, 5)

    def registrations(self) -> int:
        """Count how often the agent that runs now has registered its resource."""
        path = PODS.path(namespace=NAMESPACE, name=self.agent()["metadata"]["name"], subresource="log")
        lines = self.client.follow(path, silence_seconds=SECONDS)
        return sum(": registered with the kubelet" in line for line in lines)

    def agent_container(self) -> str:
        """Return the container of the ready agent."""
        container: str = self.agent()["status"]["containerStatuses"][0]["containerID"]
        return container.rpartition("/")[2]

    def ticks(self, container: str) -> int:
        """Return the processor time that the process in a container has taken, in ticks of the clock."""
        fields = host_containers.in_proc(container, "stat").rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])


def _is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions") or ()
    is_ready = any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
    return is_ready and "deletionTimestamp" not in pod["metadata"]
