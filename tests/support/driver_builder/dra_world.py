"""A cluster with pods that get devices by ResourceClaims, and the DRA driver that is a driver's plugin.

Its kubelets do as real ones: a pod with a claim ends only while the DRA driver runs on its node, and the slices of one
that is gone are removed half a minute later.
"""

from typing import Any

from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.objects import plugin
from kube_api.client import Object
from kube_api.resources import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, SERVICE_ACCOUNTS
from kube_api.timestamps import timestamp
from tests.support.driver_builder.factories import NAMESPACE, SETTINGS
from tests.support.driver_builder.model_world import World

GPU = "gpu.example.com"
APPS = "apps"
ACCOUNT = f"{NAMESPACE}/dra"
PLUGIN: dict[str, Any] = {
    "devicePlugin": {
        "image": "registry.example.com/dra:1",
        "dra": {"driver": GPU, "serviceAccountName": "dra", "env": [{"name": "A", "value": "b"}]},
    }
}
WIPE_SECONDS = 30.0


class DraWorld(World):
    """Nodes whose DRA driver publishes a slice, and users that have claims; ``served``: whether the API is there."""

    resource = "example.com/none"

    def __init__(self, settings: PlanSettings = SETTINGS, *, served: bool = True) -> None:
        super().__init__(settings)
        if served:
            group = {"metadata": {"uid": "group"}, "versions": [{"version": "v1"}]}
            self.client.objects["/apis/resource.k8s.io"] = group
        self.gone: dict[str, float] = {}
        """Since when the DRA driver is not on a node whose slices are there."""
        self.without_slices: set[str] = set()
        """Nodes on which it publishes none."""
        self.seen: list[tuple[str, str]] = []
        """What has left which node, or was loaded there, in this order."""

    def add_account(self) -> None:
        """Create the account that the DRA driver is to have."""
        self.client.create(SERVICE_ACCOUNTS.path(namespace=NAMESPACE), {"metadata": {"name": "dra"}})

    def use(self, node: str) -> str:
        """Let a pod with a claim run on a node; gives its path."""
        name = f"user-{node}"
        results = [{"request": "gpu", "driver": GPU, "pool": node, "device": "gpu-0"}]
        claim = {"metadata": {"name": name}, "status": {"allocation": {"devices": {"results": results}}}}
        self.client.create(RESOURCE_CLAIMS.path(namespace=APPS), claim)
        pod = {
            "metadata": {"name": name, "ownerReferences": [{"uid": "job", "kind": "Job", "controller": True}]},
            "spec": {"nodeName": node, "resourceClaims": [{"name": "gpu", "resourceClaimName": name}]},
            "status": {"phase": "Running"},
        }
        self.client.create(PODS.path(namespace=APPS), pod)
        return PODS.path(namespace=APPS, name=name)

    def dra_drivers_on(self, node: str) -> list[Object]:
        """Return the pods of the DRA driver on a node that run."""
        return [pod for pod in self.pods_on(node)
                if plugin.STAGE_LABEL in pod["metadata"]["labels"] and pod.get("status")]  # fmt: skip

    def turn(self) -> None:
        """Let kubelets end pods with claims, and the DRA drivers publish."""
        loaded = len(self.loads)
        super().turn()
        self.seen += [(node, "load") for _, node in self.loads[loaded:]]
        for path, pod in list(self.client.objects.items()):
            if f"/namespaces/{APPS}/pods/" in path and "deletionTimestamp" in pod["metadata"]:
                node = pod["spec"]["nodeName"]
                if self.dra_drivers_on(node):
                    del self.client.objects[path]
                    self.seen.append((node, "user"))

    def _plug(self) -> None:
        """Play the DRA drivers, and the kubelets that remove the slices of those that are gone."""
        super()._plug()
        for name in self.kernels:
            path, pods = RESOURCE_SLICES.path(name=f"{name}-{GPU}"), self.dra_drivers_on(name)
            for pod in pods:
                pod["status"].setdefault("startTime", timestamp(self.now))
            if pods:
                self.gone.pop(name, None)
                if path not in self.client.objects and name not in self.without_slices:
                    spec = {"driver": GPU, "nodeName": name, "devices": [{"name": "gpu-0"}]}
                    self.client.create(RESOURCE_SLICES.path(), {"metadata": {"name": f"{name}-{GPU}"}, "spec": spec})
            elif path in self.client.objects:
                if name not in self.gone:
                    self.seen.append((name, "plugin"))
                if self.now >= self.gone.setdefault(name, self.now) + WIPE_SECONDS:
                    del self.client.objects[path]

    def _collect_orphans(self) -> None:
        kept = {path: obj for path, obj in self.client.objects.items() if f"/namespaces/{APPS}/" in path}
        super()._collect_orphans()
        self.client.objects |= kept
