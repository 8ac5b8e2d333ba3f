"""The actions of a plan: frozen values that ``execute`` performs under deterministic names, each safe to repeat."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from driver_builder.api.build_settings import BuilderKind, ConfigMapKey
from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.model.build import BuildRequest
from driver_builder.model.build_proxy import BuildProxy
from driver_builder.model.images import ImageRef
from driver_builder.model.repositories import Repository
from driver_builder.objects.slots import Place
from driver_builder.targets.desired_target import Exporter
from driver_builder.tasks.kinds import KINDS
from driver_builder.tasks.node_task import NodeTask
from driver_builder.tasks.task_kind import TaskKind

Json = dict[str, Any]


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
class ApplyDaemonSet:
    """Apply one target's DaemonSet as in ``manifest``; ``hooks`` are containers that must lose theirs first."""

    namespace: str
    name: str
    driver: str
    target: str
    manifest: Json
    hooks: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"roll out {self.driver} to nodes on {self.target} (DaemonSet {self.namespace}/{self.name})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyPlugin(ApplyDaemonSet):
    """Apply the DaemonSet of a device plugin; it has no target. ``undo`` first removes what others have added.

    It is the DaemonSet with this ``uid``, or a new one: never takes over what somebody else has made meanwhile.
    """

    undo: Json = field(default_factory=dict)
    uid: str = ""

    def __str__(self) -> str:
        return f"roll out the device plugin of {self.driver} (DaemonSet {self.namespace}/{self.name})"


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeConfigMap:
    """Create the ConfigMap of a device plugin."""

    namespace: str
    name: str
    manifest: Json

    def __str__(self) -> str:
        return f"create ConfigMap {self.namespace}/{self.name} of the device plugin"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteConfigMap:
    """Delete the ConfigMap of a device plugin; one with another content is created anew."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"delete ConfigMap {self.namespace}/{self.name} of the device plugin"


@dataclass(frozen=True, slots=True, kw_only=True)
class WidenDaemonSet:
    """Take the version of the operating system out of a DaemonSet's selector, and leave everything else in it.

    ``os_version`` is the recorded one, which an annotation keeps.
    """

    namespace: str
    name: str
    uid: str
    target: str
    os_version: str

    def __str__(self) -> str:
        return f"let DaemonSet {self.namespace}/{self.name} keep nodes whose operating system is updated"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceDaemonSet:
    """Let a DaemonSet be for the nodes of a ``place`` in a wave, with the selector and tolerations of the spec of now.

    Everything else in it stays, so it goes on with the image of before. ``named`` is the value of the wave label
    ``label`` on moved nodes; None in ``node_selector`` takes a label away. Tolerations that are None stay. ``yields``
    is the label of nodes that the pods keep away from. ``sees_programs`` is None where that stays as it is.
    """

    namespace: str
    name: str
    uid: str
    target: str
    label: str
    named: str = ""
    yields: str
    place: Place = Place.ALL
    node_selector: Mapping[str, str | None] = field(default_factory=dict)
    tolerations: tuple[Json, ...] | None = None
    sees_programs: bool | None = None

    def __str__(self) -> str:
        nodes = {
            Place.ALL: "all nodes of its target",
            Place.MOVED: "the nodes that the wave has moved",
            Place.OTHERS: "the nodes that the wave has not reached",
        }[self.place]
        return f"let DaemonSet {self.namespace}/{self.name} be for {nodes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteDaemonSet:
    """Delete the DaemonSet of a target that no longer gets a driver."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"delete DaemonSet {self.namespace}/{self.name}: no node should run it"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacePod:
    """Delete a pod; its DaemonSet creates a new one, which loads again.

    ``noted`` says that only the driver's status records it: it waits until the status is written, or each reconcile
    would repeat it while the status cannot be written.
    """

    namespace: str
    name: str
    uid: str
    node: str
    why: str = "its node needs another image or settings"
    noted: bool = False

    def __str__(self) -> str:
        return f"replace pod {self.namespace}/{self.name} on {self.node}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveNode:
    """Let a node get its driver from the DaemonSet that the wave label names; ``value`` None removes the label.

    The DaemonSet controller then replaces its pod. ``noted`` is as in :class:`ReplacePod`. Where pods were kept from
    the node, the label ``lets_in`` that kept them goes too.
    """

    node: str
    driver: str
    label: str
    value: str | None
    lets_in: str = ""
    why: str = "its node needs another image or settings"
    noted: bool = False

    def __str__(self) -> str:
        if self.lets_in:
            return f"unlabel node {self.node}: {self.lets_in} ({self.why})"
        if self.value is None:
            return f"unlabel node {self.node}: {self.label} ({self.why})"
        return f"label node {self.node}: {self.label}={self.value} ({self.why})"


TakeNode = ReplacePod | MoveNode
"""What replaces the driver on a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelNode:
    """Set a label of ours on a node, for ``driver``, or remove it (``version`` None).

    ``annotations`` are written by the same patch; None removes one.
    """

    node: str
    driver: str
    label: str
    version: str | None
    why: str
    annotations: Mapping[str, str | None] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.version is None:
            return f"unlabel node {self.node}: {self.label} ({self.why})"
        return f"label node {self.node}: {self.label}={self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberLoaded:
    """Record on a Node what is loaded there of a driver, or remove the record (``value`` None)."""

    node: str
    driver: str
    annotation: str
    value: str | None
    why: str

    def __str__(self) -> str:
        verb = "forget" if self.value is None else "remember"
        return f"{verb} what {self.driver} has loaded on node {self.node} ({self.why})"


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberValidated(RememberLoaded):
    """Record on a Node how the command of the validation ended there, or remove the record."""

    def __str__(self) -> str:
        verb = "forget" if self.value is None else "remember"
        return f"{verb} how the validation of {self.driver} ended on node {self.node} ({self.why})"


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldNode:
    """Take, renew or release the lock of a Node, with what else changes there, in one patch.

    Nothing is written if the lock is not ``seen`` any more (None: there was none). ``annotations`` and ``labels`` are
    set, None removes one; ``taint`` says whether our taint is to be there, None leaves it.
    """

    node: str
    driver: str
    seen: str | None
    annotations: Mapping[str, str | None]
    labels: Mapping[str, str | None] = field(default_factory=dict)
    taint: bool | None = None
    why: str

    def __str__(self) -> str:
        return f"node {self.node} for {self.driver}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintNode:
    """Let a Node have the taint ``key``, or not have it, and record in an annotation for which boot that was.

    A taint that is already as wanted stays. ``boot_id`` None removes the record.
    """

    node: str
    driver: str
    key: str
    is_wanted: bool
    annotation: str
    boot_id: str | None
    why: str

    def __str__(self) -> str:
        return f"{'taint' if self.is_wanted else 'untaint'} node {self.node}: {self.key} ({self.why})"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPod:
    """Create a pod that does one thing on a node, for ``driver``."""

    kind: TaskKind
    driver: str
    manifest: Json

    @property
    def node(self) -> str:
        """The node that it is bound to."""
        return str(self.manifest["spec"]["nodeName"])

    def __str__(self) -> str:
        pod = self.manifest["metadata"]
        task = self.kind.does.format(driver=self.driver)
        return f"{task} node {self.node} (pod {pod['namespace']}/{pod['name']})"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePod:
    """Delete such a pod: it is done, or nothing waits for it any more."""

    kind: TaskKind
    namespace: str
    name: str
    uid: str
    node: str

    def __str__(self) -> str:
        return f"delete {self.kind.called} pod {self.namespace}/{self.name} of node {self.node}"


def start_task(kind: TaskKind, driver: str, manifest: Json) -> StartPod:
    """Make the action that starts a task for a driver, given by its key."""
    return StartPod(kind=kind, driver=driver, manifest=manifest)


def delete_tasks(tasks: Iterable[NodeTask]) -> tuple[DeletePod, ...]:
    """Delete the pods of tasks that nothing waits for, those that are not being deleted already."""
    return tuple(
        DeletePod(kind=KINDS[task.kind], namespace=task.namespace, name=task.name, uid=task.uid, node=task.node)
        for task in tasks
        if not task.deleting
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFinalizer:
    """Add or remove our finalizer, so that node labels are removed before the object is."""

    namespace: str
    name: str
    present: bool

    def __str__(self) -> str:
        return f"{'add finalizer to' if self.present else 'release'} DriverContainer {self.namespace}/{self.name}"


Action = (
    StartBuild
    | CancelBuild
    | DiscoverKernels
    | ApplyDaemonSet
    | WidenDaemonSet
    | PlaceDaemonSet
    | DeleteDaemonSet
    | ReplacePod
    | MoveNode
    | LabelNode
    | RememberLoaded
    | HoldNode
    | TaintNode
    | StartPod
    | DeletePod
    | EvictPod
    | MakeConfigMap
    | DeleteConfigMap
    | SetFinalizer
)
