"""A cluster in memory in which ``deploy/`` is installed and runs: what ``doctor`` finds nothing wrong with."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

from driver_builder.cli.common import own_version
from kube_api import resources
from kube_api.client import Client, Object
from kube_api.errors import Forbidden, NotFound
from kube_api.resources import DRIVER_CONTAINERS, LEASES, NODES, PODS
from tests.support.driver_builder.factories import KERNEL, NAMESPACE, driver_object, node_labels
from tests.support.driver_builder.memory_client import MemoryClient, copied
from tests.support.yaml_files import read_documents

Json = dict[str, Any]

DEPLOY = Path(__file__).parents[3] / "deploy"
_FILES = (
    "namespace.yaml", "crds/drivercontainers.yaml", "crds/nodefeaturerules.yaml", "crds/nodefeatures.yaml",
    "driver-builder/rbac.yaml", "driver-builder/deployment.yaml", "nfd-worker/daemonset.yaml",
)  # fmt: skip
_READY = [{"type": "Ready", "status": "True"}]
_MANIFESTS = [item for file in _FILES for item in read_documents((DEPLOY / file).read_text())]


class InstalledClient(MemoryClient):
    """An API server of Kubernetes 1.31, which also answers access reviews and serves the texts of pods.

    ``refused`` are the permissions that nobody has, as ``verb resource``; ``texts`` are logs and metrics by path;
    ``may_review_others`` is what an administrator may; ``ahead`` is what its clock is ahead of ours, in seconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refused: set[str] = set()
        self.reviewed: list[Object] = []
        self.texts: dict[str, str] = {}
        self.queries: list[Mapping[str, str]] = []
        self.may_review_others = True
        self.version = {"major": "1", "minor": "31", "gitVersion": "v1.31.2"}
        self.ahead = 0.0
        for manifest in _MANIFESTS:
            self.put(manifest)
        self._run()

    def put(self, obj: Json) -> Json:
        """Store an object as it is; returns the stored one."""
        resource, metadata = resources.of(obj), obj["metadata"]
        path = resource.path(namespace=metadata.get("namespace"), name=metadata["name"])
        identity = {"uid": metadata["name"], "resourceVersion": "1"}
        self.objects[path] = copied({**obj, "metadata": identity | metadata})
        return self.objects[path]

    def _run(self) -> None:
        """Let controllers and kubelets have done their part."""
        place = f"/namespaces/{NAMESPACE}"
        self.objects[f"/apis/apps/v1{place}/deployments/driver-builder"]["status"] = {"availableReplicas": 1}
        workers = {"desiredNumberScheduled": 1, "numberReady": 1}
        self.objects[f"/apis/apps/v1{place}/daemonsets/nfd-worker"]["status"] = workers
        for program in ("driver-builder", "nfd-worker"):
            self.put(pod(program))
            metrics = f'{program.replace("-", "_")}_build_info{{version="{own_version()}"}} 1.0\n'
            self.texts[f"{PODS.path(namespace=NAMESPACE, name=f'{program}-x')}:8080/proxy/metrics"] = metrics
        renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": "driver-builder-x", "leaseDurationSeconds": 15, "renewTime": renewed}
        name = {"namespace": NAMESPACE, "name": "driver-builder"}
        self.put({"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": name, "spec": spec})
        node = {"name": "node-a", "labels": node_labels(KERNEL)}
        self.put({"apiVersion": NODES.api_version, "kind": NODES.kind, "metadata": node})

    def add_driver(self, name: str = "edu", **spec_changes: Any) -> Json:
        """Add a DriverContainer."""
        obj = driver_object(name, spec_changes=spec_changes)
        return self.put({**obj, "apiVersion": DRIVER_CONTAINERS.api_version, "kind": DRIVER_CONTAINERS.kind})

    def get_dated(self, path: str) -> tuple[Object, str]:
        """Answer with the version and the time."""
        self._maybe_fail(path)
        now = datetime.fromtimestamp(datetime.now(UTC).timestamp() + self.ahead, UTC)
        return dict(self.version), format_datetime(now, usegmt=True)

    def get_text(self, path: str, *, query: Mapping[str, str] | None = None) -> str:
        """Answer with a text."""
        self._maybe_fail(path)
        self.queries.append(query or {})
        if path not in self.texts:
            raise NotFound(f"GET {path}: 404", status=404)
        return self.texts[path]

    def create(self, path: str, body: Object) -> Object:
        """Answer an access review; store anything else."""
        if "accessreviews" not in path:
            return super().create(path, body)
        if path.endswith("/subjectaccessreviews") and not self.may_review_others:
            raise Forbidden(f"POST {path}: 403 Forbidden", status=403)
        self.reviewed.append(body)
        asked = body["spec"]["resourceAttributes"]
        return {**body, "status": {"allowed": f"{asked['verb']} {asked['resource']}" not in self.refused}}


def pod(program: str, name: str = "", **status: Any) -> Json:
    """Make a pod of one of our programs, which is ready unless its status says otherwise."""
    name = name or f"{program}-x"
    running = {"conditions": _READY, "containerStatuses": [{"name": program, "restartCount": 0, "state": {}}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/name": program, "app.kubernetes.io/part-of": "driverwright"},
        },
        "spec": {
            "nodeName": "node-a",
            "containers": [{"name": program, "ports": [{"name": "http", "containerPort": 8080}]}],
        },
        "status": running | status,
    }


def log_path(program: str) -> str:
    """Return where the log of its pod is."""
    return PODS.path(namespace=NAMESPACE, name=f"{program}-x", subresource="log")


def as_client(client: Client) -> Any:
    """Return what replaces ``Client.from_environment``."""
    return lambda *_words, **_more: client
