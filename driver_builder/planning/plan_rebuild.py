"""Nodes that request a rebuild of their driver: whose pods are to be replaced, and which have been. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from driver_builder.observed.rebuild import Rebuilds
from driver_builder.observed.snapshot import DriverPod
from driver_builder.planning.plan_view import TargetPart


def is_due(pod: DriverPod, rebuilds: Rebuilds, image: str) -> bool:
    """Return whether a pod is older than its node's request: the pod of that time, or one with another image."""
    uid = rebuilds.pending.get(pod.node)
    return uid is not None and (pod.uid == uid or pod.image != image)


def served(pods: Iterable[DriverPod], rebuilds: Rebuilds, image: str) -> frozenset[str]:
    """Return the nodes whose requests are served."""
    there = {pod.node: pod for pod in pods if not pod.deleting and pod.node in rebuilds.pending}
    return frozenset(node for node, pod in there.items() if not is_due(pod, rebuilds, image))


def without_served(rebuilds: Rebuilds, parts: Iterable[TargetPart]) -> Rebuilds:
    """Drop the requests that are served."""
    done = frozenset(node for part in parts for node in part.served)
    return replace(rebuilds, pending={node: uid for node, uid in rebuilds.pending.items() if node not in done})
