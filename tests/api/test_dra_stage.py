"""A small DRA driver as the stage of a driver, on a real API server: its account, its ResourceSlice, the label.

Where the API server has ``resource.k8s.io/v1`` (``KUBEBUILDER_ASSETS`` of 1.34 or later) the slice is one of its own.
Elsewhere a definition stands in for that kind, and takes the slices of ``tests/data/resource_slices.yaml`` as they are;
the rest of the test is the same.
"""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from driver_builder.cluster import resource_api
from driver_builder.cluster.cluster_cache import ClusterCache
from driver_builder.cluster.observe import Observer
from driver_builder.plan.stage_view import StageView
from driver_builder.snapshot.resource_slices import NodeSlice
from driver_builder.snapshot.snapshot import Snapshot
from kube_api.client import Client, Object
from kube_api.errors import Forbidden, NotFound
from kube_api.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CUSTOM_RESOURCE_DEFINITIONS,
    DRIVER_CONTAINERS,
    NODES,
    RESOURCE_SLICES,
    SERVICE_ACCOUNTS,
)
from testbed.testbed import Testbed
from tests.support.driver_builder import factories
from tests.support.real_parts.acts import wait_for
from tests.support.real_parts.cluster_setup import (
    FIELD_MANAGER,
    Json,
    admin,
    as_service_account,
    create_quietly,
    definition_in_place_of,
    documents,
    granting,
    install,
    path_of,
)
from tests.support.real_parts.dra_driver import DraDriver
from tests.support.real_parts.dra_messages import Claim
from tests.support.real_parts.plugin_watcher import PluginWatcher, short_root

NAMESPACE, NAME = "driverwright", "dra-stage"
GPU, NODE = "gpu.example.com", "dra-node"
RIGHTS = tuple(documents("driver-builder/dra.yaml"))
RECORDED: list[Json] = yaml.safe_load((Path(__file__).parents[1] / "data" / "resource_slices.yaml").read_text())
DEFINITION = definition_in_place_of(RESOURCE_SLICES)


@pytest.fixture(scope="module")
def root(control_plane_ground: Testbed) -> Iterator[Client]:
    """Install the accounts, a driver with a DRA driver as its plugin, and a node; give the administrator."""
    client = admin(control_plane_ground)
    install(client)
    plugin = {"image": "r.io/dra:1", "dra": {"driver": GPU, "serviceAccountName": NAME}}
    made = factories.driver_object(NAME, spec_changes={"stages": {"devicePlugin": plugin}}, finalizer=False)
    del made["metadata"]["uid"]
    create_quietly(client, DRIVER_CONTAINERS.path(namespace=NAMESPACE), made)
    create_quietly(client, SERVICE_ACCOUNTS.path(namespace=NAMESPACE), {"metadata": {"name": NAME}})
    create_quietly(client, NODES.path(), {"metadata": {"name": NODE}})
    is_stood_in = resource_api.VERSION not in resource_api.served_versions(client)
    if is_stood_in:
        client.create(CUSTOM_RESOURCE_DEFINITIONS.path(), DEFINITION)
    wait_for("slices are served", lambda: _is_served(client))
    try:
        yield client
    finally:
        client.delete(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=NAME))
        client.delete(NODES.path(name=NODE))
        client.delete(SERVICE_ACCOUNTS.path(namespace=NAMESPACE, name=NAME))
        for obj in RIGHTS:
            with suppress(NotFound):
                client.delete(path_of(obj))
        if is_stood_in:
            client.delete(CUSTOM_RESOURCE_DEFINITIONS.path(name=DEFINITION["metadata"]["name"]))


def _is_served(client: Client) -> bool:
    try:
        client.list(RESOURCE_SLICES.path())
    except NotFound:
        return False
    return True


@pytest.fixture(scope="module")
def builder(control_plane_ground: Testbed, root: Client) -> Client:
    """Connect as driver-builder, which has the rights of the base alone at first."""
    assert root
    return as_service_account(control_plane_ground, NAMESPACE, "driver-builder")


def _observe(client: Client, cache: ClusterCache | None = None) -> Snapshot:
    accounts = frozenset({f"{NAMESPACE}/{NAME}"})
    return Observer(client, namespaces=(NAMESPACE,), cache=cache, clock=time.time, accounts=accounts).observe()


def _view(seen: Snapshot) -> StageView:
    (container,) = [item for item in seen.drivers if item.name == NAME]
    return StageView.of(seen, container)


def test_driver_builder_sees_no_slice_without_the_right(builder: Client) -> None:
    """It says so, and reads all else."""
    with pytest.raises(Forbidden):
        builder.list(RESOURCE_SLICES.path())
    unread = _view(_observe(builder)).slices_unread
    assert unread is not None
    assert (unread.is_unserved, "is forbidden" in unread.message) == (False, True)


def test_with_the_right_it_sees_them_and_may_write_none(root: Client, builder: Client) -> None:
    """Neither create one nor delete one."""
    for obj in RIGHTS:
        root.apply(path_of(obj), obj, field_manager=FIELD_MANAGER)
    wait_for("the right to see slices", lambda: _view(_observe(builder)).slices_unread is None)
    with pytest.raises(Forbidden):
        builder.create(RESOURCE_SLICES.path(), DraDriver(GPU, NODE, Path("/")).slice())
    with pytest.raises(Forbidden):
        builder.delete(RESOURCE_SLICES.path(name="any"))


def test_recorded_slices_are_stored_and_read(root: Client, builder: Client) -> None:
    """As the API server returns them: each of a node is one of its driver's."""
    made: list[Object] = []
    try:
        for recorded in RECORDED:
            content = {key: recorded["slice"][key] for key in ("apiVersion", "kind", "spec")}
            made.append(root.create(RESOURCE_SLICES.path(), {**content, "metadata": _name_of(recorded)}))
        cache = ClusterCache(builder, namespaces=(NAMESPACE,))
        cache.slices.read([_of_recorded()])
        values = [item for follower in cache.slices.followers for item in follower.collection.values()]
        wanted = {(of["driver"], of["node"], of["devices"]) for of in (item["of"] for item in RECORDED) if of}
        assert {(item.driver, item.node, item.has_devices) for item in values} >= wanted
        assert not [item for item in values if item.driver == "fabric.example.com"]
        assert all(abs(item.created_at - time.time()) < 600 for item in values)
    finally:
        for obj in made:
            root.delete(RESOURCE_SLICES.path(name=obj["metadata"]["name"]))


def _name_of(recorded: Json) -> Json:
    return {"name": recorded["slice"]["metadata"]["name"]}


def _of_recorded() -> Any:
    plugin = {"image": "r.io/dra:1", "dra": {"driver": "gpu.nvidia.com", "serviceAccountName": NAME}}
    return factories.driver(NAME, spec_changes={"stages": {"devicePlugin": plugin}})


def test_a_dra_driver_registers_publishes_and_prepares_and_its_slice_is_news(
    control_plane_ground: Testbed, root: Client, builder: Client
) -> None:
    """By its account's rights alone; the controller hears of the slice by its watch, and of its end."""
    rule = {"apiGroups": [RESOURCE_SLICES.group], "resources": [RESOURCE_SLICES.plural], "verbs": ["create", "delete"]}
    nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}
    role, binding = granting("ClusterRole", {"name": NAME}, rule, f"{NAMESPACE}/{NAME}")
    role["rules"].append(nodes)
    create_quietly(root, CLUSTER_ROLES.path(), role)
    create_quietly(root, CLUSTER_ROLE_BINDINGS.path(), binding)
    cache, stop, news = ClusterCache(builder, namespaces=(NAMESPACE,)), threading.Event(), threading.Event()
    threading.Thread(target=partial(cache.slices.run, stop, news.set), daemon=True).start()
    own = as_service_account(control_plane_ground, NAMESPACE, NAME)

    def slices() -> tuple[NodeSlice, ...]:
        return _view(_observe(builder, cache)).slices.get(NODE, ())

    async def run(folder: Path) -> None:
        driver, kubelet = DraDriver(GPU, NODE, folder, pod_uid="1"), PluginWatcher(folder)
        await driver.start()
        try:
            assert (await kubelet.register()).name == GPU
            assert (await driver.statuses.get()).plugin_registered
            await asyncio.to_thread(driver.publish, own)
            claim = Claim(namespace="apps", name="a", uid="uid-of-claim")
            (device,) = (await kubelet.prepare(GPU, claim)).devices
            assert device.cdi_device_ids == (f"{GPU}/claim={claim.uid}",)
            assert not (await kubelet.unprepare(GPU, claim)).error
        finally:
            await driver.stop()

    try:
        assert slices() == ()
        wait_for("the slices are followed", lambda: all(item.is_trusted for item in cache.slices.followers))
        news.clear()
        with short_root() as folder:
            asyncio.run(run(folder))
        assert news.wait(60)
        (found,) = slices()
        assert (found.driver, found.has_devices) == (GPU, True)
        news.clear()
        own.delete(RESOURCE_SLICES.path(name=f"{NODE}-{GPU}"))
        assert news.wait(60)
        assert slices() == ()
    finally:
        stop.set()
        for resource in (CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES):
            root.delete(resource.path(name=NAME))
