"""What a plugin's pod has besides with ``stages.devicePlugin.nvidia``: the container ``nvml``, and folders. Pure.

``nvml`` has NVIDIA's library and makes device nodes; without NVIDIA's devices it looks at the use of others
(:mod:`driver_builder.objects.device_use`). It is privileged. The agent, which asks it over a Unix socket in a
folder that both have, stays as it is: no path and no command comes over that socket. Only the agent may have a token
(:mod:`driver_builder.objects.agent_token`).
"""

from collections.abc import Mapping
from typing import Any

from device_resources.gpu_sharing import FILE
from driver_builder.api.stage_settings import DevicePluginSettings
from driver_builder.model.userspace import NVIDIA_FOLDER
from driver_builder.objects.device_use import STATE

Json = dict[str, Any]

CONTAINER = "nvml"

_REPORTS = FILE.rpartition("/")[0]
"""Also without profiles: how GPUs were shared before is taken back there."""
_FOLLOWS = {"readOnly": True, "mountPropagation": "HostToContainer"}
"""A driver container mounts its root there, and takes it away again."""


def volumes(settings: DevicePluginSettings) -> list[Json]:
    """Build the volumes of the folders of the node that both containers have, or one of them."""
    made = [
        {"name": "run-nvidia", "hostPath": {"path": NVIDIA_FOLDER, "type": "DirectoryOrCreate"}},
        {"name": "state", "hostPath": {"path": STATE, "type": "DirectoryOrCreate"}},
        {"name": "reports", "hostPath": {"path": _REPORTS, "type": "DirectoryOrCreate"}},
    ]
    if folder := _above_libraries(settings):
        made.append({"name": "libraries", "hostPath": {"path": folder}})
    return made


def mounts_of_agent(settings: DevicePluginSettings) -> list[Json]:
    """Build the mounts of the agent: where it looks for libraries, what it remembers, and how GPUs are shared."""
    made: list[Json] = [
        {"name": "run-nvidia", "mountPath": f"/host{NVIDIA_FOLDER}", **_FOLLOWS},
        {"name": "state", "mountPath": STATE},
        {"name": "reports", "mountPath": _REPORTS},
    ]
    if folder := _above_libraries(settings):
        made.append({"name": "libraries", "mountPath": f"/host{folder}", **_FOLLOWS})
    return made


def container(agent_image: str, folders: Mapping[str, str], *, shared: str) -> Json:
    """Build the container ``nvml``.

    ``folders``: the names of the pod's volumes by their folders: ``/dev``, ``/sys``, the one that is ``shared``, and
    NVIDIA's, without which it has nothing of its driver.
    """
    of_driver = [
        # The node's own, in place of the copy that a privileged container gets: nodes made later are there.
        {"name": folders["/dev"], "mountPath": "/dev"},
        {"name": folders["/sys"], "mountPath": "/host/sys", "readOnly": True},
        # The library of NVML: of this driver, and not one that the node's distribution may have besides.
        {"name": "run-nvidia", "mountPath": f"/host{NVIDIA_FOLDER}", **_FOLLOWS},
    ]
    mounts = of_driver if NVIDIA_FOLDER in folders else of_driver[1:2]
    return {
        "name": CONTAINER,
        "image": agent_image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["nvml", f"--socket={shared}/nvml.sock"],
        # Not below /dev, which is the node's: a file would stay there.
        "terminationMessagePath": "/run/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        # What the driver's library needs is not known before it is there.
        "resources": {"requests": {"cpu": "5m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}},
        # Nothing else lets a container open, and make, any of the driver's device nodes.
        "securityContext": {"privileged": True, "readOnlyRootFilesystem": True, "runAsUser": 0, "runAsGroup": 0},
        "volumeMounts": [*mounts, {"name": folders[shared], "mountPath": shared}],
    }


def _above_libraries(settings: DevicePluginSettings) -> str:
    """Return the folder above the libraries: an upgrade replaces them by a link. Empty where it is there anyway."""
    path: str = ((settings.nvidia or {}).get("libraries") or {}).get("path") or ""
    is_there = any(f"{path}/".startswith(f"{top}/") for top in (NVIDIA_FOLDER, "/dev", "/sys"))
    return "" if is_there else path.rpartition("/")[0]
