"""The cluster as the controller knows it by watches, beside what the real API server lists."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from driver_builder.cluster.cluster_cache import ClusterCache
from driver_builder.cluster.kept_writes import KeptWrites
from driver_builder.cluster.named_contents import NamedContents
from driver_builder.objects import manifests
from kube_api.client import Client, Object
from kube_api.errors import NotFound
from kube_api.resources import CONFIG_MAPS, DRIVER_CONTAINERS, NODES, PODS
from testbed.testbed import Testbed
from tests.support.driver_builder import factories
from tests.support.real_parts.cluster_setup import admin, as_service_account, create_quietly, install

NAMESPACE = "driverwright"
WAIT_SECONDS = 600.0


@pytest.fixture(scope="module")
def root(control_plane_ground: Testbed) -> Client:
    """An installation, and an administrator of it."""
    client = admin(control_plane_ground)
    install(client)
    return client


class Counted(Client):
    """A client that counts its listings."""

    listings = 0

    def pages(self, *args: Any, **words: Any) -> Any:
        """Read a collection."""
        self.listings += 1
        return super().pages(*args, **words)


@contextmanager
def followed(client: Client) -> Iterator[ClusterCache]:
    """Follow the cluster as the controller does."""
    cache, stop = ClusterCache(client, namespaces=(NAMESPACE,)), threading.Event()
    threads = [threading.Thread(target=partial(item.run, stop, lambda: None), daemon=True) for item in cache.followers]
    for thread in threads:
        thread.start()
    try:
        yield cache
    finally:
        # The threads end with their watches, which take up to four minutes: they are left alone.
        stop.set()


def wait_until_equal(cache: ClusterCache, client: Client) -> None:
    """Wait until what is known is what is listed."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        fresh = ClusterCache(client, namespaces=(NAMESPACE,))
        fresh.repair()
        fresh.namespaces[0].config_maps.repair()
        known = [sorted(map(repr, item.collection.values())) for item in cache.followers]
        listed = [sorted(map(repr, item.collection.values())) for item in fresh.followers]
        if known == listed:
            return
        assert time.monotonic() < end, f"known: {known}, listed: {listed}"
        time.sleep(0.2)


def pod(name: str, number: int) -> Object:
    """Make a pod with our label."""
    labels = {manifests.DRIVER_LABEL: "edu", manifests.TARGET_LABEL: str(number)}
    container = {"name": manifests.HOLD_CONTAINER, "image": "r.io/x:1"}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [container], "nodeName": "nowhere"}}


def test_what_is_known_is_what_is_listed(control_plane_ground: Testbed, root: Client) -> None:
    """After two hundred changes by somebody else and by the controller, in any order."""
    chance = random.Random(0)  # noqa: S311 - the same changes in each run
    builder = as_service_account(control_plane_ground, NAMESPACE, "driver-builder")
    with followed(builder) as cache:
        writes = KeptWrites(builder, cache)
        try:
            for number in range(200):
                name = f"cache-{chance.randrange(4)}"
                node = NODES.path(name=name)
                match chance.randrange(5):
                    case 0:
                        create_quietly(root, NODES.path(), {"metadata": {"name": name, "labels": {"n": str(number)}}})
                    case 1:
                        _quietly(partial(writes.patch, node, {"metadata": {"labels": {"mine": str(number)}}}))
                    case 2:
                        _quietly(partial(root.delete, node))
                    case 3:
                        create_quietly(root, PODS.path(namespace=NAMESPACE), pod(name, number))
                    case _:
                        _quietly(partial(writes.delete, PODS.path(namespace=NAMESPACE, name=name)))
            wait_until_equal(cache, builder)
        finally:
            for number in range(4):
                _quietly(partial(root.delete, NODES.path(name=f"cache-{number}")))


def test_our_own_write_is_known_at_once(control_plane_ground: Testbed, root: Client) -> None:
    """Before the watch tells of it: the answer to a write is what the API server has."""
    builder = as_service_account(control_plane_ground, NAMESPACE, "driver-builder")
    node = NODES.path(name="cache-own-write")
    create_quietly(root, NODES.path(), {"metadata": {"name": "cache-own-write"}})
    try:
        # Listed and not watched: nobody else can tell it.
        cache = ClusterCache(builder, namespaces=(NAMESPACE,))
        cache.repair()
        KeptWrites(builder, cache).patch(node, {"metadata": {"labels": {"mine": "1"}}})
        known = {item.name: item.labels.get("mine") for item in cache.nodes.collection.values()}
        assert known["cache-own-write"] == "1"
    finally:
        root.delete(node)


def _quietly(request: Any) -> None:
    try:
        request()
    except NotFound:
        return


def test_a_config_map_is_read_when_it_changes(control_plane_ground: Testbed, root: Client) -> None:
    """By its version in the watch, and not before."""
    builder = as_service_account(control_plane_ground, NAMESPACE, "driver-builder")
    path = CONFIG_MAPS.path(namespace=NAMESPACE, name="cache-source")
    create_quietly(
        root, CONFIG_MAPS.path(namespace=NAMESPACE), {"metadata": {"name": "cache-source"}, "data": {"x": "1"}}
    )
    with followed(builder) as cache:
        contents = NamedContents(builder, cache)
        wait_until_equal(cache, builder)
        assert contents.get(path)["data"] == {"x": "1"}
        assert contents.get(path) is contents.get(path)
        root.patch(path, {"data": {"x": "2"}})
        wait_until_equal(cache, builder)
        assert contents.get(path)["data"] == {"x": "2"}
    root.delete(path)


def test_a_driver_goes_with_its_finalizer(control_plane_ground: Testbed, root: Client) -> None:
    """The answer to the last write is the object once more; it is gone all the same."""
    builder = as_service_account(control_plane_ground, NAMESPACE, "driver-builder")
    body = factories.driver_object("cache-edu")
    body["metadata"] = {"name": "cache-edu", "namespace": NAMESPACE, "finalizers": ["driverwright.io/cleanup"]}
    del body["status"]
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="cache-edu")
    with followed(builder) as cache:
        root.create(DRIVER_CONTAINERS.path(namespace=NAMESPACE), body)
        root.delete(path)
        wait_until_equal(cache, builder)
        KeptWrites(builder, cache).patch(path, {"metadata": {"finalizers": []}})
        assert [driver.name for driver in cache.namespaces[0].drivers.collection.values()] == []
        wait_until_equal(cache, builder)


@pytest.mark.long
def test_at_rest_nothing_is_listed(control_plane_ground: Testbed, root: Client) -> None:
    """For longer than a silent watch is believed, and than a watch lasts: bookmarks say that all is as it was."""
    connection = as_service_account(control_plane_ground, NAMESPACE, "driver-builder")._connection
    client = Counted(connection)
    with followed(client) as cache:
        wait_until_equal(cache, root)
        before = client.listings
        assert before == len(cache.followers)
        end = time.monotonic() + 330.0
        while time.monotonic() < end:
            cache.repair()
            time.sleep(5.0)
        assert client.listings == before
