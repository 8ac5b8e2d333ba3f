"""Follows one collection: lists it once, watches it from there on, and lists it anew where a watch cannot go on.

Place in the flow: each runs in a thread of its own and wakes the controller for what is news. A reconcile that finds
the collection not to be trusted lists it itself (:meth:`Follower.repair`): nothing is decided on what may be old.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from driver_builder.base import free_memory, telemetry
from driver_builder.base.retry import Backoff
from driver_builder.cluster.collection import Collection, Json, WentBack
from kube_api.client import Collections
from kube_api.errors import Gone, KubeApiError, NotFound
from kube_api.resources import Resource

UNKNOWN_KIND_SECONDS = 30.0
WATCH_SECONDS = 120
"""Less than SILENT_SECONDS, because Kubernetes 1.20 sends no bookmarks of a resource that never changes."""
SHORT_SECONDS = 5.0
"""A watch that ends sooner, without an event, is not begun anew at once."""
RELIST_SECONDS = 4 * 3600.0
"""How long a collection is trusted by its watches alone; up to a quarter more, so that they are not all listed
at once."""

logger = logging.getLogger(__name__)

Value = TypeVar("Value")


class Stopping(Protocol):
    """Says when to stop: a :class:`threading.Event`, or something narrower."""

    def is_set(self) -> bool:
        """Return whether to stop."""

    def wait(self, timeout: float) -> bool:
        """Wait so many seconds for it; returns whether to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What is listed and watched. ``page`` is how many objects are decoded at a time."""

    resource: Resource
    namespace: str | None = None
    label_selector: str = ""
    metadata_only: bool = False
    page: int = 500

    @property
    def path(self) -> str:
        """Its URL path."""
        return self.resource.path(namespace=self.namespace)

    @property
    def name(self) -> str:
        """A word for threads and logs."""
        return f"{self.resource.plural}{f'-{self.namespace}' if self.namespace else ''}"


class Follower(Generic[Value]):
    """Keeps ``collection`` as the API server has ``source``."""

    def __init__(
        self,
        client: Collections,
        source: Source,
        read: Callable[[Json], Value | None],
        *,
        group_of: Callable[[Value], str] = lambda _value: "",
        concerns: Callable[[Value], bool] = lambda _value: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.source = source
        self.collection = Collection(read, group_of, concerns)
        self._client = client
        self._clock = clock
        self._listing = threading.Lock()
        self._relist_at = 0.0
        self._is_running = False
        self._backoff = Backoff(first=0.5, most=15.0)

    @property
    def name(self) -> str:
        """The name of its thread."""
        return f"watch-{self.source.name}"

    @property
    def is_trusted(self) -> bool:
        """Return whether the collection is what the API server has."""
        return self.collection.is_trusted(self._clock())

    @property
    def age(self) -> float | None:
        """Seconds since something was last heard of it."""
        return self.collection.age(self._clock())

    def repair(self) -> None:
        """List the collection unless it is to be trusted.

        Raises:
            KubeApiError: when it cannot be listed.
        """
        if self.is_trusted:
            return
        with self._listing:
            # The follower's own thread may have listed it in the meantime, as it does at the start.
            is_just_listed = self._is_running and self.collection.is_just_listed(self._clock())
            if not (self.is_trusted or is_just_listed):
                self._list("Repair")

    def run(self, stop: Stopping, changed: Callable[[], None]) -> None:
        """List and watch until stopped, with back-off while the API server is away; ``changed`` is called for news."""
        self._is_running = True
        while not stop.is_set():
            try:
                self._relist_if_due(changed)
                began = self._clock()
                has_spoken = self.watch(changed, stop.is_set)
                if not (has_spoken or stop.is_set()) and self._clock() - began < SHORT_SECONDS:
                    # Something between us and the API server accepts watches and ends them.
                    self.collection.watch_broke()
                    stop.wait(self._backoff.next())
                continue
            except (Gone, WentBack, NotFound) as error:
                # List again, but not in a loop where every list is too old for the watch after it. A kind that is not
                # defined in this cluster (yet) is not worth asking for often.
                self.collection.doubt()
                delay = UNKNOWN_KIND_SECONDS if isinstance(error, NotFound) else self._backoff.next()
                words = str(error)
            except KubeApiError as error:
                words, delay = str(error), error.retry_after or self._backoff.next()
            except Exception:
                # A bug, which ends this thread: until it is started again nothing is followed.
                self._is_running = False
                self.collection.watch_broke()
                raise
            self.collection.watch_broke()
            logger.info("watch %s: again in %.1f s: %s", self.source.name, delay, words)
            stop.wait(delay)

    def watch(self, changed: Callable[[], None], is_stopping: Callable[[], bool]) -> bool:
        """Watch from where the collection is until the API server ends the watch; returns whether an event came.

        Raises:
            KubeApiError, WentBack: when the watch cannot begin, or breaks.
        """
        source = self.source
        events = self._client.watch(
            source.path,
            resource_version=self.collection.version,
            label_selector=source.label_selector,
            metadata_only=source.metadata_only,
            seconds=WATCH_SECONDS,
        )
        self.collection.watch_began(self._clock())
        has_spoken = False
        for event in events:
            has_spoken = True
            self._backoff.reset()
            if self.collection.apply(event, self._clock()):
                changed()
            if is_stopping():
                break
        return has_spoken

    def _relist_if_due(self, changed: Callable[[], None]) -> None:
        with self._listing:
            is_due = self._clock() >= self._relist_at
            if self.collection.version and not is_due:
                return
            is_news = self._list("Resync" if self.collection.version else "Start")
        if is_news:
            changed()

    def _list(self, why: str) -> bool:
        source = self.source
        telemetry.CACHE_LISTINGS.labels(source.resource.plural, why).inc()
        pages = self._client.pages(
            source.path, label_selector=source.label_selector, metadata_only=source.metadata_only, limit=source.page
        )
        is_news = self.collection.replace(pages, self._clock)
        free_memory.give_back()
        self._relist_at = self._clock() + RELIST_SECONDS * random.uniform(1.0, 1.25)  # noqa: S311 - spreads load
        return is_news
