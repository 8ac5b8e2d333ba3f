"""The nodes of a soak, with played kubelets: they come, go, reboot, change kernels, lose modules and report late.

All of it is written to the API server itself, past the proxies.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from driver_builder.base.reasons import Reason
from driver_builder.objects import load_report, manifests
from kube_api import names
from kube_api.client import Client
from kube_api.errors import NotFound
from kube_api.resources import NODES, PODS
from testbed.testbed import Testbed
from tests.support.real_parts.played_nodes import PlayedNodes

Json = dict[str, Any]


class Fleet(PlayedNodes):
    """Played nodes with boots of their own; ``proofs`` are the nodes with the boot and kernel that a pod proved.

    ``late`` are the nodes whose driver does not work, and whose kubelets do nothing until they :meth:`recover`: what
    their pods say against it is not lost. ``requests`` are the rebuilds that nodes requested, each with the API
    server's version at that time.
    """

    def __init__(self, ground: Testbed, client: Client, *, namespace: str) -> None:
        super().__init__(ground, client, namespace=namespace, pool=namespace)
        self.proofs: set[tuple[str, str]] = set()
        self.requests: dict[str, tuple[str, int]] = {}
        self.requested = 0
        self._boots: dict[str, str] = {}
        self._booted = 0
        self._late: set[str] = set()
        self._busy = threading.Lock()

    @property
    def kernels(self) -> dict[str, str]:
        """The kernel of each node."""
        return dict(self._kernels)

    @property
    def late(self) -> frozenset[str]:
        """The nodes that lost their module, or say nothing since they booted."""
        return frozenset(self._late)

    def place(self, node: str) -> str:
        """Return boot and kernel of a node, as they are written beside a ready label."""
        return f"{self._boots[node]} {self._kernels[node]}"

    # ------------------------------------------------------------ what happens to nodes

    def come(self, kernel: str) -> None:
        """Let a new node come."""
        self._booted += 1
        name, boot = f"{self._namespace}-{self._booted}", f"boot-{self._booted}"
        self._boots[name] = boot
        self.add(name, kernel, _annotations(kernel, boot))

    def boot(self, node: str, kernel: str, *, is_late: bool = False) -> None:
        """Boot a node, into the kernel that it has or into another one.

        If ``is_late``, its pods stay as they were on the boot before.
        """
        with self._busy:
            self._booted += 1
            boot = f"boot-{self._booted}"
            self._boots[node], self._kernels = boot, {**self._kernels, node: kernel}
            if is_late:
                self._late.add(node)
            metadata = {"labels": {names.KERNEL_VERSION_LABEL: kernel}, "annotations": _annotations(kernel, boot)}
            self._client.patch(NODES.path(name=node), {"metadata": metadata})

    def lose_module(self, node: str) -> bool:
        """Let a module go that a pod of a node holds; tells whether there was one."""
        with self._busy:
            for pod in self.pods():
                if pod["spec"].get("nodeName") == node and self._works(pod):
                    path = PODS.path(namespace=self._namespace, name=pod["metadata"]["name"], subresource="status")
                    try:
                        self._client.patch(path, {"status": self._lost(node)})
                    except NotFound:
                        return False
                    self._late.add(node)
                    return True
        return False

    def recover(self) -> None:
        """Let the kubelets of late nodes go on."""
        with self._busy:
            self._late.clear()

    def go(self, node: str) -> None:
        """Let a node go; its pods follow."""
        with self._busy:
            self._kernels = {name: kernel for name, kernel in self._kernels.items() if name != node}
            self._late.discard(node)
            self.requests.pop(node, None)
            self._client.delete(NODES.path(name=node))

    def request_rebuild(self, node: str) -> None:
        """Let a node request that its driver is built anew."""
        self.requested += 1
        value = f"node-request-{self.requested}"
        self.requests[node] = value, self._annotate(node, value)

    def forget_requests(self) -> None:
        """Take the requests away."""
        for node in self.requests:
            self._annotate(node, None)
        self.requests.clear()

    def _annotate(self, node: str, value: str | None) -> int:
        metadata = {"annotations": {names.REBUILD_ANNOTATION: value}}
        made = self._client.patch(NODES.path(name=node), {"metadata": metadata})
        return int(made["metadata"]["resourceVersion"])

    # ------------------------------------------------------------ what their kubelets do

    def boot_of(self, node: str) -> str:
        """Return the id of a node's boot."""
        return self._boots[node]

    def has_reported(self, pod: Json) -> bool:
        """Tell whether a pod has reported on the boot that its node is on."""
        found = load_report_of(pod)
        return found is not None and found.boot_id == self._boots[pod["spec"]["nodeName"]]

    def play(self) -> None:
        """Play, while no node changes."""
        with self._busy:
            super().play()

    def play_pod(self, pod: Json, now: str) -> None:
        """Let pods of nodes that are gone go, too; those of late nodes stay as they are."""
        node = pod["spec"].get("nodeName")
        if node and node not in self._kernels:
            self._force_delete(pod)
        elif node not in self._late:
            super().play_pod(pod, now)

    def _report(self, pod: Json) -> Json:
        node = pod["spec"]["nodeName"]
        if pod["metadata"]["annotations"][manifests.KERNEL_ANNOTATION] == self._kernels[node]:
            self.proofs.add((node, self.place(node)))
        return super()._report(pod)

    def _works(self, pod: Json) -> bool:
        found = load_report_of(pod)
        place = f"{found.boot_id} {found.kernel}" if found is not None and found.result == load_report.LOADED else ""
        is_held = all("terminated" not in item["state"] for item in pod["status"].get("containerStatuses") or ())
        return place == self.place(pod["spec"]["nodeName"]) and is_held and "deletionTimestamp" not in pod["metadata"]

    def _lost(self, node: str) -> Json:
        """Make the part of a pod's status that says that its module is gone."""
        verdict = {"result": Reason.NOT_LIVE, "kernel": self._kernels[node], "bootID": self._boots[node]}
        hold = {
            "name": manifests.HOLD_CONTAINER,
            "state": {"terminated": {"exitCode": 1, "message": json.dumps(verdict)}},
            "image": "i",
            "imageID": "i",
            "ready": False,
            "restartCount": 0,
        }
        return {"conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": [hold]}


def load_report_of(pod: Json) -> load_report.LoadReport | None:
    """Read what a pod's loader reported."""
    return _report_in(pod["status"].get("initContainerStatuses"))


def lost_report_of(pod: Json) -> load_report.LoadReport | None:
    """Read what a pod reported of a module that is gone."""
    return _report_in(pod["status"].get("containerStatuses"))


def _report_in(containers: list[Json] | None) -> load_report.LoadReport | None:
    for container in containers or ():
        message = ((container.get("state") or {}).get("terminated") or {}).get("message")
        if message:
            return load_report.parse(message)
    return None


def _annotations(kernel: str, boot: str) -> dict[str, str]:
    return {names.BOOT_ID_ANNOTATION: boot, names.KERNEL_VERSION_ANNOTATION: kernel}
