"""The pod that brings a driver image to one node before the driver there is replaced: its manifest and state. Pure.

It runs nothing of the image, which has data only: the loader's own busybox ends at once. That its container has run
with that image, by digest, proves that the node has it; ``node.status.images`` lists only some of a node's images.
While the pod is there, its ended container keeps the kubelet from removing the image.
"""

import hashlib
from typing import Any

from driver_builder.api.driver_container import DriverContainer
from driver_builder.objects.manifests import LOADER_FOLDER, UNPRIVILEGED
from driver_builder.tasks import task_pod
from driver_builder.tasks.task_kind import Outcome, PodEnd, State, TaskKind
from kube_api.text import printable

Json = dict[str, Any]


def _outcome(pod: PodEnd) -> Outcome:
    """Return whether the node has the image: a container has a state with an image's id only after it was pulled."""
    has_run = not {"running", "terminated"}.isdisjoint(pod.container.get("state") or {})
    if has_run and pod.container.get("imageID"):
        return Outcome(State.SUCCEEDED)
    return Outcome(State.FAILED if pod.is_over else pod.under_way, printable(pod.trouble or pod.message))


def _image(pod: Json) -> str:
    return next((item.get("image", "") for item in pod["spec"]["containers"] if item["name"] == PULL.container), "")


PULL = TaskKind(
    name="pull", verb="pull", container="pull", outcome=_outcome, most=500,
    subject=_image,
    does="pull the next image on", group="prepare",
)  # fmt: skip
"""It is about an image: the label has its digest. So many nodes of a driver get their next image at once."""


def manifest(driver: DriverContainer, *, node: str, image: str, loader_image: str) -> Json:
    """Build the pod that pulls ``image`` on a node as a driver pod would, with the same Secrets."""
    loader = {"name": "driverwright", "mountPath": LOADER_FOLDER}
    common: Json = {**task_pod.OF_LOADER, "securityContext": UNPRIVILEGED}
    bring = {
        **common, "name": "loader", "image": loader_image, "volumeMounts": [loader],
        "command": ["/busybox", "cp", "-f", "/busybox", f"{LOADER_FOLDER}/"],
    }  # fmt: skip
    pull = {
        **common, "name": PULL.container, "image": image, "volumeMounts": [{**loader, "readOnly": True}],
        "command": [f"{LOADER_FOLDER}/busybox", "true"],
    }  # fmt: skip
    return task_pod.manifest(
        PULL,
        driver.key,
        node=node,
        parts=(image,),
        label=hashlib.sha256(image.encode()).hexdigest()[:10],
        owner=driver,
        grace=1,
        initContainers=[bring],
        containers=(pull,),
        volumes=[{"name": loader["name"], "emptyDir": {}}],
    )
