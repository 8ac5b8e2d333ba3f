"""The DaemonSet that keeps one driver image running on the nodes of one target. Pure: values in, plain dict out.

Two digests show changes: the fingerprint covers what is on the node, and pods are replaced by it; the digest of
the template covers everything, and decides whether the DaemonSet is written again.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from driver_builder.api.build_settings import UserspaceSettings
from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.mapping_settings import VendorSettings
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.images import ImageRef
from driver_builder.model.kernels import KernelTarget
from driver_builder.model.loader_privileges import LoaderPrivileges, security_context
from driver_builder.model.userspace import FIRMWARE_FOLDER, HOST_FOLDER, NVIDIA_FOLDER
from driver_builder.objects import slots
from driver_builder.objects.driver_keys import driver_keys
from driver_builder.objects.fingerprint import fingerprint, names_all
from driver_builder.objects.slots import ONLY, Place, Slot
from driver_builder.objects.tolerations import with_ours
from driver_builder.objects.vendor_pod import FIRMWARE_PATH, PREPARE_CONTAINER, PROGRAM_CONTAINER, with_vendor
from kube_api import names
from kube_api.resources import DAEMON_SETS, DRIVER_CONTAINERS

Json = dict[str, Any]

FIELD_MANAGER = "driver-builder"
DRIVER_LABEL = f"{names.GROUP}/driver-container"
TARGET_LABEL = f"{names.GROUP}/target"
VERSION_ANNOTATION = f"{names.GROUP}/version"
MODULES_ANNOTATION = f"{names.GROUP}/modules"
NEEDED_ANNOTATION = f"{names.GROUP}/needed-modules"
"""On a pod, where its image has such: the modules that the named ones need, with their identities."""
FINGERPRINT_ANNOTATION = f"{names.GROUP}/fingerprint"
TEMPLATE_ANNOTATION = f"{names.GROUP}/template"
"""On a DaemonSet: the digest of all of it. It may change with every version of ours: pods are not compared by it."""
KERNEL_ANNOTATION = f"{names.GROUP}/kernel"
OS_VERSION_ANNOTATION = f"{names.GROUP}/os-version"
"""On a DaemonSet: the OS version that its target was recorded with, which is in its name's hash."""
ADOPTED_ANNOTATION = f"{names.GROUP}/adopted-fingerprint"
"""On a DaemonSet: the fingerprint that was wanted while its pods still had one of an older form."""
KEPT_ANNOTATION = f"{names.GROUP}/kept-fingerprints"
"""On a DaemonSet: what its pods have in common whichever node requested a rebuild, and earlier fingerprints."""

MAX_KEPT = 8
"""Fingerprints that are kept; a pod with an older one is replaced."""
MAX_NAME_LENGTH = 46
UNPRIVILEGED: Json = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "privileged": False,
    "readOnlyRootFilesystem": True,
}
_MEMORY_MIB = 64
LOADER_CONTAINER = "loader"
LOAD_CONTAINER = "load"
HOLD_CONTAINER = "hold"
DEVICE_NODES = "DEVICE_NODES"
DEPENDS = "DEPENDS"
"""The variable with the device nodes that ``load`` waits for and ``hold`` checks."""
LOADER_FOLDER = "/driverwright"
"""Where a driver pod has the loader: in a folder that the loader's image is copied into."""


def daemon_set_name(driver: DriverContainer, target: KernelTarget, slot: str = slots.FIRST) -> str:
    """Return the name of a target's DaemonSet: the driver's name, eight digits for the target, and the slot.

    A long name is cut to leave room for what Kubernetes appends to pods; eight more digits keep cut names apart.
    """
    return f"{short_name(driver)}-{slots.name_in(target.short_hash, slot)}"


def short_name(driver: DriverContainer) -> str:
    """Return a driver's name, cut and with a digest where it is long."""
    name = driver.name
    if len(name) > MAX_NAME_LENGTH:
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        name = f"{name[: MAX_NAME_LENGTH - 9].rstrip('-.')}-{digest}"
    return name


def daemon_set(
    driver: DriverContainer,
    spec: DriverSpec,
    *,
    target: KernelTarget,
    image: ImageRef,
    identities: Mapping[str, str],
    needed: Mapping[str, str] = MappingProxyType({}),
    loader_image: str,
    privileges: LoaderPrivileges = LoaderPrivileges.PRIVILEGED,
    firmware: str = "",
    userspace: str = "",
    rebuild: str = "",
    node_rebuilds: Mapping[str, str] = MappingProxyType({}),
    selects_os_version: bool = False,
    adopted: str = "",
    folders: Collection[str] = (),
    basis: str = "",
    kept: tuple[str, ...] = (),
    slot: Slot = ONLY,
    first: Iterable[tuple[str, tuple[str, ...]]] = (),
    vendor: VendorSettings | None = None,
    follows_program: bool = False,
) -> Json:
    """Build the DaemonSet. ``image`` is by digest; ``identities`` maps module to the srcversion or build id in it.

    ``needed`` are those that the image has besides because these need them. ``firmware`` and ``userspace`` are the
    digests of such files in the image, ``rebuild`` the token of a rebuild for the whole driver, ``node_rebuilds`` those
    for single nodes: a pod that sees a new one loads anew. ``folders`` are those of the node that the DaemonSet has
    already: its pods keep them, for what a pod before has left there. Nodes are not selected by the version of their
    operating system, which may change while its kernel runs, unless ``selects_os_version``: then another DaemonSet of
    the same kernel has the others. ``adopted`` is written down as it is, see :data:`ADOPTED_ANNOTATION`; ``basis`` and
    ``kept`` are those of :data:`KEPT_ANNOTATION`. In a wave ``slot`` says which nodes of the target it is for.
    ``first`` are the modules of other drivers that its pods wait for. They keep away from nodes with the driver's yield
    label. ``vendor`` says how the modules of a prebuilt image are loaded; where a pod ``follows_program``, another
    pod's may still run beside it.
    """
    labels = {
        "app.kubernetes.io/name": driver.name,
        "app.kubernetes.io/managed-by": "driver-builder",
        DRIVER_LABEL: driver.name,
        TARGET_LABEL: slots.name_in(target.short_hash, slot.name),
    }
    on_node = fingerprint(
        spec,
        identities=identities,
        needed=needed,
        image_digest=image.reference,
        firmware=firmware,
        userspace=userspace,
        rebuild=rebuild,
        vendor=vendor,
    )
    annotations = {
        KERNEL_ANNOTATION: target.kernel_version,
        VERSION_ANNOTATION: spec.version,
        MODULES_ANNOTATION: json.dumps(dict(identities), sort_keys=True),
        **({NEEDED_ANNOTATION: json.dumps(dict(needed), sort_keys=True)} if needed else {}),
        FINGERPRINT_ANNOTATION: on_node,
    }
    environment = _environment(driver, spec, target, rebuild=rebuild, node_rebuilds=node_rebuilds, first=first)
    if spec.userspace:
        # Another image with the same user space is the same folder on the node.
        environment.append(
            {"name": "USERSPACE", "value": _export(driver, spec.userspace, userspace or image.reference)}
        )
    pod = _pod_spec(
        spec,
        str(image),
        loader_image=loader_image,
        privileges=privileges,
        folders=_host_folders(spec, folders),
        environment=environment,
    )
    if vendor is not None and (vendor.is_for_many_kernels or not names_all(spec, identities)):
        pod = with_vendor(pod, spec, vendor, target=target, privileges=privileges, prepare=_loader_command("prepare"))
    if follows_program:
        pod = {**pod, "hostPID": True}
    selector = _node_selector(spec, target, with_os_version=selects_os_version)
    template = {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": {"nodeSelector": selector, **pod, "affinity": _affinity(driver, target, slot)},
    }
    written = {
        FINGERPRINT_ANNOTATION: on_node,
        KERNEL_ANNOTATION: target.kernel_version,
        OS_VERSION_ANNOTATION: target.os_version,
        **({ADOPTED_ANNOTATION: adopted} if adopted else {}),
        **({KEPT_ANNOTATION: " ".join((basis, *kept))} if basis else {}),
    }
    return {
        "apiVersion": DAEMON_SETS.api_version,
        "kind": DAEMON_SETS.kind,
        "metadata": {
            "name": daemon_set_name(driver, target, slot.name),
            "namespace": driver.namespace,
            "labels": labels,
            "annotations": {**written, TEMPLATE_ANNOTATION: _digest([written, template])},
            "ownerReferences": [owner_reference(driver)],
        },
        "spec": {
            "selector": {"matchLabels": {DRIVER_LABEL: driver.name, TARGET_LABEL: labels[TARGET_LABEL]}},
            # The controller replaces pods itself, one at a time and only when the new image is proven.
            "updateStrategy": {"type": "OnDelete"},
            "template": template,
        },
    }


def _affinity(driver: DriverContainer, target: KernelTarget, slot: Slot) -> Json:
    """Return which nodes the pods are for besides the selector."""
    moved = slot.name if slot.place is Place.MOVED else slots.other(slot.name)
    return slots.affinity(
        driver_keys(driver.key).wave,
        slots.name_in(target.short_hash, moved),
        slot.place,
        driver_keys(driver.key).yields,
    )


def parse_kept(annotations: Mapping[str, str]) -> tuple[str, frozenset[str]]:
    """Read :data:`KEPT_ANNOTATION`: what pods have in common, and the kept fingerprints."""
    basis, *kept = annotations.get(KEPT_ANNOTATION, "").split()[: MAX_KEPT + 1] or [""]
    return basis, frozenset(kept)


def folders_of(pod_spec: Json) -> tuple[str, ...]:
    """Return the folders of the node that a pod mounts."""
    return tuple(sorted(item["name"] for item in pod_spec.get("volumes") or () if "hostPath" in item))


def has_program(pod_spec: Json) -> bool:
    """Return whether the image's own program loads the modules in such a pod."""
    return any(item["name"] == PROGRAM_CONTAINER for item in pod_spec.get("containers") or ())


def sees_programs(pod_spec: Json) -> bool:
    """Return whether our loader in such a pod sees the program of another pod, which may unload as it ends."""
    return bool(pod_spec.get("hostPID")) and not has_program(pod_spec)


def firsts_of(pod_spec: Json) -> tuple[DriverKey, ...]:
    """Return the drivers that a pod's loader waits for, by ``namespace/name``."""
    waiting = (LOAD_CONTAINER, PREPARE_CONTAINER)
    containers = (item for item in pod_spec.get("initContainers") or () if item["name"] in waiting)
    variables = (item for container in containers for item in container.get("env") or ())
    words = next((str(item.get("value") or "") for item in variables if item["name"] == DEPENDS), "").split()
    return tuple(DriverKey(word.partition(":")[0].replace(".", "/", 1)) for word in words)


def _node_selector(spec: DriverSpec, target: KernelTarget, *, with_os_version: bool) -> Json:
    selector = {
        **spec.node_selector,
        names.KERNEL_VERSION_LABEL: names.label_value(target.kernel_version),
        names.OS_ID_LABEL: target.os_id,
        names.ARCHITECTURE_LABEL: target.architecture,
    }
    if with_os_version and target.os_version:
        selector[names.OS_VERSION_LABEL] = target.os_version
    return selector


def owner_reference(driver: DriverContainer, *, blocks_deletion: bool = True) -> Json:
    """Name the DriverContainer as controller: what it owns is garbage-collected with it."""
    return {
        "apiVersion": DRIVER_CONTAINERS.api_version,
        "kind": DRIVER_CONTAINERS.kind,
        "name": driver.name,
        "uid": driver.uid,
        "controller": True,
        "blockOwnerDeletion": blocks_deletion,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _HostFolder:
    """A folder of the node that a driver pod sees below ``/host``."""

    name: str
    path: str
    read_only: bool = False

    @property
    def mount(self) -> Json:
        mount: Json = {"name": self.name, "mountPath": f"/host{self.path}"}
        return {**mount, "readOnly": True} if self.read_only else mount

    @property
    def volume(self) -> Json:
        # A folder that is written to must exist; without its own modules, a node has nothing to read either.
        kind = {} if self.read_only else {"type": "DirectoryOrCreate"}
        return {"name": self.name, "hostPath": {"path": self.path, **kind}}


_MODULES = _HostFolder(name="modules", path="/lib/modules", read_only=True)
_FIRMWARE = _HostFolder(name="firmware", path="/lib/firmware")
_VAR_FIRMWARE = _HostFolder(name="var-firmware", path=FIRMWARE_FOLDER)
_BLACKLISTS = _HostFolder(name="modprobe", path="/etc/modprobe.d")
_RUN = _HostFolder(name="run", path=HOST_FOLDER)
"""What the loader remembers until the node boots: the owner of each module, the rebuilds it has seen, the parameters
it has set."""
_NVIDIA = _HostFolder(name="nvidia", path=NVIDIA_FOLDER)

_DEVICES = _HostFolder(name="dev", path="/dev", read_only=True)
"""Where ``deviceNodes`` are looked for, by ``hold`` as well. Nothing is opened there."""


def _host_folders(spec: DriverSpec, kept: Collection[str]) -> tuple[_HostFolder, ...]:
    """Mount no more of the node than the spec needs, or needed before."""
    asked = (
        (_FIRMWARE, spec.module.firmware_path and not spec.module.firmware_host_path),
        (_VAR_FIRMWARE, spec.module.firmware_host_path),
        (_BLACKLISTS, spec.module.blacklist),
        (_NVIDIA, spec.userspace and spec.userspace.host_path),
    )
    devices = (_DEVICES,) if spec.validation.device_nodes else ()
    return (_MODULES, *(folder for folder, is_asked in asked if is_asked or folder.name in kept), _RUN, *devices)


def _environment(
    driver: DriverContainer,
    spec: DriverSpec,
    target: KernelTarget,
    *,
    rebuild: str,
    node_rebuilds: Mapping[str, str],
    first: Iterable[tuple[str, tuple[str, ...]]],
) -> list[Json]:
    """Return the loader's settings besides the modules, in the variables described at the top of ``loader.sh``."""
    to_load = (f"+{name}" for name in spec.module.in_tree_modules_to_load)
    place = spec.module.firmware_host_path
    values = {
        "REMOVE_MODULES": " ".join((*spec.module.in_tree_modules_to_remove, *to_load)),
        FIRMWARE_PATH: f":{place}" if place else "",
        "BLACKLIST": " ".join(spec.module.blacklist),
        DEPENDS: " ".join(f"{other.replace('/', '.', 1)}:{','.join(modules)}" for other, modules in first),
        "REBUILD": rebuild,
        "NODE_REBUILDS": " ".join(f"{node}:{token}" for node, token in sorted(node_rebuilds.items())),
        DEVICE_NODES: " ".join(spec.validation.device_nodes),
    }
    owner = {"name": "DRIVER", "value": files_owner(driver, target.short_hash)}
    variables: list[Json] = [owner, *({"name": name, "value": value} for name, value in values.items() if value)]
    if node_rebuilds:
        variables.append({"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
    return variables


def _export(driver: DriverContainer, userspace: UserspaceSettings, digest: str) -> str:
    """Return where the loader exports the user space, and what tells it from another one."""
    path = userspace.host_path or f"{_RUN.path}/{driver.namespace}.{driver.name}"
    return f"{path} {digest.removeprefix('sha256:')[:16]}"


def files_owner(driver: DriverContainer, target_hash: str) -> str:
    """Return the name for the files of a driver's target on a node: ``DRIVER`` of ``loader.sh``.

    The loader gets the driver's name from it: what comes before the last dash.
    """
    return f"{driver.namespace}.{driver.name}-{target_hash}"


def _pod_spec(
    spec: DriverSpec,
    image: str,
    *,
    loader_image: str,
    privileges: LoaderPrivileges,
    folders: tuple[_HostFolder, ...],
    environment: list[Json],
) -> Json:
    """Make the pod: ``loader`` copies the loader, ``load`` loads, ``hold`` watches the modules and writes nothing."""
    loader = {"name": "driverwright", "mountPath": LOADER_FOLDER}
    container: Json = {
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {"cpu": "5m", "memory": "8Mi"}, "limits": {"memory": f"{_MEMORY_MIB}Mi"}},
    }
    bring: Json = {
        **container,
        "name": LOADER_CONTAINER,
        "image": loader_image,
        "command": ["/busybox", "cp", "-f", "/busybox", "/loader.sh", f"{LOADER_FOLDER}/"],
        "securityContext": UNPRIVILEGED,
        "volumeMounts": [loader],
    }
    load: Json = {
        **container,
        "name": LOAD_CONTAINER,
        "image": image,
        "command": _loader_command("load"),
        "securityContext": security_context(privileges),
        "env": environment,
        "volumeMounts": [{**loader, "readOnly": True}, *(folder.mount for folder in folders)],
    }
    if spec.userspace:
        # What it copies to the node's /run is memory, which is charged to it.
        size = _MEMORY_MIB + -(-spec.userspace.build.size_limit // (1 << 20))
        load["resources"] = {**load["resources"], "limits": {"memory": f"{size}Mi"}}
    hold: Json = {
        **container,
        "name": HOLD_CONTAINER,
        "image": image,
        "command": _loader_command("hold"),
        "securityContext": UNPRIVILEGED,
        "volumeMounts": [{**loader, "readOnly": True}],
        "readinessProbe": {"exec": {"command": _loader_command("probe")}, "periodSeconds": 10, "timeoutSeconds": 30},
    }
    if spec.validation.device_nodes:
        hold["env"] = [item for item in environment if item["name"] == DEVICE_NODES]
        hold["volumeMounts"] = [*hold["volumeMounts"], _DEVICES.mount]
        # Under SELinux the type of other containers may not look at every device node. Ignored without it.
        hold["securityContext"] = {**UNPRIVILEGED, "seLinuxOptions": {"type": "spc_t"}}
    pod: Json = {
        # A driver must be able to load before the node's network is up: it may be a network driver.
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "priorityClassName": spec.priority_class_name or "system-node-critical",
        "tolerations": with_ours(spec.tolerations) if spec.tolerations else [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 30,
        "initContainers": [bring, load],
        "containers": [hold],
        "volumes": [{"name": loader["name"], "emptyDir": {}}, *(folder.volume for folder in folders)],
    }
    if spec.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in spec.image_pull_secrets]
    return pod


def _loader_command(word: str) -> list[str]:
    return [f"{LOADER_FOLDER}/busybox", "sh", f"{LOADER_FOLDER}/loader.sh", word]


def as_text(value: object) -> str:
    """Write plain data so that equal data are equal texts."""
    return json.dumps(value, sort_keys=True)


def _digest(value: object) -> str:
    return hashlib.sha256(as_text(value).encode()).hexdigest()[:16]
