"""Writes what a reconcile found: each driver's status when it changed, and an Event for each piece of news."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from driver_builder.api import prebuild_status, stage_status, status, unloading
from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.node_notes import render_drains, render_notes
from driver_builder.api.rollout_status import render_wave
from driver_builder.api.status import Trouble
from driver_builder.base.boundary import contained
from driver_builder.base.errors import InternalError
from driver_builder.base.reasons import Reason
from driver_builder.controller import events
from driver_builder.controller.silence import STRIKES, Silence
from driver_builder.nodes.changes import Change, takes_driver
from driver_builder.nodes.plan_view import DriverPlan
from driver_builder.plan.plan import Plan
from kube_api.client import Writer
from kube_api.errors import KubeApiError, NotFound, Unreachable
from kube_api.resources import DRIVER_CONTAINERS

Json = dict[str, Any]

_NONE: Mapping[str, str] = {}

Unwritten = KubeApiError | InternalError
"""Why a status could not be written."""

logger = logging.getLogger(__name__)


class Reporter:
    """Writes statuses and Events; a driver whose status cannot be written does not keep the others from theirs."""

    def __init__(self, client: Writer, *, is_stopping: Callable[[], bool] = lambda: False) -> None:
        self._client = client
        self._is_stopping = is_stopping
        self._silence = Silence()
        self._written: dict[str, DriverPlan] = {}
        """By driver, the plan that its status says already."""

    def report(self, plan: Plan, *, now: float, refusals: Mapping[str, str] = _NONE) -> dict[str, Unwritten]:
        """Bring every driver's status up to date; returns the errors by driver, for the next reconcile to retry.

        All statuses come first, then the Events of those that were written: while a status cannot be written, its
        Events would be posted by each reconcile. ``refusals`` are what the API server refused to do, by driver.
        One write without an answer costs its driver alone: a webhook may time out in one namespace. At the second one
        the API server is away, and the rest is left to the next reconcile.
        """
        written: list[tuple[DriverPlan, Json]] = []

        def write(part: DriverPlan) -> Unwritten | None:
            key = part.driver.key
            error = contained(
                "driver",
                key,
                partial(self._try, part, refusals.get(key, ""), now, written),
                partial(self._say_trouble, part, now, written),
            )
            if error is not None:
                logger.warning("status of %s: %s", key, error)
            return error

        self._written = {part.driver.key: part for part in plan.drivers if self._written.get(part.driver.key) is part}
        errors, is_answering = self._each(plan.drivers, write)
        if is_answering:
            self._post(written, now)
        return errors

    def acknowledged(self, plan: Plan) -> tuple[Plan, dict[str, Unwritten]]:
        """Write into the statuses what ``noted`` actions rest on; returns the plan without the unrecorded.

        Only the status records that they were done: a request was served, or a module was loaded again so often. The
        drivers with an error are not to be reported in this reconcile: their status would report what was not done.
        """
        errors, _ = self._each(
            (part for part in plan.drivers if any(map(_is_noted, part.actions))),
            lambda part: contained("driver", part.driver.key, partial(self._acknowledge, part), lambda error: error),
        )
        parts = (_without_noted(part) if part.driver.key in errors else part for part in plan.drivers)
        return replace(plan, drivers=tuple(parts)), errors

    def _acknowledge(self, part: DriverPlan) -> Unwritten | None:
        """Write the parts of a status that actions rest on, where they changed."""
        before = part.driver.status
        after = {"nodes": render_notes(part.notes), "rebuild": part.rebuilds.as_status()}
        known = {"nodes": before.get("nodes") or [], "rebuild": before.get("rebuild")}
        if part.wave is not None and part.wave.returned:
            after, known = {**after, "rollout": render_wave(part.wave)}, {**known, "rollout": before.get("rollout")}
        if after == known:
            return None
        try:
            self._client.patch(_path(part.driver), {"status": _with_removed(before, after)})
        except KubeApiError as error:
            logger.warning("status of %s not written, its pods are not replaced: %s", part.driver.key, error)
            return error
        return None

    def _each(
        self, parts: Iterable[DriverPlan], write: Callable[[DriverPlan], Unwritten | None]
    ) -> tuple[dict[str, Unwritten], bool]:
        """Write for each driver; gives the errors by driver, and whether the API server still answers.

        Those come last whose status got no answer the last time. When the API server is away, or when the controller is
        to stop, the rest has an error without a try.
        """
        errors: dict[str, Unwritten] = {}
        strikes = self._silence.begin()
        for part in self._silence.last(parts, lambda part: part.driver.key):
            key = part.driver.key
            if strikes.is_out or self._is_stopping():
                unanswered = tuple(strikes.unanswered.values())
                errors[key] = unanswered[-1] if unanswered else Unreachable(f"status of {key}: stopped before")
                continue
            error = write(part)
            strikes.saw(error, key)
            if error is not None:
                errors[key] = error
        return errors, not strikes.is_out

    def _try(
        self, part: DriverPlan, refusal: str, now: float, written: list[tuple[DriverPlan, Json]]
    ) -> Unwritten | None:
        key = part.driver.key
        if key in self._written and not refusal:
            return None
        self._written.pop(key, None)
        status_ = _render(part, refusal, now)
        try:
            if self._write(part.driver, status_):
                written.append((part, status_))
            elif not refusal:
                self._written[key] = part
        except NotFound as error:
            logger.info("status of %s: conflict: %s", part.driver.key, error)
        except KubeApiError as error:
            return error
        return None

    def _say_trouble(
        self, part: DriverPlan, now: float, written: list[tuple[DriverPlan, Json]], error: InternalError
    ) -> Unwritten:
        """Write at least that a status could not be made."""
        shell = replace(part, trouble=Trouble(reason=Reason.INTERNAL_ERROR, message=str(error)))
        failed = contained("driver", part.driver.key, partial(self._try, shell, "", now, written), lambda worse: worse)
        return failed if isinstance(failed, Unreachable) else error

    def _write(self, driver: DriverContainer, status_: Json) -> bool:
        """Write a status if it changed; returns whether it did."""
        if status_ == driver.status:
            return False
        # null first: a merge patch would keep keys of an older rebuild map.
        stale = {key: None for key in driver.status if key not in status_}
        self._client.patch(_path(driver), {"status": {**stale, **_with_removed(driver.status, status_)}})
        return True

    def _post(self, written: Iterable[tuple[DriverPlan, Json]], now: float) -> None:
        """Post the Events of changed statuses; one that cannot be posted is logged, and not tried again."""
        silent = 0
        for part, status_ in written:
            if silent >= STRIKES:
                logger.warning(
                    "events of %s and of later drivers not written: the API server does not respond", part.driver.key
                )
                return
            driver = part.driver
            subject = events.Subject(
                resource=DRIVER_CONTAINERS, namespace=driver.namespace, name=driver.name, uid=driver.uid
            )
            for event in _news(part, status_):
                if self._is_stopping():
                    return
                try:
                    events.post(self._client, subject, event, now=now)
                except Unreachable as error:
                    logger.warning("events of %s: %s", driver.key, error)
                    silent += 1
                    break
                except KubeApiError as error:
                    logger.warning("event of %s: %s", driver.key, error)


def _path(driver: DriverContainer) -> str:
    return DRIVER_CONTAINERS.path(namespace=driver.namespace, name=driver.name, subresource="status")


def _is_noted(action: Change) -> bool:
    return takes_driver(action) and action.noted


def _without_noted(part: DriverPlan) -> DriverPlan:
    return replace(part, actions=tuple(action for action in part.actions if not _is_noted(action)))


def _render(part: DriverPlan, refusal: str, now: float) -> Json:
    if part.trouble is not None:
        return status.render_trouble(part.driver, part.trouble, now=now)
    written = status.render(
        part.driver,
        part.targets,
        rebuilds=part.rebuilds,
        unknown=part.unknown,
        refusal=refusal,
        now=now,
        ahead=prebuild_status.render_ahead(part.ahead or ()),
        nodes=render_notes(part.notes),
        rollout=render_wave(part.wave) if part.wave is not None else None,
        stages=stage_status.render_stages(part.stages) if part.stages is not None else None,
        more_conditions=_more_conditions(part),
    )
    return {**written, "draining": render_drains(part.draining)} if part.draining else written


def _news(part: DriverPlan, written: Json) -> tuple[status.Event, ...]:
    before = part.driver.status
    about_all = status.condition_events(before, written)
    if part.trouble is not None:
        return about_all
    ahead_news = prebuild_status.news(prebuild_status.previous_ahead(before), part.ahead or ())
    return (*status.events(status.previous_targets(before), part.targets), *ahead_news, *about_all)


def _more_conditions(part: DriverPlan) -> list[Json]:
    """Write the conditions that not every driver has."""
    ahead = prebuild_status.condition(part.ahead) if part.ahead is not None else None
    stages = stage_status.condition(part.stages) if part.stages is not None else None
    kept = unloading.of_kept(part.undrained, part.unyielded)
    others = (ahead, stages, unloading.condition(part.unloading), *kept)
    return [item for item in others if item is not None]


def _with_removed(before: Mapping[str, Any], after: Mapping[str, Any]) -> Json:
    """Make ``after`` a merge patch of the maps below it: keys that are gone are set to null."""
    return {
        key: {**dict.fromkeys(old), **_with_removed(old, value)}
        if isinstance(value, Mapping) and isinstance(old := before.get(key), Mapping)
        else value
        for key, value in after.items()
    }
