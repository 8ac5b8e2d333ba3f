"""What a reconcile reports: statuses and Events."""

from dataclasses import replace
from unittest.mock import Mock

import pytest

from driver_builder.api import status
from driver_builder.api.node_notes import NodeNote
from driver_builder.controller.report import Reporter
from driver_builder.plan.plan import Plan
from kube_api.client import JsonPatch, Object
from kube_api.errors import Forbidden, ServerUnavailable, Unreachable
from kube_api.names import REBUILD_ANNOTATION
from kube_api.resources import EVENTS, NODES
from kube_api.timestamps import timestamp
from tests.support.driver_builder.changes import replaced_pod
from tests.support.driver_builder.factories import KERNEL, NAMESPACE, NOW
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.driver_builder.model_world import World
from tests.support.driver_builder.worlds import DRIVER_PATH, small_world, told


@pytest.fixture
def world() -> World:
    """Make a world of one node and one driver."""
    return small_world()


def test_events_are_counted_when_they_repeat(world: World) -> None:
    """The same news a second time is the same Event with a higher count."""
    decided = world.decide()
    for _ in range(2):
        assert Reporter(world.client).report(decided, now=NOW) == {}
    (event,) = [obj for path, obj in world.client.objects.items() if path.startswith(EVENTS.path(namespace=NAMESPACE))]
    assert (event["reason"], event["count"], event["type"]) == ("BuildStarted", 2, "Normal")


def test_an_old_shape_of_status_is_replaced_whole(world: World) -> None:
    """Fields and rebuild entries that are no more are removed, not merged with."""
    old = {"phase": "Old", "rebuild": {"requests": {}, "tokens": {"gone": "x"}}}
    world.client.patch(DRIVER_PATH, {"status": old})
    decided = world.decide()
    decided.drivers[0].rebuilds.tokens.pop("gone")  # type: ignore[attr-defined]
    assert Reporter(world.client).report(decided, now=NOW) == {}
    written = world.client.get(DRIVER_PATH)["status"]
    assert "phase" not in written
    assert written["rebuild"]["tokens"] == {}


def test_one_status_that_cannot_be_written_does_not_keep_the_others_from_theirs(world: World) -> None:
    """Errors are gathered, a driver that is gone is none."""
    world.add_driver("other")
    decided = world.decide()
    error = Forbidden("403", status=403)
    world.client.faults = [error]
    assert Reporter(world.client).report(decided, now=NOW) == {"driverwright/edu": error}
    assert world.status("other")["targets"]
    del world.client.objects[DRIVER_PATH]
    assert Reporter(world.client).report(decided, now=NOW) == {}


def test_the_wish_of_a_node_that_is_gone_leaves_the_status(world: World) -> None:
    """The entry is removed by the patch; the token stays, and with it the image."""
    world.add_node("node-b", KERNEL)
    world.client.patch(NODES.path(name="node-b"), {"metadata": {"annotations": {REBUILD_ANNOTATION: "1"}}})
    world.settle()
    tokens, images = world.status()["rebuild"]["tokens"], dict(world.registries.images)
    assert set(world.status()["rebuild"]["requests"]) == {"Node/node-b"}
    world.remove_node("node-b")
    world.settle()
    left = world.status()["rebuild"]
    assert (left["requests"], left["tokens"], left["pending"]) == ({}, tokens, {})
    assert world.registries.images == images


def test_a_wrong_spec_is_reported_once(world: World) -> None:
    """One Warning, not one for each reconcile."""
    world.client.patch(DRIVER_PATH, {"spec": {"image": "nonsense"}})
    for _ in range(3):
        world.reconcile()
    assert told(world) == {"InvalidSpec": 1}


class NoStatus(MemoryClient):
    """An API server that takes no status, such as one that is too large."""

    def patch(
        self, path: str, body: Object | JsonPatch, *, content_type: str = "application/merge-patch+json"
    ) -> Object:
        """Refuse statuses."""
        if path.endswith("/status"):
            raise ServerUnavailable("etcdserver: request is too large", status=500)
        return super().patch(path, body, content_type=content_type)


def test_a_status_that_cannot_be_written_repeats_no_events(world: World) -> None:
    """What is said of a change is said once the change is written."""
    decided = world.decide()
    refusing = NoStatus()
    refusing.objects = world.client.objects
    for _ in range(3):
        assert Reporter(refusing).report(decided, now=NOW)
    assert not [path for path in world.client.objects if path.startswith(EVENTS.path(namespace=NAMESPACE))]


def test_statuses_come_before_events(world: World) -> None:
    """All of them: they are what a person reads first."""
    world.add_driver("other")
    decided = world.decide()
    before = len(world.client.writes)
    assert Reporter(world.client).report(decided, now=NOW) == {}
    kinds = ["event" if "/events/" in path else "status" for path in world.client.writes[before:]]
    assert kinds == ["status", "status", "event", "event"]


def test_an_event_that_cannot_be_posted_is_no_reason_for_a_new_pass(world: World) -> None:
    """The status has the news."""
    decided = world.decide()
    plain = world.client.create

    def refused(path: str, body: Object) -> Object:
        if "/events" in path:
            raise Forbidden("403", status=403)
        return plain(path, body)

    world.client.create = refused  # type: ignore[method-assign]
    assert Reporter(world.client).report(decided, now=NOW) == {}
    assert world.status()["targets"]


class Deaf(MemoryClient):
    """An API server where requests that concern some drivers get no answer, such as behind a webhook that hangs."""

    def __init__(self, objects: dict[str, Object], *drivers: str, verb: str = "status") -> None:
        super().__init__()
        self.objects = objects
        self.drivers, self.verb = drivers, verb
        self.asked: list[str] = []

    def patch(
        self, path: str, body: Object | JsonPatch, *, content_type: str = "application/merge-patch+json"
    ) -> Object:
        """Time out for some statuses."""
        if path.endswith("/status"):
            self._ask("status", path.split("/")[-2])
        return super().patch(path, body, content_type=content_type)

    def create(self, path: str, body: Object) -> Object:
        """Time out for some Events."""
        if "involvedObject" in body:
            self._ask("event", body["involvedObject"]["name"])
        return super().create(path, body)

    def _ask(self, verb: str, driver: str) -> None:
        if verb == self.verb:
            self.asked.append(driver)
            if driver in self.drivers:
                raise Unreachable(f"{verb} of {driver}: no answer")


@pytest.fixture
def four(world: World) -> World:
    """Make a world of four drivers."""
    for name in ("a", "b", "z"):
        world.add_driver(name)
    return world


def events_of(client: MemoryClient) -> set[str]:
    """Name the drivers that have an Event."""
    return {obj["involvedObject"]["name"] for path, obj in client.objects.items() if "/events/" in path}


def test_one_status_without_an_answer_costs_its_driver_alone(four: World) -> None:
    """The statuses and Events of all others are written in the same pass."""
    client = Deaf(four.client.objects, "a")
    errors = Reporter(client).report(four.decide(), now=NOW)
    assert set(errors) == {"driverwright/a"}
    assert [name for name in ("a", "b", "edu", "z") if "targets" in four.status(name)] == ["b", "edu", "z"]
    assert events_of(client) == {"b", "edu", "z"}


def test_after_two_statuses_without_an_answer_nothing_more_is_asked(four: World) -> None:
    """The API server is away; every driver waits for the next reconcile."""
    client = Deaf(four.client.objects, "a", "edu")
    errors = Reporter(client).report(four.decide(), now=NOW)
    assert client.asked == ["a", "b", "edu"]
    assert set(errors) == {"driverwright/a", "driverwright/edu", "driverwright/z"}
    assert events_of(client) == set()


def test_statuses_without_an_answer_are_written_last_in_the_next_pass(four: World) -> None:
    """However many do not answer, the others get their turn; one that answers again goes back to its place."""
    client = Deaf(four.client.objects, "a", "b")
    reporter = Reporter(client)
    reporter.report(four.decide(), now=NOW)
    assert set(reporter.report(four.decide(), now=NOW)) == {"driverwright/a", "driverwright/b"}
    assert client.asked == ["a", "b", "edu", "z", "a", "b"]
    client.drivers = ()
    assert reporter.report(four.decide(), now=NOW) == {}
    client.asked.clear()
    four.now += 60
    four.change_source("int y;")
    reporter.report(four.decide(), now=NOW)
    assert client.asked == ["a", "b", "edu", "z"]


def about_to_replace(world: World) -> Plan:
    """Plan that a pod of every driver is replaced, which only the status will record."""
    action = replaced_pod(namespace=NAMESPACE, name="pod", uid="uid", node="node-a", noted=True)
    notes = (NodeNote(node="node-a", reloads=1, last_reload=NOW),)
    decided = world.decide()
    return replace(decided, drivers=tuple(replace(part, actions=(action,), notes=notes) for part in decided.drivers))


def test_what_only_the_status_reports_is_written_before_it_is_done(four: World) -> None:
    """Once: where the status says so already nothing is written."""
    decided = about_to_replace(four)
    assert Reporter(four.client).acknowledged(decided) == (decided, {})
    assert four.status("z")["nodes"] == [{"name": "node-a", "reloads": 1, "lastReloadTime": timestamp(NOW)}]
    again, writes = about_to_replace(four), len(four.client.writes)
    assert Reporter(four.client).acknowledged(again) == (again, {})
    assert len(four.client.writes) == writes


def test_what_the_status_cannot_report_is_not_done(four: World) -> None:
    """The other drivers' actions are."""
    decided = about_to_replace(four)
    four.client.faults = [Forbidden("403", status=403)]
    left, errors = Reporter(four.client).acknowledged(decided)
    assert list(errors) == [four.decide().drivers[0].driver.key]
    assert [(part.driver.name, len(part.actions)) for part in left.drivers] == [
        ("a", 0),
        ("b", 1),
        ("edu", 1),
        ("z", 1),
    ]


def test_no_more_than_two_drivers_are_waited_for_before_anything_is_done(four: World) -> None:
    """What the others wanted is done in a later pass."""
    client = Deaf(four.client.objects, "a", "b", "edu", "z")
    left, errors = Reporter(client).acknowledged(about_to_replace(four))
    assert client.asked == ["a", "b"]
    assert left.actions == ()
    assert len(errors) == len(left.drivers)


def test_who_was_not_waited_for_comes_first_the_next_time(four: World) -> None:
    """Two drivers whose status never gets an answer keep no other from what it wants."""
    client = Deaf(four.client.objects, "a", "b")
    reporter = Reporter(client)
    reporter.acknowledged(about_to_replace(four))
    client.asked.clear()
    left, _ = reporter.acknowledged(about_to_replace(four))
    assert client.asked == ["edu", "z", "a", "b"]
    assert [part.driver.name for part in left.drivers if part.actions] == ["edu", "z"]


def test_one_event_without_an_answer_costs_its_driver_alone(four: World) -> None:
    """The Events of the others are posted, and the pass has no error."""
    client = Deaf(four.client.objects, "a", verb="event")
    assert Reporter(client).report(four.decide(), now=NOW) == {}
    assert events_of(client) == {"b", "edu", "z"}


def test_after_two_events_without_an_answer_none_is_posted(four: World) -> None:
    """Each would wait as long."""
    client = Deaf(four.client.objects, "a", "b", verb="event")
    assert Reporter(client).report(four.decide(), now=NOW) == {}
    assert client.asked == ["a", "b"]


def test_trouble_that_gets_no_answer_counts_as_well(four: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the status nor the word that it could not be made is written: the API server is away."""
    monkeypatch.setattr(status, "render", Mock(side_effect=ZeroDivisionError))
    client = Deaf(four.client.objects, "a", "b", "edu", "z")
    errors = Reporter(client).report(four.decide(), now=NOW)
    assert client.asked == ["a", "b"]
    assert {type(error) for error in errors.values()} == {Unreachable}


def test_a_controller_that_is_to_stop_writes_no_further_status(four: World) -> None:
    """Between two drivers: the others have an error, for the next controller to write them, and no Event is posted."""
    asked = iter([False, False])
    reporter = Reporter(four.client, is_stopping=lambda: next(asked, True))
    errors = reporter.report(four.decide(), now=NOW)
    assert [name for name in ("a", "b", "edu", "z") if "targets" in four.status(name)] == ["a", "b"]
    assert {key: type(error) for key, error in errors.items()} == {
        "driverwright/edu": Unreachable,
        "driverwright/z": Unreachable,
    }
    assert events_of(four.client) == set()


def test_a_controller_that_is_to_stop_does_nothing_that_its_status_does_not_report(four: World) -> None:
    """The drivers that were not come to lose the actions that only the status would record."""
    asked = iter([False, False])
    left, errors = Reporter(four.client, is_stopping=lambda: next(asked, True)).acknowledged(about_to_replace(four))
    assert [part.driver.name for part in left.drivers if part.actions] == ["a", "b"]
    assert set(errors) == {"driverwright/edu", "driverwright/z"}
