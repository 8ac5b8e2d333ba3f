"""The cluster to one frozen :class:`Snapshot`: the only reader. What its images are like is asked afterwards.

Either everything was seen or an error is raised: a partial view would look like nodes and pods that are gone. What may
not be read, a namespace or an object that one driver names, is said in the snapshot. What one driver, pod or image
makes go wrong stays its own (``boundary``). What an object says is read in ``read_nodes``, ``read_daemon_sets`` and
``read_pods``.
"""

import base64
import logging
from collections.abc import Callable, Iterable, Iterator, Set
from functools import partial
from typing import TypeVar

from driver_builder import telemetry
from driver_builder.api import driver_container
from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import ConfigMapKey, ConfigMapSource, DriverSpec, SourceSpec
from driver_builder.api.spec_cache import SpecCache
from driver_builder.boundary import contained
from driver_builder.builds.build_queue import BuildQueue, BuildStates
from driver_builder.cluster.read_daemon_sets import read_daemon_set
from driver_builder.cluster.read_metadata import Json, controller_of, driver_key, place
from driver_builder.cluster.read_nodes import read_node
from driver_builder.cluster.read_pods import read_orphaned_pod, read_pod, read_unload_pod
from driver_builder.discovery.discovery_queue import LookUpQueue, LookUpStates
from driver_builder.model.build import OwnTemplate, SourceFiles
from driver_builder.objects import manifests, unload_pod
from driver_builder.objects.unload_pod import UnloadPod
from driver_builder.observed.snapshot import Certificate, CertificateMissing, DaemonSet, Snapshot, Source, SourceMissing
from driver_builder.references.named_objects import ReferenceNotFound, read_config_map, read_text
from driver_builder.references.signing_secrets import SigningSecrets
from kube_api.client import Client
from kube_api.errors import Forbidden, NotFound
from kube_api.resources import DAEMON_SETS, DRIVER_CONTAINERS, NAMESPACES, NODES, PODS, Resource

logger = logging.getLogger(__name__)

_Value = TypeVar("_Value")


class Observer:
    """Reads one moment of the cluster: the given namespaces' drivers, and all nodes."""

    def __init__(
        self,
        client: Client,
        *,
        namespaces: Iterable[str],
        builds: BuildQueue | None = None,
        look_ups: LookUpQueue | None = None,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._namespaces = tuple(namespaces)
        self._builds = builds
        self._look_ups = look_ups
        self._clock = clock
        self._specs = SpecCache()

    def observe(self) -> Snapshot:
        """Read everything.

        Raises:
            KubeApiError: when any part of the cluster cannot be read.
        """
        nodes = tuple(read_node(obj) for obj in self._client.list(NODES.path(), metadata_only=True).items)
        read = _Reading(self._client, self._namespaces)
        drivers = self._parsed(read.objects(DRIVER_CONTAINERS))
        unlisted = frozenset(read.forbidden)
        # Builds are read before the images: a build that ends in between is then seen as running with its image
        # present, never as neither.
        builds = self._builds.states() if self._builds is not None else BuildStates()
        look_ups = self._look_ups.states() if self._look_ups is not None else LookUpStates()
        daemon_sets = _daemon_sets(read.objects(DAEMON_SETS, manifests.DRIVER_LABEL), drivers)
        pods = tuple(read.objects(PODS, manifests.DRIVER_LABEL))
        owners = {item.uid for item in daemon_sets}
        snapshot = Snapshot(
            now=self._clock(),
            nodes=nodes,
            drivers=drivers,
            sources=dict(self._sources(drivers)),
            templates=dict(self._templates(drivers)),
            certificates=dict(self._certificates(drivers)),
            daemon_sets=daemon_sets,
            pods=_each("pod", read_pod, (obj for obj in pods if controller_of(obj).get("uid") in owners)),
            orphaned_pods=_each("pod", read_orphaned_pod, (obj for obj in pods if _is_orphan(obj, owners))),
            unload_pods=_unload_pods(pods, drivers),
            terminating_namespaces=frozenset(self._terminating(drivers)),
            forbidden=read.forbidden,
            # Whether the drivers of a namespace that may not be read still need their builds is not known.
            running_builds=frozenset(key for key in builds.running if builds.namespaces.get(key) not in unlisted),
            queued_builds={key: build.action.waiting for key, build in builds.queued.items()},
            suspended=builds.suspended,
            failed_builds=builds.failed,
            look_ups=look_ups.done,
            running_look_ups=look_ups.running,
        )
        read.report()
        return snapshot

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

    def _parsed(self, objects: Iterable[Json]) -> tuple[DriverContainer, ...]:
        found = tuple(driver_container.parse(obj, self._specs) for obj in objects)
        self._specs.keep(driver.uid for driver in found)
        return found

    def _sources(self, drivers: Iterable[DriverContainer]) -> Iterator[tuple[str, Source]]:
        for driver in drivers:
            if isinstance(driver.spec, DriverSpec):
                yield driver.key, self._source(driver, driver.spec.source)

    def _source(self, driver: DriverContainer, source: SourceSpec) -> Source:
        if not isinstance(source, ConfigMapSource):
            return source
        return contained(
            "driver",
            driver.key,
            lambda: self._config_map(driver.namespace, source.name),
            lambda error: SourceMissing(message=str(error)),
        )

    def _templates(self, drivers: Iterable[DriverContainer]) -> Iterator[tuple[str, OwnTemplate | SourceMissing]]:
        for driver in drivers:
            if isinstance(driver.spec, DriverSpec) and driver.spec.own_template is not None:
                yield driver.key, self._template(driver.namespace, driver.spec.own_template)

    def _certificates(self, drivers: Iterable[DriverContainer]) -> Iterator[tuple[str, Certificate]]:
        secrets = SigningSecrets(self._client)
        for driver in drivers:
            wanted = driver.spec.certificate_secrets if isinstance(driver.spec, DriverSpec) else ()
            for name in wanted:
                yield (
                    f"{driver.namespace}/{name}",
                    contained(
                        "driver",
                        driver.key,
                        partial(secrets.certificate, driver.namespace, name),
                        lambda error: CertificateMissing(message=str(error), is_invalid=True),
                    ),
                )

    def _template(self, namespace: str, wanted: ConfigMapKey) -> OwnTemplate | SourceMissing:
        try:
            text = read_text(self._client, namespace, wanted, field="spec.build.templateConfigMap")
        except ReferenceNotFound as error:
            return SourceMissing(message=str(error))
        return OwnTemplate(place=f"ConfigMap {namespace}/{wanted.name}/{wanted.key}", text=text)

    def _config_map(self, namespace: str, name: str) -> SourceFiles | SourceMissing:
        try:
            obj = read_config_map(self._client, namespace, name, field="spec.source.configMap")
        except ReferenceNotFound as error:
            return SourceMissing(message=str(error))
        files = {path: text.encode() for path, text in (obj.get("data") or {}).items()}
        files |= {path: base64.b64decode(data) for path, data in (obj.get("binaryData") or {}).items()}
        if not files:
            return SourceMissing(message=f"spec.source.configMap: ConfigMap {namespace}/{name} is empty")
        return SourceFiles(files=files)


class _Reading:
    """Lists of the watched namespaces; ``forbidden`` grows by those that may not be read."""

    def __init__(self, client: Client, namespaces: Iterable[str]) -> None:
        self._client = client
        self._namespaces = tuple(namespaces)
        self.forbidden: dict[str, str] = {}

    def objects(self, resource: Resource, label_selector: str = "") -> Iterator[Json]:
        """Give the objects of all namespaces that may be read.

        Raises:
            KubeApiError: for any other reason not to get them.
        """
        for namespace in self._namespaces:
            if namespace in self.forbidden:
                continue
            try:
                path = resource.path(namespace=namespace)
                yield from self._client.list(path, label_selector=label_selector).items
            except Forbidden as error:
                self.forbidden[namespace] = f"no permission to read namespace {namespace}: {error}"

    def report(self) -> None:
        """Log and count what may not be read."""
        for namespace in self._namespaces:
            telemetry.NAMESPACES_FORBIDDEN.labels(namespace).set(1 if namespace in self.forbidden else 0)
        for words in self.forbidden.values():
            logger.warning("%s: its drivers stay unchanged", words)


def _each(what: str, read: Callable[[Json], _Value], objects: Iterable[Json]) -> tuple[_Value, ...]:
    """Read each object by itself; one that cannot be read is left out."""
    found = [contained(what, place(obj), partial(read, obj), lambda _error: None) for obj in objects]
    return tuple(value for value in found if value is not None)


def _daemon_sets(objects: Iterable[Json], drivers: Iterable[DriverContainer]) -> tuple[DaemonSet, ...]:
    """Read the DaemonSets that their DriverContainer controls: a label alone makes none ours."""
    uids = {driver.key: driver.uid for driver in drivers}
    owners = ((obj, controller_of(obj)) for obj in objects)
    ours = (obj for obj, owner in owners if owner and owner.get("uid") == uids.get(driver_key(obj["metadata"])))
    return _each("DaemonSet", read_daemon_set, ours)


def _unload_pods(objects: Iterable[Json], drivers: Iterable[DriverContainer]) -> tuple[UnloadPod, ...]:
    """Read the unload pods that their DriverContainer controls."""
    uids = {driver.key: driver.uid for driver in drivers}
    found = ((obj, controller_of(obj)) for obj in objects if unload_pod.UNLOAD_LABEL in obj["metadata"]["labels"])
    ours = (obj for obj, owner in found if owner and owner.get("uid") == uids.get(driver_key(obj["metadata"])))
    return _each("pod", read_unload_pod, ours)


def _is_orphan(obj: Json, owners: Set[str]) -> bool:
    """Tell whether a DaemonSet that is gone controlled a pod; the garbage collector removes it in a moment."""
    owner = controller_of(obj)
    return owner.get("kind") == DAEMON_SETS.kind and owner.get("uid") not in owners
