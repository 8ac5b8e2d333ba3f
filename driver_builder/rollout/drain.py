"""What still uses the driver on a node that is drained, and what is done about it. Pure.

Place in the flow: :mod:`driver_builder.rollout.hold_node` asks for each node that it has tainted. Pods are evicted,
never deleted: their PodDisruptionBudgets hold. Pods of DaemonSets and mirror pods are never evicted; the former leave
where a paused label takes the node from their DaemonSet. As with ``kubectl drain``, pods that nothing creates again, or
whose files would be lost, stay unless the spec says otherwise. Whatever uses the driver and is not evicted is waited
for: so it costs the node its upgrade, and not the wave.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from driver_builder.api.rollout_settings import DrainSettings
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.permissions import DRAIN_NAMESPACES, allows_eviction
from driver_builder.model.resource_claim import covers_any
from driver_builder.objects.driver_keys import driver_keys
from driver_builder.objects.stage_labels import Stage
from driver_builder.rollout.draining import Draining
from driver_builder.snapshot.node_pods import EvictionRefused, NodePod, NodePods
from kube_api.text import first_few, printable

AGAIN_SECONDS = 10.0
"""After so many seconds an eviction that was refused is tried again."""

MANIFEST = "deploy/driver-builder/drain.yaml"
_MAX_LISTED = 3
_NOT_ALLOWED = f"is not evicted: {DRAIN_NAMESPACES.flag} of driver-builder does not name its namespace"
_CRITICAL = f"is not evicted: it is critical, unless {DRAIN_NAMESPACES.flag} of driver-builder names kube-system"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """Why a pod is waited for and not evicted, in the words of who drains; ``critical``: wherever it is, if not empty.

    Those of a driver name what its author may write to let the pod leave.
    """

    of_daemon_set: str = "uses the driver, and its DaemonSet makes it anew (rollout.drain.pauseLabels lets it leave)"
    bare: str = "is not evicted: nothing creates it again (rollout.drain.force evicts it)"
    local_data: str = "is not evicted: its emptyDir would be lost (rollout.drain.deleteEmptyDirData evicts it)"
    of_node: str = "uses the driver, and a file of the node makes it anew"
    critical: str = ""


OF_DRIVER = Reasons()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the drain of a node is.

    ``words`` say what it waits for, ``evicted`` are the pods to evict now. It is over where it ``is_drained``, with
    what ``note`` says was left out, or ``has_failed``.
    """

    words: str = ""
    evicted: tuple[NodePod, ...] = ()
    is_drained: bool = False
    note: str = ""
    has_failed: bool = False


def progress(
    settings: DrainSettings,
    record: Draining,
    found: NodePods | None,
    refused: Mapping[str, EvictionRefused],
    now: float,
    *,
    namespaces: tuple[str, ...] | None = None,
    reasons: Reasons = OF_DRIVER,
) -> Progress:
    """Decide what comes next on one node; ``refused`` are evictions by the uid of the pod.

    Pods are evicted in ``namespaces`` only; None: in all, except critical ones of kube-system. ``reasons`` are those
    of who drains.
    """
    is_late = now >= record.since + settings.deadline_seconds
    if found is None:
        return Progress(words="its pods are not read yet", has_failed=is_late)
    if found.unread:
        return Progress(is_drained=True, note=_without_rights(found.unread))
    daemons, others = _leaving(settings, DriverKey(record.driver), found.pods)
    awaited = {pod.uid: why for pod in others if (why := _kept(pod, settings, namespaces, reasons))}
    users = [pod for pod in others if pod.uid not in awaited and _is_evictable(pod) and _uses(pod, settings)]
    if not (daemons or awaited or users):
        return Progress(is_drained=True, note=f"drained, but {found.unseen}" if found.unseen else "")
    forbidden = next((refused[pod.uid] for pod in users if pod.uid in refused and refused[pod.uid].is_forbidden), None)
    if forbidden is not None:
        return Progress(is_drained=True, note=_without_rights(forbidden.message))
    words = _words([(pod, awaited[pod.uid]) for pod in others if pod.uid in awaited], users, daemons, refused)
    if is_late:
        return Progress(words=words, has_failed=True)
    # Jobs first: what they need may be among the others.
    due = [] if awaited else [pod for pod in users if not pod.deleting and _is_due(refused.get(pod.uid), now)]
    return Progress(words=words, evicted=tuple(due))


def waits(settings: DrainSettings, driver: DriverKey, found: NodePods, namespaces: tuple[str, ...] | None) -> bool:
    """Return whether a drain of a node, were it to begin now, would wait for pods that it does not evict."""
    _, others = _leaving(settings, driver, found.pods)
    return any(_kept(pod, settings, namespaces, OF_DRIVER) for pod in others)


def _leaving(
    settings: DrainSettings, driver: DriverKey, pods: Iterable[NodePod]
) -> tuple[list[NodePod], list[NodePod]]:
    """Return the pods of DaemonSets that leave because of a label that is paused, and all others that may matter."""
    leaving = [pod for pod in pods if not pod.has_ended and not pod.is_ours]
    # The label of stages that says "may run here" goes as the drain begins, or with a plugin that leaves last after it.
    is_run_gone = driver and not settings.plugin_leaves_last
    keys = (*settings.pause_labels, *([driver_keys(driver).stages[Stage.RUN]] if is_run_gone else []))
    daemons = [pod for pod in leaving if pod.is_daemon and not pod.node_selector.isdisjoint(keys)]
    return daemons, [pod for pod in leaving if pod not in daemons]


def _is_evictable(pod: NodePod) -> bool:
    """Return whether an eviction takes a pod away: a DaemonSet, or a file of the node, makes it anew at once."""
    return not (pod.is_daemon or pod.is_mirror)


def _kept(pod: NodePod, settings: DrainSettings, namespaces: tuple[str, ...] | None, reasons: Reasons) -> str:
    """Return why a pod is waited for and not evicted; empty if it is evicted, or does not matter."""
    if not _is_evictable(pod):
        if not _has_device(pod, settings):
            return ""
        return reasons.of_node if pod.is_mirror else reasons.of_daemon_set
    if _is_selected(pod, settings.wait_for):
        return "has not ended, and waitFor selects it"
    return _stays(pod, settings, namespaces, reasons) if _uses(pod, settings) else ""


def _stays(pod: NodePod, settings: DrainSettings, namespaces: tuple[str, ...] | None, reasons: Reasons) -> str:
    """Return why a pod that uses the driver may not be evicted; empty if it may."""
    if pod.is_critical and reasons.critical:
        return reasons.critical
    if not allows_eviction(namespaces, pod.namespace, is_critical=pod.is_critical):
        return _CRITICAL if namespaces is None else _NOT_ALLOWED
    if pod.is_bare and not settings.force:
        return reasons.bare
    return reasons.local_data if pod.has_local_data and not settings.delete_empty_dir_data else ""


def _uses(pod: NodePod, settings: DrainSettings) -> bool:
    return _has_device(pod, settings) or _is_selected(pod, settings.pod_selector)


def _has_device(pod: NodePod, settings: DrainSettings) -> bool:
    has_resource = any(covers_any(claim, pod.resources) for claim in settings.resources)
    return has_resource or not pod.claim_drivers.isdisjoint(settings.dra_drivers)


def _is_selected(pod: NodePod, selector: Mapping[str, str]) -> bool:
    return bool(selector) and all(pod.labels.get(key) == value for key, value in selector.items())


def _is_due(refused: EvictionRefused | None, now: float) -> bool:
    return refused is None or not refused.at <= now < refused.at + AGAIN_SECONDS


def _words(
    awaited: Iterable[tuple[NodePod, str]],
    users: Iterable[NodePod],
    daemons: Iterable[NodePod],
    refused: Mapping[str, EvictionRefused],
) -> str:
    """Name the pods that are left, and why the first of them is."""
    every = [
        *((pod, "is terminating" if pod.deleting else why) for pod, why in awaited),
        *((pod, _why(pod, refused.get(pod.uid))) for pod in users),
        *((pod, "has not left, though its label is paused") for pod in daemons),
    ]
    # What a budget holds is named before what is on its way.
    every.sort(key=lambda item: item[0].deleting)
    return f"{first_few((pod for pod, _ in every), _MAX_LISTED)}: {every[0][0].name} {every[0][1]}"


def _why(pod: NodePod, refused: EvictionRefused | None) -> str:
    if pod.deleting:
        return "is terminating"
    return "is evicted" if refused is None else f"stays: {refused.message}"


def _without_rights(message: str) -> str:
    return printable(f"not drained: apply {MANIFEST} to allow it; {message}")
