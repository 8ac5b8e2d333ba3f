"""What is known of a driver on a node: proven, refuted, or not heard of. Pure.

A ready label is a fact that stays true while nothing says otherwise. It is set by proof, and goes by contrary evidence:
another boot or kernel, a load that did not succeed, or the verdict of ``hold`` that a module is not live, is another
build or lost its device; and by a validation that failed (:mod:`driver_builder.nodes.validation`). A pod that is
missing, being deleted or not ready says nothing: the modules stay where they are when a pod goes, a kubelet restarts or
the network is down. Only where the image's own program loads the modules (``loader: image``) a pod that ends says that
they may be gone.

The boot and the kernel that a label was proven on are written beside it, as an annotation of the same name. A label
without a pod is believed only while the node is on that boot of that kernel.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from driver_builder.model.kernels import KERNEL_VERSION
from driver_builder.objects import fingerprint, load_report
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.node_record import NodeRecord, record_of
from driver_builder.snapshot.snapshot import DaemonSet, DriverPod


class Finding(StrEnum):
    """What one pod says of its node."""

    WORKS = "works"
    SILENT = "silent"
    """It proved that the driver works on this boot, and is not ready or leaves: nothing newer is known."""
    REFUTED = "refuted"
    NOTHING = "nothing"
    """It has not reported yet."""


class ValidationState(StrEnum):
    """How far the validation of a driver that is loaded is (:mod:`driver_builder.nodes.validation`)."""

    VALIDATED = "validated"
    """Also where nothing has to be validated."""
    UNDECIDED = "undecided"
    """It runs, is tried again, or has not begun."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvidence:
    """What the ready label of a node is to say, None for no label, and why.

    ``works`` says that a pod proves it now; without it a label that is there is only left as it is. ``proven_on`` is
    the boot and kernel of the proof, ``silent_since`` when the last pod that proved it was last ready, where known.
    ``validation`` is why there is no label for a driver that is loaded.
    """

    version: str | None
    works: bool = False
    proven_on: str = ""
    why: str = ""
    silent_since: float | None = None
    validation: ValidationState = ValidationState.VALIDATED


def judge(node: Node, pod: DriverPod) -> tuple[Finding, str]:
    """Return what a pod says of the driver on its node, and the words for it."""
    if pod.proof is None or (pod.deleting and pod.program is not None):
        return Finding.NOTHING, pod.message or _unproven(pod)
    if pod.contrary is not None:
        return Finding.REFUTED, pod.contrary.words
    kernel = _kernel_of(node, pod.proof.kernel)
    why = load_report.doubt(pod.proof, kernel=kernel, boot_id=node.boot_id, expected=pod.expected)
    if why is not None:
        return Finding.REFUTED, why
    if pod.deleting:
        return Finding.SILENT, "its driver pod is being replaced"
    if not pod.ready:
        return Finding.SILENT, pod.message or "its driver pod is not ready"
    return Finding.WORKS, ""


def _unproven(pod: DriverPod) -> str:
    """Say why a pod proves nothing."""
    if pod.program is None or pod.program.started_at is None:
        return "the driver pod has not reported yet"
    if pod.deleting:
        return "its driver pod ends, and the image's own program may unload the modules"
    return "what the image's own program has loaded is not proven yet"


def of_node(on: NodeRecord, pods: Iterable[DriverPod], daemon_sets: Mapping[str, DaemonSet]) -> NodeEvidence:
    """Weigh what all pods of a driver say of one node."""
    pods = tuple(pods)
    said = [(pod, *judge(on.node, pod)) for pod in pods]
    for pod, finding, _ in said:
        if finding is Finding.WORKS and pod.proof is not None:
            version = version_of(pod, on.node, daemon_sets)
            return NodeEvidence(version=version, works=True, proven_on=place(pod.proof))
    refuted = [why for _, finding, why in said if finding is Finding.REFUTED]
    silent = [(pod, why) for pod, finding, why in said if finding is Finding.SILENT]
    if refuted:
        return NodeEvidence(version=None, why=refuted[0])
    words = [why for _, why in silent] + [why for _, _, why in said]
    why = words[0] if words else "no driver pod yet"
    is_backed = bool(silent) or (_is_proven_here(on) and not any(_may_have_unloaded(pod) for pod in pods))
    if on.ready is None or not is_backed:
        return NodeEvidence(version=None, why=why)
    since = [pod.unready_since for pod, _ in silent if pod.unready_since is not None]
    proven_on = next((place(pod.proof) for pod, _ in silent if pod.proof is not None), on.proven_on or "")
    return NodeEvidence(version=on.ready, proven_on=proven_on, why=why, silent_since=min(since, default=None))


def versions_of(node: Node, pods: Iterable[DriverPod], daemon_sets: Mapping[str, DaemonSet]) -> set[str]:
    """Name the versions that a ready label may say by what a node's pods prove."""
    working = [pod for pod in pods if judge(node, pod)[0] is Finding.WORKS]
    return {version for pod in working for version in (pod.version, version_of(pod, node, daemon_sets))}


def version_of(pod: DriverPod, node: Node, daemon_sets: Mapping[str, DaemonSet]) -> str:
    """Name the version of what a pod has on its node: that of today's image where it would be the same.

    Otherwise it is the one that the label says, while the same modules are live as when it was set: that is a newer one
    than the pod's own where a new version had the same modules.
    """
    daemon_set = daemon_sets.get(pod.target)
    if daemon_set is not None and daemon_set.version and is_current(pod, daemon_set):
        return daemon_set.version
    ready = record_of(node, pod.driver).ready if is_as_labelled(pod, node) else None
    return pod.version if ready is None else ready


def place(proven: load_report.LoadReport) -> str:
    """Write the boot and kernel of a proof, as the annotation beside a ready label has them."""
    return f"{proven.boot_id} {proven.kernel}"


def is_as_labelled(pod: DriverPod, node: Node) -> bool:
    """Return whether the modules that a pod proves are those that the Node got with its label, on the same boot."""
    on = record_of(node, pod.driver)
    if pod.proof is None or on.proven_on != place(pod.proof):
        return False
    live = {(module.name, module.identity) for module in pod.proof.modules}
    return bool(live) and any(load.boot_id == pod.proof.boot_id and live.issubset(load.modules) for load in on.loads)


def is_anew(pod: DriverPod, node: Node) -> bool:
    """Return whether a pod has another fingerprint than the one that proved its modules when the Node recorded them."""
    return any(
        load.target == pod.target and load.fingerprint not in ("", pod.fingerprint)
        for load in record_of(node, pod.driver).loads
    )


def _is_proven_here(on: NodeRecord) -> bool:
    boot_id, _, kernel = (on.proven_on or "").partition(" ")
    return bool(kernel) and on.node.is_on_boot(boot_id) and _kernel_of(on.node, kernel) == kernel


def _may_have_unloaded(pod: DriverPod) -> bool:
    """Return whether a pod's own program ends or begins: either may unload what was proven. `hold` knows better."""
    return pod.program is not None and (pod.deleting or (pod.proof is None and not pod.ready))


def _kernel_of(node: Node, known: str) -> str:
    """Give the kernel that a node says it runs; one that lost its labels runs what it ran."""
    return node.kernel_version if KERNEL_VERSION.fullmatch(node.kernel_version) else known


def is_current(pod: DriverPod, daemon_set: DaemonSet) -> bool:
    """Return whether a pod's node would get nothing else from the DaemonSet's template as it is.

    A pod with a fingerprint of an older form is current until its next occasion: other modules than it has, or another
    fingerprint than was wanted when it was first seen. ``kept`` are fingerprints of before a rebuild that only some
    nodes asked for.
    """
    # Pods of earlier versions do not say it.
    if pod.asked and daemon_set.asked and pod.asked != daemon_set.asked:
        return False
    if pod.fingerprint == daemon_set.fingerprint or pod.fingerprint in daemon_set.kept:
        return True
    if fingerprint.is_of_this_form(pod.fingerprint):
        return False
    return daemon_set.adopted == daemon_set.fingerprint and pod.builds == daemon_set.builds
