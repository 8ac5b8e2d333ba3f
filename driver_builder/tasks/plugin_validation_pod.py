"""The pod that validates a device plugin on one node: it requests one of the resource, as any workload does. Pure.

It is bound to the node, as a validation pod is, without privileges. And without a priority: the kubelet would end pods
of others for a critical pod that requests what they have.
"""

import hashlib
import json
from typing import Any

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.stage_settings import PluginValidationSettings, StageSettings
from driver_builder.model.driver_key import DriverKey
from driver_builder.tasks import bound_pod, validation_pod
from kube_api import names

Json = dict[str, Any]

PLUGIN_VALIDATION_LABEL = f"{names.GROUP}/plugin-validation"
"""On such a pod, and on no other: the subject that it validates."""

_MAX_NAME = 44


def subject_of(settings: StageSettings, *, loaded: str) -> str:
    """Return the digest of what is validated: a command, with a plugin, on what a Node says is ``loaded`` in a boot."""
    plugin, validation = settings.device_plugin, settings.plugin_validation
    parts: list[Any] = [loaded]
    if validation is not None:
        parts += [validation.image, validation.command, validation.resource_name]
    if plugin is not None:
        parts += [plugin.resource, plugin.image, plugin.command, plugin.args, plugin.privileged]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def name_of(driver: DriverKey, node: str) -> str:
    """Return the name of the pod of a driver (``namespace/name``) and a node: always the same."""
    return bound_pod.name_of(driver, "plgok", node, longest=_MAX_NAME)


def manifest(
    driver: DriverContainer, validation: PluginValidationSettings, *, node: str, subject: str, resource: str
) -> Json:
    """Build the pod that validates the plugin on a node by one of a resource."""
    made = validation_pod.once(
        driver,
        name=name_of(driver.key, node),
        node=node,
        labels={PLUGIN_VALIDATION_LABEL: subject},
        image=validation.image,
        command=validation.command,
        seconds=validation.deadline_seconds,
        context=validation_pod.UNPRIVILEGED,
        amounts={resource: "1"},
    )
    del made["spec"]["priorityClassName"]
    return made
