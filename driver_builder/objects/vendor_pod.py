"""What a driver pod has besides, or instead, where its image is a vendor's. Pure.

An image of ours has the loader's data files. That of a vendor has not: the manifest gives the names, and the loader
makes the files in the pod's own folder (``loader.sh``). With ``loader: ours`` that is all. With ``loader: image`` the
pod has four containers: ``loader`` copies the loader, ``prepare`` makes room, then ``driver`` runs the image's own
program, and ``hold`` watches what a proof pod (:mod:`driver_builder.tasks.proof_pod`) has found live.
"""

from typing import Any

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.mapping_settings import HostPath, LoadedBy, VendorSettings
from driver_builder.api.spec_rules import PROGRAM_VARIABLE
from driver_builder.model.kernels import KernelTarget
from driver_builder.model.loader_privileges import LoaderPrivileges, security_context
from driver_builder.objects.loaded import plain

Json = dict[str, Any]

PREPARE_CONTAINER = "prepare"
PROGRAM_CONTAINER = "driver"
DRIVER_VARIABLE = PROGRAM_VARIABLE
"""In the environment of the image's own program: ``loader.sh`` finds by it a program that has not ended yet."""
POD_UID = "POD_UID"
"""The variable with the uid of the driver pod: what a proof pod has found live is that pod's."""
FIRMWARE_PATH = "FIRMWARE_PATH"
"""The variable with the folder of firmware in a vendor's image, and after a colon that of the node, in any image."""
RUN = {"name": "run", "mountPath": "/host/run/driverwright"}
"""Where ``loader.sh`` keeps on the node what it has to know until the next boot."""

VARIABLES = (
    "BLACKLIST", "BOOT_ID", "DEPENDS", "DEVICE_NODES", "DIR_NAME", "DMESG", "DRIVER", "FIRMWARE_PATH", "INSMOD",
    "KERNEL", "LIVE_TIMEOUT", "LOADER", "MODULES", "NODE_NAME", "NODE_REBUILDS", "POD_UID", "REBUILD", "REMOVE_MODULES",
    "RMMOD", "UNLOAD", "USERSPACE",
)  # fmt: skip
"""What ``loader.sh`` would take from a vendor's image if the pod did not say it, and acts on."""

ROOT: Json = {"runAsUser": 0}
"""A vendor's image may name another user."""
UNCONFINED: Json = {"seLinuxOptions": {"type": "spc_t"}}
"""The type of privileged containers: that of others may not write to the node's folders. Ignored without SELinux."""


def asked_of(pod_spec: Json) -> str:
    """Return which modules and which firmware a pod asks of a vendor's image, empty for an image of ours.

    The image does not say so, and a fingerprint does not cover it. Their order and their parameters are no matter here.
    """
    variables = (item for container in pod_spec.get("initContainers") or () for item in container.get("env") or ())
    known = {item["name"]: str(item.get("value") or "") for item in variables}
    names = sorted(plain(line.partition(" ")[0]) for line in known.get("MODULES", "").splitlines())
    return " ".join(filter(None, (*names, known.get(FIRMWARE_PATH, "").partition(":")[0])))


def with_vendor(
    pod: Json,
    spec: DriverSpec,
    vendor: VendorSettings,
    *,
    target: KernelTarget,
    privileges: LoaderPrivileges,
    prepare: list[str],
) -> Json:
    """Return a driver pod as a vendor's image needs it; ``prepare`` is the command of the loader that makes room."""
    bring, load = pod["initContainers"]
    lines = (" ".join((module.name, *module.parameters)) for module in spec.module.load_order)
    values = {"MODULES": "\n".join(lines), "KERNEL": target.kernel_version}
    if vendor.loader is LoadedBy.IMAGE:
        load = _with_environment(load, {**values, "LOADER": vendor.loader.value})
        pod = _with_program({**pod, "initContainers": [bring, load]}, vendor, privileges, prepare)
    else:
        firmware = ":".join(filter(None, (spec.module.firmware_path, spec.module.firmware_host_path)))
        values |= {"DIR_NAME": vendor.dir_name or "", FIRMWARE_PATH: firmware}
        pod = {**pod, "initContainers": [bring, _with_environment(load, values)]}
    (bring, load), (hold, *others) = pod["initContainers"], pod["containers"]
    return {**pod, "initContainers": [bring, _closed(load)], "containers": [_closed(hold), *others]}


def _closed(container: Json) -> Json:
    """Return a container of the loader that takes no setting from the environment of the image."""
    given = container.get("env", [])
    names = {item["name"] for item in given}
    return {**container, "env": [*given, *({"name": name} for name in VARIABLES if name not in names)]}


def _with_environment(load: Json, values: dict[str, str]) -> Json:
    """Return the loader's container with more variables, which may write the data files, and so write to its folder."""
    variables = [{"name": name, "value": value} for name, value in values.items() if value]
    own, *folders = load["volumeMounts"]
    return {
        **load,
        "securityContext": {**load["securityContext"], **ROOT},
        "env": [*(item for item in load["env"] if item["name"] not in values), *variables],
        "volumeMounts": [{key: value for key, value in own.items() if key != "readOnly"}, *folders],
    }


def _with_program(pod: Json, vendor: VendorSettings, privileges: LoaderPrivileges, command: list[str]) -> Json:
    (bring, load), (hold,) = pod["initContainers"], pod["containers"]
    prepare = {**load, "name": PREPARE_CONTAINER, "command": command}
    of_driver = [item for item in load["env"] if item["name"] in ("DRIVER", "LOADER")]
    uid = {"name": POD_UID, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    hold = {
        **hold,
        "securityContext": {**hold["securityContext"], **UNCONFINED},
        "env": [*of_driver, *hold.get("env", ()), uid],
        "volumeMounts": [*hold["volumeMounts"], {**RUN, "readOnly": True}],
    }
    paths = tuple(enumerate(vendor.container.host_paths))
    return {
        **pod,
        # Programs that manage daemons of the node find them by their process ids, and ``prepare`` one that still runs.
        "hostPID": True,
        "initContainers": [bring, prepare],
        "containers": [hold, _program(load, vendor, privileges)],
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
        "env": [{"name": DRIVER_VARIABLE, "value": _driver_of(load)}, *(item.of_container() for item in settings.env)],
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


def _driver_of(load: Json) -> str:
    """Return the driver that ``loader.sh`` knows: ``DRIVER`` without the target."""
    owner: str = next(item["value"] for item in load["env"] if item["name"] == "DRIVER")
    return owner.rpartition("-")[0]


def _mount(number: int, item: HostPath) -> Json:
    mount: Json = {"name": _name(number), "mountPath": item.mount_path}
    if item.read_only:
        mount["readOnly"] = True
    if item.propagation is not None:
        mount["mountPropagation"] = item.propagation.value
    return mount


def _name(number: int) -> str:
    return f"host-{number}"
