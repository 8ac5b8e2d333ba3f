"""The pod that proves what an image's own program has loaded on one node: its manifest, its name, its report. Pure.

Only a container that has ended has a termination message, and only one that is never started again keeps it: those of
the driver pod go on. So ``loader prove`` runs in a pod of its own, bound to the node, once for each driver pod and
boot. It stays there: its report is the evidence for the ready label, as that of ``load`` is in other driver pods. What
it has found live is also recorded on the node, where ``hold`` of the driver pod reads it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from driver_builder.api.driver_container import DriverContainer
from driver_builder.model.driver_key import DriverKey
from driver_builder.objects.load_report import LoadReport
from driver_builder.objects.manifests import DEVICE_NODES, LOADER_FOLDER, UNPRIVILEGED
from driver_builder.objects.vendor_pod import POD_UID, ROOT, RUN, UNCONFINED
from driver_builder.tasks import bound_pod
from driver_builder.tasks.bound_pod import BoundPod, PodKind
from kube_api import names

Json = dict[str, Any]

PROOF_LABEL = f"{names.GROUP}/proof"
"""On a proof pod: the uid of the driver pod that it proves. No driver pod has it."""

CONTAINER = "prove"
VARIABLES = ("DRIVER", "KERNEL", "MODULES", DEVICE_NODES)
"""What ``prove`` needs of the variables of ``prepare`` in the driver pod."""

_MAX_NAME = 46
_BEFORE_AND_AFTER_SECONDS = 300
"""For the image of the loader, and what follows once the modules are live."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """An image's own program in a driver pod, and what a proof of it needs: ``environment``.

    ``started_at`` is when its container started, None while it does not run: it ``has_ended`` before, or was never seen
    to run. ``held`` is what ``hold`` ended with, at
    ``held_at``, if nothing has refuted it since. ``proven_at`` is when the proof pod ended whose report the pod has.
    """

    environment: tuple[tuple[str, str], ...] = ()
    started_at: float | None = None
    has_ended: bool = False
    held: LoadReport | None = None
    held_at: float | None = None
    proven_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofPod(BoundPod):
    """One proof pod as it is: ``ended_at`` is None while it runs, ``message`` says why it does not or did not report.

    ``of_pod`` is the uid of the driver pod.
    """

    kind: ClassVar = PodKind.PROOF
    of_pod: str
    created_at: float = 0.0
    ended_at: float | None = None
    report: LoadReport | None = None
    message: str = ""


def name_of(driver: DriverKey, node: str, of_pod: str, before: str) -> str:
    """Return the name of the proof pod of a driver pod; ``before`` is the uid of the proof pod of before, if any.

    So the same step has the same name, and the evidence of before stays until there is a newer one.
    """
    return bound_pod.name_of(driver, "prove", node, of_pod, before, longest=_MAX_NAME)


def manifest(
    driver: DriverContainer,
    *,
    node: str,
    of_pod: str,
    before: str,
    environment: Mapping[str, str],
    image: str,
    seconds: float,
) -> Json:
    """Build the pod that proves a driver pod's modules, which may take so many seconds to be live.

    ``image`` is the loader's. It reads what every container may read, and writes to the loader's folder of the node.
    """
    variables = {**environment, "LOADER": "image", "LIVE_TIMEOUT": str(int(seconds)), POD_UID: of_pod}
    mounts: list[Json] = [{"name": "driverwright", "mountPath": LOADER_FOLDER}, dict(RUN)]
    volumes: list[Json] = [
        {"name": "driverwright", "emptyDir": {}},
        {"name": RUN["name"], "hostPath": {"path": "/run/driverwright", "type": "DirectoryOrCreate"}},
    ]
    if environment.get(DEVICE_NODES):
        mounts.append({"name": "dev", "mountPath": "/host/dev", "readOnly": True})
        volumes.append({"name": "dev", "hostPath": {"path": "/dev"}})
    container: Json = {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/busybox", "sh", "/loader.sh", "prove"],
        "env": [{"name": name, "value": value} for name, value in variables.items() if value],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {"cpu": "5m", "memory": "8Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": {**UNPRIVILEGED, **ROOT, **UNCONFINED},
        "volumeMounts": mounts,
    }
    return bound_pod.manifest(
        driver.key,
        name=name_of(driver.key, node, of_pod, before),
        node=node,
        labels={PROOF_LABEL: of_pod},
        owner=driver,
        pod={
            "activeDeadlineSeconds": int(seconds) + _BEFORE_AND_AFTER_SECONDS,
            "terminationGracePeriodSeconds": 5,
            "containers": [container],
            "volumes": volumes,
        },
    )
