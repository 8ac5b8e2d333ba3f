"""What we write is known at once, and is no news when the watch reports it."""

import threading

import pytest

from driver_builder.cluster.cluster_cache import ClusterCache
from driver_builder.cluster.kept_writes import KeptWrites
from kube_api.client import MERGE_PATCH, JsonPatch, Object
from kube_api.resources import DRIVER_CONTAINERS, EVENTS, NODES, PODS
from tests.support.driver_builder.factories import NAMESPACE, driver_object
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.driver_builder.model_world import World

DRIVER = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu")


class Followed:
    """A cluster with a node, a driver and its pod, all of it followed."""

    def __init__(self) -> None:
        world = World()
        world.add_node("node-0", "6.1.0-50-cloud-amd64")
        world.add_driver("edu")
        world.settle()
        self.client: MemoryClient = world.client
        self.cache = ClusterCache(self.client, namespaces=(NAMESPACE,))
        self.writes = KeptWrites(self.client, self.cache)
        self.news = 0
        self.watch()
        self.news = 0

    def watch(self) -> None:
        """Let the watches report what happened."""
        self.client.catch_up()
        for follower in self.cache.followers:
            follower.repair()
            follower.watch(self._changed, lambda: False)

    def _changed(self) -> None:
        self.news += 1

    def pod(self) -> tuple[str, Object]:
        """Give the driver's pod and its path."""
        return next((path, obj) for path, obj in self.client.objects.items() if "/pods/" in path)


def test_a_label_is_known_at_once_and_no_news_later() -> None:
    """The next reconcile sees it, and the watch wakes nobody for it."""
    world = Followed()
    world.writes.patch(NODES.path(name="node-0"), {"metadata": {"labels": {"x": "1"}}})
    (node,) = world.cache.nodes.collection.values()
    assert node.labels["x"] == "1"
    assert world.writes.changes == 1
    world.watch()
    assert world.news == 0


def test_our_own_status_is_no_news() -> None:
    """A status that the controller wrote is known at once, and its watch wakes nobody."""
    world = Followed()
    world.writes.patch(f"{DRIVER}/status", {"status": {"observedGeneration": 7}})
    (driver,) = world.cache.namespaces[0].drivers.collection.values()
    assert driver.status["observedGeneration"] == 7
    world.watch()
    assert world.news == 0


def test_a_watch_that_is_faster_than_the_answer_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server may send the event of a write before its answer: it wakes nobody all the same."""
    world = Followed()
    watch, patched = threading.Thread(target=world.watch), world.client.patch

    def patch(path: str, body: Object | JsonPatch, *, content_type: str = MERGE_PATCH) -> Object:
        answer = patched(path, body, content_type=content_type)
        watch.start()
        # Without waiting for the answer the watch would be done by then.
        watch.join(0.3)
        return answer

    monkeypatch.setattr(world.client, "patch", patch)
    world.writes.patch(f"{DRIVER}/status", {"status": {"observedGeneration": 7}})
    watch.join()
    assert world.news == 0


def test_what_somebody_else_changed_before_our_write_is_news() -> None:
    """Its answer has both changes, and comes before the event of either."""
    world = Followed()
    world.client.patch(DRIVER, {"spec": {"version": "2.0.0"}})
    world.client.catch_up()
    world.writes.patch(f"{DRIVER}/status", {"status": {"observedGeneration": 7}})
    world.watch()
    assert world.news == 1


def test_a_write_that_changes_nothing_is_no_change() -> None:
    """It asks for no other reconcile."""
    world = Followed()
    path = NODES.path(name="node-0")
    world.writes.patch(path, {"metadata": {"labels": dict(world.client.get(path)["metadata"]["labels"])}})
    assert world.writes.changes == 0


def test_a_pod_that_is_deleted_is_known_as_going() -> None:
    """It is there until its grace period ends, and is not deleted twice."""
    world = Followed()
    path, obj = world.pod()
    world.writes.delete(path, uid=obj["metadata"]["uid"])
    world.watch()
    (owned,) = world.cache.namespaces[0].pods.collection.values()
    assert owned.pod.deleting


def test_what_is_gone_is_forgotten_at_once() -> None:
    """A driver goes with its finalizer: the API server gives it back once more, and it is gone."""
    world = Followed()
    world.writes.delete(DRIVER)
    (driver,) = world.cache.namespaces[0].drivers.collection.values()
    world.watch()
    (driver,) = world.cache.namespaces[0].drivers.collection.values()
    assert driver.deleting
    world.writes.patch(DRIVER, {"metadata": {"finalizers": []}})
    assert world.cache.namespaces[0].drivers.collection.values() == ()
    world.watch()
    assert world.cache.namespaces[0].drivers.collection.values() == ()


def test_a_daemon_set_without_finalizers_goes_at_once() -> None:
    """Its answer is a Status with the uid."""
    world = Followed()
    path = next(path for path in world.client.objects if "/daemonsets/" in path)
    world.writes.delete(path)
    assert world.cache.namespaces[0].daemon_sets.collection.values() == ()


def test_a_name_is_not_known_twice() -> None:
    """A node left and joined again, and its watch is late: a patch of the new one is not a second node."""
    world = Followed()
    path = NODES.path(name="node-0")
    world.client.objects[path]["metadata"]["uid"] = "uid-again"
    world.writes.patch(path, {"metadata": {"labels": {"x": "1"}}})
    assert len(world.cache.nodes.collection.values()) == 1
    world.watch()
    (node,) = world.cache.nodes.collection.values()
    assert node.labels["x"] == "1"


def test_what_is_not_followed_is_written_all_the_same() -> None:
    """An Event; a pod and a driver of a namespace that is not ours."""
    world = Followed()
    world.writes.create(EVENTS.path(namespace=NAMESPACE), {"kind": "Event", "metadata": {"name": "e"}})
    world.writes.create(PODS.path(namespace="other"), {"kind": "Pod", "metadata": {"name": "p"}})
    assert world.writes.replace(DRIVER, world.writes.get(DRIVER))["kind"] == driver_object("edu")["kind"]
    assert world.writes.changes == 0
