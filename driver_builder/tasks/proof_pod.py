"""The pod that proves what an image's own program has loaded on one node: its manifest and report. Pure.

Only a container that has ended has a termination message, and only one that is never started again keeps it: those of
the driver pod go on. So ``loader prove`` runs in a pod of its own, once for each driver pod and boot. It stays there:
its report is the evidence for the ready label, as that of ``load`` is in other driver pods. What it has found live is
also recorded on the node, where ``hold`` of the driver pod reads it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from driver_builder.api.driver_container import DriverContainer
from driver_builder.objects import load_report
from driver_builder.objects.load_report import LOADED, LoadReport
from driver_builder.objects.manifests import DEVICE_NODES, LOADER_FOLDER, UNPRIVILEGED
from driver_builder.objects.vendor_pod import POD_UID, ROOT, RUN, UNCONFINED
from driver_builder.tasks import task_pod
from driver_builder.tasks.task_kind import Outcome, PodEnd, State, TaskKind
from kube_api.text import printable

Json = dict[str, Any]

VARIABLES = ("DRIVER", "KERNEL", "MODULES", DEVICE_NODES)
"""What ``prove`` needs of the variables of ``prepare`` in the driver pod."""

_BEFORE_AND_AFTER_SECONDS = 300
"""For the image of the loader, and what follows once the modules are live."""


def _outcome(pod: PodEnd) -> Outcome:
    report = load_report.parse(pod.report)
    if report is not None:
        return Outcome(State.SUCCEEDED if report.result == LOADED else State.FAILED, report=report)
    said = pod.trouble or pod.failure("the loader") or pod.message or pod.reason
    return Outcome(State.FAILED if pod.has_ended else pod.under_way, printable(said))


PROOF = TaskKind(
    name="proof", verb="prove", container="prove", outcome=_outcome, stays=True,
    counts_running=False,
    does="prove {driver} on", group="validate",
)  # fmt: skip
"""It is about a driver pod, by its uid. A name also has the uid of the proof pod of before, if any: the same step has
the same name, and the evidence of before stays until there is a newer one."""


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
    ``before`` is the uid of the proof pod of before.
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
    prove = task_pod.loader(
        PROOF,
        image=image,
        variables={name: value for name, value in variables.items() if value},
        context={**UNPRIVILEGED, **ROOT, **UNCONFINED},
        mounts=mounts,
    )
    return task_pod.manifest(
        PROOF,
        driver.key,
        node=node,
        parts=(of_pod, before),
        label=of_pod,
        owner=driver,
        seconds=int(seconds) + _BEFORE_AND_AFTER_SECONDS,
        containers=(prove,),
        volumes=volumes,
    )
