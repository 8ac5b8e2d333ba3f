"""Writes the record: an image when it is pushed, and what is needed when that is news.

What cannot be written stops nothing: an image that is not in the record is never removed. A job of the controller
records every ten minutes what is needed, because some nodes are there only for some hours of a day.
"""

import logging
import time
from collections.abc import Callable, Mapping
from datetime import date

from driver_builder.nodes.changes import StartBuild
from driver_builder.retention import record
from driver_builder.retention.needed import needed
from driver_builder.retention.record import CONFIG_MAP, PushedImage, Record
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets.desired_target import TemplateVersions
from driver_builder.targets.resolve import Resolved
from kube_api.client import Writer
from kube_api.errors import Conflict, KubeApiError, NotFound
from kube_api.resources import CONFIG_MAPS

logger = logging.getLogger(__name__)


class ImageRecorder:
    """Keeps the record of one controller, in the first of its ``namespaces``."""

    def __init__(
        self,
        client: Writer,
        *,
        namespaces: tuple[str, ...],
        versions: TemplateVersions,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._namespaces = tuple(sorted(namespaces))
        self._home = namespaces[0]
        self._versions = versions
        self._clock = clock
        self._seen: tuple[Snapshot, Mapping[str, Resolved]] | None = None
        self._path = record_path(self._home)

    def pushed(self, action: StartBuild, digest: str) -> None:
        """Record an image that a build of this controller has pushed; it has no tag yet."""
        today = record.day_of(self._clock())
        image = PushedImage(
            image=action.image,
            digest=digest,
            driver=action.request.driver,
            registry=action.registry,
            last_needed=today,
        )
        try:
            self._add(image, today)
        except KubeApiError as error:
            logger.warning("build %s: not recorded, so gc will not remove the image: %s", action.request.key, error)

    def saw(self, snapshot: Snapshot, resolved: Mapping[str, Resolved]) -> None:
        """Keep what a reconcile needs until it is recorded, if the whole cluster was read."""
        if not snapshot.forbidden:
            self._seen = snapshot, resolved

    def record(self) -> None:
        """Record what the last reconcile needed; writes once a day, and when something was not needed yet that day.

        Raises:
            KubeApiError: when it cannot be read or written.
        """
        seen, self._seen = self._seen, None
        if seen is None:
            return
        snapshot, resolved = seen
        try:
            obj = self._client.get(self._path)
        except NotFound:
            logger.debug("images: nothing was pushed yet")
            return
        before = obj.get("data") or {}
        now_needed = needed(snapshot, resolved, self._versions)
        after = record.refreshed(
            record.parse(before),
            lambda image: bool(now_needed.why(image)),
            today=record.day_of(snapshot.now),
            namespaces=self._namespaces,
        )
        # null first: keys that are not in the record any more.
        wanted = {**dict.fromkeys(before), **record.render(after)}
        changed = {key: text for key, text in wanted.items() if before.get(key) != text}
        if changed:
            version = obj["metadata"]["resourceVersion"]
            self._client.patch(self._path, {"metadata": {"resourceVersion": version}, "data": changed})

    def _add(self, image: PushedImage, today: date) -> None:
        body = {"data": {image.key: record.render_image(image)}}
        new = Record(observed=today, namespaces=self._namespaces, images=(image,))
        try:
            self._client.patch(self._path, body)
        except NotFound:
            try:
                self._client.create(CONFIG_MAPS.path(namespace=self._home), _config_map(new))
            except Conflict:
                # The first one of another build.
                self._client.patch(self._path, body)


def record_path(namespace: str) -> str:
    """Return the path of the record of a controller whose first namespace this is."""
    return CONFIG_MAPS.path(namespace=namespace, name=CONFIG_MAP)


def _config_map(content: Record) -> dict[str, object]:
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": {"name": CONFIG_MAP, "labels": {"app.kubernetes.io/managed-by": "driver-builder"}},
        "data": record.render(content),
    }
