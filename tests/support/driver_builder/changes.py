"""What the changes of a plan do to Nodes, pods and objects: tests look at that, whatever the changes are called."""

from collections.abc import Iterable
from typing import Any

from driver_builder.api.driver_container import FINALIZER
from driver_builder.nodes.changes import (
    NEEDS_ANOTHER,
    ApplyObject,
    Change,
    DeleteObject,
    PatchNode,
    PatchObject,
    RunTask,
)
from driver_builder.objects import loaded
from kube_api import names
from kube_api.resources import DAEMON_SETS, DRIVER_CONTAINERS, PODS
from tests.support.driver_builder.factories import NAMESPACE

TAINTED: dict[str, Any] = {names.UPGRADING_TAINT: {"key": names.UPGRADING_TAINT, "effect": "NoSchedule"}}
UNTAINTED: dict[str, Any] = {names.UPGRADING_TAINT: None}
"""What becomes of the taint of nodes that are drained."""


def done(changes: Iterable[Change]) -> list[str]:
    """Name what changes do, in order, such as ``label Node``."""
    return list(map(_done, changes))


def _done(change: Change) -> str:
    match change:
        case PatchNode():
            return _written(change)
        case ApplyObject():
            return f"{'create' if change.created else 'apply'} {change.resource.kind}"
        case PatchObject():
            return f"patch {change.resource.kind}"
        case DeleteObject():
            return f"{'replace' if change.takes else 'delete'} {change.resource.kind}"
        case RunTask():
            return f"run {change.kind.name}"
        case _:
            return type(change).__name__


def _written(patch: PatchNode) -> str:
    if patch.takes:
        return "move Node"
    if patch.seen:
        return "hold Node"
    if patch.taints:
        return "taint Node"
    if patch.labels:
        return "label Node"
    return "record loads" if any(key.startswith(loaded.PREFIX) for key in patch.annotations) else "record validation"


def patches(changes: Iterable[Change], *wanted: str) -> list[PatchNode]:
    """Return what is written on Nodes one by one, and of that what is ``wanted``, such as ``hold Node``."""
    every = (change for change in changes if isinstance(change, PatchNode))
    return [change for change in every if not wanted or _written(change) in wanted]


def labels(changes: Iterable[Change]) -> list[tuple[str, str, str | None]]:
    """Return the nodes whose labels are set or removed, with key and value, in order."""
    return [(part.node, *item) for part in patches(changes, "label Node") for item in part.labels.items()]


def label_in(patch: PatchNode) -> tuple[str, str | None]:
    """Return key and value of the only label that is set or removed by a part of a patch."""
    (item,) = patch.labels.items()
    return item


def holds(changes: Iterable[Change]) -> list[PatchNode]:
    """Return what depends on the lock of a node."""
    return patches(changes, "hold Node")


def moved(changes: Iterable[Change]) -> list[PatchNode]:
    """Return the nodes that get their driver from another DaemonSet."""
    return patches(changes, "move Node")


def pods_replaced(changes: Iterable[Change]) -> list[DeleteObject]:
    """Return the driver pods that are deleted for new ones."""
    return [change for change in changes if isinstance(change, DeleteObject) and change.takes]


def applied(changes: Iterable[Change]) -> list[ApplyObject]:
    """Return the DaemonSets that are applied."""
    return [change for change in changes if isinstance(change, ApplyObject) and change.resource is DAEMON_SETS]


def label_node(
    *, node: str, driver: str, label: str, value: str | None, why: str = "", annotations: Any = None
) -> PatchNode:
    """Make what sets or removes a label of a Node, with annotations that belong to it."""
    return PatchNode(node=node, driver=driver, why=why, labels={label: value}, annotations=annotations or {})


def replaced_pod(
    node: str = "node-a", *, namespace: str = NAMESPACE, name: str = "pod", uid: str = "uid", noted: bool = False
) -> DeleteObject:
    """Make the deletion of a driver pod for a new one."""
    return DeleteObject(
        resource=PODS, namespace=namespace, name=name, uid=uid, node=node, why=NEEDS_ANOTHER, takes=True, noted=noted
    )


def finalizer(name: str, *, present: bool) -> PatchObject:
    """Make the change of a driver's finalizer."""
    return PatchObject(
        resource=DRIVER_CONTAINERS, namespace=NAMESPACE, name=name, finalizers={FINALIZER: present}, why="wait or go"
    )
