"""The pod that unloads a driver from one node: its manifest, its name, and what its loader reports. Pure.

It runs the loader's own image: the driver's may be gone from its registry, and is not needed. The loader checks all
reference counts first and removes modules, firmware and blacklist, or nothing; it ends with one JSON line as
termination message: ``{"result":"InUse","module":"edudrv","message":"refcnt 1","remaining":["edudrv"]}``.
"""

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from driver_builder.api.driver_container import DriverContainer
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.loader_privileges import LoaderPrivileges, security_context
from driver_builder.model.userspace import FIRMWARE_FOLDER, HOST_FOLDER, NVIDIA_FOLDER
from driver_builder.objects.loaded import Load, words
from driver_builder.tasks import bound_pod
from driver_builder.tasks.bound_pod import BoundPod, PodKind
from kube_api import names

Json = dict[str, Any]

UNLOAD_LABEL = f"{names.GROUP}/unload"
"""On an unload pod: the target whose load it removes. No driver pod has it."""

CONTAINER = "unload"

UNLOADED = "Unloaded"

_MAX_NAME = 46
_DEADLINE_SECONDS = 240
_MODULES, _FIRMWARE, _BLACKLISTS = "/lib/modules", "/lib/firmware", "/etc/modprobe.d"
_RUN = HOST_FOLDER
_VOLUMES = {
    **{_MODULES: "modules", _RUN: "run", _FIRMWARE: "firmware", FIRMWARE_FOLDER: "var-firmware"},
    **{_BLACKLISTS: "modprobe", NVIDIA_FOLDER: "nvidia"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an unload pod reports: ``result`` is Unloaded, InUse, or another reason why nothing was done."""

    result: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnloadPod(BoundPod):
    """One unload pod as it is: ``started`` once its kubelet has seen it, ``ended_at`` is None while it runs."""

    kind: ClassVar = PodKind.UNLOAD
    target: str
    created_at: float = 0.0
    ended_at: float | None = None
    started: bool = False
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


def name_of(driver: DriverKey, node: str, target: str) -> str:
    """Return the name of the unload pod of a driver (``namespace/name``), a node and a target: always the same."""
    return bound_pod.name_of(driver, "unload", node, target, longest=_MAX_NAME)


def manifest(
    driver: DriverKey,
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
    folders = [(_MODULES, True), (_RUN, False)]
    folders += [(_FIRMWARE, False)] if load.firmware else []
    folders += [(FIRMWARE_FOLDER, False)] if load.var_firmware else []
    folders += [(_BLACKLISTS, False)] if load.blacklist else []
    folders += [(NVIDIA_FOLDER, False)] if load.nvidia else []
    container = _container(driver, load, boot_id, image, folders)
    return bound_pod.manifest(
        driver,
        name=name_of(driver, node, load.target),
        node=node,
        labels={UNLOAD_LABEL: load.target},
        owner=owner,
        pod={
            "activeDeadlineSeconds": _DEADLINE_SECONDS,
            "terminationGracePeriodSeconds": 5,
            "containers": [{**container, "securityContext": security_context(privileges)}],
            "volumes": [_volume(path, read_only) for path, read_only in folders],
        },
    )


def _container(driver: DriverKey, load: Load, boot_id: str, image: str, folders: list[tuple[str, bool]]) -> Json:
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
