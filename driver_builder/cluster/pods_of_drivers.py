"""Whose the pods in the cache are: of our DaemonSets, of one that is gone, or pods that do one thing on one node."""

from collections.abc import Iterable
from dataclasses import dataclass

from driver_builder.api.driver_container import DriverContainer
from driver_builder.cluster.cluster_cache import ClusterCache
from driver_builder.cluster.read_pods import OwnedPod
from driver_builder.objects.plugin import PluginPod
from driver_builder.objects.pull_pod import PullPod
from driver_builder.objects.unload_pod import UnloadPod
from driver_builder.objects.validation_pod import ValidationPod
from driver_builder.observed.by_driver import PodsByDriver
from driver_builder.observed.snapshot import DaemonSet, DriverPod, OrphanedPod


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """The pods of a snapshot, as it has them."""

    pods: PodsByDriver
    orphaned: tuple[OrphanedPod, ...]
    unload_pods: tuple[UnloadPod, ...]
    validation_pods: tuple[ValidationPod, ...]
    pull_pods: tuple[PullPod, ...]
    plugin_pods: tuple[PluginPod, ...] = ()
    plugin_validation_pods: tuple[ValidationPod, ...] = ()


@dataclass(frozen=True, slots=True)
class _Group:
    """The pods with one driver's label, and what they were sorted by: while that is the same, so are they."""

    owned: tuple[OwnedPod, ...]
    daemon_sets: tuple[DaemonSet, ...]
    pods: tuple[DriverPod, ...]
    orphaned: tuple[OrphanedPod, ...]
    own: tuple[OwnedPod, ...]
    """Unload, validation and pull pods."""
    plugins: tuple[PluginPod, ...]


class PodReader:
    """Sorts the pods of a cache, and again only the groups that changed."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}

    def read(self, cache: ClusterCache, drivers: Iterable[DriverContainer], daemon_sets: tuple[DaemonSet, ...]) -> Pods:
        """Sort the pods by what controls them; ``daemon_sets`` is the same tuple for as long as they are the same."""
        uids = {driver.key: driver.uid for driver in drivers}
        owners = frozenset(item.uid for item in daemon_sets)
        found = {driver: owned for item in cache.namespaces for driver, owned in item.pods.collection.groups().items()}
        self._groups = {
            driver: self._group(driver, owned, daemon_sets, owners) for driver, owned in sorted(found.items())
        }
        own = [item.pod for group in self._groups.values() for item in group.own
               if item.owner == uids.get(item.pod.driver)]  # fmt: skip
        return Pods(
            pods=PodsByDriver({driver: group.pods for driver, group in self._groups.items() if group.pods}),
            orphaned=tuple(pod for group in self._groups.values() for pod in group.orphaned),
            unload_pods=tuple(pod for pod in own if isinstance(pod, UnloadPod)),
            validation_pods=tuple(pod for pod in own if isinstance(pod, ValidationPod) and not pod.of_plugin),
            plugin_pods=tuple(pod for group in self._groups.values() for pod in group.plugins),
            plugin_validation_pods=tuple(pod for pod in own if isinstance(pod, ValidationPod) and pod.of_plugin),
            pull_pods=tuple(pod for pod in own if isinstance(pod, PullPod)),
        )

    def _group(
        self, driver: str, owned: tuple[OwnedPod, ...], daemon_sets: tuple[DaemonSet, ...], owners: frozenset[str]
    ) -> _Group:
        known = self._groups.get(driver)
        if known is not None and known.owned is owned and known.daemon_sets is daemon_sets:
            return known
        ours = tuple([item.pod for item in owned if item.owner in owners and isinstance(item.pod, DriverPod)])
        others = owned if len(ours) < len(owned) else ()
        return _Group(
            owned=owned,
            daemon_sets=daemon_sets,
            pods=ours,
            # The garbage collector removes them in a moment.
            orphaned=tuple(
                OrphanedPod(driver=item.pod.driver, node=item.pod.node)
                for item in others
                if item.owner not in owners and isinstance(item.pod, DriverPod)
            ),
            own=tuple(item for item in others if not isinstance(item.pod, DriverPod | PluginPod)),
            plugins=tuple(item.pod for item in others if isinstance(item.pod, PluginPod)),
        )
