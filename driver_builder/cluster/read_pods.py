"""What a pod of the API server says, as a value of the snapshot: a driver pod, a plugin's, a task. Pure.

What others wrote is capped and made printable here.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from driver_builder.base.boundary import contained
from driver_builder.cluster.read_metadata import (
    Json,
    controller_of,
    driver_of,
    expected_modules,
    needed_modules,
    place,
    shared,
)
from driver_builder.model.userspace import FIRMWARE_FOLDER, NVIDIA_FOLDER
from driver_builder.objects import gpu_profiles, load_report, manifests, plugin, slots, vendor_pod
from driver_builder.objects.plugin import PluginPod
from driver_builder.objects.pod_status import container_of, time_of, trouble_of
from driver_builder.snapshot.snapshot import DriverPod
from driver_builder.tasks import node_task, proof_pod
from driver_builder.tasks.kinds import KINDS
from driver_builder.tasks.node_task import NodeTask
from driver_builder.tasks.proof_pod import Program
from driver_builder.tasks.task_kind import TaskKind
from kube_api.resources import DAEMON_SETS
from kube_api.text import printable


@dataclass(frozen=True, slots=True)
class OwnedPod:
    """A pod with our label, and the uid of what controls it: a label alone makes none ours."""

    owner: str
    pod: DriverPod | PluginPod | NodeTask


def read_owned_pod(obj: Json) -> OwnedPod | None:
    """Read a pod that a DaemonSet or a DriverContainer controls; one that cannot be read is left out."""
    owner = controller_of(obj)
    if not owner:
        return None
    labels = obj["metadata"]["labels"]
    read: Callable[[Json], DriverPod | PluginPod | NodeTask] | None
    if owner.get("kind") == DAEMON_SETS.kind:
        read = read_plugin_pod if plugin.STAGE_LABEL in labels else read_pod
    else:
        kind = next((kind for kind in KINDS.values() if kind.label in labels), None)
        read = partial(read_task, kind=kind) if kind is not None else None
    pod = None if read is None else contained("pod", place(obj), partial(read, obj), lambda _error: None)
    return None if pod is None else OwnedPod(shared(str(owner.get("uid") or "")), pod)


def _common(obj: Json) -> Json:
    """Read the fields that all pods of ours have."""
    metadata = obj["metadata"]
    return {
        "namespace": shared(metadata["namespace"]),
        "name": metadata["name"],
        "uid": metadata["uid"],
        "driver": driver_of(metadata),
        "node": shared(obj["spec"].get("nodeName", "")),
        "deleting": "deletionTimestamp" in metadata,
    }


def read_task(obj: Json, kind: TaskKind) -> NodeTask:
    """Read the pod of a task."""
    task = node_task.read(obj, kind, **_common(obj))
    return replace(task, subject=shared(task.subject))


def read_plugin_pod(obj: Json) -> PluginPod:
    """Read a pod of a device plugin."""
    status = obj.get("status") or {}
    ready = _ready_condition(status)
    is_ready = ready.get("status") == "True"
    return PluginPod(
        **_common(obj),
        owner=shared(str(controller_of(obj).get("uid") or "")),
        ready_since=(time_of(ready.get("lastTransitionTime")) or 0.0) if is_ready else None,
        has_token=gpu_profiles.is_answering(obj["spec"]),
        started_at=time_of(status.get("startTime")),
        message=shared(printable(trouble_of(status))),
    )


def _pod(obj: Json) -> DriverPod:
    metadata, status = obj["metadata"], obj.get("status") or {}
    annotations = metadata.get("annotations") or {}
    ended = _ended(container_of(status.get("initContainerStatuses"), _loading(obj).get("name", "")))
    hold = container_of(status.get("containerStatuses"), manifests.HOLD_CONTAINER)
    ready = _ready_condition(status)
    is_ready = ready.get("status") == "True"
    target, slot = slots.parse_name(metadata["labels"].get(manifests.TARGET_LABEL, ""))
    is_refuted = is_ready or _was_ready_since(hold, ready)
    return DriverPod(
        **_common(obj),
        target=shared(target),
        slot=slot,
        version=shared(annotations.get(manifests.VERSION_ANNOTATION, "")),
        fingerprint=shared(annotations.get(manifests.FINGERPRINT_ANNOTATION, "")),
        ready=is_ready,
        proof=load_report.parse(ended.get("message") or ""),
        expected=expected_modules(annotations),
        needed=needed_modules(annotations),
        message=shared(printable(trouble_of(status))),
        leaves_modules=any(item["name"] == manifests.LOADER_CONTAINER for item in _init_containers(obj)),
        firmware=_mounts(obj, "/host/lib/firmware"),
        var_firmware=_mounts(obj, f"/host{FIRMWARE_FOLDER}"),
        blacklist=_mounts(obj, "/host/etc/modprobe.d"),
        nvidia=_mounts(obj, f"/host{NVIDIA_FOLDER}"),
        image=shared(_image(obj)),
        contrary=None if is_refuted else _contrary(load_ended=ended, hold_ended=_ended(hold)),
        unready_since=None if is_ready else time_of(ready.get("lastTransitionTime")),
        device_nodes=_device_nodes(obj),
        program=_program(obj, hold, is_refuted=is_refuted),
        asked=shared(vendor_pod.asked_of(obj["spec"])),
    )


def read_pod(obj: Json) -> DriverPod:
    """Read a pod; one whose status is beyond us is there all the same, and proves nothing."""
    return contained(
        "pod",
        place(obj),
        lambda: _pod(obj),
        lambda error: replace(_pod({**obj, "status": {}}), message=str(error)),
    )


def _init_containers(obj: Json) -> list[Json]:
    return obj["spec"].get("initContainers") or []


def _program(obj: Json, hold: Json, *, is_refuted: bool) -> Program | None:
    """Return the image's own program of a pod, None if our loader loads its modules."""
    if not manifests.has_program(obj["spec"]):
        return None
    status = obj.get("status") or {}
    container = container_of(status.get("containerStatuses"), vendor_pod.PROGRAM_CONTAINER)
    known = {item["name"]: item.get("value") or "" for item in _loading(obj).get("env") or ()}
    held = None if is_refuted else _ended(hold)
    return Program(
        environment=tuple((name, shared(known[name])) for name in proof_pod.VARIABLES if known.get(name)),
        started_at=time_of(((container.get("state") or {}).get("running") or {}).get("startedAt")),
        has_ended=bool(_ended(container)),
        held=load_report.parse(held.get("message") or "") if held else None,
        held_at=time_of(held.get("finishedAt")) if held else None,
    )


def _loading(obj: Json) -> Json:
    """Return the container that loads a pod's modules, or makes room for the program that does."""
    wanted = (manifests.LOAD_CONTAINER, vendor_pod.PREPARE_CONTAINER)
    return next((item for item in _init_containers(obj) if item["name"] in wanted), {})


def _device_nodes(obj: Json) -> tuple[str, ...]:
    """Return the device nodes that the loader of a pod checks."""
    found = (item.get("value") for item in _loading(obj).get("env") or () if item["name"] == manifests.DEVICE_NODES)
    return tuple(shared(word) for word in (next(found, None) or "").split())


def _mounts(obj: Json, path: str) -> bool:
    return any(mount["mountPath"] == path for item in _init_containers(obj) for mount in item.get("volumeMounts") or ())


def _ready_condition(status: Json) -> Json:
    return next((item for item in status.get("conditions") or () if item["type"] == "Ready"), {})


def _ended(container: Json) -> Json:
    """Give the last end of a container, empty where it never ended."""
    return (
        (container.get("state") or {}).get("terminated") or (container.get("lastState") or {}).get("terminated") or {}
    )


def _was_ready_since(hold: Json, ready: Json) -> bool:
    """Return whether a pod that is not ready was so after ``hold`` last started: that refutes any verdict of before.

    The last end of a container stays in the status for as long as the pod lives.
    """
    started_at = time_of(((hold.get("state") or {}).get("running") or {}).get("startedAt"))
    unready_at = time_of(ready.get("lastTransitionTime"))
    return started_at is not None and unready_at is not None and started_at < unready_at


def _contrary(*, load_ended: Json, hold_ended: Json) -> load_report.LoadReport | None:
    """Give a verdict of ``hold`` on the boot of ``load``'s verdict, and newer than that."""
    loaded, held = time_of(load_ended.get("finishedAt")), time_of(hold_ended.get("finishedAt"))
    if loaded is not None and held is not None and held < loaded:
        return None
    proven, verdict = (
        load_report.parse(load_ended.get("message") or ""),
        load_report.parse(hold_ended.get("message") or ""),
    )
    if proven is None or verdict is None or verdict.boot_id != proven.boot_id:
        return None
    return verdict if verdict.result in load_report.CONTRARY else None


def _image(obj: Json) -> str:
    containers = obj["spec"].get("containers") or ()
    return next((item.get("image", "") for item in containers if item.get("name") == manifests.HOLD_CONTAINER), "")
