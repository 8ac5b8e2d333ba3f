"""The pod that brings a driver image to one node before the driver there is replaced: manifest, name, state. Pure.

It runs nothing of the image, which has data only: the loader's own busybox ends at once. That its container has run
with that image, by digest, proves that the node has it; ``node.status.images`` lists only some of a node's images.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.objects.manifests import DRIVER_LABEL, LOADER_FOLDER, owner_reference
from kube_api import names
from kube_api.resources import PODS

Json = dict[str, Any]

PULL_LABEL = f"{names.GROUP}/pull"
"""On a pull pod, and on no other pod of ours: a digest of the image."""

CONTAINER = "pull"
_MAX_NAME = 46


@dataclass(frozen=True, slots=True, kw_only=True)
class PullPod:
    """One pull pod as it is: ``is_proven`` once the node has its image, ``has_ended`` when it will not be."""

    namespace: str
    name: str
    uid: str
    driver: str
    node: str
    image: str
    is_proven: bool = False
    has_ended: bool = False
    deleting: bool = False
    message: str = ""


def name_of(driver: str, node: str, image: str) -> str:
    """Return the name of the pull pod of a driver (``namespace/name``), a node and an image: always the same."""
    digest = hashlib.sha256(f"{driver}\0{node}\0{image}".encode()).hexdigest()[:10]
    return f"{driver.partition('/')[2][:_MAX_NAME].rstrip('-.')}-pull-{digest}"


def manifest(driver: DriverContainer, spec: DriverSpec, *, node: str, image: str, loader_image: str) -> Json:
    """Build the pod that pulls ``image`` on a node as a driver pod would, with the same Secrets."""
    loader = {"name": "driverwright", "mountPath": LOADER_FOLDER}
    container: Json = {
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "5m", "memory": "8Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
            "readOnlyRootFilesystem": True,
        },
    }
    bring = {
        **container, "name": "loader", "image": loader_image, "volumeMounts": [loader],
        "command": ["/busybox", "cp", "-f", "/busybox", f"{LOADER_FOLDER}/"],
    }  # fmt: skip
    pull = {
        **container, "name": CONTAINER, "image": image, "volumeMounts": [{**loader, "readOnly": True}],
        "command": [f"{LOADER_FOLDER}/busybox", "true"],
    }  # fmt: skip
    secrets = [{"name": name} for name in spec.image_pull_secrets]
    labels = {
        "app.kubernetes.io/managed-by": "driver-builder",
        DRIVER_LABEL: driver.name,
        PULL_LABEL: hashlib.sha256(image.encode()).hexdigest()[:10],
    }
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            "name": name_of(driver.key, node, image),
            "namespace": driver.namespace,
            "labels": labels,
            "ownerReferences": [owner_reference(driver, blocks_deletion=False)],
        },
        "spec": {
            # Bound here: no scheduler refuses it a place on a node that is cordoned, full or tainted.
            "nodeName": node,
            "tolerations": [{"operator": "Exists"}],
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "priorityClassName": spec.priority_class_name or "system-node-critical",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "initContainers": [bring],
            "containers": [pull],
            "volumes": [{"name": loader["name"], "emptyDir": {}}],
            **({"imagePullSecrets": secrets} if secrets else {}),
        },
    }
