"""When to do a pass: on every change that matters, on ticks, and when a plan asked to be looked at again.

APScheduler ticks by the wall clock, so the loop has a second eye on when a pass is due, by the monotonic one: after the
clock was set back by an hour the next pass still comes in time.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from apscheduler.schedulers.background import BackgroundScheduler

from driver_builder import telemetry
from driver_builder.boundary import contained
from driver_builder.controller.backoff import Backoff
from driver_builder.controller.reconcile import Reconciler
from driver_builder.errors import InternalError
from driver_builder.objects import manifests
from driver_builder.telemetry import Heartbeat
from kube_api.client import Client
from kube_api.errors import Gone, KubeApiError, NotFound
from kube_api.resources import CONFIG_MAPS, DAEMON_SETS, DRIVER_CONTAINERS, NODES, PODS, Resource

SETTLE_SECONDS = 0.2
"""Changes come in bursts; a pass waits this long for the rest of one."""

UNKNOWN_KIND_SECONDS = 30.0
TURN_SECONDS = 0.5
"""So often the loop looks whether a pass is due, and gives a sign of life."""

logger = logging.getLogger(__name__)

Json = dict[str, Any]


class Controller:
    """Runs passes until stopped. Everything it knows between passes is when the next one is due."""

    def __init__(
        self, *, reconciler: Reconciler, wake: threading.Event, resync_seconds: float, heartbeat: Heartbeat
    ) -> None:
        self._reconciler = reconciler
        self._wake = wake
        self._resync_seconds = resync_seconds
        self._heartbeat = heartbeat

    def run(self, stop: threading.Event) -> None:
        """Do passes until ``stop`` is set; an API server that is away is waited for with back-off."""
        scheduler = BackgroundScheduler(
            timezone="UTC", job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
        )
        scheduler.add_job(self._wake.set, "interval", seconds=self._resync_seconds, jitter=1, id="resync")
        scheduler.start()
        backoff = Backoff(first=1.0, most=30.0)
        try:
            due = time.monotonic()
            while not stop.is_set():
                self._heartbeat.beat()
                is_woken = self._wake.wait(min(TURN_SECONDS, max(0.0, due - time.monotonic())))
                if not is_woken and time.monotonic() < due:
                    continue
                stop.wait(SETTLE_SECONDS)
                self._wake.clear()
                self._heartbeat.beat()
                delay = self._pass(backoff)
                due = time.monotonic() + delay
        finally:
            scheduler.shutdown(wait=False)

    def _pass(self, backoff: Backoff) -> float:
        """Do a pass; gives in how many seconds the next is due though nothing changes."""
        began = time.monotonic()
        outcome = contained("pass", "over all drivers", self._reconciled, lambda error: error)
        telemetry.RECONCILE_SECONDS.labels("Failed" if isinstance(outcome, Exception) else "Succeeded").observe(
            time.monotonic() - began
        )
        if isinstance(outcome, Exception):
            asked = outcome.retry_after if isinstance(outcome, KubeApiError) else None
            delay = asked or backoff.next()
            logger.warning("reconcile failed, retrying in %.0f s: %s", delay, outcome)
            return min(delay, self._resync_seconds)
        backoff.reset()
        if outcome is None:
            return self._resync_seconds
        # A moment that was computed from a wrong clock may be further away than any calendar goes.
        return min(max(outcome - time.time(), 0.0), self._resync_seconds)

    def _reconciled(self) -> float | KubeApiError | InternalError | None:
        """Do a pass; gives when the next is due, or why it failed."""
        try:
            return self._reconciler.reconcile()
        except KubeApiError as error:
            return error


class Watcher:
    """Follows one collection and calls ``changed`` when something in it changed that we look at.

    The content itself is not kept: a pass reads everything anew, so a lost event costs a resync interval at most.
    """

    def __init__(
        self,
        client: Client,
        *,
        resource: Resource,
        namespace: str | None,
        changed: Callable[[], None],
        stop: threading.Event,
        label_selector: str = "",
        metadata_only: bool = False,
    ) -> None:
        self.name = f"watch-{resource.plural}{f'-{namespace}' if namespace else ''}"
        self._client = client
        self._path = resource.path(namespace=namespace)
        self._changed = changed
        self._stopping = stop
        self._selector = label_selector
        self._metadata_only = metadata_only
        self._faces: dict[str, object] = {}
        self._backoff = Backoff(first=0.5, most=15.0)

    def run(self) -> None:
        """List and watch until stopped, with back-off while the API server is away."""
        while not self._stopping.is_set():
            try:
                self._follow()
            except Gone as error:
                # List again, but not in a loop where every list is too old for the watch after it.
                logger.debug("watch: %s", error)
                self._stopping.wait(self._backoff.next())
            except NotFound as error:
                # The kind is not defined in this cluster (yet): not news, and not worth asking for often.
                logger.debug("watch: %s", error)
                self._stopping.wait(UNKNOWN_KIND_SECONDS)
            except KubeApiError as error:
                logger.info("watch: %s", error)
                self._stopping.wait(error.retry_after or self._backoff.next())

    def _follow(self) -> None:
        listing = self._client.list(self._path, label_selector=self._selector, metadata_only=self._metadata_only)
        self._faces = {obj["metadata"]["uid"]: _face(obj, self._metadata_only) for obj in listing.items}
        self._changed()
        version = listing.resource_version
        while not self._stopping.is_set():
            for event in self._client.watch(
                self._path,
                resource_version=version,
                label_selector=self._selector,
                metadata_only=self._metadata_only,
            ):
                version = event.object["metadata"]["resourceVersion"]
                self._backoff.reset()
                if event.kind != "BOOKMARK" and self._is_news(event.kind, event.object):
                    self._changed()
                if self._stopping.is_set():
                    return

    def _is_news(self, kind: str, obj: Json) -> bool:
        uid = obj["metadata"]["uid"]
        if kind == "DELETED":
            self._faces.pop(uid, None)
            return True
        face = _face(obj, self._metadata_only)
        if self._faces.get(uid) == face:
            return False
        self._faces[uid] = face
        return True


_LOOKED_AT = ("labels", "annotations", "generation", "deletionTimestamp", "finalizers")


def _face(obj: Json, metadata_only: bool) -> object:
    """What a pass looks at: a node's heartbeat changes none of it, nor does a status that we write ourselves."""
    metadata = obj["metadata"]
    if metadata_only:
        return tuple(metadata.get(field) for field in _LOOKED_AT)
    return metadata["resourceVersion"]


def watchers(
    client: Client, *, namespaces: Iterable[str], changed: Callable[[], None], stop: threading.Event
) -> list[Watcher]:
    """Make the watchers of everything a snapshot is made of, except the registries."""
    made = [
        Watcher(client, resource=NODES, namespace=None, changed=changed, stop=stop, metadata_only=True),
    ]
    for namespace in namespaces:
        for resource, selector, metadata_only in (
            (DRIVER_CONTAINERS, "", True),
            (DAEMON_SETS, manifests.DRIVER_LABEL, True),
            (PODS, manifests.DRIVER_LABEL, False),
            (CONFIG_MAPS, "", False),
        ):
            made.append(
                Watcher(
                    client,
                    resource=resource,
                    namespace=namespace,
                    changed=changed,
                    stop=stop,
                    label_selector=selector,
                    metadata_only=metadata_only,
                )
            )
    return made
