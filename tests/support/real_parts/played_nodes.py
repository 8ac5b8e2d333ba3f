"""Nodes whose kubelet a test plays, on a real API server: pods are bound, started, and ended as asked."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from driver_builder.objects import manifests, plugin
from driver_builder.tasks import pull_pod, unload_pod, validation_pod
from kube_api import names
from kube_api.client import Client
from kube_api.errors import Conflict, KubeApiError, NotFound
from kube_api.resources import NODES, PODS
from testbed.api import ApiError
from testbed.testbed import Testbed
from tests.support.driver_builder import factories
from tests.support.driver_builder.model_world import pod_status

Json = dict[str, Any]

USER = {"uses": "driver"}
"""The label of pods that use the driver."""
HEARTBEAT_SECONDS = 5.0
"""A node whose kubelet says nothing is given up after forty; each word wakes whoever watches nodes."""


class PlayedNodes(threading.Thread):
    """Nodes of one pool, and a namespace's driver pods on them (those of ``driver``, or all).

    Started, the thread plays their kubelets until stopped; who wants to say when calls :meth:`play`.
    """

    def __init__(
        self, ground: Testbed, client: Client, *, namespace: str, pool: str, driver: str | None = None
    ) -> None:
        super().__init__(name=f"kubelets-{pool}", daemon=True)
        self._ground = ground
        self._client = client
        self._namespace = namespace
        self._pool = pool
        self._selector = manifests.DRIVER_LABEL if driver is None else f"{manifests.DRIVER_LABEL}={driver}"
        self._kernels: dict[str, str] = {}
        self._beats: tuple[object, ...] = ()
        self._stopping = threading.Event()
        self._has_users = False
        self.resource = ""
        """What the nodes get from the plugins that run there, if one is played."""

    def add(self, name: str, kernel: str, annotations: Mapping[str, str] = MappingProxyType({})) -> None:
        """Let a node join the pool."""
        labels = {**factories.node_labels(kernel), "pool": self._pool}
        self.register({"name": name, "labels": labels, "annotations": dict(annotations)})

    def register(self, metadata: Json) -> None:
        """Let a node join as its labels and annotations say it is."""
        self._client.create(NODES.path(), {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        self._kernels = {**self._kernels, metadata["name"]: metadata["labels"][names.KERNEL_VERSION_LABEL]}

    def reboot(self, name: str, kernel: str) -> None:
        """Boot a node into another kernel, as its labels say."""
        self._kernels = {**self._kernels, name: kernel}
        self._client.patch(NODES.path(name=name), {"metadata": {"labels": {names.KERNEL_VERSION_LABEL: kernel}}})

    def ready_labels(self, label: str) -> dict[str, str | None]:
        """Return the value of a label by node."""
        return {obj["metadata"]["name"]: obj["metadata"]["labels"].get(label) for obj in self.objects()}

    def names(self) -> list[str]:
        """Return the names of the nodes."""
        return list(self._kernels)

    def objects(self) -> list[Json]:
        """Return the Nodes of the pool."""
        return self._client.list(NODES.path(), label_selector=f"pool={self._pool}").items

    def run(self) -> None:
        """Play."""
        while not self._stopping.wait(0.2):
            try:
                self.play()
            except (NotFound, Conflict):
                continue  # Somebody else was faster: look again.
            except (KubeApiError, ApiError, OSError) as error:
                # As a kubelet: it goes on, and a test that waits for it in vain shows what it said.
                print(f"{self.name}: {error}")

    def stop(self) -> None:
        """Take nodes and pods away."""
        self._stopping.set()
        if self.is_alive():
            self.join()
        for name in self._kernels:
            self._client.delete(NODES.path(name=name))
        for pod in self.pods():
            self._force_delete(pod)

    def pods(self) -> list[Json]:
        """Return the pods."""
        return self._client.list(PODS.path(namespace=self._namespace), label_selector=self._selector).items

    def use(self, node: str) -> None:
        """Run a pod on a node that uses the driver."""
        self._has_users = True
        container = {"name": "user", "image": "i"}
        body = {
            "metadata": {"name": f"user-{node}", "labels": USER},
            "spec": {"nodeName": node, "containers": [container]},
        }
        self._client.create(PODS.path(namespace=self._namespace), body)

    def users(self) -> list[Json]:
        """Return the pods that use the driver."""
        selector = ",".join(f"{key}={value}" for key, value in USER.items())
        return self._client.list(PODS.path(namespace=self._namespace), label_selector=selector).items

    def play(self) -> None:
        """Send heartbeats, take pods in, report what their loaders found, let deleted ones end."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        beats = (time.monotonic() // HEARTBEAT_SECONDS, *self._kernels)
        if beats != self._beats:
            self.send_heartbeats(now)
            self._beats = beats
        for pod in self.pods():
            self.play_pod(pod, now)
        if self.resource:
            self._report_devices()
        for pod in self.users() if self._has_users else ():
            if "deletionTimestamp" in pod["metadata"]:
                self._force_delete(pod)

    def send_heartbeats(self, now: str) -> None:
        """Say of each node that it is ready."""
        for name in self._kernels:
            condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}
            path = NODES.path(name=name, subresource="status")
            self._client.patch(path, {"status": {"conditions": [condition]}})

    def play_pod(self, pod: Json, now: str) -> None:
        """Do with a pod what its node's kubelet would do next."""
        path = PODS.path(namespace=self._namespace, name=pod["metadata"]["name"])
        if "deletionTimestamp" in pod["metadata"]:
            self._force_delete(pod)
        elif not pod["spec"].get("nodeName"):
            self._bind(pod)
        elif once := next((label for label in _ONCE if label in pod["metadata"]["labels"]), ""):
            if "startTime" not in pod["status"]:
                self._client.patch(f"{path}/status", {"status": _ended(*_ONCE[once], now=now)})
        elif plugin.STAGE_LABEL in pod["metadata"]["labels"]:
            if "startTime" not in pod["status"]:
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
                status = {"phase": "Running", "startTime": now, "conditions": [ready]}
                self._client.patch(f"{path}/status", {"status": status})
        elif not self.has_reported(pod):
            self._client.patch(f"{path}/status", {"status": self._report(pod)})

    def _report_devices(self) -> None:
        """Report of each node whether a plugin runs there."""
        plugins = {pod["spec"].get("nodeName") for pod in self.pods() if plugin.STAGE_LABEL in pod["metadata"]["labels"]
                   and pod["status"].get("startTime") and "deletionTimestamp" not in pod["metadata"]}  # fmt: skip
        for obj in self.objects():
            name, count = obj["metadata"]["name"], {self.resource: str(int(obj["metadata"]["name"] in plugins))}
            if (obj["status"].get("allocatable") or {}).get(self.resource) != count[self.resource]:
                body = {"status": {"capacity": count, "allocatable": count}}
                self._client.patch(NODES.path(name=name, subresource="status"), body)

    def has_reported(self, pod: Json) -> bool:
        """Tell whether the loader of a pod has said what it found."""
        return bool(pod["status"].get("initContainerStatuses"))

    def boot_of(self, node: str) -> str:  # noqa: ARG002 - all are on one boot, unless a subclass knows better
        """Return the id of a node's boot."""
        return "b"

    def _bind(self, pod: Json) -> None:
        terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        node = terms["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
        name = pod["metadata"]["name"]
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        self._client.create(PODS.path(namespace=self._namespace, name=name, subresource="binding"), body)

    def _report(self, pod: Json) -> Json:
        node = pod["spec"]["nodeName"]
        kernel = self._kernels[node]
        annotations = pod["metadata"]["annotations"]
        fits = annotations[manifests.KERNEL_ANNOTATION] == kernel
        modules = json.loads(annotations[manifests.MODULES_ANNOTATION])
        verdict = {
            "result": "Loaded" if fits else "WrongKernel",
            "kernel": kernel,
            "bootID": self.boot_of(node),
            "modules": [{"name": name, "srcversion": identity} for name, identity in modules.items()],
        }
        status = pod_status(verdict, ready=fits)
        for container in (*status["initContainerStatuses"], *status["containerStatuses"]):
            container |= {"image": "i", "imageID": "i", "ready": True, "restartCount": 0}
        return status

    def _force_delete(self, pod: Json) -> None:
        path = PODS.path(namespace=self._namespace, name=pod["metadata"]["name"])
        self._ground.api.delete(f"{path}?gracePeriodSeconds=0")


_ONCE = {
    unload_pod.UNLOAD.label: (unload_pod.UNLOAD.container, json.dumps({"result": "Unloaded"})),
    pull_pod.PULL.label: (pull_pod.PULL.container, ""),
    validation_pod.VALIDATION.label: (validation_pod.VALIDATION.container, ""),
    validation_pod.PLUGIN_VALIDATION.label: (validation_pod.VALIDATION.container, ""),
}
"""Pods that do one thing, by their label: the container, and what it says at its end."""


def _ended(container: str, message: str, *, now: str) -> Json:
    """Make the status of a pod whose container has done what it was for."""
    ended = {"exitCode": 0, "message": message, "startedAt": now, "finishedAt": now}
    status = {
        "name": container,
        "state": {"terminated": ended},
        "image": "i",
        "imageID": "i",
        "ready": False,
        "restartCount": 0,
    }
    return {"phase": "Succeeded", "startTime": now, "containerStatuses": [status]}
