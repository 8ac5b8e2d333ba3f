"""The pod of a task: bound to its node, run once. What all kinds have in common; each adds its containers. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.model.driver_key import DriverKey
from driver_builder.objects.manifests import DRIVER_LABEL, owner_reference
from driver_builder.tasks.task_kind import TaskKind
from kube_api.resources import PODS

Json = dict[str, Any]

OF_LOADER: Json = {
    "imagePullPolicy": "IfNotPresent",
    "resources": {"requests": {"cpu": "5m", "memory": "8Mi"}, "limits": {"memory": "64Mi"}},
}
"""What containers have that run a program of the loader's image."""


def manifest(
    kind: TaskKind,
    driver: DriverKey,
    *,
    node: str,
    label: str,
    owner: DriverContainer | None,
    containers: Sequence[Json],
    parts: Iterable[str] = (),
    seconds: float | None = None,
    grace: int = 5,
    is_critical: bool = True,
    **others: Any,
) -> Json:
    """Build a pod that is bound to a node and ends within so many ``seconds``; ``others`` are the rest of its spec.

    ``parts`` make its name, besides driver and node. ``owner`` is the DriverContainer while it exists: the pod is
    deleted with it, and has its pull Secrets and priority.
    """
    namespace, driver_name = driver.namespace, driver.name
    spec = owner.spec if owner is not None and isinstance(owner.spec, DriverSpec) else None
    secrets = [{"name": secret} for secret in spec.image_pull_secrets] if spec is not None else []
    critical = {"priorityClassName": (spec and spec.priority_class_name) or "system-node-critical"}
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            "name": kind.name_of(driver, node, *parts),
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": "driver-builder", DRIVER_LABEL: driver_name, kind.label: label},
            **({"ownerReferences": [owner_reference(owner, blocks_deletion=False)]} if owner is not None else {}),
        },
        "spec": {
            # Bound here: no scheduler refuses it a place on a node that is cordoned, full or tainted.
            "nodeName": node,
            "tolerations": [{"operator": "Exists"}],
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            **(critical if is_critical else {}),
            "restartPolicy": "Never",
            **({"activeDeadlineSeconds": int(seconds)} if seconds is not None else {}),
            "terminationGracePeriodSeconds": grace,
            "containers": list(containers),
            **others,
            **({"imagePullSecrets": secrets} if secrets else {}),
        },
    }


def container(kind: TaskKind, *, image: str | None, command: Iterable[str], context: Json, **others: Any) -> Json:
    """Build the container that reports: by its termination message, or the end of its log."""
    return {
        "name": kind.container,
        "image": image,
        "command": list(command),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": context,
        **others,
    }


def loader(kind: TaskKind, *, image: str, variables: Mapping[str, str], context: Json, mounts: Sequence[Json]) -> Json:
    """Build the container that runs the loader's program of the kind's container."""
    return container(
        kind,
        image=image,
        command=("/busybox", "sh", "/loader.sh", kind.container),
        context=context,
        env=[{"name": name, "value": value} for name, value in variables.items()],
        volumeMounts=list(mounts),
        **OF_LOADER,
    )
