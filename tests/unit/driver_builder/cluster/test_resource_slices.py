"""ResourceSlices are listed and watched while a stage needs them, and nothing is asked otherwise."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from driver_builder.api.driver_container import DriverContainer
from driver_builder.cluster import resource_slices
from driver_builder.cluster.resource_slices import SECONDS, SliceCache
from driver_builder.snapshot.resource_slices import SlicesUnread
from kube_api.client import Listing, Object, WatchEvent
from kube_api.errors import Gone, KubeApiError, NotFound, ServerUnavailable, TooManyRequests, Unreachable
from kube_api.resources import RESOURCE_SLICES
from tests.support.driver_builder.factories import driver
from tests.support.driver_builder.memory_client import MemoryClient

RECORDED: list[Object] = [
    item["slice"] for item in yaml.safe_load((Path(__file__).parents[3] / "data" / "resource_slices.yaml").read_text())
]
GPU = "gpu.nvidia.com"
GROUP = "/apis/resource.k8s.io"


def with_dra(name: str = GPU) -> DriverContainer:
    """Make a driver whose plugin is a DRA driver."""
    plugin = {"image": "r.io/dra:1", "dra": {"driver": name, "serviceAccountName": "dra"}}
    return driver(spec_changes={"stages": {"devicePlugin": plugin}})


class Server(MemoryClient):
    """An API server that counts what it is asked; where ``versions`` has no v1, it has no slices."""

    def __init__(self, *versions: str) -> None:
        super().__init__()
        self.versions = versions
        self.asked: list[str] = []
        self.now = 100.0
        self.is_watched = threading.Event()

    def get(self, path: str) -> Object:
        """Answer about the group."""
        self.asked.append(path)
        if path == GROUP and self.versions:
            return {"versions": [{"version": version} for version in self.versions]}
        return super().get(path)

    def pages(self, path: str, **_others: Any) -> Iterator[Listing]:
        """List what is there."""
        self.asked.append(path)
        if "v1" not in self.versions:
            raise NotFound(f"GET {path}: 404", status=404)
        yield self.list(path)

    def watch(self, path: str, **others: Any) -> Iterator[WatchEvent]:
        """Tell what has changed."""
        self.asked.append(f"WATCH {path}")
        self.is_watched.set()
        time.sleep(0.01)
        return super().watch(path, **others)


def served(*versions: str) -> tuple[Server, SliceCache]:
    """Make a server with the recorded slices, and the cache of it."""
    server = Server(*versions)
    for item in RECORDED:
        server.create(RESOURCE_SLICES.path(), item)
    return server, SliceCache(server, clock=lambda: server.now)


@pytest.mark.parametrize(
    "drivers",
    [
        pytest.param([], id="no driver"),
        pytest.param([driver(spec_changes={"stages": {"devicePlugin": {"image": "a", "resourceName": "b.c/d"}}})],
                     id="a device plugin"),
    ],
)  # fmt: skip
def test_without_such_a_stage_nothing_is_asked(drivers: list[DriverContainer]) -> None:
    """Neither a list nor a watch: no right is needed."""
    server, cache = served("v1")
    assert cache.read(drivers) == ({}, None)
    assert (server.asked, cache.followers) == ([], ())


def test_slices_are_given_by_the_drivers_that_are_plugins() -> None:
    """Those of other drivers, and of no node, are not."""
    _, cache = served("v1")
    found, unread = cache.read([with_dra()])
    assert unread is None
    assert {key: {(item.node, item.has_devices) for item in items} for key, items in found.items()} == {
        GPU: {("node-a", True), ("node-b", False), ("node-a", False)}
    }


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        pytest.param((), "the API server has no resource.k8s.io", id="no group"),
        pytest.param(("v1beta2", "v1beta1"), "the API server has resource.k8s.io as v1beta2, v1beta1, and not as v1",
                     id="earlier versions"),
    ],
)  # fmt: skip
def test_a_server_without_them_is_asked_from_time_to_time(versions: tuple[str, ...], words: str) -> None:
    """What it has in their place is said; once it has them they are read."""
    server, cache = served(*versions)
    for _ in range(5):
        assert cache.read([with_dra()]) == ({}, SlicesUnread(message=words, is_unserved=True))
    assert len(server.asked) == 2
    server.now += SECONDS
    server.versions = ("v1",)
    found, unread = cache.read([with_dra()])
    assert (set(found), unread) == ({GPU}, None)


def test_without_the_right_to_read_them_that_is_said() -> None:
    """It is not the same as none."""
    server, cache = served("v1")
    server.forbidden = ("resourceslices",)
    found, unread = cache.read([with_dra()])
    assert found == {}
    assert unread is not None
    assert (unread.is_unserved, "ResourceSlices may not be read: " in unread.message) == (False, True)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(ServerUnavailable("500", status=500), id="one that it cannot decode"),
        pytest.param(Gone("410", status=410), id="a list that took too long"),
        pytest.param(TooManyRequests("429", status=429), id="too many requests"),
        pytest.param(KubeApiError("405", status=405), id="no such method"),
    ],
)
def test_a_list_that_fails_stops_no_other_driver(fault: KubeApiError) -> None:
    """What is not known is said, and asked for again: the rest of the cluster is read."""
    server, cache = served("v1")
    server.faults = [fault]
    found, unread = cache.read([with_dra()])
    assert found == {}
    assert unread is not None
    assert (unread.is_unserved, "ResourceSlices were not read: " in unread.message) == (False, True)
    server.now += SECONDS
    found, unread = cache.read([with_dra()])
    assert (set(found), unread) == ({GPU}, None)


def test_a_server_that_does_not_answer_is_an_error() -> None:
    """Nothing is decided by that."""
    server, cache = served("v1")
    server.faults = [Unreachable("no answer")]
    with pytest.raises(Unreachable):
        cache.read([with_dra()])


class Following:
    """A cache that a thread follows, and its news."""

    def __init__(self, server: Server, cache: SliceCache) -> None:
        self.server, self.cache = server, cache
        self.news = 0

    def watch(self) -> int:
        """Let one watch run to its end; returns how often it was news."""
        before = self.news
        (follower,) = self.cache.followers
        self.server.catch_up()
        follower.watch(self._changed, lambda: False)
        return self.news - before

    def _changed(self) -> None:
        self.news += 1


def node_slice(driver_name: str, node: str, devices: int = 1) -> Object:
    """Make a slice."""
    spec = {"driver": driver_name, "nodeName": node, "devices": [{"name": str(index)} for index in range(devices)]}
    return {"metadata": {"name": f"{node}-{driver_name}"}, "spec": spec}


def test_a_change_costs_that_change() -> None:
    """What was listed is not listed again; a slice of another driver, and other devices in one, are no news."""
    server, cache = served("v1")
    server.catch_up()
    cache.read([with_dra()])
    following = Following(server, cache)
    assert following.watch() == 0
    before, _ = cache.read([with_dra()])
    listed = server.asked.count(RESOURCE_SLICES.path())
    server.create(RESOURCE_SLICES.path(), node_slice("other.example.com", "node-c"))
    assert following.watch() == 0
    server.create(RESOURCE_SLICES.path(), node_slice(GPU, "node-c"))
    assert following.watch() == 1
    server.replace(RESOURCE_SLICES.path(name=f"node-c-{GPU}"), node_slice(GPU, "node-c", devices=7))
    assert following.watch() == 0
    after, _ = cache.read([with_dra()])
    assert [item.node for item in after[GPU] if item not in before[GPU]] == ["node-c"]
    again, _ = cache.read([with_dra()])
    assert again[GPU] is after[GPU]
    server.delete(RESOURCE_SLICES.path(name=f"node-c-{GPU}"))
    assert following.watch() == 1
    assert server.asked.count(RESOURCE_SLICES.path()) == listed


def test_the_watch_ends_with_the_last_stage_that_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """And begins anew with the next one."""
    monkeypatch.setattr(resource_slices, "IDLE_SECONDS", 0.05)
    server, cache = served("v1")
    stop = threading.Event()
    thread = threading.Thread(target=cache.run, args=(stop, lambda: None))
    thread.start()
    try:
        for _ in range(2):
            found, unread = cache.read([with_dra()])
            assert (set(found), unread) == ({GPU}, None)
            assert server.is_watched.wait(30)
            (follower,) = cache.followers
            cache.read([])
            assert cache.followers == ()
            # The watch that was begun ends, and no other one begins.
            time.sleep(0.1)
            server.is_watched.clear()
            asked = len(server.asked)
            time.sleep(0.1)
            assert (server.is_watched.is_set(), len(server.asked)) == (False, asked)
            assert follower not in cache.followers
    finally:
        stop.set()
        thread.join(30)
    assert not thread.is_alive()


def test_what_is_needed_no_more_when_the_thread_comes_to_it_is_not_asked_for() -> None:
    """It has seen that slices are needed just before the last stage went."""
    server, cache = served("v1")
    cache.read([with_dra()])
    cache.read([])
    asked = len(server.asked)
    stop = threading.Event()
    timer = threading.Timer(5, stop.set)
    timer.start()
    cache._follow(cache._follower, stop, lambda: None)
    timer.cancel()
    assert (len(server.asked), stop.is_set()) == (asked, False)
