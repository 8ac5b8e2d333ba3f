"""Takes away what the demo made on a cluster of the user's: what carries its mark, and what its programs made of nodes.

Works from what is in the cluster alone, so that a later process can clean up after a demo that was killed.
"""

from collections.abc import Callable, Mapping
from functools import partial

from demo.cluster import NAMESPACE, Cluster, Json, ScenarioError
from demo.stage import DRIVER, READY_LABEL, WORKER
from driver_builder.objects import loaded
from kube_api import names
from kube_api.errors import NotFound
from kube_api.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DRIVER_CONTAINERS,
    JOBS,
    NAMESPACES,
    NODES,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    Resource,
)  # fmt: skip
from nfd_worker.publish.node_state import NodeState
from nfd_worker.publish.publish_child import unpublish
from testbed.progress import Progress, Step

MARK = {f"{names.GROUP}/made-by": "demo"}

GONE_SECONDS = 600.0

_PROGRAMS = (JOBS, DEPLOYMENTS, DAEMON_SETS)
_RIGHTS = (ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES)
_REST = (CONFIG_MAPS, SECRETS, *_RIGHTS, CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES)
_SELECTOR = ",".join(f"{key}={value}" for key, value in MARK.items())
_WORKER_ANNOTATIONS = {names.BOOT_ID_ANNOTATION, names.KERNEL_VERSION_ANNOTATION}


def is_marked(obj: Json) -> bool:
    """Return whether the demo made an object."""
    return MARK.items() <= (obj["metadata"].get("labels") or {}).items()


def remove(cluster: Cluster, progress: Progress, *, before: Mapping[str, Json] | None = None) -> None:
    """Remove everything, in an order in which each program lives until its traces are gone.

    ``before`` has the nodes' metadata as it was before the demo, by name.
    """
    with progress.step("Remove everything that the demo made") as step:
        _remove_drivers(cluster, step)
        # Asked before anything else goes: the rights go last, so that this is answered in the same way after a crash.
        worker_is_ours = any(role["metadata"]["name"].endswith("nfd-worker") for role in _ours(cluster, CLUSTER_ROLES))
        _delete(cluster, *_PROGRAMS)
        if worker_is_ours:
            _wait_until_none(cluster, "workers", lambda: cluster.pods(WORKER), step)
            _clear_nodes(cluster, before or {})
        _delete(cluster, *_REST)
        for resource in (CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES):
            _wait_until_none(cluster, resource.plural, partial(_ours, cluster, resource), step)


def _remove_drivers(cluster: Cluster, step: Step) -> None:
    _delete(cluster, DRIVER_CONTAINERS)
    try:
        _wait_until_none(cluster, "drivers", partial(_ours, cluster, DRIVER_CONTAINERS), step)
    except ScenarioError:
        # No controller runs that would let them go: what it would have done is done here.
        for driver in _ours(cluster, DRIVER_CONTAINERS):
            cluster.client.patch(_path(DRIVER_CONTAINERS, driver), {"metadata": {"finalizers": None}})
        gone = {"labels": {READY_LABEL: None}, "annotations": {loaded.annotation(f"{NAMESPACE}/{DRIVER}"): None}}
        for node in cluster.client.list(NODES.path(), label_selector=READY_LABEL).items:
            cluster.client.patch(_path(NODES, node), {"metadata": gone})


def _clear_nodes(cluster: Cluster, before: Mapping[str, Json]) -> None:
    """Let nfd-worker own nothing on any node; what it had taken over from others is set back."""
    for node in cluster.client.list(NODES.path()).items:
        path, owned = _path(NODES, node), NodeState.from_dict(node).applied("labels")
        if not owned:
            continue
        unpublish(node["metadata"]["name"], cluster.client)
        left = cluster.client.get(path)["metadata"]
        lost = lost_fields(before.get(node["metadata"]["name"], {}), left, owned)
        if lost:
            cluster.client.patch(path, {"metadata": lost})


def lost_fields(before: Json, left: Json, labels: set[str]) -> dict[str, dict[str, str]]:
    """Pick the labels (of the named keys) and nfd-worker's annotations that a node had before and has no longer."""
    lost = {}
    for field, keys in (("labels", labels), ("annotations", _WORKER_ANNOTATIONS)):
        now = left.get(field) or {}
        gone = {key: text for key, text in (before.get(field) or {}).items() if key in keys and now.get(key) != text}
        if gone:
            lost[field] = gone
    return lost


def _ours(cluster: Cluster, resource: Resource) -> list[Json]:
    try:
        return cluster.client.list(resource.path(), label_selector=_SELECTOR).items
    except NotFound:
        # Without its definition there is no such collection.
        return []


def _delete(cluster: Cluster, *resources: Resource) -> None:
    for resource in resources:
        for obj in _ours(cluster, resource):
            if "deletionTimestamp" not in obj["metadata"]:
                cluster.client.delete(_path(resource, obj))


def _path(resource: Resource, obj: Json) -> str:
    return resource.path(namespace=obj["metadata"].get("namespace"), name=obj["metadata"]["name"])


def _wait_until_none(cluster: Cluster, what: str, left: Callable[[], list[Json]], step: Step) -> None:
    cluster.wait(
        f"{what} of the demo are gone",
        lambda: None if left() else True,
        timeout=GONE_SECONDS,
        seen=lambda: f"{what} left: {', '.join(obj['metadata']['name'] for obj in left())}",
        detail=step.detail,
    )
