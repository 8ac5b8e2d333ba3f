"""The pod that brings a driver image to one node before the driver there is replaced: manifest, name, state. Pure.

It runs nothing of the image, which has data only: the loader's own busybox ends at once. That its container has run
with that image, by digest, proves that the node has it; ``node.status.images`` lists only some of a node's images.
While the pod is there, its ended container keeps the kubelet from removing the image.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

from driver_builder.api.driver_container import DriverContainer
from driver_builder.model.driver_key import DriverKey
from driver_builder.objects.manifests import LOADER_FOLDER, UNPRIVILEGED
from driver_builder.tasks import bound_pod
from driver_builder.tasks.bound_pod import BoundPod, PodKind
from kube_api import names

Json = dict[str, Any]

PULL_LABEL = f"{names.GROUP}/pull"
"""On a pull pod, and on no other pod of ours: a digest of the image."""

CONTAINER = "pull"
_MAX_NAME = 46


@dataclass(frozen=True, slots=True, kw_only=True)
class PullPod(BoundPod):
    """One pull pod as it is: ``is_proven`` once the node has its image, ``has_ended`` when it will not be.

    ``ran_at`` is when its container ended, by the clock of its node.
    """

    kind: ClassVar = PodKind.PULL
    image: str
    is_proven: bool = False
    has_ended: bool = False
    message: str = ""
    created_at: float = 0.0
    ran_at: float | None = None


def name_of(driver: DriverKey, node: str, image: str) -> str:
    """Return the name of the pull pod of a driver (``namespace/name``), a node and an image: always the same."""
    return bound_pod.name_of(driver, "pull", node, image, longest=_MAX_NAME)


def manifest(driver: DriverContainer, *, node: str, image: str, loader_image: str) -> Json:
    """Build the pod that pulls ``image`` on a node as a driver pod would, with the same Secrets."""
    loader = {"name": "driverwright", "mountPath": LOADER_FOLDER}
    container: Json = {
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "5m", "memory": "8Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": UNPRIVILEGED,
    }
    bring = {
        **container, "name": "loader", "image": loader_image, "volumeMounts": [loader],
        "command": ["/busybox", "cp", "-f", "/busybox", f"{LOADER_FOLDER}/"],
    }  # fmt: skip
    pull = {
        **container, "name": CONTAINER, "image": image, "volumeMounts": [{**loader, "readOnly": True}],
        "command": [f"{LOADER_FOLDER}/busybox", "true"],
    }  # fmt: skip
    return bound_pod.manifest(
        driver.key,
        name=name_of(driver.key, node, image),
        node=node,
        labels={PULL_LABEL: hashlib.sha256(image.encode()).hexdigest()[:10]},
        owner=driver,
        pod={
            "terminationGracePeriodSeconds": 1,
            "initContainers": [bring],
            "containers": [pull],
            "volumes": [{"name": loader["name"], "emptyDir": {}}],
        },
    )
