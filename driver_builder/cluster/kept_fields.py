"""Which fields of the API server's objects a snapshot file has: those that a plan is made of. Pure.

It is a list of what is allowed: a field that is not named here is in no file. Values of variables of an environment are
numbers that only tell equal ones from others; in place of user and password of a URL stands ``***``.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from driver_builder.objects import manifests, plugin, vendor_pod
from kube_api import names
from kube_api.resources import (
    DAEMON_SETS,
    DRIVER_CONTAINERS,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SERVICE_ACCOUNTS,
    Resource,
)

Json = dict[str, Any]

_USER_OF_A_URL = re.compile(r"(?<=://)[^/@\s]+@")
_OURS = re.compile(rf"(?:[\w.-]+\.)?{re.escape(names.GROUP)}/.*")
_MIRROR = "kubernetes.io/config.mirror"
HIDDEN = "***"
_LOADERS = frozenset({manifests.LOAD_CONTAINER, vendor_pod.PREPARE_CONTAINER})
_OF_LOADERS = frozenset(
    {manifests.DEPENDS, manifests.DEVICE_NODES, "DRIVER", "KERNEL", "MODULES", vendor_pod.FIRMWARE_PATH}
)
"""Variables of our own loader that a plan is made of."""
_OF_AGENT = frozenset({"DEVICE_AGENT_SOCKET"})


class Hidden:
    """Replaces values: equal ones by the same number."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, value: str) -> str:
        """Return what stands in a file for a value."""
        return self._known.setdefault(value, f"{HIDDEN}{len(self._known) + 1}") if value else ""


def is_ours(key: str) -> bool:
    """Return whether a label or annotation is one of driverwright's."""
    return _OURS.fullmatch(key) is not None


def _annotations(found: Mapping[str, Any]) -> Json:
    return {key: text for key, text in found.items() if is_ours(key) or key == _MIRROR}


def _devices(found: Any) -> list[Json]:
    return [{}] if found else []


def _resources(found: Mapping[str, Any]) -> Json:
    return {name: amount for name, amount in found.items() if "/" in name}


def _empty(_found: Any) -> Json:
    return {}


_NAME: Json = dict.fromkeys(("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"), ...)
_METADATA: Json = {
    **_NAME,
    **dict.fromkeys(("generation", "finalizers", "labels"), ...),
    "annotations": _annotations,
    "ownerReferences": dict.fromkeys(("kind", "name", "uid", "controller"), ...),
}
_WRITERS: Json = {"managedFields": {"manager": ..., "fieldsV1": {"f:spec": ...}}}
_STATE: Json = dict.fromkeys(("name", "state", "lastState", "imageID", "ready", "restartCount"), ...)
_CONDITION: Json = dict.fromkeys(
    ("type", "status", "reason", "message", "lastTransitionTime", "lastHeartbeatTime"), ...
)
_CLAIMS: Json = {
    "resourceClaimStatuses": dict.fromkeys(("name", "resourceClaimName"), ...),
    "extendedResourceClaimStatus": {"resourceClaimName": ...},
}
_POD_STATUS: Json = {
    **dict.fromkeys(("phase", "reason", "message", "startTime"), ...),
    "conditions": _CONDITION,
    "initContainerStatuses": _STATE,
    "containerStatuses": _STATE,
    **_CLAIMS,
}
_CONTAINER: Json = {
    **dict.fromkeys(("name", "image", "env"), ...),
    "volumeMounts": dict.fromkeys(("name", "mountPath"), ...),
    "lifecycle": _empty,
    "resources": {"requests": _resources, "limits": _resources},
}
_POD_SPEC: Json = {
    **dict.fromkeys(("nodeName", "nodeSelector", "affinity", "hostPID", "tolerations", "priorityClassName"), ...),
    "initContainers": _CONTAINER,
    "containers": _CONTAINER,
    "volumes": {"name": ..., "hostPath": {"path": ...}, "emptyDir": {"medium": ...}},
    "resourceClaims": dict.fromkeys(("name", "resourceClaimName"), ...),
}
_PLUGIN_CONTAINER: Json = dict.fromkeys(
    ("name", "image", "imagePullPolicy", "command", "args", "env", "volumeMounts", "securityContext", "resources",
     "startupProbe", "readinessProbe", "livenessProbe", "terminationMessagePolicy", "terminationMessagePath"),
    ...,
)  # fmt: skip
_PLUGIN_SPEC: Json = {
    **dict.fromkeys(("selector", "updateStrategy"), ...),
    "template": {
        "metadata": {"labels": ..., "annotations": _annotations},
        "spec": {
            **dict.fromkeys(
                ("nodeSelector", "hostNetwork", "automountServiceAccountToken", "priorityClassName", "tolerations",
                 "terminationGracePeriodSeconds", "volumes", "imagePullSecrets", "serviceAccountName", "serviceAccount",
                 "dnsPolicy", "restartPolicy", "schedulerName", "securityContext"),
                ...,
            ),
            "containers": _PLUGIN_CONTAINER,
        },
    },
}  # fmt: skip
"""All that we write ourselves; that there is more is known, and not what."""
_OTHERS_CONTAINER: Json = {"resources": _CONTAINER["resources"]}
_OTHERS_POD: Json = {
    "metadata": _METADATA,
    "spec": {
        **dict.fromkeys(("nodeName", "nodeSelector", "priorityClassName"), ...),
        "initContainers": _OTHERS_CONTAINER,
        "containers": _OTHERS_CONTAINER,
        "volumes": {"name": ..., "emptyDir": {"medium": ...}},
        "resourceClaims": _POD_SPEC["resourceClaims"],
    },
    "status": {"phase": ..., **_CLAIMS},
}
"""What is drained, and what a drain waits for, is decided by it."""

_FIELDS: Mapping[Resource, Json] = {
    NODES: {
        "metadata": _METADATA,
        "spec": {"unschedulable": ..., "taints": dict.fromkeys(("key", "value", "effect"), ...)},
        "status": {"allocatable": _resources, "conditions": _CONDITION},
    },
    NAMESPACES: {"metadata": _NAME},
    SERVICE_ACCOUNTS: {"metadata": _NAME},
    DRIVER_CONTAINERS: {
        "metadata": {field: kept for field, kept in _METADATA.items() if field != "labels"},
        "spec": ...,
        "status": ...,
    },
    DAEMON_SETS: {
        "metadata": {**_METADATA, **_WRITERS},
        "spec": {"template": {"metadata": {"labels": ..., "annotations": _annotations}, "spec": _POD_SPEC}},
    },
    PODS: {"metadata": _METADATA, "spec": _POD_SPEC, "status": _POD_STATUS},
    RESOURCE_SLICES: {"metadata": _NAME, "spec": {"driver": ..., "nodeName": ..., "devices": _devices}},
    RESOURCE_CLAIMS: {
        "metadata": _NAME,
        "status": {"allocation": {"devices": {"results": {"driver": ...}}}},
    },
}
_KINDS: Mapping[str, Resource] = {resource.kind: resource for resource in _FIELDS}
_GROUP = "APIGroup"
_VERSIONS: Json = {"name": ..., "versions": {"version": ...}}


def resource_of(collection: str) -> Resource | None:
    """Return which objects, of those that are kept, are in a collection."""
    found = (item for item in _FIELDS if collection.rpartition("/")[2] == item.plural)
    return next((item for item in found if collection.startswith(f"{item.path().rpartition('/')[0]}/")), None)


def path_of(item: Json) -> str:
    """Return where an object of a file is below the API server's root.

    Raises:
        LookupError: it is of another kind, or has no name.
    """
    if item["kind"] == _GROUP:
        return f"/apis/{item['name']}"
    metadata = item["metadata"]
    return _KINDS[item["kind"]].path(namespace=metadata.get("namespace"), name=metadata["name"])


def kept(resource: Resource, obj: Json, hide: Hidden) -> Json:
    """Return an object as it is in a file."""
    labels = (obj.get("metadata") or {}).get("labels") or {}
    fields = _OTHERS_POD if resource is PODS and manifests.DRIVER_LABEL not in labels else _FIELDS[resource]
    made: Json = {"apiVersion": resource.api_version, "kind": resource.kind, **_only(obj, fields, hide)}
    if resource is DAEMON_SETS and plugin.STAGE_LABEL in labels:
        made["spec"] = _only(obj.get("spec"), _PLUGIN_SPEC, hide, others=HIDDEN)
    return made


def kept_versions(obj: Json) -> Json:
    """Return what the API server says of a group of its API, as it is in a file."""
    return {"apiVersion": "v1", "kind": _GROUP, **_only(obj, _VERSIONS, Hidden())}


def without_users(value: Any) -> Any:
    """Hide user and password of every URL, at any depth."""
    return _whole(value, Hidden(), frozenset())


_Fields = Mapping[str, Any] | Callable[[Any], Any]


def _only(value: Any, fields: Any, hide: Hidden, *, others: str = "") -> Any:
    """Return the fields of a value that are named; with ``others`` the rest has this in place of its values."""
    if isinstance(value, list):
        return [_only(item, fields, hide, others=others) for item in value]
    if not isinstance(value, Mapping):
        return None
    own = _plain_variables(value)
    made: Json = {}
    for key, item in value.items():
        allowed = fields.get(key)
        if allowed is ...:
            made[key] = _whole({key: item}, hide, own)[key]
        elif allowed is not None:
            is_mapping = isinstance(allowed, Mapping)
            made[key] = _only(item, allowed, hide, others=others) if is_mapping else _whole(allowed(item), hide, own)
        elif others:
            made[key] = others
    return made


def _whole(value: Any, hide: Hidden, own: frozenset[str]) -> Any:
    """Copy a value without what is hidden in it; ``own`` are the variables that are shown."""
    if isinstance(value, str):
        return _USER_OF_A_URL.sub(f"{HIDDEN}@", value)
    if isinstance(value, list | tuple):
        return [_whole(item, hide, own) for item in value]
    if isinstance(value, Mapping):
        return {
            key: [_variable(entry, hide, own) for entry in item]
            if key == "env" and isinstance(item, list)
            else _whole(item, hide, own)
            for key, item in value.items()
        }
    return value


def _variable(entry: Any, hide: Hidden, own: frozenset[str]) -> Any:
    if not isinstance(entry, Mapping) or entry.get("name") in own:
        return _whole(entry, hide, own)
    shown = {key: item for key, item in entry.items() if key in ("name", "valueFrom")}
    return {**shown, **({"value": hide(str(entry["value"]))} if "value" in entry else {})}


def _plain_variables(container: Mapping[str, Any]) -> frozenset[str]:
    """Return the variables of a container whose values are ours."""
    name = container.get("name")
    return _OF_LOADERS if name in _LOADERS else _OF_AGENT if name == plugin.CONTAINER else frozenset()
