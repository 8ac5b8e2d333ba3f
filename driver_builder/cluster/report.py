"""Writes what a pass found: each driver's status when it changed, and an Event for each piece of news."""

import logging
from collections.abc import Mapping
from typing import Any

from driver_builder.cluster import events
from driver_builder.planning import ahead_status, status
from driver_builder.planning.plan import Plan
from driver_builder.planning.plan_view import DriverPlan
from kube_api.client import Client
from kube_api.errors import KubeApiError, NotFound
from kube_api.resources import DRIVER_CONTAINERS

Json = dict[str, Any]

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
            driver,
            part.targets,
            rebuilds=part.rebuilds,
            unknown=part.unknown,
            refusal=refusal,
            now=now,
            ahead=ahead_status.render_ahead(part.ahead or ()),
            more_conditions=[ahead_status.condition(part.ahead)] if part.ahead is not None else [],
        )
        if written == driver.status:
            return
        subject = events.Subject(
            resource=DRIVER_CONTAINERS, namespace=driver.namespace, name=driver.name, uid=driver.uid
        )
        news = status.events(status.previous_targets(driver.status), part.targets)
        ahead_news = ahead_status.news(ahead_status.previous_ahead(driver.status), part.ahead or ())
        for event in (*news, *ahead_news, *status.condition_events(driver.status, written)):
            events.post(self._client, subject, event, now=now)
        path = DRIVER_CONTAINERS.path(namespace=driver.namespace, name=driver.name, subresource="status")
        # null first: a merge patch would keep keys of an older rebuild map.
        stale = {key: None for key in driver.status if key not in written}
        self._client.patch(path, {"status": {**stale, **_with_removed(driver.status, written)}})


def _with_removed(before: Json, after: Json) -> Json:
    """Make ``after`` a merge patch of the maps below it: keys that are gone are set to null."""
    rebuild = {
        part: {**dict.fromkeys((before.get("rebuild") or {}).get(part) or {}), **values}
        for part, values in after["rebuild"].items()
    }
    return {**after, "rebuild": rebuild}
