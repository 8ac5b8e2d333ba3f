"""What a pod of the API server says, as a value of the snapshot: a driver, an unload, a validation pod. Pure.

What others wrote is capped and made printable here.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

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
from driver_builder.objects import gpu_profiles, load_report, loaded, manifests, plugin, slots, validated, vendor_pod
from driver_builder.objects.plugin import PluginPod
from driver_builder.snapshot.snapshot import DriverPod
from driver_builder.tasks import plugin_validation_pod, proof_pod, pull_pod, unload_pod, validation_pod
from driver_builder.tasks.bound_pod import BoundPod
from driver_builder.tasks.proof_pod import Program, ProofPod
from driver_builder.tasks.pull_pod import PullPod
from driver_builder.tasks.unload_pod import UnloadPod
from driver_builder.tasks.validation_pod import ValidationPod
from kube_api.resources import DAEMON_SETS
from kube_api.text import printable
from kube_api.timestamps import parse_timestamp


@dataclass(frozen=True, slots=True)
class OwnedPod:
    """A pod with our label, and the uid of what controls it: a label alone makes none ours."""

    owner: str
    pod: DriverPod | PluginPod | BoundPod


def read_owned_pod(obj: Json) -> OwnedPod | None:
    """Read a pod that a DaemonSet or a DriverContainer controls; one that cannot be read is left out."""
    owner = controller_of(obj)
    if not owner:
        return None
    labels = obj["metadata"]["labels"]
    read: Callable[[Json], DriverPod | PluginPod | BoundPod] | None
    if owner.get("kind") == DAEMON_SETS.kind:
        read = read_plugin_pod if plugin.STAGE_LABEL in labels else read_pod
    else:
        read = next((reader for label, reader in _READERS.items() if label in labels), None)
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


def _created_at(obj: Json) -> float:
    return _time(obj["metadata"].get("creationTimestamp")) or 0.0


def _end(obj: Json, container: str) -> tuple[Json, float | None]:
    """Return how the container of a pod ended, empty where that is not known, and when the pod did."""
    status = obj.get("status") or {}
    ended = (_container_status(status.get("containerStatuses"), container).get("state") or {}).get("terminated") or {}
    has_ended = bool(ended) or status.get("phase") in ("Succeeded", "Failed")
    return ended, (_time(ended.get("finishedAt")) or _created_at(obj)) if has_ended else None


def read_pull_pod(obj: Json) -> PullPod:
    """Read a pull pod: its container has a state with an image's id only after the image was pulled."""
    spec, status = obj["spec"], obj.get("status") or {}
    container = _container_status(status.get("containerStatuses"), pull_pod.CONTAINER)
    state = container.get("state") or {}
    has_run = not {"running", "terminated"}.isdisjoint(state)
    image = next((item.get("image", "") for item in spec["containers"] if item["name"] == pull_pod.CONTAINER), "")
    is_proven = has_run and bool(container.get("imageID"))
    return PullPod(
        **_common(obj),
        image=shared(image),
        is_proven=is_proven,
        has_ended=status.get("phase") in ("Succeeded", "Failed"),
        message="" if is_proven else printable(_trouble(status) or str(status.get("message") or "")),
        created_at=_created_at(obj),
        ran_at=_time((state.get("terminated") or {}).get("finishedAt")),
    )


def read_plugin_pod(obj: Json) -> PluginPod:
    """Read a pod of a device plugin."""
    status = obj.get("status") or {}
    ready = _ready_condition(status)
    is_ready = ready.get("status") == "True"
    return PluginPod(
        **_common(obj),
        owner=shared(str(controller_of(obj).get("uid") or "")),
        ready_since=(_time(ready.get("lastTransitionTime")) or 0.0) if is_ready else None,
        has_token=gpu_profiles.is_answering(obj["spec"]),
        started_at=_time(status.get("startTime")),
        message=shared(printable(_trouble(status))),
    )


def read_plugin_validation_pod(obj: Json) -> ValidationPod:
    """Read a pod that validates a device plugin."""
    label, deadline = plugin_validation_pod.PLUGIN_VALIDATION_LABEL, "spec.stages.pluginValidation.deadline"
    return replace(read_validation_pod(obj, label=label, deadline=deadline), of_plugin=True)


def read_unload_pod(obj: Json) -> UnloadPod:
    """Read an unload pod."""
    status = obj.get("status") or {}
    ended, ended_at = _end(obj, unload_pod.CONTAINER)
    return UnloadPod(
        **_common(obj),
        target=obj["metadata"]["labels"][unload_pod.UNLOAD_LABEL],
        created_at=_created_at(obj),
        ended_at=ended_at,
        started="startTime" in status,
        verdict=unload_pod.parse_verdict(ended.get("message") or ""),
        message=loaded.words(_trouble(status) or _end_of(ended) or str(status.get("message") or "")),
    )


def read_proof_pod(obj: Json) -> ProofPod:
    """Read a proof pod: its container ended with a load report, or the pod ended in some way."""
    status = obj.get("status") or {}
    ended, ended_at = _end(obj, proof_pod.CONTAINER)
    said = _trouble(status) or _end_of(ended, "the loader") or str(status.get("message") or status.get("reason") or "")
    report = load_report.parse(ended.get("message") or "")
    return ProofPod(
        **_common(obj),
        of_pod=obj["metadata"]["labels"][proof_pod.PROOF_LABEL],
        created_at=_created_at(obj),
        ended_at=ended_at,
        report=report,
        message="" if report is not None else printable(said),
    )


def read_validation_pod(
    obj: Json, *, label: str = validation_pod.VALIDATION_LABEL, deadline: str = "spec.validation.timeout"
) -> ValidationPod:
    """Read a validation pod: its container succeeded, or the pod failed in some way.

    ``label`` has its subject, ``deadline`` is the field that says how long it may take.
    """
    status = obj.get("status") or {}
    ended, ended_at = _end(obj, validation_pod.CONTAINER)
    is_late = status.get("reason") == "DeadlineExceeded"
    # The first is the kubelet's word for a container that was never started, or is lost; any other reason of a pod says
    # that the kubelet ended it, such as Evicted.
    is_lost = ended.get("reason") == "ContainerStatusUnknown" or bool(status.get("reason") and not is_late)
    has_run = bool(ended) and not is_lost
    said = _trouble(status) or (_end_of(ended, "the command") if has_run else str(status.get("message") or ""))
    if is_late:
        said = f"not {'done' if has_run else 'started'} within {deadline}: {said}".rstrip(": ")
    return ValidationPod(
        **_common(obj),
        subject=shared(obj["metadata"]["labels"][label]),
        ended_at=ended_at,
        has_run=has_run,
        succeeded=has_run and ended.get("exitCode") == 0 and not is_late,
        message=validated.words(said),
    )


_READERS: Mapping[str, Callable[[Json], BoundPod]] = {
    unload_pod.UNLOAD_LABEL: read_unload_pod,
    validation_pod.VALIDATION_LABEL: read_validation_pod,
    plugin_validation_pod.PLUGIN_VALIDATION_LABEL: read_plugin_validation_pod,
    proof_pod.PROOF_LABEL: read_proof_pod,
    pull_pod.PULL_LABEL: read_pull_pod,
}


def _end_of(ended: Json, who: str = "the unload pod") -> str:
    """Return how a container ended that says nothing itself."""
    code, message = ended.get("exitCode") or 0, str(ended.get("message") or "").strip()
    return f"{who} failed ({code}): {message}".removesuffix(": ") if code else ""


def _pod(obj: Json) -> DriverPod:
    metadata, status = obj["metadata"], obj.get("status") or {}
    annotations = metadata.get("annotations") or {}
    ended = _ended(_container_status(status.get("initContainerStatuses"), _loading(obj).get("name", "")))
    hold = _container_status(status.get("containerStatuses"), manifests.HOLD_CONTAINER)
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
        message=shared(printable(_trouble(status))),
        leaves_modules=any(item["name"] == manifests.LOADER_CONTAINER for item in _init_containers(obj)),
        firmware=_mounts(obj, "/host/lib/firmware"),
        var_firmware=_mounts(obj, f"/host{FIRMWARE_FOLDER}"),
        blacklist=_mounts(obj, "/host/etc/modprobe.d"),
        nvidia=_mounts(obj, f"/host{NVIDIA_FOLDER}"),
        image=shared(_image(obj)),
        contrary=None if is_refuted else _contrary(load_ended=ended, hold_ended=_ended(hold)),
        unready_since=None if is_ready else _time(ready.get("lastTransitionTime")),
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
    container = _container_status(status.get("containerStatuses"), vendor_pod.PROGRAM_CONTAINER)
    known = {item["name"]: item.get("value") or "" for item in _loading(obj).get("env") or ()}
    held = None if is_refuted else _ended(hold)
    return Program(
        environment=tuple((name, shared(known[name])) for name in proof_pod.VARIABLES if known.get(name)),
        started_at=_time(((container.get("state") or {}).get("running") or {}).get("startedAt")),
        has_ended=bool(_ended(container)),
        held=load_report.parse(held.get("message") or "") if held else None,
        held_at=_time(held.get("finishedAt")) if held else None,
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
    started_at = _time(((hold.get("state") or {}).get("running") or {}).get("startedAt"))
    unready_at = _time(ready.get("lastTransitionTime"))
    return started_at is not None and unready_at is not None and started_at < unready_at


def _contrary(*, load_ended: Json, hold_ended: Json) -> load_report.LoadReport | None:
    """Give a verdict of ``hold`` on the boot of ``load``'s verdict, and newer than that."""
    loaded, held = _time(load_ended.get("finishedAt")), _time(hold_ended.get("finishedAt"))
    if loaded is not None and held is not None and held < loaded:
        return None
    proven, verdict = (
        load_report.parse(load_ended.get("message") or ""),
        load_report.parse(hold_ended.get("message") or ""),
    )
    if proven is None or verdict is None or verdict.boot_id != proven.boot_id:
        return None
    return verdict if verdict.result in load_report.CONTRARY else None


def _time(text: Any) -> float | None:
    try:
        return parse_timestamp(text)
    except (ValueError, TypeError):
        return None


def _image(obj: Json) -> str:
    containers = obj["spec"].get("containers") or ()
    return next((item.get("image", "") for item in containers if item.get("name") == manifests.HOLD_CONTAINER), "")


def _container_status(statuses: Iterable[Json] | None, name: str) -> Json:
    return next((status for status in statuses or () if status["name"] == name), {})


def _trouble(status: Json) -> str:
    """The kubelet's own words for why a pod's container does not run (a pull that fails, a crash), or nothing."""
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] not in ("PodInitializing", "ContainerCreating"):
            return f"{waiting['reason']}: {waiting.get('message', '')}".strip(": ")
    return ""
