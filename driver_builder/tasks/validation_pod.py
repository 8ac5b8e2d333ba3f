"""The pod that runs the command of ``spec.validation`` on one node: its manifest, its name, and how it ended. Pure.

It is bound to the node, as an unload pod is, and runs once. A container gets all device nodes of its node only if it is
privileged, because nothing else opens the container's device cgroup without a device plugin. On the node's network a
network driver's interfaces are there, and no CNI plugin is needed.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec, ValidationSettings
from driver_builder.model.driver_key import DriverKey
from driver_builder.tasks import bound_pod
from driver_builder.tasks.bound_pod import BoundPod, PodKind
from kube_api import names

Json = dict[str, Any]

VALIDATION_LABEL = f"{names.GROUP}/validation"
"""On a validation pod: the subject that it validates. No driver pod has it."""

CONTAINER = "validate"

_MAX_NAME = 44
UNPRIVILEGED: Json = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "privileged": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationPod(BoundPod):
    """One validation pod as it is; ``ended_at`` is None while it runs, ``message`` says why it does not, or failed.

    ``has_run`` says that its command has ended, well or not: one that was never started says nothing of the driver.
    """

    kind: ClassVar = PodKind.VALIDATION
    subject: str
    ended_at: float | None = None
    has_run: bool = False
    succeeded: bool = False
    message: str = ""
    of_plugin: bool = False
    """It validates the device plugin (:mod:`driver_builder.tasks.plugin_validation_pod`)."""


def subject_of(settings: ValidationSettings, *, boot_id: str, fingerprint: str) -> str:
    """Return the digest of what is validated: a command, against what a driver pod has loaded, in a boot."""
    parts = [boot_id, fingerprint, settings.image, settings.command, settings.privileged]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def name_of(driver: DriverKey, node: str) -> str:
    """Return the name of the validation pod of a driver (``namespace/name``) and a node: always the same."""
    return bound_pod.name_of(driver, "validate", node, longest=_MAX_NAME)


def manifest(driver: DriverContainer, spec: DriverSpec, *, node: str, subject: str) -> Json:
    """Build the pod that validates a driver on a node."""
    settings = spec.validation
    return once(
        driver,
        name=name_of(driver.key, node),
        node=node,
        labels={VALIDATION_LABEL: subject},
        image=settings.image,
        command=settings.command,
        seconds=settings.timeout_seconds,
        context={"privileged": True} if settings.privileged else UNPRIVILEGED,
    )


def once(
    driver: DriverContainer,
    *,
    name: str,
    node: str,
    labels: Mapping[str, str],
    image: str | None,
    command: Iterable[str],
    seconds: float,
    context: Json,
    amounts: Mapping[str, str] | None = None,
) -> Json:
    """Build a pod that runs a command on a node once, for so many seconds; it requests ``amounts`` of resources."""
    wanted = dict(amounts or {})
    container = {
        "name": CONTAINER,
        "image": image,
        "command": list(command),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": context,
        "resources": {
            "requests": {"cpu": "5m", "memory": "16Mi", **wanted},
            **({"limits": wanted} if wanted else {}),
        },
    }
    return bound_pod.manifest(
        driver.key,
        name=name,
        node=node,
        labels=labels,
        owner=driver,
        pod={"activeDeadlineSeconds": int(seconds), "terminationGracePeriodSeconds": 5, "containers": [container]},
    )
