"""Nodes for a real scheduler, whose kubelet a test plays: pods that are bound run at once, and end when asked to."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kube_api.client import Client
from kube_api.errors import Conflict, KubeApiError, NotFound
from kube_api.resources import NODES, PODS
from testbed.testbed import Testbed
from tests.support.real_parts.acts import wait_for

Json = dict[str, Any]

VERSION = "v1.33.2"
BASIC = {"cpu": "64", "memory": "512Gi", "pods": "110"}


class ScheduledNodes(threading.Thread):
    """Plays the kubelets of the Nodes that it has added, until it is stopped.

    ``work`` does what a pod is for, and says whether it has ended with that.
    """

    def __init__(self, ground: Testbed, client: Client, work: Callable[[Json], bool] = lambda _: False) -> None:
        super().__init__(name="kubelets", daemon=True)
        self._ground = ground
        self._client = client
        self._work = work
        self._stopping = threading.Event()
        self._devices: dict[str, dict[str, str]] = {}

    def add(
        self,
        name: str,
        devices: Mapping[str, int],
        *,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Json] = (),
    ) -> None:
        """Let a Node join, with labels and taints, and with devices that its kubelet has; wait until it is ready."""
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
            "spec": {"taints": list(taints)},
        }
        self._client.create(NODES.path(), body)
        self._devices[name] = {}
        self.offer(name, devices)
        wait_for(f"{name} is ready", lambda: not self._is_new(name))

    def _is_new(self, name: str) -> bool:
        """Tell whether the controller manager has not seen yet that a Node is ready."""
        taints = self._client.get(NODES.path(name=name))["spec"].get("taints", [])
        return any(taint["key"] == "node.kubernetes.io/not-ready" for taint in taints)

    def offer(self, name: str, devices: Mapping[str, int]) -> None:
        """Report how many devices a Node has; what it had before and has no more is reported as 0."""
        known = {**dict.fromkeys(self._devices[name], "0"), **{key: str(count) for key, count in devices.items()}}
        self._devices[name] = known
        self._report(name)

    def _report(self, name: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}
        has = {**BASIC, **self._devices[name]}
        status = {
            "conditions": [ready],
            "capacity": has,
            "allocatable": has,
            "nodeInfo": {"kubeletVersion": VERSION},
        }
        self._client.patch(NODES.path(name=name, subresource="status"), {"status": status})

    def run(self) -> None:
        """Play."""
        beats = 0
        while not self._stopping.wait(0.2):
            beats += 1
            try:
                if beats % 25 == 0:
                    for name in list(self._devices):
                        self._report(name)
                for pod in self._client.list(PODS.path()).items:
                    if pod["spec"].get("nodeName") in self._devices:
                        self._play(pod)
            except (NotFound, Conflict):
                continue  # Somebody else was faster: look again.
            except (KubeApiError, OSError) as error:
                # As a kubelet: it goes on, and a test that waits for it in vain shows what it said.
                print(f"{self.name}: {error}")

    def _play(self, pod: Json) -> None:
        metadata = pod["metadata"]
        path = PODS.path(namespace=metadata["namespace"], name=metadata["name"])
        if "deletionTimestamp" in metadata:
            self._ground.api.delete(f"{path}?gracePeriodSeconds=0")
        elif pod["status"].get("phase") == "Pending":
            phase = "Succeeded" if self._work(pod) else "Running"
            self._client.patch(f"{path}/status", {"status": _status(pod, phase)})

    def stop(self) -> None:
        """Stop to play, and take the Nodes away."""
        self._stopping.set()
        if self.is_alive():
            self.join()
        for name in self._devices:
            with contextlib.suppress(NotFound):
                self._client.delete(NODES.path(name=name))


def _status(pod: Json, phase: str) -> Json:
    """Make the status of a pod whose containers run, or have ended; what the scheduler wrote stays."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    types = ("Initialized", "Ready", "ContainersReady")
    kept = [one for one in pod["status"].get("conditions", []) if one["type"] not in types]
    made = [{"type": one, "status": "True", "lastTransitionTime": now} for one in types]
    return {"phase": phase, "startTime": now, "conditions": [*kept, *made]}
