"""What the controller writes into the record, and when."""

import json
import logging
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from driver_builder.model.image_state import Absent
from driver_builder.nodes.changes import StartBuild
from driver_builder.plan.plan import plan
from driver_builder.retention import record
from driver_builder.retention.record import Record
from driver_builder.retention.recorder import ImageRecorder, record_path
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets.resolve_all import resolve_all
from kube_api.errors import Conflict, Forbidden, KubeApiError, ServerUnavailable
from tests.support.driver_builder import factories
from tests.support.driver_builder.factories import DIGEST, NAMESPACE, NOW, SETTINGS
from tests.support.driver_builder.memory_client import MemoryClient

PATH = record_path(NAMESPACE)
TODAY = date(2023, 11, 14)
DAY = 86400.0


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        """Read it."""
        return self.now


@pytest.fixture
def cluster() -> MemoryClient:
    """An API server."""
    return MemoryClient()


@pytest.fixture
def clock() -> Clock:
    """The controller's clock."""
    return Clock()


@pytest.fixture
def recorder(cluster: MemoryClient, clock: Clock) -> ImageRecorder:
    """A controller's."""
    return ImageRecorder(cluster, namespaces=(NAMESPACE, "other"), versions=SETTINGS.template_versions, clock=clock)


def build() -> StartBuild:
    """The build of the only driver's image."""
    actions = plan(factories.with_images(factories.snapshot(), Absent()), SETTINGS).actions
    return next(action for action in actions if isinstance(action, StartBuild))


def see(recorder: ImageRecorder, seen: Snapshot, at: float) -> None:
    """Let the recorder see a reconcile, and record it."""
    seen = replace(seen, now=at)
    recorder.saw(seen, resolve_all(seen, SETTINGS.template_versions))
    recorder.record()


def written(cluster: MemoryClient) -> Record:
    """Read the record."""
    return record.parse(cluster.get(PATH)["data"])


def test_the_first_push_makes_the_record_and_later_ones_add_to_it(
    cluster: MemoryClient, recorder: ImageRecorder
) -> None:
    """With the day, the driver and its settings; the same image twice is there once."""
    action = build()
    for digit in "abb":
        recorder.pushed(action, f"sha256:{digit * 64}")
    found = written(cluster)
    assert (found.observed, found.namespaces) == (TODAY, (NAMESPACE, "other"))
    assert [image.digest[-1] for image in found.images] == ["a", "b"]
    assert {(image.image, image.driver, image.registry, image.last_needed) for image in found.images} == {
        (action.image, "driverwright/edu", action.registry, TODAY)
    }


def test_two_first_pushes_at_once_are_both_recorded(
    cluster: MemoryClient, recorder: ImageRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one finds that the record was created meanwhile."""
    create = cluster.create

    def late(path: str, _body: dict[str, Any]) -> dict[str, Any]:
        monkeypatch.setattr(cluster, "create", create)
        recorder.pushed(build(), f"sha256:{'b' * 64}")
        raise Conflict(f"POST {path}: 409", status=409)

    monkeypatch.setattr(cluster, "create", late)
    recorder.pushed(build(), f"sha256:{'a' * 64}")
    assert [image.digest[-1] for image in written(cluster).images] == ["a", "b"]


@pytest.mark.parametrize("error", [Forbidden("no", status=403), ServerUnavailable("no", status=500)])
def test_an_image_that_cannot_be_recorded_is_pushed_all_the_same(
    cluster: MemoryClient, recorder: ImageRecorder, caplog: pytest.LogCaptureFixture, error: KubeApiError
) -> None:
    """It is never removed, and the log says so."""
    cluster.faults = [error]
    with caplog.at_level(logging.WARNING):
        recorder.pushed(build(), DIGEST)
    assert "gc will not remove the image" in caplog.text
    assert cluster.writes == []


def test_what_is_needed_is_written_once_a_day_and_when_that_is_news(
    cluster: MemoryClient, recorder: ImageRecorder
) -> None:
    """A pool that is there for some hours of a day counts, at whatever time."""
    needed, empty = factories.snapshot(), factories.snapshot(factories.node(labels={"pool": "other"}))
    recorder.pushed(build(), DIGEST)
    days = []
    for at in (0.0, DAY, DAY + 1000, 2 * DAY, 2 * DAY + 1000, 2 * DAY + 2000, 3 * DAY):
        is_there = at in (0.0, DAY, 2 * DAY + 1000)
        before = len(cluster.writes)
        see(recorder, needed if is_there else empty, NOW + at)
        found = written(cluster)
        assert found.observed is not None
        days.append((found.observed.day, found.images[0].last_needed.day, len(cluster.writes) - before))
    assert days == [(14, 14, 0), (15, 15, 1), (15, 15, 0), (16, 15, 1), (16, 16, 1), (16, 16, 0), (17, 16, 1)]


def test_a_reconcile_reads_nothing_and_is_recorded_once(cluster: MemoryClient, recorder: ImageRecorder) -> None:
    """A job records what the last one saw; without a new one there is nothing to record."""
    recorder.pushed(build(), DIGEST)
    seen = replace(factories.snapshot(), now=NOW + DAY)
    resolved = resolve_all(seen, SETTINGS.template_versions)
    cluster.faults = [ServerUnavailable("no", status=500)]
    recorder.saw(seen, resolved)
    with pytest.raises(ServerUnavailable):
        recorder.record()
    recorder.record()
    assert written(cluster).observed == TODAY
    recorder.saw(seen, resolved)
    recorder.record()
    assert written(cluster).observed == date(2023, 11, 15)


def test_a_part_of_the_cluster_is_not_recorded(cluster: MemoryClient, recorder: ImageRecorder) -> None:
    """In a namespace that may not be read something may be needed."""
    recorder.pushed(build(), DIGEST)
    writes = len(cluster.writes)
    see(recorder, factories.snapshot(forbidden={"other": "no"}), NOW + DAY)
    assert len(cluster.writes) == writes


def test_where_nothing_was_pushed_nothing_is_recorded(cluster: MemoryClient, recorder: ImageRecorder) -> None:
    """The record begins with the first image."""
    see(recorder, factories.snapshot(), NOW)
    assert cluster.writes == []


def test_an_entry_that_cannot_be_read_goes_out_of_the_record(cluster: MemoryClient, recorder: ImageRecorder) -> None:
    """Its image stays for ever."""
    recorder.pushed(build(), DIGEST)
    cluster.objects[PATH]["data"]["x"] = json.dumps({})
    see(recorder, factories.snapshot(), NOW + DAY)
    assert "x" not in cluster.get(PATH)["data"]
