"""Which drivers of devices (DRA) allocated the ResourceClaims of pods on nodes that are drained.

Place in the flow: ``observe`` asks while a node is drained for a driver whose ``drain.draDrivers`` names some, and only
about claims of pods there.
"""

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from driver_builder.cluster import resource_api
from driver_builder.snapshot.node_pods import NodePod, NodePods
from kube_api.client import Reader
from kube_api.errors import Forbidden, NotFound
from kube_api.resources import RESOURCE_CLAIMS

Json = dict[str, Any]


def with_claims(client: Reader, found: Mapping[str, NodePods], nodes: Set[str]) -> Mapping[str, NodePods]:
    """Complete the pods of ``nodes`` by the drivers of their claims; where these cannot be read, say so.

    Raises:
        KubeApiError: the API server does not answer.
    """
    asked = {name: pods for name, pods in found.items() if name in nodes and any(pod.claims for pod in pods.pods)}
    if not asked or (unseen := _unseen(client)) is None:
        return found
    if unseen:
        return {**found, **{name: replace(pods, unseen=unseen) for name, pods in asked.items()}}
    drivers: dict[tuple[str, str], frozenset[str]] = {}
    return {**found, **{name: _completed(client, pods, drivers) for name, pods in asked.items()}}


def _unseen(client: Reader) -> str | None:
    """Return why no claim can be read, empty if they can; None where the API server has none."""
    try:
        versions = resource_api.served_versions(client)
    except Forbidden as error:
        return resource_api.not_read(RESOURCE_CLAIMS.kind, error)
    if not versions:
        return None
    is_served = resource_api.VERSION in versions
    return "" if is_served else f"ResourceClaims are not seen: {resource_api.without_version(versions)}"


def _completed(client: Reader, pods: NodePods, drivers: dict[tuple[str, str], frozenset[str]]) -> NodePods:
    done = []
    try:
        for pod in pods.pods:
            done.append(replace(pod, claim_drivers=_drivers_of(client, pod, drivers)) if pod.claims else pod)
    except Forbidden as error:
        return replace(pods, unseen=resource_api.not_read(RESOURCE_CLAIMS.kind, error))
    return replace(pods, pods=tuple(done))


def _drivers_of(client: Reader, pod: NodePod, known: dict[tuple[str, str], frozenset[str]]) -> frozenset[str]:
    for name in pod.claims:
        if (pod.namespace, name) not in known:
            known[pod.namespace, name] = _allocated(client, pod.namespace, name)
    return frozenset().union(*(known[pod.namespace, name] for name in pod.claims))


def _allocated(client: Reader, namespace: str, name: str) -> frozenset[str]:
    try:
        claim = client.get(RESOURCE_CLAIMS.path(namespace=namespace, name=name))
    except NotFound:
        return frozenset()
    allocation: Json = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return frozenset(str(item.get("driver")) for item in results)
