"""The DaemonSet that keeps one driver image running on the nodes of one target. Pure: values in, plain dict out."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from driver_builder.model.images import ImageRef
from driver_builder.model.kernels import KernelTarget
from driver_builder.spec.driver_container import DriverContainer
from driver_builder.spec.driver_spec import DriverSpec
from kube_api import names
from kube_api.resources import DAEMON_SETS, DRIVER_CONTAINERS

Json = dict[str, Any]

DRIVER_LABEL = f"{names.GROUP}/driver-container"
TARGET_LABEL = f"{names.GROUP}/target"
VERSION_ANNOTATION = f"{names.GROUP}/version"
MODULES_ANNOTATION = f"{names.GROUP}/modules"
FINGERPRINT_ANNOTATION = f"{names.GROUP}/fingerprint"
KERNEL_ANNOTATION = f"{names.GROUP}/kernel"

MAX_NAME_LENGTH = 46
LOADER = "/driver/loader"
LOAD_CONTAINER = "load"
HOLD_CONTAINER = "hold"


def daemon_set_name(driver: DriverContainer, target: KernelTarget) -> str:
    """Name a target's DaemonSet: the driver's name and eight digits that stand for the target.

    A long name is cut to leave room for what Kubernetes appends to pods; eight digits more keep two such names apart.
    """
    name = driver.name
    if len(name) > MAX_NAME_LENGTH:
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        name = f"{name[: MAX_NAME_LENGTH - 9].rstrip('-.')}-{digest}"
    return f"{name}-{target.short_hash}"


def daemon_set(
    driver: DriverContainer,
    spec: DriverSpec,
    *,
    target: KernelTarget,
    image: ImageRef,
    identities: Mapping[str, str],
) -> Json:
    """Build the DaemonSet. ``image`` is by digest; ``identities`` maps module to the srcversion or build id in it."""
    labels = {
        "app.kubernetes.io/name": driver.name,
        "app.kubernetes.io/managed-by": "driver-builder",
        DRIVER_LABEL: driver.name,
        TARGET_LABEL: target.short_hash,
    }
    annotations = {
        KERNEL_ANNOTATION: target.kernel_version,
        VERSION_ANNOTATION: spec.version,
        MODULES_ANNOTATION: json.dumps(dict(identities), sort_keys=True),
    }
    pod_spec = _pod_spec(driver, spec, target, str(image))
    fingerprint = _fingerprint({"annotations": annotations, "spec": pod_spec})
    annotations[FINGERPRINT_ANNOTATION] = fingerprint
    return {
        "apiVersion": DAEMON_SETS.api_version,
        "kind": DAEMON_SETS.kind,
        "metadata": {
            "name": daemon_set_name(driver, target),
            "namespace": driver.namespace,
            "labels": labels,
            "annotations": {FINGERPRINT_ANNOTATION: fingerprint, KERNEL_ANNOTATION: target.kernel_version},
            "ownerReferences": [_owner(driver)],
        },
        "spec": {
            "selector": {"matchLabels": {DRIVER_LABEL: driver.name, TARGET_LABEL: target.short_hash}},
            # The controller replaces pods itself, one at a time and only when the new image is proven.
            "updateStrategy": {"type": "OnDelete"},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod_spec},
        },
    }


def _owner(driver: DriverContainer) -> Json:
    return {
        "apiVersion": DRIVER_CONTAINERS.api_version,
        "kind": DRIVER_CONTAINERS.kind,
        "name": driver.name,
        "uid": driver.uid,
        "controller": True,
        "blockOwnerDeletion": True,
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
        # What is written to must be there; a node without modules of its own has nothing to read either.
        kind = {} if self.read_only else {"type": "DirectoryOrCreate"}
        return {"name": self.name, "hostPath": {"path": self.path, **kind}}


_MODULES = _HostFolder(name="modules", path="/lib/modules", read_only=True)
_FIRMWARE = _HostFolder(name="firmware", path="/lib/firmware")
_BLACKLISTS = _HostFolder(name="modprobe", path="/etc/modprobe.d")


def _host_folders(spec: DriverSpec) -> tuple[_HostFolder, ...]:
    """Give the pod no more of its node than the spec asks for."""
    return (
        _MODULES,
        *((_FIRMWARE,) if spec.firmware_path else ()),
        *((_BLACKLISTS,) if spec.blacklist else ()),
    )


def _environment(driver: DriverContainer, spec: DriverSpec, target: KernelTarget) -> list[Json]:
    """Tell the loader what it does on the node besides loading, in the words at the top of ``loader.sh``."""
    if not (spec.in_tree_modules_to_remove or spec.blacklist or spec.firmware_path):
        return []
    values = {
        "DRIVER": f"{driver.namespace}.{driver.name}-{target.short_hash}",
        "REMOVE_MODULES": " ".join(spec.in_tree_modules_to_remove),
        "BLACKLIST": " ".join(spec.blacklist),
    }
    return [{"name": name, "value": value} for name, value in values.items() if value]


def _pod_spec(driver: DriverContainer, spec: DriverSpec, target: KernelTarget, image: str) -> Json:
    folders = _host_folders(spec)
    container: Json = {
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"privileged": True},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {"cpu": "5m", "memory": "8Mi"}, "limits": {"memory": "64Mi"}},
        "volumeMounts": [folder.mount for folder in folders],
    }
    if environment := _environment(driver, spec, target):
        container["env"] = environment
    probe = {"exec": {"command": [LOADER, "probe"]}, "periodSeconds": 10, "timeoutSeconds": 30}
    pod: Json = {
        "nodeSelector": {
            **spec.node_selector,
            names.KERNEL_VERSION_LABEL: names.label_value(target.kernel_version),
            names.OS_ID_LABEL: target.os_id,
            names.ARCHITECTURE_LABEL: target.architecture,
            **({names.OS_VERSION_LABEL: target.os_version} if target.os_version else {}),
        },
        # A driver must be able to load before the node's network is up: it may be the network's own.
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "priorityClassName": spec.priority_class or "system-node-critical",
        "tolerations": list(spec.tolerations) or [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 30,
        "initContainers": [{**container, "name": LOAD_CONTAINER, "args": ["load"], "command": [LOADER]}],
        "containers": [
            {**container, "name": HOLD_CONTAINER, "args": ["hold"], "command": [LOADER], "readinessProbe": probe}
        ],
        "volumes": [folder.volume for folder in folders],
    }
    if spec.blacklist:
        # Not when the machine goes down: the file is to keep the modules away when it comes up again.
        pod["containers"][0]["lifecycle"] = {"preStop": {"exec": {"command": [LOADER, "leave"]}}}
    if spec.pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in spec.pull_secrets]
    return pod


def _fingerprint(template: Json) -> str:
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:16]
