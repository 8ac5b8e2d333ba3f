"""The pods of nodes that are drained, whoever made them: listed by the node's name, only while it is drained."""

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

from driver_builder.base.boundary import contained
from driver_builder.cluster.read_metadata import controller_of, place
from driver_builder.rollout.draining import draining_of
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.node_pods import NodePod, NodePods
from kube_api.client import Collections
from kube_api.errors import Forbidden
from kube_api.resources import DAEMON_SETS, PODS
from kube_api.text import printable

Json = dict[str, Any]

_MIRROR = "kubernetes.io/config.mirror"
_CRITICAL = ("system-cluster-critical", "system-node-critical")


def drained(nodes: Iterable[Node], drivers: Iterable[str]) -> tuple[str, ...]:
    """Name the nodes that are drained now for one of these drivers."""
    known = frozenset(drivers)
    records = ((node.name, draining_of(node)) for node in nodes)
    return tuple(
        name
        for name, record in records
        if record is not None and record.driver in known and not (record.is_drained or record.failed)
    )


def read_node_pods(
    client: Collections, nodes: Iterable[str], ours: Set[tuple[str, str]] = frozenset()
) -> Mapping[str, NodePods]:
    """List the pods of each node; where that is not allowed, say so.

    ``ours`` are the namespaces and uids of the DaemonSets and DriverContainers that are known.

    Raises:
        KubeApiError: they cannot be listed for another reason.
    """
    found: dict[str, NodePods] = {}
    for node in nodes:
        try:
            pods = [
                read_node_pod(obj, ours)
                for obj in client.list(PODS.path(), field_selector=f"spec.nodeName={node}").items
            ]
        except Forbidden as error:
            found[node] = NodePods(unread=printable(str(error)))
            continue
        found[node] = NodePods(pods=tuple(pods))
    return found


def read_node_pod(obj: Json, ours: Set[tuple[str, str]] = frozenset()) -> NodePod:
    """Read a pod; one that is beyond us is there all the same, and uses no driver."""
    metadata = obj["metadata"]
    name = NodePod(namespace=metadata.get("namespace", ""), name=metadata["name"], uid=metadata.get("uid", ""))
    return contained("pod", place(obj), lambda: _read(obj, ours), lambda _error: name)


def _read(obj: Json, ours: Set[tuple[str, str]]) -> NodePod:
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    owner, is_mirror = controller_of(obj), _MIRROR in (metadata.get("annotations") or {})
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    resources = [item.get("resources") or {} for item in containers]
    return NodePod(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        labels={str(key): str(value) for key, value in (metadata.get("labels") or {}).items()},
        # A limit alone is a request as well.
        resources=frozenset(
            name
            for item in resources
            for part in ("requests", "limits")
            for name, amount in (item.get(part) or {}).items()
            if "/" in name and str(amount) != "0"
        ),
        claims=frozenset(_claims(spec, obj.get("status") or {})),
        node_selector=frozenset(spec.get("nodeSelector") or ()),
        is_ours=(metadata.get("namespace", ""), owner.get("uid")) in ours,
        is_daemon=(is_daemon := owner.get("kind") == DAEMON_SETS.kind),
        daemon_set=str(owner.get("name") or "") if is_daemon else "",
        is_mirror=is_mirror,
        is_bare=not owner and not is_mirror,
        has_local_data=any(map(_is_local, spec.get("volumes") or ())),
        is_critical=spec.get("priorityClassName") in _CRITICAL,
        has_ended=(obj.get("status") or {}).get("phase") in ("Succeeded", "Failed"),
        deleting="deletionTimestamp" in metadata,
    )


def _claims(spec: Json, status: Json) -> Iterator[str]:
    """Name the ResourceClaims of a pod: those of a template, and of an extended resource, are in its status alone."""
    made = {item["name"]: item.get("resourceClaimName") for item in status.get("resourceClaimStatuses") or ()}
    for item in spec.get("resourceClaims") or ():
        if name := item.get("resourceClaimName") or made.get(item["name"]):
            yield name
    if name := (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName"):
        yield name


def _is_local(volume: Json) -> bool:
    """Return whether a volume is an emptyDir on the node's disk; one in memory is gone with every restart anyway."""
    return "emptyDir" in volume and (volume["emptyDir"] or {}).get("medium") != "Memory"
