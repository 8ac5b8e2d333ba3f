"""What a plugin's pod has that is a driver of dynamic resource allocation (DRA): folders, variables, a token. Pure.

It registers by a socket in the kubelet's folder of plugins, serves at another one, and names devices to the container
runtime by files of CDI. It publishes ResourceSlices with the token of its service account.
"""

from typing import Any

from driver_builder.api.spec_rules import STAGE_VARIABLES
from driver_builder.api.stage_settings import DraSettings

Json = dict[str, Any]

FOLDERS = {
    "plugins": "/var/lib/kubelet/plugins",
    "registry": "/var/lib/kubelet/plugins_registry",
    "cdi": "/var/run/cdi",
}
"""By volume, the folders of the node that it writes to."""

_DRIVER_FILES = "driver-files"
_FIELDS = dict(zip(STAGE_VARIABLES, ("spec.nodeName", "metadata.namespace", "metadata.uid"), strict=True))


def with_dra(pod: Json, dra: DraSettings, *, driver_files: str | None) -> Json:
    """Return the spec of a plugin's pod as a DRA driver needs it.

    ``driver_files`` is the folder of the node that the driver's user space is in, None for a driver without one.
    """
    (container,) = pod["containers"]
    folders = dict(FOLDERS)
    mounts: list[Json] = [{"name": name, "mountPath": path} for name, path in folders.items()]
    if driver_files is not None:
        folders[_DRIVER_FILES] = driver_files
        # The user space comes and goes with the driver.
        follows = {"readOnly": True, "mountPropagation": "HostToContainer"}
        mounts.append({"name": _DRIVER_FILES, "mountPath": driver_files, **follows})
    volumes = [
        {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}} for name, path in folders.items()
    ]
    return {
        **pod,
        "serviceAccountName": dra.account,
        "automountServiceAccountToken": True,
        "containers": [{**container, "env": _env(dra), "volumeMounts": [*container["volumeMounts"], *mounts]}],
        "volumes": [*pod["volumes"], *volumes],
    }


def _env(dra: DraSettings) -> list[Json]:
    ours = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in _FIELDS.items()]
    return [*ours, *(item.of_container() for item in dra.env)]
