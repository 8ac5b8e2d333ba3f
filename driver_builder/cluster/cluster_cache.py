"""What a reconcile reads of the cluster, kept up to date by watches and by our own writes.

Place in the flow: ``observe`` reads it. A controller follows it, with a thread for each collection, and writes through
:class:`~driver_builder.cluster.kept_writes.KeptWrites`, so that the next reconcile sees what was written before a watch
says so. A command lists it once and follows nothing.

Secrets are neither listed nor watched. Of ConfigMaps names and versions are known (``named_contents``).
"""

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from driver_builder.api import driver_container
from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.spec_cache import SpecCache
from driver_builder.base.boundary import contained
from driver_builder.cluster.collection import Json
from driver_builder.cluster.follower import Follower, Source
from driver_builder.cluster.read_daemon_sets import OwnedDaemonSet, read_owned_daemon_set
from driver_builder.cluster.read_metadata import place
from driver_builder.cluster.read_pods import OwnedPod, read_owned_pod
from driver_builder.cluster.resource_slices import SliceCache
from driver_builder.objects import manifests
from driver_builder.snapshot.inventory import Node, read_node
from kube_api.client import Collections, Object
from kube_api.errors import Forbidden
from kube_api.resources import CONFIG_MAPS, DAEMON_SETS, DRIVER_CONTAINERS, NODES, PODS

_NODES_OF_A_PAGE = 50
"""A Node may have 50 kB, most of it the names of images."""
_PODS_OF_A_PAGE = 200


@dataclass(frozen=True, slots=True)
class Version:
    """A ConfigMap by its name, and which content it has."""

    name: str
    version: str


class NamespaceCache:
    """What one namespace holds for the controller."""

    def __init__(self, client: Collections, namespace: str, specs: SpecCache, clock: Callable[[], float]) -> None:
        self.namespace = namespace
        ours = manifests.DRIVER_LABEL
        self.drivers: Follower[DriverContainer] = Follower(
            client, Source(resource=DRIVER_CONTAINERS, namespace=namespace), _driver_reader(specs), clock=clock
        )
        self.daemon_sets: Follower[OwnedDaemonSet] = Follower(
            client,
            Source(resource=DAEMON_SETS, namespace=namespace, label_selector=ours),
            read_owned_daemon_set,
            clock=clock,
        )
        self.pods: Follower[OwnedPod] = Follower(
            client,
            Source(resource=PODS, namespace=namespace, label_selector=ours, page=_PODS_OF_A_PAGE),
            read_owned_pod,
            group_of=lambda owned: owned.pod.driver,
            clock=clock,
        )
        self.named_config_maps: set[str] = set()
        """The ConfigMaps that drivers name: changes of all others are not news."""
        self.config_maps: Follower[Version] = Follower(
            client,
            Source(resource=CONFIG_MAPS, namespace=namespace, metadata_only=True),
            _read_version,
            concerns=lambda version: version.name in self.named_config_maps,
            clock=clock,
        )
        self.forbidden = ""
        """The API server's words, where something of it may not be read."""

    @property
    def followers(self) -> tuple[Follower[DriverContainer] | Follower[OwnedDaemonSet] | Follower[OwnedPod], ...]:
        """What a reconcile needs, drivers first."""
        return self.drivers, self.daemon_sets, self.pods

    def config_map_version(self, name: str) -> str:
        """Return which version a ConfigMap has, empty where there is none."""
        found = (item.version for item in self.config_maps.collection.values() if item.name == name)
        return next(found, "")

    def repair(self) -> None:
        """List what is not to be trusted; a namespace that may not be read says so.

        Raises:
            KubeApiError: for any other reason not to get it.
        """
        try:
            for follower in self.followers:
                follower.repair()
            self.forbidden = ""
        except Forbidden as error:
            self.forbidden = f"no permission to read namespace {self.namespace}: {error}"


class ClusterCache:
    """All nodes, and what the given namespaces hold; ``clock`` counts seconds."""

    def __init__(
        self, client: Collections, *, namespaces: Iterable[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.specs = SpecCache()
        self.nodes: Follower[Node] = Follower(
            client, Source(resource=NODES, page=_NODES_OF_A_PAGE), _read_node, clock=clock
        )
        self.namespaces = tuple(
            NamespaceCache(client, namespace, self.specs, clock) for namespace in dict.fromkeys(namespaces)
        )
        self.slices = SliceCache(client, clock)
        """Not one of the followers: it follows only while it is asked."""

    @property
    def followers(self) -> "tuple[AnyFollower, ...]":
        """Everything that is followed."""
        return (
            self.nodes,
            *(follower for item in self.namespaces for follower in (*item.followers, item.config_maps)),
        )

    def repair(self) -> None:
        """List what is not to be trusted.

        Raises:
            KubeApiError: when it cannot be read.
        """
        self.nodes.repair()
        for item in self.namespaces:
            item.repair()

    def writing(self, path: str) -> AbstractContextManager[None]:
        """Hold back what the watch says of the object at ``path``, or at its subresource, while we write it."""
        for follower in self.followers:
            collection = f"{follower.source.path}/"
            if path.startswith(collection):
                return follower.collection.writing(path.removeprefix(collection).partition("/")[0])
        return nullcontext()

    def wrote(self, obj: Object, *, is_new: bool = True) -> bool:
        """Keep an object as the API server returned it for a write; returns whether that is news.

        ``is_new`` says whether the write may have made it.
        """
        metadata = obj.get("metadata") or {}
        where = (obj.get("kind"), metadata.get("namespace"))
        of_place = (item for item in self.followers if (item.source.resource.kind, item.source.namespace) == where)
        follower = next(of_place, None)
        if follower is None or "uid" not in metadata:
            return False
        if _is_gone(metadata):
            return follower.collection.deleted(metadata["uid"])
        return follower.collection.wrote(obj, is_new=is_new)

    def deleted(self, uid: str) -> bool:
        """Forget an object that is gone because we deleted it; returns whether that is news."""
        return any(follower.collection.deleted(uid) for follower in self.followers)


AnyFollower = (
    Follower[Node] | Follower[DriverContainer] | Follower[OwnedDaemonSet] | Follower[OwnedPod] | Follower[Version]
)


def _is_gone(metadata: Json) -> bool:
    """Return whether an object went with the last of its finalizers; a pod stays until its grace period ends."""
    is_held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return "deletionTimestamp" in metadata and not is_held


def _driver_reader(specs: SpecCache) -> Callable[[Json], DriverContainer | None]:
    def read(obj: Json) -> DriverContainer | None:
        return contained("driver", place(obj), lambda: driver_container.parse(obj, specs), lambda _error: None)

    return read


def _read_node(obj: Json) -> Node:
    # Without labels it is unknown what it runs, and nothing is removed from it.
    unreadable = Node(name=obj["metadata"]["name"], labels={}, annotations={})
    return contained("node", unreadable.name, lambda: read_node(obj), lambda _error: unreadable)


def _read_version(obj: Json) -> Version:
    metadata = obj["metadata"]
    return Version(metadata["name"], metadata.get("resourceVersion", ""))
