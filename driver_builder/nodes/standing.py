"""Where each node stands between the image that it runs and the one that it should run. Pure.

Place in the flow: ``plan_rollout`` finds it target by target, ``driver_builder.rollout`` decides over all targets of a
driver whose pods are replaced.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from driver_builder.model.driver_key import DriverKey
from driver_builder.nodes.evidence import Finding, NodeEvidence, ValidationState, judge
from driver_builder.objects.load_report import HELD
from driver_builder.objects.slots import Place, Slot
from driver_builder.objects.yielding import yielding_of
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.node_record import record_of
from driver_builder.snapshot.snapshot import DaemonSet, DriverPod
from kube_api import names
from kube_api.text import first_few

MAX_NAMED = 3
"""Drivers that a message names."""


class Standing(StrEnum):
    """Where a node stands. Those before ``UPDATED`` run a pod that is to be replaced."""

    WORKING = "working"
    """The driver works, from the image of before."""
    SILENT = "silent"
    """It was proven from the image of before, and its pod is not ready: nothing newer is known."""
    BOOTING = "booting"
    """The node has booted again and has not loaded the image of before yet."""
    BROKEN = "broken"
    """The image of before does not work there: nothing is lost when it is replaced."""
    UPDATED = "updated"
    """The wanted image is proven there."""
    UNPROVEN = "unproven"
    """The node had a driver, and its pod has not proven the wanted image yet."""
    NEW = "new"
    """The driver was never loaded there; its first pod has not proven it yet."""
    FAILED = "failed"
    """The wanted image does not work there: its pod reports so, on this boot."""
    HELD = "held"
    """Another driver has the module there."""


OUTDATED = frozenset({Standing.WORKING, Standing.SILENT, Standing.BOOTING, Standing.BROKEN})
"""Of these nodes a pod is to be replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStanding:
    """One node of a target.

    ``replaced`` are the pods to replace, ``noted`` those of them whose replacement only the driver's status records.
    ``asked`` says that the node itself requests a rebuild, ``skips`` that an admin has annotated it.
    """

    node: str
    target: str
    standing: Standing
    replaced: tuple[DriverPod, ...] = ()
    noted: frozenset[str] = frozenset()
    asked: bool = False
    skips: bool = False
    is_ready: bool = True
    is_cordoned: bool = False
    why: str = ""
    moves: bool = False
    """Whether it gets what is wanted from another DaemonSet than now."""
    is_kept_out: bool = False
    """Whether it gets what is wanted once pods may come there again."""
    can_return: bool = False
    """Whether another DaemonSet has the image of before for it."""
    yields: bool = False
    """Whether its pods keep away, for a driver that this one depends on."""
    is_live: bool = False
    """Whether what is wanted was proven on this boot, and nothing says that it is not loaded any more."""
    works: bool | None = None
    """Where drivers that depend on this one yield: whether it works there, and they may be loaded again."""

    @property
    def is_outdated(self) -> bool:
        """Return whether its pod is to be replaced."""
        return self.standing in OUTDATED

    @property
    def is_lost(self) -> bool:
        """Return whether nothing records which modules it has, and it is to get the image of before."""
        return self.is_kept_out and self.standing is Standing.SILENT and self.moves

    @property
    def is_half_done(self) -> bool:
        """Return whether it works there with an image that is outdated already, and others have yielded to that."""
        return self.works is True and self.is_outdated and not (self.moves or self.is_kept_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """``front`` is the DaemonSet that brings what is wanted, None where it is created at ``slot``.

    ``spare`` is the other one, which has the image of before. Nodes get the wave label ``front_value`` to move to the
    front and ``spare_value`` to move back (None: no label). If ``waits``, labels of an earlier wave go first.
    """

    front: DaemonSet | None
    slot: Slot
    spare: DaemonSet | None = None
    front_value: str | None = None
    spare_value: str | None = None
    waits: bool = False

    def has_in_front(self, wave: str | None) -> bool:
        """Return whether a node with this wave label belongs to the DaemonSet that brings what is wanted."""
        named = self.front_value or self.spare_value
        return named is None or (wave == named) is (self.front_value is not None)

    @property
    def is_placed(self) -> bool:
        """Return whether each DaemonSet is for its nodes alone."""
        ends = (self.front, self.spare)
        moved, others = ends if self.slot.place is Place.MOVED else ends[::-1]
        if self.spare is None:
            return self.front is not None and self.front.slot.place is Place.ALL
        return all(
            item is not None and item.slot.place is place
            for item, place in ((moved, Place.MOVED), (others, Place.OTHERS))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """What other drivers need to know of a target with an image: as in :class:`TargetStanding`.

    ``built_for`` are the images of other drivers with whose symbols it is built, by driver.
    """

    target: str
    is_written: bool
    lanes: Lanes | None = None
    built_for: Mapping[DriverKey, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStanding:
    """The nodes of a target: ``nodes`` are weighed one by one, ``settled`` others have what is wanted.

    On those in ``waiting``, which are sorted, the driver works from the image of before.

    ``fingerprint`` is that of the wanted DaemonSet. It ``is_written`` once pods made from now on have it. With
    ``lanes`` another DaemonSet has the image of before.
    """

    target: str
    fingerprint: str
    is_written: bool
    settled: int
    nodes: tuple[NodeStanding, ...]
    lanes: Lanes | None = None
    has_image: bool = True
    """Without it, it is not known that anything is wanted: nodes can only return."""
    waiting: tuple[str, ...] = ()
    is_undone: bool = False
    """An admin wants the image of before, whatever the spec says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    """What the nodes of a target are weighed by.

    ``fingerprint`` is what is wanted. ``outdated`` are the uids of the pods to replace, and whether only the status
    records that one was replaced; ``asking`` those of pods whose node requests a rebuild. ``lanes`` are the
    DaemonSets of the target.
    """

    target: str
    driver: DriverKey
    fingerprint: str = ""
    outdated: Mapping[str, bool]
    asking: frozenset[str]
    lanes: Lanes | None = None
    evidence: Mapping[str, NodeEvidence] = field(default_factory=dict)
    """That of nodes whose driver may be loaded and not validated."""
    kept_out: frozenset[str] = frozenset()
    """Nodes that have returned to the selector with other modules (:mod:`driver_builder.nodes.held_out`)."""

    def is_in_front(self, node: Node) -> bool:
        """Return whether a node belongs to the DaemonSet that brings what is wanted."""
        return self.lanes is None or self.lanes.has_in_front(record_of(node, self.driver).wave)


def stand(nodes: Iterable[Node], pods: Iterable[DriverPod], by: Weighing) -> tuple[NodeStanding, ...]:
    """Return where each node stands, by its pods."""
    on_node: dict[str, list[DriverPod]] = {}
    for pod in pods:
        on_node.setdefault(pod.node, []).append(pod)
    return tuple(_stand(node, on_node.get(node.name, []), by) for node in nodes)


def _stand(node: Node, pods: list[DriverPod], by: Weighing) -> NodeStanding:
    staying = [pod for pod in pods if not pod.deleting]
    replaced = tuple(pod for pod in staying if pod.uid in by.outdated)
    # Its label may not be written yet.
    is_replaced = any(judge(node, pod)[0] is Finding.SILENT for pod in pods if pod.deleting)
    on_it, record = record_of(node, by.driver), yielding_of(node.annotations)
    yields = on_it.is_to_yield
    is_old = yields or is_replaced or on_it.may_be_loaded
    is_in_front = by.is_in_front(node)
    is_kept_out = node.name in by.kept_out
    if is_kept_out and on_it.is_recorded:
        standing, why = Standing.WORKING, "it has the modules of before, and no DaemonSet selected it"
    elif is_kept_out:
        standing, why = Standing.SILENT, "its Node was registered anew, and nothing records which modules it has"
    elif replaced and not is_old and not is_in_front and all(_is_first_load(node, pod) for pod in replaced):
        standing, why = Standing.NEW, "its driver pod loads the image of before first"
    elif replaced:
        standing, why = min((_of_outdated(node, pod, is_old=is_old) for pod in replaced), key=_most_to_lose)
    elif staying:
        standing, why = _of_current(node, staying[0], is_old=is_old)
    else:
        standing, why = _waiting(is_old=is_old), "its driver pod is being replaced" if pods else "no driver pod"
    is_in_wave = by.lanes is not None and by.lanes.spare is not None
    standing, why = _validated(standing, why, by.evidence.get(node.name), is_old=is_old, is_in_wave=is_in_wave)
    works = None
    if record is not None and record.first == by.driver:
        works = standing in _OF_ONE_THAT_WORKS
        # The node is not done before they are loaded again.
        standing = _OF_ONE_THAT_WORKS.get(standing, standing)
        why = why or f"waits for {first_few(record.drivers, MAX_NAMED)}, which depend on it"
    return NodeStanding(
        **_said_of(node),
        target=by.target,
        standing=standing,
        replaced=() if is_kept_out else replaced,
        is_kept_out=is_kept_out,
        noted=frozenset(pod.uid for pod in replaced if by.outdated[pod.uid]),
        asked=not is_kept_out and any(pod.uid in by.asking for pod in replaced),
        why=why,
        moves=not is_in_front,
        can_return=is_in_front and not is_kept_out and by.lanes is not None and by.lanes.spare is not None,
        yields=yields and on_it.has_yielded,
        is_live=standing is Standing.UNPROVEN and is_in_front and _is_live(node, pods, by),
        works=works,
    )


def _is_live(node: Node, pods: Iterable[DriverPod], by: Weighing) -> bool:
    """Return whether the modules of the wanted image stay loaded while a pod is deleted, is not ready, or comes back.

    A pod that ends leaves them, and the next one takes them as they are.
    """
    front = by.lanes.front if by.lanes is not None else None
    # Somebody may have deleted its DaemonSet.
    wanted = front.fingerprint if front is not None else by.fingerprint
    said = [(pod, judge(node, pod)[0]) for pod in pods if (pod.target, pod.fingerprint) == (by.target, wanted)]
    if any(finding is Finding.REFUTED for _, finding in said):
        return False
    return any(finding is Finding.SILENT and pod.leaves_modules for pod, finding in said) or any(
        load.fingerprint == wanted and load.is_live(node.boot_id) for load in record_of(node, by.driver).loads
    )


_OF_ONE_THAT_WORKS = {Standing.WORKING: Standing.SILENT, Standing.UPDATED: Standing.UNPROVEN}
"""What a node counts as where the driver works, and others that depend on it do not."""


def _is_first_load(node: Node, pod: DriverPod) -> bool:
    """Return whether a pod is about to load: nothing failed yet."""
    return judge(node, pod)[0] is Finding.NOTHING and not pod.message


def _validated(
    standing: Standing, why: str, found: NodeEvidence | None, *, is_old: bool, is_in_wave: bool
) -> tuple[Standing, str]:
    """Return where a node stands whose driver works and is not validated.

    A wave waits for that also where the ready label stays meanwhile.
    """
    if found is None or found.validation is ValidationState.VALIDATED or (found.version and not is_in_wave):
        return standing, why
    has_failed = found.validation is ValidationState.FAILED
    if standing is Standing.UPDATED:
        return (Standing.FAILED if has_failed else _waiting(is_old=is_old)), found.why
    return (Standing.BROKEN, found.why) if standing is Standing.WORKING and has_failed else (standing, why)


def may_work(node: Node, pod: DriverPod) -> bool:
    """Return whether a pod's driver works on a node, or may do so in a moment: there is something to lose."""
    return _of_outdated(node, pod, is_old=record_of(node, pod.driver).may_be_loaded)[0] is not Standing.BROKEN


def without_image(node: Node, target: str, why: str) -> NodeStanding:
    """Return a node that had a driver, which does not work, and whose target has no image now."""
    return NodeStanding(**_said_of(node), target=target, standing=Standing.UNPROVEN, why=why)


def _said_of(node: Node) -> dict[str, Any]:
    return {
        "node": node.name,
        "skips": node.annotations.get(names.SKIP_ROLLOUT_ANNOTATION) == "true",
        "is_ready": node.ready,
        "is_cordoned": node.unschedulable,
    }


def _most_to_lose(found: tuple[Standing, str]) -> int:
    """Return the place of what a pod says, where a node has several: the one that works is what would be lost."""
    return (Standing.WORKING, Standing.SILENT, Standing.BOOTING, Standing.BROKEN).index(found[0])


def _of_outdated(node: Node, pod: DriverPod, *, is_old: bool) -> tuple[Standing, str]:
    finding, why = judge(node, pod)
    if finding is Finding.WORKS:
        return Standing.WORKING, why
    if finding is Finding.SILENT or (is_old and _is_held_well(pod)):
        return Standing.SILENT, why
    # What the kubelet or the loader says of a failure is in the message: such a pod is not about to load.
    is_booting = is_old and not _is_of_this_boot(node, pod) and not pod.message
    return (Standing.BOOTING if is_booting else Standing.BROKEN), why


def _is_held_well(pod: DriverPod) -> bool:
    """Return whether `hold` sees what an image's own program has loaded, though the pod that proved it is gone.

    Anybody who tidies up deletes pods that are completed.
    """
    return pod.program is not None and pod.proof is None and pod.ready and not pod.deleting


def _of_current(node: Node, pod: DriverPod, *, is_old: bool) -> tuple[Standing, str]:
    finding, why = judge(node, pod)
    if finding is Finding.WORKS:
        return Standing.UPDATED, why
    if finding is Finding.REFUTED and _is_of_this_boot(node, pod):
        is_held = pod.proof is not None and pod.proof.result in HELD
        return (Standing.HELD if is_held else Standing.FAILED), why
    return _waiting(is_old=is_old), why


def _waiting(*, is_old: bool) -> Standing:
    return Standing.UNPROVEN if is_old else Standing.NEW


def _is_of_this_boot(node: Node, pod: DriverPod) -> bool:
    said = pod.contrary or pod.proof
    return said is not None and node.is_on_boot(said.boot_id)
