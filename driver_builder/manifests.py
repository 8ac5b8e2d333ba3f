"""The DaemonSet that keeps one driver image running on the nodes of one target. Pure: values in, plain dict out."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from driver_builder.driver_container import DriverContainer
from driver_builder.driver_spec import DriverSpec
from driver_builder.images import ImageRef
from driver_builder.kernels import KernelTarget
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
    pod_spec = _pod_spec(spec, target, str(image))
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


def _pod_spec(spec: DriverSpec, target: KernelTarget, image: str) -> Json:
    container: Json = {
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"privileged": True},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {"cpu": "5m", "memory": "8Mi"}, "limits": {"memory": "64Mi"}},
        "volumeMounts": [{"name": "modules", "mountPath": "/host/lib/modules", "readOnly": True}],
    }
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
        "volumes": [{"name": "modules", "hostPath": {"path": "/lib/modules"}}],
    }
    if spec.pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in spec.pull_secrets]
    return pod


def _fingerprint(template: Json) -> str:
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:16]
