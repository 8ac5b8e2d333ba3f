"""Nodes that asked for a rebuild of their driver: whose pods are to be replaced for it, and which have been. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from driver_builder.observed.rebuild import Rebuilds
from driver_builder.observed.snapshot import DriverPod
from driver_builder.planning.plan_view import TargetPart


def is_due(pod: DriverPod, rebuilds: Rebuilds, image: str) -> bool:
    """Tell whether a pod is older than what its node asked for: the one of then, or one with another image."""
    uid = rebuilds.pending.get(pod.node)
    return uid is not None and (pod.uid == uid or pod.image != image)


def served(pods: Iterable[DriverPod], rebuilds: Rebuilds, image: str) -> frozenset[str]:
    """Name the nodes that have what they asked for."""
    there = {pod.node: pod for pod in pods if not pod.deleting and pod.node in rebuilds.pending}
    return frozenset(node for node, pod in there.items() if not is_due(pod, rebuilds, image))


def without_served(rebuilds: Rebuilds, parts: Iterable[TargetPart]) -> Rebuilds:
    """Forget the requests that are served."""
    done = frozenset(node for part in parts for node in part.served)
    return replace(rebuilds, pending={node: uid for node, uid in rebuilds.pending.items() if node not in done})
