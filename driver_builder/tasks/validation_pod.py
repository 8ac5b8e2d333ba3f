"""The pods that run a command on one node: of ``spec.validation``, and of ``spec.stages.pluginValidation``. Pure.

A container gets all device nodes of its node only if it is privileged, because nothing else opens the container's
device cgroup without a device plugin. On the node's network a network driver's interfaces are there, and no CNI plugin
is needed. The pod that validates a plugin requests one of its resource, as any workload does, without privileges. And
without a priority: the kubelet would end pods of others for a critical pod that requests what they have.
"""

import hashlib
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec, ValidationSettings
from driver_builder.api.stage_settings import PluginValidationSettings, StageSettings
from driver_builder.objects.loaded import words
from driver_builder.tasks import task_pod
from driver_builder.tasks.task_kind import Outcome, PodEnd, State, TaskKind

Json = dict[str, Any]

UNPRIVILEGED: Json = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "privileged": False}


def _outcome(pod: PodEnd, *, deadline: str) -> Outcome:
    """Return how the command ended; ``deadline`` is the field that says how long it may take."""
    is_late = pod.reason == "DeadlineExceeded"
    # The first is the kubelet's word for a container that was never started, or is lost; any other reason of a pod says
    # that the kubelet ended it, such as Evicted.
    is_lost = pod.ended.get("reason") == "ContainerStatusUnknown" or bool(pod.reason and not is_late)
    has_run = bool(pod.ended) and not is_lost
    said = pod.trouble or (pod.failure("the command") if has_run else pod.message)
    if is_late:
        said = f"not {'done' if has_run else 'started'} within {deadline}: {said}".rstrip(": ")
    if not pod.has_ended:
        return Outcome(pod.under_way, words(said))
    is_good = has_run and pod.ended.get("exitCode") == 0 and not is_late
    return Outcome(State.SUCCEEDED if is_good else State.FAILED if has_run else State.LOST, words(said))


VALIDATION = TaskKind(
    name="validation", verb="validate", container="validate", longest=44,
    outcome=partial(_outcome, deadline="spec.validation.timeout"),
    does="validate {driver} on", group="validate",
)  # fmt: skip
PLUGIN_VALIDATION = TaskKind(
    name="plugin-validation", word="validation", verb="plgok", container="validate", longest=44,
    outcome=partial(_outcome, deadline="spec.stages.pluginValidation.deadline"),
    does="validate the device plugin of {driver} on", group="validate",
)  # fmt: skip
"""Both are about a digest of what is validated."""


def subject_of(settings: ValidationSettings, *, boot_id: str, fingerprint: str) -> str:
    """Return the digest of what is validated: a command, against what a driver pod has loaded, in a boot."""
    return _digest([boot_id, fingerprint, settings.image, settings.command, settings.privileged])


def plugin_subject_of(settings: StageSettings, *, loaded: str) -> str:
    """Return the digest of what is validated: a command, with a plugin, on what a Node says is ``loaded`` in a boot."""
    plugin, validation = settings.device_plugin, settings.plugin_validation
    parts: list[Any] = [loaded]
    if validation is not None:
        parts += [validation.image, validation.command, validation.resource_name]
    if plugin is not None:
        parts += [plugin.resource, plugin.image, plugin.command, plugin.args, plugin.privileged]
    return _digest(parts)


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def manifest(driver: DriverContainer, spec: DriverSpec, *, node: str, subject: str) -> Json:
    """Build the pod that validates a driver on a node."""
    settings = spec.validation
    context = {"privileged": True} if settings.privileged else UNPRIVILEGED
    command = task_pod.container(
        VALIDATION, image=settings.image, command=settings.command, context=context, resources=_resources({})
    )
    seconds = settings.timeout_seconds
    return task_pod.manifest(
        VALIDATION, driver.key, node=node, label=subject, owner=driver, seconds=seconds, containers=(command,)
    )


def plugin_manifest(
    driver: DriverContainer, settings: PluginValidationSettings, *, node: str, subject: str, resource: str
) -> Json:
    """Build the pod that validates the plugin on a node by one of a resource."""
    kind, amounts = PLUGIN_VALIDATION, _resources({resource: "1"})
    command = task_pod.container(
        kind, image=settings.image, command=settings.command, context=UNPRIVILEGED, resources=amounts
    )
    return task_pod.manifest(
        kind, driver.key, node=node, label=subject, owner=driver, seconds=settings.deadline_seconds,
        is_critical=False, containers=(command,),
    )  # fmt: skip


def _resources(amounts: Mapping[str, str]) -> Json:
    requests = {"cpu": "5m", "memory": "16Mi", **amounts}
    return {"requests": requests, **({"limits": dict(amounts)} if amounts else {})}
