"""Values for tests: each factory gives a plain good one, a test names only what it is about."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from driver_builder.api import driver_container
from driver_builder.api.driver_container import FINALIZER, DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.model import images
from driver_builder.model.build import BuildRequest, SourceFiles
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.image_state import ImageState, Present
from driver_builder.model.kernels import KernelTarget, KernelVersion
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.objects import manifests
from driver_builder.objects.driver_keys import driver_keys
from driver_builder.objects.load_report import LiveModule, LoadReport
from driver_builder.rollout.plan_rollout import as_written, manifest_of
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import DaemonSet, DriverPod, Snapshot
from driver_builder.targets.desired_target import ImageTarget, PrebuiltTarget, TemplateVersions
from driver_builder.targets.resolve import resolve
from driver_builder.tasks.node_task import NodeTask
from driver_builder.tasks.task_kind import TaskKind
from kube_api import names

Json = dict[str, Any]

NOW = 1_700_000_000.0
NAMESPACE = "driverwright"
KERNEL = "6.1.0-55-cloud-amd64"
OTHER_KERNEL = "6.1.0-47-cloud-amd64"
BOOT_ID = "11111111-2222-3333-4444-555555555555"
IDENTITY = "A1B2C3D4E5F60718293A4B5"
DIGEST = "sha256:" + "d" * 64
IMAGE_LABELS = {images.MODULES_LABEL: f'[{{"name": "edudrv", "identity": "{IDENTITY}", "vermagic": "x"}}]'}
PRESENT = Present(digest=DIGEST, labels=IMAGE_LABELS)
OLD = "v2:0000000000000000"
"""A fingerprint of before the last change of what is on the node."""
SOURCE = SourceFiles(files={"edudrv.c": b"int x;", "Makefile": b"obj-m := edudrv.o"})
SETTINGS = PlanSettings(template_versions=TemplateVersions(versions={"debian": "recipe-1"}))


def target(
    kernel: str = KERNEL, *, os_id: str = "debian", os_version: str = "12", architecture: str = "amd64"
) -> KernelTarget:
    """Make a target."""
    return KernelTarget(
        kernel_version=KernelVersion(kernel), os_id=os_id, os_version=os_version, architecture=architecture
    )


def node_labels(kernel: str | None = KERNEL, *, os_id: str = "debian", os_version: str = "12") -> dict[str, str]:
    """Return the labels that nfd-worker and the kubelet set; without a kernel, those of a node it has not seen yet."""
    labels = {names.ARCHITECTURE_LABEL: "amd64", "pool": "edu"}
    if kernel is not None:
        labels |= {names.KERNEL_VERSION_LABEL: kernel, names.OS_ID_LABEL: os_id}
        labels |= {names.OS_VERSION_LABEL: os_version} if os_version else {}
    return labels


def node(
    name: str = "node-a",
    kernel: str | None = KERNEL,
    *,
    labels: Mapping[str, str] | None = None,
    boot_id: str | None = BOOT_ID,
    rebuild: str | None = None,
    proven_on: str | None = None,
    os_id: str = "debian",
    os_version: str = "12",
) -> Node:
    """Make a node of the pool that the driver selects; ``proven_on`` stands beside its ready label."""
    annotations = {
        names.BOOT_ID_ANNOTATION: boot_id,
        names.REBUILD_ANNOTATION: rebuild,
        names.ready_label(NAMESPACE, "edu"): proven_on,
    }
    return Node(
        name=name,
        labels={**node_labels(kernel, os_id=os_id, os_version=os_version), **(labels or {})},
        annotations={key: value for key, value in annotations.items() if value is not None},
    )


def spec(**changes: Any) -> Json:
    """Make a spec as an admin writes it; a change to None leaves the field out."""
    good: Json = {
        "version": "1.0.0",
        "nodeSelector": {"pool": "edu"},
        "image": "registry.example.com:5000/drivers/edu",
        "source": {"configMap": {"name": "edu-source"}},
        "module": {"names": ["edudrv"]},
    }
    return {field: value for field, value in {**good, **changes}.items() if value is not None}


def driver_object(
    name: str = "edu",
    *,
    namespace: str = NAMESPACE,
    spec_changes: Json | None = None,
    status: Json | None = None,
    annotations: Mapping[str, str] | None = None,
    deleting: bool = False,
    finalizer: bool = True,
) -> Json:
    """Make a DriverContainer object as the API server gives it."""
    metadata: Json = {"namespace": namespace, "name": name, "uid": f"uid-{name}", "generation": 1}
    if annotations:
        metadata["annotations"] = dict(annotations)
    if deleting:
        metadata["deletionTimestamp"] = "2023-11-14T22:13:20Z"
    if finalizer:
        metadata["finalizers"] = [FINALIZER]
    return {
        "apiVersion": "driverwright.io/v1alpha1",
        "kind": "DriverContainer",
        "metadata": metadata,
        "spec": spec(**(spec_changes or {})),
        "status": status or {},
    }


def driver(
    name: str = "edu",
    *,
    spec_changes: Json | None = None,
    status: Json | None = None,
    rebuild: str | None = None,
    paused: bool = False,
    deleting: bool = False,
    finalizer: bool = True,
) -> DriverContainer:
    """Make a DriverContainer that selects the pool ``edu``."""
    annotations = {names.REBUILD_ANNOTATION: rebuild, names.PAUSE_ANNOTATION: "true" if paused else None}
    return driver_container.parse(
        driver_object(
            name,
            spec_changes=spec_changes,
            status=status,
            annotations={key: value for key, value in annotations.items() if value is not None},
            deleting=deleting,
            finalizer=finalizer,
        )
    )


def spec_of(container: DriverContainer) -> DriverSpec:
    """Return the spec of a driver whose spec is good."""
    assert isinstance(container.spec, DriverSpec), container.spec
    return container.spec


def snapshot(*nodes: Node, drivers: tuple[DriverContainer, ...] | None = None, **changes: Any) -> Snapshot:
    """Make a snapshot with the source of every driver in it; no image has been asked for yet."""
    drivers = (driver(),) if drivers is None else drivers
    defaults = {"now": NOW, "sources": {item.key: SOURCE for item in drivers}}
    return Snapshot(nodes=nodes or (node(),), drivers=drivers, **{**defaults, **changes})


def wanted(seen: Snapshot, container: DriverContainer | None = None) -> tuple[ImageTarget, ...]:
    """Return which images a driver wants, in the order of its targets."""
    container = container or seen.drivers[0]
    items = resolve(seen, container, spec_of(container), SETTINGS.template_versions).targets
    return tuple(item for item in items if isinstance(item, ImageTarget))


def with_images(seen: Snapshot, state: ImageState = PRESENT) -> Snapshot:
    """Let the registries give the same answer for every wanted image."""
    everything = [item for container in seen.drivers for item in wanted(seen, container)]
    return replace(seen, images={item.image: with_key(state, item) for item in everything})


def with_key(state: ImageState, item: ImageTarget) -> ImageState:
    """Let an image that is there have the key of its build, unless it says which it has."""
    if not isinstance(state, Present) or isinstance(item, PrebuiltTarget):
        return state
    return replace(state, labels={images.KEY_LABEL: item.request.key, **state.labels})


def fingerprint(seen: Snapshot, kernel: str = KERNEL) -> str:
    """Return the fingerprint of the DaemonSet template that the first driver's target should have."""
    manifest = daemon_set_manifest(seen, kernel)
    return str(manifest["metadata"]["annotations"][manifests.FINGERPRINT_ANNOTATION])


def daemon_set_manifest(seen: Snapshot, kernel: str = KERNEL) -> Json:
    """Return the DaemonSet that the first driver's target should have."""
    container = seen.drivers[0]
    item = next(item for item in wanted(seen) if item.target.kernel_version == kernel)
    return manifest_of(
        container, spec_of(container), item, PRESENT, existing=None, loader_image=SETTINGS.loader_image,
        node_rebuilds={},
    )  # fmt: skip


def daemon_set(seen: Snapshot, kernel: str = KERNEL, *, old: bool = False) -> DaemonSet:
    """Make the first driver's DaemonSet of a kernel as wanted, or as it was before the last change."""
    made = as_written(daemon_set_manifest(seen, kernel), None)
    made = replace(made, uid=f"uid-{made.name}")
    return replace(made, fingerprint=OLD, template="", basis="") if old else made


def loaded(kernel: str = KERNEL, *, boot_id: str = BOOT_ID, identity: str = IDENTITY) -> LoadReport:
    """Make the verdict of a loader that found everything well."""
    module = LiveModule(name="edudrv", identity=identity, devices=("0000:00:04.0",))
    return LoadReport(result="Loaded", kernel=kernel, boot_id=boot_id, modules=(module,))


LOADED = loaded()
GONE = LoadReport(result="NotLive", kernel=KERNEL, boot_id=BOOT_ID, message="module edudrv is not live")
"""A verdict of ``hold``: somebody removed the module."""


def pod(
    seen: Snapshot, node_name: str = "node-a", *, kernel: str = KERNEL, old: bool = False, **changes: Any
) -> DriverPod:
    """Make a working pod of the first driver on a node."""
    good = DriverPod(
        namespace=NAMESPACE,
        name=f"edu-{node_name}",
        uid=f"uid-pod-{node_name}",
        node=node_name,
        driver=seen.drivers[0].key,
        target=target(kernel).short_hash,
        version="0.9.0" if old else "1.0.0",
        fingerprint=OLD if old else fingerprint(seen, kernel),
        ready=True,
        deleting=False,
        proof=loaded(kernel),
        expected={"edudrv": IDENTITY},
        image=f"registry.example.com:5000/drivers/edu@{DIGEST}",
    )
    return replace(good, **changes)


def task(kind: TaskKind, subject: str, *, node: str = "node-a", **changes: Any) -> NodeTask:
    """Make the pod of a task that its kubelet has not seen yet."""
    words = {"namespace": NAMESPACE, "name": f"edu-{kind.verb}", "uid": f"uid-{kind.verb}-{node}"}
    words |= {"driver": DriverKey(f"{NAMESPACE}/edu"), "node": node, "subject": subject}
    return NodeTask(kind=kind.name, **words | changes)


def ready_snapshot(*nodes: Node, **changes: Any) -> Snapshot:
    """Make the end that everything strives for: image, DaemonSet, proven pods and labels on every node."""
    container = changes.pop("driver", driver())
    labelled = tuple(
        replace(
            item,
            labels={**item.labels, driver_keys(container.key).ready: "1.0.0"},
            annotations={
                **item.annotations,
                driver_keys(container.key).ready: f"{BOOT_ID} {item.labels[names.KERNEL_VERSION_LABEL]}",
            },
        )
        for item in nodes or (node(),)
    )
    seen = with_images(snapshot(*labelled, drivers=(container,)))
    kernels = sorted({item.labels[names.KERNEL_VERSION_LABEL] for item in labelled})
    seen = replace(
        seen,
        daemon_sets=tuple(daemon_set(seen, kernel) for kernel in kernels),
        pods=tuple(pod(seen, item.name, kernel=item.labels[names.KERNEL_VERSION_LABEL]) for item in labelled),
    )
    return replace(seen, **changes)


@dataclass(frozen=True, kw_only=True)
class _Keyed(BuildRequest):
    chosen: str

    @cached_property
    def key(self) -> str:
        """The key that the test chose."""
        return self.chosen


def keyed(request: BuildRequest, key: str, **changes: Any) -> BuildRequest:
    """A request of any key, for what looks at nothing but the key."""
    given = {field.name: getattr(request, field.name) for field in fields(BuildRequest)}
    return _Keyed(**{**given, **changes}, chosen=key)
