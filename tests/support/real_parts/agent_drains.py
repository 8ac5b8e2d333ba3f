"""driver-builder's real process with the rights to drain for device agents, and pods that it may evict."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kube_api.errors import NotFound
from kube_api.resources import DAEMON_SETS, PODS, SERVICE_ACCOUNTS
from testbed.kubeconfig import kubeconfig_text, token_user, write_kubeconfig
from testbed.testbed import Testbed
from tests.support.real_parts import host_containers
from tests.support.real_parts.cluster_setup import FIELD_MANAGER, admin, documents, install, path_of
from tests.support.real_parts.device_agent import NAMESPACE, SECONDS, Json, Place
from tests.support.real_parts.nvidia_node import SHOW

ACCOUNT = "driver-builder"
RESOURCES = "nvidia.com/gpu*,nvidia.com/mig-*"
DAEMON_SET = "agent-of-this-node"
"""Its pod is where a pod of the agent would be."""
_ENDS_SECONDS = 60.0


@contextmanager
def draining_controller(ground: Testbed, folder: Path, place: Place) -> Iterator[Path]:
    """Run driver-builder by its own account, for nodes with a pod of :data:`DAEMON_SET`; gives the file of its log."""
    client = admin(ground)
    install(client)
    rights = tuple(documents("driver-builder/drain.yaml"))
    for obj in rights:
        client.apply(path_of(obj), obj, field_manager=FIELD_MANAGER)
    stand_in = workload(DAEMON_SET, "DaemonSet", place, {})
    client.create(DAEMON_SETS.path(namespace=NAMESPACE), stand_in)
    log = folder / "driver-builder.log"
    with log.open("ab") as output:
        process = subprocess.Popen(_command(ground, folder), stdout=output, stderr=output)
    try:
        yield log
    finally:
        process.terminate()
        assert process.wait(_ENDS_SECONDS) == 0, log.read_text()[-3000:]
        for path in (DAEMON_SETS.path(namespace=NAMESPACE, name=DAEMON_SET), *map(path_of, rights)):
            client.delete(path)


def _command(ground: Testbed, folder: Path) -> list[str]:
    path = SERVICE_ACCOUNTS.path(namespace=NAMESPACE, name=ACCOUNT, subresource="token")
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    token = admin(ground).create(path, asked)["status"]["token"]
    text = kubeconfig_text(ground.api_server, ground.ca_file.read_bytes(), token_user(token))
    return [
        sys.executable, "-m", "driver_builder", "run", "--namespace", NAMESPACE, "--port", "0",
        "--kubeconfig", str(write_kubeconfig(folder / "driver-builder.kubeconfig", text)),
        "--docker-host", ground.engine.socket, "--loader-image", "registry.example.com/loader:1", "--no-feature-rules",
        "--agent-drain-resources", RESOURCES, "--agent-daemonsets", f"{NAMESPACE}/{DAEMON_SET}",
    ]  # fmt: skip


def workload(name: str, kind: str, place: Place, limits: dict[str, int]) -> Json:
    """Make a DaemonSet, or a ReplicaSet of one pod, on a node; it tolerates no taint."""
    labels = {"app": name}
    spec = place.pod_spec(place.ground.small_image, SHOW, user=0, limits=limits)
    replicas = {"replicas": 1} if kind == "ReplicaSet" else {}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            **replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


class Evictable:
    """A ReplicaSet whose one pod has a unit of a resource; ``with`` deletes it and its PodDisruptionBudget.

    ``lingers``: an evicted pod runs on until the test ends it.
    """

    def __init__(self, name: str, place: Place, *, lingers: bool = False) -> None:
        self.name = name
        self._lingers = lingers
        self._place = place
        self._client = place.client
        self._sets = f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets"
        self._policy: str = self._client.get("/apis/policy")["preferredVersion"]["groupVersion"]
        self._budgets = f"/apis/{self._policy}/namespaces/{NAMESPACE}/poddisruptionbudgets"

    def __enter__(self) -> "Evictable":
        body = workload(self.name, "ReplicaSet", self._place, {self._place.resource: 1})
        if self._lingers:
            spec = body["spec"]["template"]["spec"]
            spec["terminationGracePeriodSeconds"] = int(SECONDS)
            spec["containers"][0]["command"] = ["/bin/sh", "-c", f"trap '' TERM; {SHOW[-1].partition(';')[2]}; wait"]
        self._client.create(self._sets, body)
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._client.delete(f"{self._sets}/{self.name}")

        def is_gone() -> bool | None:
            self.end()
            return not self._pods() or None

        self._place.cluster.wait(f"{self.name} is gone", is_gone, timeout=SECONDS)

    def keep(self) -> None:
        """Have a budget that refuses evictions, and wait until it counts the pod."""
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": self.name}}}
        body = {
            "apiVersion": self._policy,
            "kind": "PodDisruptionBudget",
            "metadata": {"name": self.name},
            "spec": spec,
        }
        self._client.create(self._budgets, body)

        def counts() -> bool | None:
            status = self._client.get(f"{self._budgets}/{self.name}").get("status", {})
            return (status.get("currentHealthy") == 1 and status.get("disruptionsAllowed") == 0) or None

        self._place.cluster.wait(f"the budget counts {self.name}", counts, timeout=SECONDS)

    def release(self) -> None:
        """Have no budget any more."""
        with suppress(NotFound):
            self._client.delete(f"{self._budgets}/{self.name}")

    def end(self) -> None:
        """End the containers of its pods."""
        for pod in self._pods():
            for status in pod["status"].get("containerStatuses") or ():
                if "running" in status["state"]:
                    host_containers.kill(status["containerID"].rpartition("://")[2])

    def is_evicted(self) -> None:
        """Wait until a pod was evicted that runs."""
        self._place.cluster.wait(
            f"{self.name} is evicted",
            lambda: any("deletionTimestamp" in pod["metadata"] for pod in self._pods()) or None,
            timeout=SECONDS,
        )

    def running(self) -> str:
        """Wait until the pod runs; returns its name."""

        def name() -> str | None:
            found = [pod for pod in self._pods() if pod["status"].get("phase") == "Running"]
            return found[0]["metadata"]["name"] if len(found) == 1 else None

        return self._place.cluster.wait(
            f"{self.name} runs", name, timeout=SECONDS, seen=lambda: str([pod["status"] for pod in self._pods()])
        )

    def waits(self) -> str:
        """Wait until there is one pod, which the scheduler finds no place for; returns its name."""

        def name() -> str | None:
            found = [pod for pod in self._pods() if "nodeName" not in pod["spec"]]
            return found[0]["metadata"]["name"] if len(found) == len(self._pods()) == 1 else None

        return self._place.cluster.wait(
            f"{self.name} waits", name, timeout=SECONDS, seen=lambda: str([pod["status"] for pod in self._pods()])
        )

    def uids(self) -> set[str]:
        """Return the uids of its pods that are there."""
        return {pod["metadata"]["uid"] for pod in self._pods()}

    def _pods(self) -> list[Json]:
        found = self._client.list(PODS.path(namespace=NAMESPACE), label_selector=f"app={self.name}").items
        # The kubelet fails those that come while the agent is not registered.
        return [pod for pod in found if pod["status"].get("phase") != "Failed"]
