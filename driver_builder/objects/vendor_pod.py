"""What a driver pod has besides, or instead, where its image is a vendor's. Pure.

An image of ours has the loader's data files. That of a vendor has not: the manifest gives the names, and the loader
makes the files in the pod's own folder (``loader.sh``). With ``loader: ours`` that is all. With ``loader: image`` the
pod has five containers: ``loader`` copies the loader, ``prepare`` makes room, then ``driver`` runs the image's own
program, ``load`` proves what is live and idles, and ``hold`` watches, as in all driver pods.
"""

from typing import Any

from driver_builder.api.driver_spec import DriverSpec, HostPath, LoadedBy, VendorSettings
from driver_builder.model.kernels import KernelTarget
from driver_builder.model.loader_privileges import LoaderPrivileges, security_context

Json = dict[str, Any]

PREPARE_CONTAINER = "prepare"
PROGRAM_CONTAINER = "driver"

_ROOT: Json = {"runAsUser": 0}
"""A vendor's image may name another user."""
_UNCONFINED: Json = {"seLinuxOptions": {"type": "spc_t"}}
"""The type of privileged containers: that of others may not write to the node's folders. Ignored without SELinux."""


def with_vendor(
    pod: Json,
    spec: DriverSpec,
    vendor: VendorSettings,
    *,
    target: KernelTarget,
    privileges: LoaderPrivileges,
    command: dict[str, list[str]],
) -> Json:
    """Return a driver pod as a vendor's image needs it; ``command`` has the loader's commands by their words."""
    bring, load = pod["initContainers"]
    lines = (" ".join((module.name, *module.parameters)) for module in spec.module.load_order)
    values = {"MODULES": "\n".join(lines), "KERNEL": target.kernel_version}
    if vendor.loader is LoadedBy.IMAGE:
        load = _with_environment(load, {**values, "LOADER": vendor.loader.value})
        return _with_program({**pod, "initContainers": [bring, load]}, vendor, privileges, command)
    values |= {"DIR_NAME": vendor.dir_name or "", "FIRMWARE_PATH": spec.module.firmware_path or ""}
    load = _with_environment(load, values)
    return {**pod, "initContainers": [bring, load]}


def _with_environment(load: Json, values: dict[str, str]) -> Json:
    """Return the loader's container with more variables, which may write the data files, and so write to its folder."""
    variables = [{"name": name, "value": value} for name, value in values.items() if value]
    own, *folders = load["volumeMounts"]
    return {
        **load,
        "securityContext": {**load["securityContext"], **_ROOT},
        "env": [*load["env"], *variables],
        "volumeMounts": [{key: value for key, value in own.items() if key != "readOnly"}, *folders],
    }


def _with_program(
    pod: Json, vendor: VendorSettings, privileges: LoaderPrivileges, command: dict[str, list[str]]
) -> Json:
    (bring, load), (hold,) = pod["initContainers"], pod["containers"]
    # Devices are waited for once the modules are live, and seen by ``load`` as by ``hold``.
    seconds = {"name": "LIVE_TIMEOUT", "value": str(int(vendor.container.timeout_seconds))}
    prove = {
        **load,
        "command": command["prove"],
        "securityContext": {**hold["securityContext"], **_ROOT, **_UNCONFINED},
        "env": [*load["env"], seconds],
    }
    prepare = {**load, "name": PREPARE_CONTAINER, "command": command["prepare"]}
    hold = {**hold, "env": [*hold.get("env", ()), {"name": "LOADER", "value": vendor.loader.value}]}
    paths = tuple(enumerate(vendor.container.host_paths))
    return {
        **pod,
        # Programs that manage daemons of the node find them by their process ids.
        "hostPID": True,
        "initContainers": [bring, prepare],
        "containers": [hold, prove, _program(load, vendor, privileges)],
        "volumes": [*pod["volumes"], *({"name": _name(n), "hostPath": {"path": item.path}} for n, item in paths)],
    }


def _program(load: Json, vendor: VendorSettings, privileges: LoaderPrivileges) -> Json:
    settings = vendor.container
    # The file system of the image's own program is its own to write.
    context = {key: value for key, value in security_context(privileges).items() if key != "readOnlyRootFilesystem"}
    # What is empty is left out: the API server does not keep it.
    given = {
        "command": list(settings.command),
        "args": list(settings.args),
        "env": [{"name": item.name, **({"value": item.value} if item.value else {})} for item in settings.env],
        "volumeMounts": [_mount(number, item) for number, item in enumerate(settings.host_paths)],
    }
    return {
        "name": PROGRAM_CONTAINER,
        "image": load["image"],
        "imagePullPolicy": load["imagePullPolicy"],
        **{name: value for name, value in given.items() if value},
        # A compiler may need any amount of memory.
        "resources": {"requests": load["resources"]["requests"]},
        "securityContext": context,
    }


def _mount(number: int, item: HostPath) -> Json:
    mount: Json = {"name": _name(number), "mountPath": item.mount_path}
    if item.read_only:
        mount["readOnly"] = True
    if item.propagation is not None:
        mount["mountPropagation"] = item.propagation.value
    return mount


def _name(number: int) -> str:
    return f"host-{number}"
