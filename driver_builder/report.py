"""Writes what a pass found: each driver's status when it changed, and an Event for each piece of news."""

import hashlib
import logging
from collections.abc import Mapping
from typing import Any

from driver_builder import status
from driver_builder.driver_container import DriverContainer
from driver_builder.plan import DriverPlan, Plan
from driver_builder.status import Event, timestamp
from kube_api.client import Client
from kube_api.errors import Conflict, KubeApiError, NotFound
from kube_api.resources import DRIVER_CONTAINERS, EVENTS

Json = dict[str, Any]

COMPONENT = "driver-builder"
_NONE: Mapping[str, str] = {}

logger = logging.getLogger(__name__)


class Reporter:
    """Writes statuses and Events; a driver whose status cannot be written does not keep the others from theirs."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def report(self, plan: Plan, *, now: float, refusals: Mapping[str, str] = _NONE) -> dict[str, KubeApiError]:
        """Bring every driver's status up to date; gives the errors by driver, for the next pass to retry.

        ``refusals`` says, by driver, what the API server refused to do for it.
        """
        errors: dict[str, KubeApiError] = {}
        for part in plan.drivers:
            key = part.driver.key
            try:
                self._report_driver(part, refusals.get(key, ""), now)
            except NotFound as error:
                logger.info("status of %s: overtaken: %s", key, error)
            except KubeApiError as error:
                logger.warning("status of %s: %s", key, error)
                errors[key] = error
        return errors

    def _report_driver(self, part: DriverPlan, refusal: str, now: float) -> None:
        driver = part.driver
        written = status.render(
            driver, part.targets, rebuilds=part.rebuilds, unknown=part.unknown, refusal=refusal, now=now
        )
        if written == driver.status:
            return
        news = status.events(status.previous_targets(driver.status), part.targets)
        for event in (*news, *status.condition_events(driver.status, written)):
            self._post(driver, event, now)
        path = DRIVER_CONTAINERS.path(namespace=driver.namespace, name=driver.name, subresource="status")
        # null first: a merge patch would keep keys of an older rebuild map.
        stale = {key: None for key in driver.status if key not in written}
        self._client.patch(path, {"status": {**stale, **_with_removed(driver.status, written)}})

    def _post(self, driver: DriverContainer, event: Event, now: float) -> None:
        """Create an Event, or count it up when the same one was posted before."""
        logger.log(logging.WARNING if event.kind == "Warning" else logging.INFO, "%s: %s: %s", driver.key, event.reason,
                   event.message)  # fmt: skip
        digest = hashlib.sha256(f"{event.reason}\0{event.message}".encode()).hexdigest()[:10]
        name = f"{driver.name}.{digest}"
        collection = EVENTS.path(namespace=driver.namespace)
        try:
            self._client.create(collection, _event(driver, event, name, now))
        except Conflict:
            path = EVENTS.path(namespace=driver.namespace, name=name)
            count = int(self._client.get(path).get("count") or 1) + 1
            self._client.patch(path, {"count": count, "lastTimestamp": timestamp(now)})


def _with_removed(before: Json, after: Json) -> Json:
    """Make ``after`` a merge patch of the maps below it: keys that are gone are set to null."""
    rebuild = {
        part: {**dict.fromkeys((before.get("rebuild") or {}).get(part) or {}), **values}
        for part, values in after["rebuild"].items()
    }
    return {**after, "rebuild": rebuild}


def _event(driver: DriverContainer, event: Event, name: str, now: float) -> Json:
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": name, "namespace": driver.namespace},
        "involvedObject": {
            "apiVersion": DRIVER_CONTAINERS.api_version,
            "kind": DRIVER_CONTAINERS.kind,
            "namespace": driver.namespace,
            "name": driver.name,
            "uid": driver.uid,
        },
        "type": event.kind,
        "reason": event.reason,
        "message": event.message[:1024],
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": timestamp(now),
        "lastTimestamp": timestamp(now),
        "count": 1,
    }
