"""The pod that unloads a driver from one node: its manifest, its name, and what its loader reports. Pure.

It runs the loader's own image: the driver's may be gone from its registry, and is not needed. The loader checks all
reference counts first and removes modules, firmware and blacklist, or nothing; it ends with one JSON line as
termination message: ``{"result":"InUse","module":"edudrv","message":"refcnt 1","remaining":["edudrv"]}``.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.model.loader_privileges import LoaderPrivileges, security_context
from driver_builder.objects.loaded import Load, words
from driver_builder.objects.manifests import DRIVER_LABEL, owner_reference
from kube_api import names
from kube_api.resources import PODS

Json = dict[str, Any]

UNLOAD_LABEL = f"{names.GROUP}/unload"
"""On an unload pod: the target whose load it removes. No driver pod has it."""

CONTAINER = "unload"

UNLOADED = "Unloaded"

_MAX_NAME = 46
_DEADLINE_SECONDS = 240
_MODULES, _FIRMWARE, _BLACKLISTS = "/lib/modules", "/lib/firmware", "/etc/modprobe.d"
_RUN = "/run/driverwright"
_VOLUMES = {_MODULES: "modules", _RUN: "run", _FIRMWARE: "firmware", _BLACKLISTS: "modprobe"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an unload pod reports: ``result`` is Unloaded, InUse, or another reason why nothing was done."""

    result: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnloadPod:
    """One unload pod as it is: ``started`` once its kubelet has seen it, ``ended_at`` is None while it runs."""

    namespace: str
    name: str
    uid: str
    driver: str
    node: str
    target: str
    created_at: float = 0.0
    ended_at: float | None = None
    started: bool = False
    deleting: bool = False
    verdict: Verdict | None = None
    message: str = ""


def parse_verdict(text: str) -> Verdict | None:
    """Read a termination message; None if it is not a result."""
    try:
        content = json.loads(text)
        return Verdict(result=words(str(content["result"])), message=_message(content))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _message(content: Json) -> str:
    module, message = words(str(content.get("module") or "")), words(str(content.get("message") or ""))
    return message if not module or module in message else f"module {module}: {message}".removesuffix(": ")


def name_of(driver: str, node: str, target: str) -> str:
    """Return the name of the unload pod of a driver (``namespace/name``), a node and a target: always the same."""
    name = driver.partition("/")[2]
    digest = hashlib.sha256(f"{driver}\0{node}\0{target}".encode()).hexdigest()[:10]
    return f"{name[:_MAX_NAME].rstrip('-.')}-unload-{digest}"


def manifest(
    driver: str,
    load: Load,
    *,
    node: str,
    boot_id: str,
    image: str,
    privileges: LoaderPrivileges = LoaderPrivileges.PRIVILEGED,
    owner: DriverContainer | None = None,
) -> Json:
    """Build the pod that removes ``load`` from a node.

    ``owner`` is the DriverContainer while it exists: the pod is deleted with it, and has its pull secrets.
    """
    namespace = driver.partition("/")[0]
    folders = [(_MODULES, True), (_RUN, False)]
    folders += [(_FIRMWARE, False)] if load.firmware else []
    folders += [(_BLACKLISTS, False)] if load.blacklist else []
    spec = owner.spec if owner is not None and isinstance(owner.spec, DriverSpec) else None
    secrets = [{"name": name} for name in spec.image_pull_secrets] if spec is not None else []
    container = _container(driver, load, boot_id, image, folders)
    labels = {
        "app.kubernetes.io/managed-by": "driver-builder",
        DRIVER_LABEL: driver.partition("/")[2],
        UNLOAD_LABEL: load.target,
    }
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            "name": name_of(driver, node, load.target),
            "namespace": namespace,
            "labels": labels,
            **({"ownerReferences": [owner_reference(owner, blocks_deletion=False)]} if owner is not None else {}),
        },
        "spec": {
            # Bound here: no scheduler refuses it a place on a node that is cordoned, full or tainted.
            "nodeName": node,
            "tolerations": [{"operator": "Exists"}],
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "priorityClassName": (spec and spec.priority_class_name) or "system-node-critical",
            "restartPolicy": "Never",
            "activeDeadlineSeconds": _DEADLINE_SECONDS,
            "terminationGracePeriodSeconds": 5,
            "containers": [{**container, "securityContext": security_context(privileges)}],
            "volumes": [_volume(path, read_only) for path, read_only in folders],
            **({"imagePullSecrets": secrets} if secrets else {}),
        },
    }  # fmt: skip


def _container(driver: str, load: Load, boot_id: str, image: str, folders: list[tuple[str, bool]]) -> Json:
    environment = {
        "DRIVER": f"{driver.replace('/', '.', 1)}-{load.target}",
        "BOOT_ID": boot_id,
        "UNLOAD": " ".join(f"{name}:{identity}" for name, identity in reversed(load.modules)),
    }
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/busybox", "sh", "/loader.sh", "unload"],
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {"cpu": "5m", "memory": "8Mi"}, "limits": {"memory": "64Mi"}},
        "volumeMounts": [
            {"name": _VOLUMES[path], "mountPath": f"/host{path}", **({"readOnly": True} if read_only else {})}
            for path, read_only in folders
        ],
    }


def _volume(path: str, read_only: bool) -> Json:
    kind = {} if read_only else {"type": "DirectoryOrCreate"}
    return {"name": _VOLUMES[path], "hostPath": {"path": path, **kind}}
