"""Whose the pods in the cache are: of our DaemonSets, of one that is gone, or pods that do one thing on one node."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from driver_builder.api.driver_container import DriverContainer
from driver_builder.base.persistent import Pieces
from driver_builder.cluster.cluster_cache import ClusterCache
from driver_builder.cluster.read_pods import OwnedPod
from driver_builder.model.driver_key import DriverKey
from driver_builder.nodes.proofs import with_proof
from driver_builder.objects.plugin import PluginPod
from driver_builder.snapshot.by_driver import NO_PODS, PodsByDriver, PodsOfDriver
from driver_builder.snapshot.snapshot import DaemonSet, DriverPod, OrphanedPod
from driver_builder.tasks.node_task import NodeTask
from driver_builder.tasks.proof_pod import PROOF


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """The pods of a snapshot, as it has them."""

    pods: PodsByDriver
    orphaned: tuple[OrphanedPod, ...]
    tasks: tuple[NodeTask, ...]
    plugin_pods: tuple[PluginPod, ...] = ()


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some pods in the cache, and what they are."""

    owned: tuple[OwnedPod, ...]
    pods: tuple[DriverPod, ...]
    orphaned: tuple[OrphanedPod, ...]
    tasks: tuple[tuple[str, NodeTask], ...]
    """Each with its owner's uid."""
    plugins: tuple[PluginPod, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """The pods with one driver's label: while they are the same, so is what they are."""

    owned: Pieces[OwnedPod]
    pieces: tuple[_Piece, ...] = ()
    pods: PodsOfDriver = NO_PODS
    orphaned: tuple[OrphanedPod, ...] = ()
    tasks: tuple[tuple[str, NodeTask], ...] = ()
    plugins: tuple[PluginPod, ...] = ()


_NOTHING = _Group(Pieces())


class PodReader:
    """Sorts the pods of a cache, and again only the pieces that changed."""

    def __init__(self) -> None:
        self._groups: dict[DriverKey, _Group] = {}
        self._owners: frozenset[str] = frozenset()
        """The DaemonSets that they were sorted by."""
        self._plugins: tuple[list[tuple[PluginPod, ...]], tuple[PluginPod, ...]] = ([], ())
        """The pods of plugins by group, and all of them."""
        self._proven: dict[DriverKey, PodsOfDriver] = {}
        """By driver, pods with the reports of their proof pods."""
        self._joins: dict[str, tuple[DriverPod, tuple[NodeTask, ...], DriverPod]] = {}
        """By uid, a pod, its proof pods, and the pod with their report: while they are the same, so is it."""

    def read(self, cache: ClusterCache, drivers: Iterable[DriverContainer], daemon_sets: Iterable[DaemonSet]) -> Pods:
        """Sort the pods by what controls them."""
        uids = {driver.key: driver.uid for driver in drivers}
        owners = frozenset(item.uid for item in daemon_sets)
        changed, self._owners = owners ^ self._owners, owners
        found = {
            DriverKey(key): owned for item in cache.namespaces for key, owned in item.pods.collection.groups().items()
        }
        self._groups = {driver: self._group(driver, owned, changed) for driver, owned in sorted(found.items())}
        tasks = tuple(task for group in self._groups.values() for owner, task in group.tasks
                      if owner == uids.get(task.driver))  # fmt: skip
        return Pods(
            pods=PodsByDriver(self._with_proofs(task for task in tasks if task.kind == PROOF.name)),
            orphaned=tuple(pod for group in self._groups.values() for pod in group.orphaned),
            tasks=tasks,
            plugin_pods=self._plugin_pods(),
        )

    def _plugin_pods(self) -> tuple[PluginPod, ...]:
        """Give the pods of plugins; the same tuple for as long as they are the same."""
        groups = [group.plugins for group in self._groups.values() if group.plugins]
        if list(map(id, groups)) != list(map(id, self._plugins[0])):
            self._plugins = (groups, tuple(chain.from_iterable(groups)))
        return self._plugins[1]

    def _with_proofs(self, proofs: Iterable[NodeTask]) -> dict[DriverKey, PodsOfDriver]:
        """Return the pods of each driver, those that proof pods prove with what these report."""
        found: dict[DriverKey, dict[str, list[NodeTask]]] = {}
        for proof in proofs:
            found.setdefault(proof.driver, {}).setdefault(proof.subject, []).append(proof)
        self._proven, before = {}, self._proven
        self._joins, joins = {}, self._joins
        pods = {driver: group.pods for driver, group in self._groups.items() if group.pods}
        for driver in found.keys() & pods.keys():
            made = Pieces(tuple([self._joined(piece, found[driver], joins) for piece in pods[driver].pieces]))
            pods[driver] = self._proven[driver] = PodsOfDriver.of(made, before.get(driver, NO_PODS))
        return pods

    def _joined(
        self,
        piece: tuple[DriverPod, ...],
        proofs: Mapping[str, list[NodeTask]],
        before: Mapping[str, tuple[DriverPod, tuple[NodeTask, ...], DriverPod]],
    ) -> tuple[DriverPod, ...]:
        if not any(pod.uid in proofs for pod in piece):
            return piece
        return tuple([self._join(pod, tuple(proofs.get(pod.uid, ())), before.get(pod.uid)) for pod in piece])

    def _join(
        self,
        pod: DriverPod,
        proofs: tuple[NodeTask, ...],
        before: tuple[DriverPod, tuple[NodeTask, ...], DriverPod] | None,
    ) -> DriverPod:
        if not proofs:
            return pod
        if before is None or before[0] is not pod or before[1] != proofs:
            before = (pod, proofs, with_proof(pod, proofs))
        self._joins[pod.uid] = before
        return before[2]

    def _group(self, driver: DriverKey, owned: Pieces[OwnedPod], changed: frozenset[str]) -> _Group:
        """Sort the pods of a group; ``changed`` are the DaemonSets that came or went."""
        known = self._groups.get(driver, _NOTHING)
        if known.owned is owned and not changed:
            return known
        kept = (piece for piece in known.pieces if changed.isdisjoint(item.owner for item in piece.owned))
        before = {id(piece.owned): piece for piece in (kept if changed else known.pieces)}
        pieces = tuple([before.get(id(piece)) or _piece(piece, self._owners) for piece in owned.pieces])
        return _Group(
            owned,
            pieces,
            pods=PodsOfDriver.of(Pieces(tuple([piece.pods for piece in pieces])), known.pods),
            orphaned=tuple(pod for piece in pieces for pod in piece.orphaned),
            tasks=tuple(item for piece in pieces for item in piece.tasks),
            plugins=tuple(pod for piece in pieces for pod in piece.plugins),
        )


def _piece(owned: tuple[OwnedPod, ...], owners: frozenset[str]) -> _Piece:
    of_drivers = [(item.owner, item.pod) for item in owned if isinstance(item.pod, DriverPod)]
    return _Piece(
        owned,
        pods=tuple(pod for owner, pod in of_drivers if owner in owners),
        # The garbage collector removes them in a moment.
        orphaned=tuple(
            OrphanedPod(driver=pod.driver, node=pod.node) for owner, pod in of_drivers if owner not in owners
        ),
        tasks=tuple((item.owner, item.pod) for item in owned if isinstance(item.pod, NodeTask)),
        plugins=tuple(item.pod for item in owned if isinstance(item.pod, PluginPod)),
    )
