"""The ResourceSlices of nodes, followed only while a driver's plugin is a DRA driver and the API server has them.

Place in the flow: ``observe`` reads them with each reconcile. Elsewhere nothing is listed, watched or asked for: a
cluster whose drivers have device plugins needs no right to them.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from driver_builder.api.driver_container import DriverContainer
from driver_builder.base.boundary import contained
from driver_builder.cluster import resource_api
from driver_builder.cluster.collection import Json
from driver_builder.cluster.follower import Follower, Source, Stopping
from driver_builder.snapshot.resource_slices import NodeSlice, SlicesUnread, read_slice
from kube_api.client import Collections
from kube_api.errors import KubeApiError, NotFound, Unreachable
from kube_api.resources import RESOURCE_SLICES

SECONDS = 30.0
"""How long it counts that there are none, or that they may not be read."""
IDLE_SECONDS = 5.0
"""So often the thread looks whether it is to end while nobody needs a slice."""
_OF_A_PAGE = 25
"""A slice with 128 devices and all that is said of them may have 500 kB."""

Known = Mapping[str, Sequence[NodeSlice]]
"""By DRA driver, its slices on nodes."""


class SliceCache:
    """Knows the slices of the DRA drivers that are plugins; ``clock`` counts seconds."""

    def __init__(self, client: Collections, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._drivers: frozenset[str] = frozenset()
        self._is_needed = threading.Event()
        self._follower = self._anew()
        self._unread: tuple[float, SlicesUnread] | None = None

    @property
    def name(self) -> str:
        """The name of its thread."""
        return self._follower.name

    @property
    def followers(self) -> tuple[Follower[NodeSlice], ...]:
        """What is followed now."""
        return (self._follower,) if self._is_needed.is_set() else ()

    def read(self, drivers: Iterable[DriverContainer]) -> tuple[Known, SlicesUnread | None]:
        """Return the slices of all DRA drivers that are plugins, or why they are not known.

        Raises:
            KubeApiError: the API server does not answer.
        """
        self._need(frozenset(filter(None, (driver.dra_driver for driver in drivers))))
        if not self._drivers:
            return {}, None
        if (unread := self._repair()) is not None:
            return {}, unread
        groups = self._follower.collection.groups()
        return {driver: groups[driver] for driver in self._drivers if driver in groups}, None

    def run(self, stop: Stopping, changed: Callable[[], None]) -> None:
        """Follow the slices while they are needed, until stopped; ``changed`` is called for news of our drivers."""
        while not stop.is_set():
            if self._is_needed.wait(IDLE_SECONDS):
                self._follow(self._follower, stop, changed)

    def _follow(self, follower: Follower[NodeSlice], stop: Stopping, changed: Callable[[], None]) -> None:
        follower.run(_While(stop, lambda: self._is_needed.is_set() and self._follower is follower), changed)

    def _anew(self) -> Follower[NodeSlice]:
        return Follower(
            self._client,
            Source(resource=RESOURCE_SLICES, page=_OF_A_PAGE),
            _read,
            group_of=lambda item: item.driver,
            concerns=lambda item: item.driver in self._drivers,
            clock=self._clock,
        )

    def _need(self, drivers: frozenset[str]) -> None:
        was, self._drivers = self._drivers, drivers
        if was and not drivers:
            self._is_needed.clear()
            # Nothing of the slices is kept, and the thread leaves the one that it follows.
            self._follower, self._unread = self._anew(), None
        elif drivers:
            self._is_needed.set()

    def _repair(self) -> SlicesUnread | None:
        now = self._clock()
        if self._unread is not None and not self._follower.is_trusted:
            at, unread = self._unread
            if at <= now < at + SECONDS:
                return unread
        self._unread = None
        try:
            self._follower.repair()
        except NotFound:
            unread = SlicesUnread(message=self._unserved(), is_unserved=True)
        except Unreachable:
            raise
        except KubeApiError as error:
            # Drivers without such a plugin go on.
            unread = SlicesUnread(message=resource_api.not_read(RESOURCE_SLICES.kind, error))
        else:
            return None
        self._unread = (now, unread)
        return unread

    def _unserved(self) -> str:
        try:
            return resource_api.without_version(resource_api.served_versions(self._client))
        except KubeApiError:
            return f"the API server has no {RESOURCE_SLICES.plural} of {RESOURCE_SLICES.api_version}"


class _While:
    """Is set when the process stops, or something is over."""

    def __init__(self, stop: Stopping, goes_on: Callable[[], bool]) -> None:
        self._stop = stop
        self._goes_on = goes_on

    def is_set(self) -> bool:
        return self._stop.is_set() or not self._goes_on()

    def wait(self, timeout: float) -> bool:
        return self._stop.wait(timeout)


def _read(obj: Json) -> NodeSlice | None:
    return contained("ResourceSlice", str(obj["metadata"].get("name")), lambda: read_slice(obj), lambda _error: None)
