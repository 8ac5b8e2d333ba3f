"""The cluster to one frozen :class:`Snapshot`: the only reader. What its images are like is asked afterwards.

Either everything was seen or an error is raised: a partial view would look like nodes and pods that are gone. What may
not be read, a namespace or an object that one driver names, is said in the snapshot. What one driver, pod or image
makes go wrong stays its own (``boundary``). What an object says is read in ``inventory``, ``read_daemon_sets`` and
``read_pods``, once, when the cache takes it.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from itertools import chain

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.base import telemetry
from driver_builder.builds.build_queue import BuildQueue, BuildStates
from driver_builder.cluster.cluster_cache import ClusterCache
from driver_builder.cluster.driver_inputs import DriverInputs
from driver_builder.cluster.look_ahead import LookAhead
from driver_builder.cluster.named_contents import NamedContents
from driver_builder.cluster.plugin_accounts import PluginAccounts
from driver_builder.cluster.pods_of_drivers import PodReader
from driver_builder.cluster.read_claims import with_claims
from driver_builder.cluster.read_daemon_sets import read_plugin_config, read_stray_set
from driver_builder.cluster.read_node_pods import drained, read_node_pods
from driver_builder.model.agent_drains import AgentDrains
from driver_builder.model.driver_key import DriverKey
from driver_builder.objects import plugin
from driver_builder.objects.plugin import PluginConfig, PluginSet, StraySet
from driver_builder.plan.plugin_validation import NextNodes
from driver_builder.prebuild.discovery_queue import DiscoveryQueue, DiscoveryStates
from driver_builder.rollout.agent_drain import read_first
from driver_builder.rollout.next_drains import NextDrains
from driver_builder.rollout.node_lock import from_the_future
from driver_builder.snapshot.inventory import held
from driver_builder.snapshot.node_pods import EvictionRefused, NodePods
from driver_builder.snapshot.snapshot import DaemonSet, Snapshot
from kube_api.client import Collections
from kube_api.errors import Forbidden, NotFound
from kube_api.resources import CONFIG_MAPS, DAEMON_SETS, NAMESPACES

logger = logging.getLogger(__name__)

STRAY_SECONDS = 30.0
"""How long it counts whether somebody else has a DaemonSet with the name of a plugin's, before it is asked again."""


class Observer:
    """Reads one moment of the cluster: the given namespaces' drivers, and all nodes.

    ``cache`` is what is known of it already; without one that is followed everything is listed each time. ``accounts``
    are the service accounts (``namespace/name``) that device plugins may have, ``agent_drains`` says what the agents of
    nodes may have drained.
    """

    def __init__(
        self,
        client: Collections,
        *,
        namespaces: Iterable[str] = (),
        cache: ClusterCache | None = None,
        builds: BuildQueue | None = None,
        discoveries: DiscoveryQueue | None = None,
        clock: Callable[[], float],
        secret_seconds: float = 0.0,
        refused_evictions: dict[str, EvictionRefused] | None = None,
        locks_seen: dict[str, tuple[str, float]] | None = None,
        accounts: Set[str] = frozenset(),
        agent_drains: AgentDrains = AgentDrains(),  # noqa: B008 - immutable
    ) -> None:
        self._client = client
        self._cache = cache or ClusterCache(client, namespaces=namespaces)
        self._contents = NamedContents(client, self._cache, seconds=secret_seconds)
        self._inputs = DriverInputs(self._contents)
        self._builds = builds
        self._discoveries = discoveries
        self._clock = clock
        self._refused = {} if refused_evictions is None else refused_evictions
        self._locks_seen = {} if locks_seen is None else locks_seen
        """By node, a lock from the future, and since when it is there."""
        self._pods = PodReader()
        self._next_nodes = NextNodes()
        self._look_ahead = LookAhead(client)
        self._accounts = PluginAccounts(client, accounts, clock)
        self._agent_drains = agent_drains
        self._daemon_sets: tuple[object, tuple[DaemonSet, ...], tuple[PluginSet, ...]] = (None, (), ())
        """The DaemonSets, those of plugins, and what they were taken from."""
        self._strays: dict[str, tuple[tuple[str, int], float, StraySet | None]] = {}
        """What has the name of a plugin's DaemonSet, by driver: for which uid and generation, and when it was asked."""
        self._owners: frozenset[tuple[str, str]] = frozenset()
        """Namespace and uid of all that may own pods of ours, as they were observed last."""

    def observe(self) -> Snapshot:
        """Read everything that is not known.

        Raises:
            KubeApiError: when any part of the cluster cannot be read.
        """
        cache = self._cache
        cache.repair()
        forbidden = {item.namespace: item.forbidden for item in cache.namespaces if item.forbidden}
        drivers = tuple(driver for item in cache.namespaces for driver in item.drivers.collection.values())
        cache.specs.keep(driver.uid for driver in drivers)
        # Builds are read before the images: a build that ends in between is then seen as running with its image
        # present, never as neither.
        builds = self._builds.states() if self._builds is not None else BuildStates()
        discoveries = self._discoveries.states() if self._discoveries is not None else DiscoveryStates()
        daemon_sets, plugin_sets = self._ours(drivers)
        found = self._pods.read(cache, drivers, daemon_sets)
        nodes = cache.nodes.collection.values()
        ours = self._owners = _uids(drivers, daemon_sets, plugin_sets)
        first_seen = from_the_future(held(nodes), self._locks_seen, self._clock())
        asked = read_first(held(nodes), self._agent_drains, self._clock(), first_seen)
        ours_drained = drained(held(nodes), (driver.key for driver in drivers))
        node_pods = read_node_pods(self._client, dict.fromkeys((*ours_drained, *asked)), ours)
        by_claims = (driver.key for driver in drivers if _drains_by_claims(driver))
        node_pods = with_claims(self._client, node_pods, frozenset(drained(held(nodes), by_claims)))
        node_slices, slices_unread = cache.slices.read(drivers)
        now = self._clock()
        snapshot = Snapshot(
            now=now,
            nodes=nodes,
            drivers=drivers,
            sources=dict(self._inputs.sources(drivers)),
            templates=dict(self._inputs.templates(drivers)),
            certificates=dict(self._inputs.certificates(drivers)),
            daemon_sets=daemon_sets,
            pods=found.pods,
            orphaned_pods=found.orphaned,
            tasks=found.tasks,
            plugin_sets=plugin_sets,
            plugin_pods=found.plugin_pods,
            plugin_configs=dict(self._plugin_configs(drivers, plugin_sets)),
            plugin_strays=dict(self._plugin_strays(drivers, plugin_sets)),
            plugin_accounts=self._accounts.read(drivers),
            node_slices=node_slices,
            slices_unread=slices_unread,
            terminating_namespaces=frozenset(self._terminating(drivers)),
            node_pods=node_pods,
            drained_last=self._look_ahead.drained_last(now),
            locks_first_seen=first_seen,
            refused_evictions=self._refusals(node_pods),
            forbidden=forbidden,
            # Whether the drivers of a namespace that may not be read still need their builds is not known.
            running_builds=frozenset(key for key in builds.running if builds.namespaces.get(key) not in forbidden),
            queued_builds={key: build.action.waiting for key, build in builds.queued.items()},
            suspended=builds.suspended,
            failed_builds=builds.failed,
            discoveries=discoveries.done,
            running_discoveries=discoveries.running,
        )
        if looked_at := self._next_nodes.of(snapshot):
            snapshot = replace(snapshot, resource_users=read_node_pods(self._client, looked_at, ours))
        self._contents.sweep()
        self._inputs.sweep(snapshot.sources)
        _report(cache)
        return snapshot

    def look_ahead(self, snapshot: Snapshot, drains: Iterable[NextDrains]) -> Snapshot:
        """Read of the nodes that a wave takes next which of them a drain would wait on; ``snapshot`` is the last."""
        return self._look_ahead.look(snapshot, drains, self._owners)

    def _refusals(self, node_pods: Mapping[str, NodePods]) -> dict[str, EvictionRefused]:
        """Give the evictions that were refused, and forget those of pods that are gone."""
        uids = {pod.uid for found in node_pods.values() for pod in found.pods}
        for uid in self._refused.keys() - uids:
            del self._refused[uid]
        return dict(self._refused)

    def _ours(self, drivers: Iterable[DriverContainer]) -> tuple[tuple[DaemonSet, ...], tuple[PluginSet, ...]]:
        """Give the DaemonSets that their DriverContainer controls; the same tuples for as long as they are the same."""
        uids = {driver.key: driver.uid for driver in drivers}
        found = [item.daemon_sets.collection.values() for item in self._cache.namespaces]
        # Tuples that are the same are not compared one by one.
        if self._daemon_sets[0] != (uids, found):
            every = [owned for owned in chain.from_iterable(found) if owned.owner == uids.get(owned.daemon_set.driver)]
            ours = tuple(owned.daemon_set for owned in every)
            self._daemon_sets = (
                (uids, found),
                tuple(item for item in ours if isinstance(item, DaemonSet)),
                tuple(item for item in ours if isinstance(item, PluginSet)),
            )
        return self._daemon_sets[1:]

    def _plugin_configs(
        self, drivers: Iterable[DriverContainer], plugin_sets: Iterable[PluginSet]
    ) -> Iterator[tuple[DriverKey, PluginConfig]]:
        """Read the ConfigMaps of device plugins that are wanted, or were."""
        known = {item.driver for item in plugin_sets}
        for driver in drivers:
            if driver.key not in known and not _wants_plugin(driver):
                continue
            try:
                obj = self._contents.get(CONFIG_MAPS.path(namespace=driver.namespace, name=plugin.name_of(driver)))
            except (NotFound, Forbidden):
                # What may not be read is written, which says why it cannot be.
                continue
            yield driver.key, read_plugin_config(obj, driver.uid)

    def _plugin_strays(
        self, drivers: Iterable[DriverContainer], plugin_sets: Iterable[PluginSet]
    ) -> Iterator[tuple[DriverKey, StraySet]]:
        """Read the DaemonSets with the names of plugins' that are wanted and not there: somebody else may have one.

        It is asked when the driver or its DaemonSet has changed, and otherwise from time to time: an apply that makes
        it takes nothing from one that was made since.
        """
        known, before, now = {item.driver for item in plugin_sets}, self._strays, self._clock()
        self._strays = {}
        for driver in drivers:
            if driver.key in known or not _wants_plugin(driver):
                continue
            asker, (asked_by, at, stray) = (driver.uid, driver.generation), before.get(driver.key, (None, now, None))
            if asked_by != asker or not at <= now < at + STRAY_SECONDS:
                at, stray = now, self._stray(driver)
            self._strays[driver.key] = (asker, at, stray)
            if stray is not None:
                yield driver.key, stray

    def _stray(self, driver: DriverContainer) -> StraySet | None:
        path, name = DAEMON_SETS.path(namespace=driver.namespace), plugin.name_of(driver)
        # By a list: to read a single one would need another permission.
        found = self._client.list(path, field_selector=f"metadata.name={name}").items
        return next((stray for obj in found if (stray := read_stray_set(obj, driver.uid)) is not None), None)

    def _terminating(self, drivers: Iterable[DriverContainer]) -> Iterator[str]:
        """Name the namespaces of deleted drivers that are being deleted as well."""
        for namespace in {driver.namespace for driver in drivers if driver.deleting}:
            try:
                obj = self._client.get(NAMESPACES.path(name=namespace))
            except (Forbidden, NotFound):
                # Not to be known is no reason to wait: an unload pod has a deadline.
                continue
            if "deletionTimestamp" in obj["metadata"]:
                yield namespace


def _uids(*owners: Iterable[DriverContainer | DaemonSet | PluginSet]) -> frozenset[tuple[str, str]]:
    """Return the namespaces and uids of all these objects."""
    return frozenset((item.namespace, item.uid) for item in chain(*owners))


def _drains_by_claims(driver: DriverContainer) -> bool:
    drain = driver.spec.rollout.drain if isinstance(driver.spec, DriverSpec) else None
    return drain is not None and bool(drain.dra_drivers)


def _wants_plugin(driver: DriverContainer) -> bool:
    return isinstance(driver.spec, DriverSpec) and driver.spec.device_plugin is not None


def _report(cache: ClusterCache) -> None:
    """Log and count what may not be read."""
    for item in cache.namespaces:
        telemetry.NAMESPACES_FORBIDDEN.labels(item.namespace).set(1 if item.forbidden else 0)
        if item.forbidden:
            logger.warning("%s: its drivers stay unchanged", item.forbidden)
