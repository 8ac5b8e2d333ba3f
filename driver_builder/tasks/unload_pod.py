"""The pod that unloads a driver from one node: its manifest, and what its loader reports. Pure.

It runs the loader's own image: the driver's may be gone from its registry, and is not needed. The loader checks all
reference counts first and removes modules, firmware and blacklist, or nothing; it ends with one JSON line as
termination message: ``{"result":"InUse","module":"edudrv","message":"refcnt 1","remaining":["edudrv"]}``.
"""

import json
from typing import Any

from driver_builder.api.driver_container import DriverContainer
from driver_builder.base.reasons import Reason
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.loader_privileges import LoaderPrivileges, security_context
from driver_builder.model.userspace import FIRMWARE_FOLDER, HOST_FOLDER, NVIDIA_FOLDER
from driver_builder.objects.loaded import Load, words
from driver_builder.tasks import task_pod
from driver_builder.tasks.task_kind import Outcome, PodEnd, State, TaskKind

Json = dict[str, Any]

_DEADLINE_SECONDS = 240
_MODULES, _FIRMWARE, _BLACKLISTS = "/lib/modules", "/lib/firmware", "/etc/modprobe.d"
_VOLUMES = {
    **{_MODULES: "modules", HOST_FOLDER: "run", _FIRMWARE: "firmware", FIRMWARE_FOLDER: "var-firmware"},
    **{_BLACKLISTS: "modprobe", NVIDIA_FOLDER: "nvidia"},
}


def _outcome(pod: PodEnd) -> Outcome:
    if (failure := _failure(pod.report)) is not None:
        return Outcome(State.FAILED if failure else State.SUCCEEDED, words(failure))
    said = words(pod.trouble or pod.failure("the unload pod") or pod.message)
    if not pod.has_ended:
        return Outcome(pod.under_way, said)
    return Outcome(State.FAILED, said or "the unload pod terminated without a report")


def _failure(report: str) -> str | None:
    """Read why nothing was unloaded, empty if it was; None if it is no report."""
    try:
        content = json.loads(report)
        result, module = words(str(content["result"])), words(str(content.get("module") or ""))
        message = words(str(content.get("message") or ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if module and module not in message:
        message = f"module {module}: {message}".removesuffix(": ")
    if result == Reason.IN_USE:
        return message or "in use"
    return "" if result == "Unloaded" else f"{result}: {message}".removesuffix(": ")


UNLOAD = TaskKind(
    name="unload", verb="unload", container="unload", outcome=_outcome,
    does="unload {driver} from", group="unload",
)  # fmt: skip
"""It is about the target whose load it removes."""


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
    """Build the pod that removes ``load`` from a node; ``owner`` is the DriverContainer while it exists."""
    folders = [(_MODULES, True), (HOST_FOLDER, False)]
    folders += [(_FIRMWARE, False)] if load.firmware else []
    folders += [(FIRMWARE_FOLDER, False)] if load.var_firmware else []
    folders += [(_BLACKLISTS, False)] if load.blacklist else []
    folders += [(NVIDIA_FOLDER, False)] if load.nvidia else []
    variables = {
        "DRIVER": f"{driver.replace('/', '.', 1)}-{load.target}",
        "BOOT_ID": boot_id,
        "UNLOAD": " ".join(f"{name}:{identity}" for name, identity in reversed(load.modules)),
    }
    mounts = [
        {"name": _VOLUMES[path], "mountPath": f"/host{path}", **({"readOnly": True} if read_only else {})}
        for path, read_only in folders
    ]
    context = security_context(privileges)
    return task_pod.manifest(
        UNLOAD,
        driver,
        node=node,
        parts=(load.target,),
        label=load.target,
        owner=owner,
        seconds=_DEADLINE_SECONDS,
        containers=(task_pod.loader(UNLOAD, image=image, variables=variables, context=context, mounts=mounts),),
        volumes=[_volume(path, read_only) for path, read_only in folders],
    )


def _volume(path: str, read_only: bool) -> Json:
    kind = {} if read_only else {"type": "DirectoryOrCreate"}
    return {"name": _VOLUMES[path], "hostPath": {"path": path, **kind}}
