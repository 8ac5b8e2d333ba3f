"""The changes of a plan: frozen values that ``execute`` writes under deterministic names, each safe to repeat. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeGuard

from driver_builder.api.build_settings import BuilderKind, ConfigMapKey
from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.model.build import BuildRequest
from driver_builder.model.build_proxy import BuildProxy
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.images import ImageRef
from driver_builder.model.repositories import Repository
from driver_builder.objects.driver_keys import driver_keys
from driver_builder.objects.plugin import PluginSet
from driver_builder.objects.yielding import is_yield_label
from driver_builder.snapshot.node_record import NodeRecord
from driver_builder.snapshot.snapshot import DaemonSet, DriverPod
from driver_builder.targets.desired_target import Exporter
from driver_builder.tasks.kinds import KINDS
from driver_builder.tasks.node_task import NodeTask
from driver_builder.tasks.task_kind import TaskKind
from kube_api.resources import DAEMON_SETS, PODS, Resource

Json = dict[str, Any]

NEEDS_ANOTHER = "its node needs another image or settings"
"""Why a driver is replaced on a node, where nothing else is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartBuild:
    """Build, verify and push one image; ``waiting`` is how many nodes wait for it.

    The builder (None: the controller's default), Secrets, resources, tolerations, proxy and CA are not part of the
    build key.
    ``owner`` is the uid of the DriverContainer.
    """

    namespace: str
    request: BuildRequest
    image: ImageRef
    registry: RegistrySettings
    waiting: int
    builder: BuilderKind | None = None
    build_secrets: tuple[str, ...] = ()
    resources: Json = field(default_factory=dict)
    tolerations: tuple[Json, ...] = ()
    owner: str = ""
    exporters: tuple[Exporter, ...] = ()
    """Images of other drivers whose symbols the build gets."""
    proxy: BuildProxy | None = None
    ca_config_map: ConfigMapKey | None = None

    def __str__(self) -> str:
        nodes = "node waits" if self.waiting == 1 else "nodes wait"
        why = f"{self.waiting} {nodes}" if self.waiting else "prebuild: no node runs it yet"
        return f"build {self.request.driver} for {self.request.target} as {self.image} ({why})"


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelBuild:
    """Drop a queued build or stop a running one: no node needs its image any more."""

    key: str

    def __str__(self) -> str:
        return f"cancel build {self.key}: no node needs it"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoverKernels:
    """Ask a package repository for its kernels, with a builder (None: the controller's default).

    Credentials for its base image are those of ``registry``; proxy and CAs are those of builds.
    """

    repository: Repository
    namespace: str
    registry: RegistrySettings
    builder: BuilderKind | None = None
    proxy: BuildProxy | None = None
    ca_config_map: ConfigMapKey | None = None

    def __str__(self) -> str:
        return f"discover the kernels that {self.repository} offers"


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchNode:
    """What one driver writes on a Node. None removes a label, an annotation or a taint; those of others stay.

    Nothing is written if one of the annotations ``seen``, the Node's lock, is another one by then (None: there was
    none). Taints are written with the version of the Node that has them.
    """

    node: str
    driver: str
    why: str = ""
    labels: Mapping[str, str | None] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    taints: Mapping[str, Json | None] = field(default_factory=dict)
    """By their keys; one that is there stays as it is."""
    seen: Mapping[str, str | None] = field(default_factory=dict)
    takes: bool = False
    """The node gets its driver from another DaemonSet: the DaemonSet controller replaces its pod."""
    noted: bool = False
    """Only the status records it: it waits until that is written, or each reconcile would repeat it."""
    record: str = ""
    """What annotations without a label record, in words."""

    @property
    def lets_in(self) -> bool:
        """Return whether pods of the driver were kept from the node until now."""
        return self.takes and any(map(is_yield_label, self.labels))

    @property
    def moved_to(self) -> str | None:
        """Return the value of the wave label of a node that moves; None where that is removed."""
        return next(value for key, value in self.labels.items() if not is_yield_label(key))

    def __str__(self) -> str:
        if self.seen:
            return f"node {self.node} for {self.driver}: {self.why}"
        why = f" ({self.why})" if self.why else ""
        if self.taints:
            verb = "taint" if any(self.taints.values()) else "untaint"
            return f"{verb} node {self.node}: {', '.join(self.taints)}{why}"
        for key, value in reversed(tuple(self.labels.items())):
            if value is None:
                return f"unlabel node {self.node}: {key}{why}"
            return f"label node {self.node}: {key}={value}{why if self.takes else ''}"
        verb = "forget" if None in self.annotations.values() else "remember"
        return f"{verb} {self.record} on node {self.node}{why}"


Texts = Mapping[str, str | None]
_NONE: Texts = MappingProxyType({})


def patch_node(
    on: NodeRecord, why: str, *, labels: Texts = _NONE, annotations: Texts = _NONE, record: str = ""
) -> PatchNode:
    """Write what a driver has to say on a Node."""
    node, driver = on.node.name, on.driver
    return PatchNode(node=node, driver=driver, why=why, labels=labels, annotations=annotations, record=record)


def move_node(
    *,
    node: str,
    driver: DriverKey,
    value: str | None,
    lets_in: bool = False,
    why: str = NEEDS_ANOTHER,
    noted: bool = False,
) -> PatchNode:
    """Let a node get its driver from the DaemonSet that the wave label names; ``value`` None removes the label.

    Where pods were kept from the node, the label that kept them goes too (``lets_in``).
    """
    keys = driver_keys(driver)
    labels = {keys.wave: value, **({keys.yields: None} if lets_in else {})}
    return PatchNode(node=node, driver=driver, why=why, labels=labels, takes=True, noted=noted)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyObject:
    """Apply an object as in ``manifest``, server-side, for one ``target`` if that is not empty.

    It is the object with this ``uid``, where there is one. Without ``force`` the fields of somebody else are a
    conflict; what is ``created`` is never taken over. ``undo`` is a patch that comes first: an apply would leave what
    it takes away.
    """

    resource: Resource
    namespace: str
    name: str
    manifest: Json
    why: str
    target: str = ""
    uid: str = ""
    force: bool = True
    created: bool = False
    undo: Json = field(default_factory=dict)
    undoes_by_name: bool = False
    """It is a strategic merge patch: items of its lists are found by their names."""

    def __str__(self) -> str:
        return f"{self.why} ({self.resource.kind} {self.namespace}/{self.name})"


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchObject:
    """Change some fields of an object, and leave everything else in it; a younger one of its name is a conflict.

    ``finalizers`` says which of ours are to be there; they are written with the version of the object that has them.
    """

    resource: Resource
    namespace: str
    name: str
    why: str
    body: Json = field(default_factory=dict)
    uid: str = ""
    finalizers: Mapping[str, bool] = field(default_factory=dict)
    target: str = ""
    places: bool = False
    """It says which nodes of its target a DaemonSet is for."""

    def __str__(self) -> str:
        return f"let {self.resource.kind} {self.namespace}/{self.name} {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteObject:
    """Delete an object, if it is still the same. A driver pod whose deletion ``takes`` the driver is created anew."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    why: str
    node: str = ""
    takes: bool = False
    noted: bool = False
    """As in :class:`PatchNode`."""

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}"
        if self.takes:
            return f"replace pod {where} on {self.node}: {self.why}"
        return f"delete {self.resource.kind} {where}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTask:
    """Create the pod of a task on a node, for ``driver``."""

    kind: TaskKind
    driver: DriverKey
    manifest: Json

    @property
    def node(self) -> str:
        """The node that it is bound to."""
        return str(self.manifest["spec"]["nodeName"])

    @property
    def why(self) -> str:
        """What the pod does."""
        return self.kind.does.format(driver=self.driver)

    def __str__(self) -> str:
        pod = self.manifest["metadata"]
        return f"{self.why} node {self.node} (pod {pod['namespace']}/{pod['name']})"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictPod:
    """Evict a pod from a node, at the time ``at``; its PodDisruptionBudget may refuse that.

    Nothing is done if one of the Node's annotations ``seen`` is another one by then.
    """

    namespace: str
    name: str
    uid: str
    node: str
    at: float
    seen: Mapping[str, str] = field(default_factory=dict)
    why: str = "it uses the driver"

    def __str__(self) -> str:
        return f"evict pod {self.namespace}/{self.name} from node {self.node}: {self.why}"


def replace_pod(pod: DriverPod, *, why: str = NEEDS_ANOTHER, noted: bool = False) -> DeleteObject:
    """Delete a driver pod: its DaemonSet creates a new one, which loads again."""
    return DeleteObject(
        resource=PODS,
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        node=pod.node,
        why=why,
        takes=True,
        noted=noted,
    )


def apply_daemon_set(
    *, namespace: str, name: str, driver: str, target: str, manifest: Json, hooks: Iterable[str] = ()
) -> ApplyObject:
    """Apply one target's DaemonSet; ``hooks`` are containers that must lose theirs first.

    An apply leaves an empty hook of one that it takes away, which the API server refuses.
    """
    containers = [{"name": container, "lifecycle": None} for container in hooks]
    return ApplyObject(
        resource=DAEMON_SETS,
        namespace=namespace,
        name=name,
        target=target,
        manifest=manifest,
        undo={"spec": {"template": {"spec": {"containers": containers}}}} if containers else {},
        undoes_by_name=True,
        why=f"roll out {driver} to nodes on {target}",
    )


def delete_daemon_set(item: DaemonSet | PluginSet) -> DeleteObject:
    """Delete the DaemonSet of a target that no longer gets a driver, or of a plugin."""
    why = "no node should run it"
    return DeleteObject(resource=DAEMON_SETS, namespace=item.namespace, name=item.name, uid=item.uid, why=why)


def delete_tasks(tasks: Iterable[NodeTask]) -> tuple[DeleteObject, ...]:
    """Delete the pods of tasks that are not being deleted already: they are done, or nothing waits for them."""
    return tuple(
        DeleteObject(
            resource=PODS,
            namespace=task.namespace,
            name=task.name,
            uid=task.uid,
            node=task.node,
            why=f"its {KINDS[task.kind].called} on node {task.node} is over",
        )
        for task in tasks
        if not task.deleting
    )


Change = (
    PatchNode
    | ApplyObject
    | PatchObject
    | DeleteObject
    | RunTask
    | EvictPod
    | StartBuild
    | CancelBuild
    | DiscoverKernels
)


def batches(
    changes: Iterable[Change], apart: Callable[[Change], object] = lambda _change: None
) -> tuple[tuple[Change, ...], ...]:
    """Put what is written on one Node together, where the first of it was: it is one request, of whichever drivers.

    Only those are together of which ``apart`` says the same.
    """
    found: dict[object, list[Change]] = {}
    for change in changes:
        place = (change.node, apart(change)) if isinstance(change, PatchNode) else id(change)
        found.setdefault(place, []).append(change)
    return tuple(map(tuple, found.values()))


Taking = PatchNode | DeleteObject


def takes_driver(change: Change) -> TypeGuard[Taking]:
    """Return whether a change replaces the driver on its node."""
    return isinstance(change, Taking) and change.takes


def sets_label(change: Change, label: str) -> TypeGuard[PatchNode]:
    """Return whether a change sets or removes a label on its node."""
    return isinstance(change, PatchNode) and label in change.labels
