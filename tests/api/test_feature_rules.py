"""NodeFeatureRule objects on a real API server become the workers' ConfigMap, with Events for what is wrong."""

import threading
import time
from collections.abc import Iterator

import pytest
import yaml

from driver_builder.controller.feature_rules_sync import FeatureRulesSync
from kube_api.client import Client
from kube_api.errors import Invalid, NotFound
from kube_api.resources import CONFIG_MAPS, EVENTS, NODE_FEATURE_RULES
from testbed.testbed import Testbed
from tests.support.real_parts.cluster_setup import admin, as_service_account, install
from tests.unit.driver_builder.controller.test_rule_compiler import BAD, GOOD, Json, rule_object

NAMESPACE = "driverwright"
RULES = CONFIG_MAPS.path(namespace=NAMESPACE, name="nfd-worker-rules")


@pytest.fixture
def client(control_plane_ground: Testbed) -> Iterator[Client]:
    """Return an administrator of a cluster without rules."""
    client = admin(control_plane_ground)
    install(client)
    yield client
    for obj in client.list(NODE_FEATURE_RULES.path()).items:
        client.delete(NODE_FEATURE_RULES.path(name=obj["metadata"]["name"]))


@pytest.fixture
def sync(control_plane_ground: Testbed, client: Client) -> FeatureRulesSync:
    """Return the controller's part, with the controller's own rights."""
    assert client
    own = as_service_account(control_plane_ground, NAMESPACE, "driver-builder")
    return FeatureRulesSync(own, namespace=NAMESPACE, stop=threading.Event())


def create(client: Client, name: str, *rules: Json) -> None:
    """Apply an object as kubectl would."""
    obj = rule_object(name, *rules)
    obj["metadata"] = {"name": name}
    client.create(NODE_FEATURE_RULES.path(), obj)


def data(client: Client) -> dict[str, str]:
    """Read what the workers get."""
    return client.get(RULES).get("data") or {}


def test_rules_come_and_go(client: Client, sync: FeatureRulesSync) -> None:
    """An object is a key of the ConfigMap as long as it is there."""
    create(client, "boards", GOOD)
    create(client, "cards", GOOD)
    sync.sync()
    assert sorted(data(client)) == ["boards.yaml", "cards.yaml"]
    assert yaml.safe_load(data(client)["boards.yaml"])["spec"]["rules"] == [GOOD]
    client.delete(NODE_FEATURE_RULES.path(name="boards"))
    sync.sync()
    assert sorted(data(client)) == ["cards.yaml"]


def test_a_second_pass_writes_nothing(client: Client, sync: FeatureRulesSync) -> None:
    """Every write would be a new mount on every node."""
    create(client, "boards", GOOD)
    sync.sync()
    before = client.get(RULES)["metadata"]["resourceVersion"]
    sync.sync()
    assert client.get(RULES)["metadata"]["resourceVersion"] == before


def test_a_wrong_rule_gets_a_warning_on_its_object(client: Client, sync: FeatureRulesSync) -> None:
    """An Event says which rule, and what is wrong with it; the rules beside it work."""
    wrong = {**GOOD, "name": "two-bounds", "matchFeatures": [
        {"feature": "kernel.version", "matchExpressions": {"major": {"op": "GtLt", "value": ["6"]}}},
    ]}  # fmt: skip
    create(client, "bounds", wrong, GOOD)
    sync.sync()
    sync.sync()
    told = [
        event for event in client.list(EVENTS.path(namespace="default")).items
        if event["involvedObject"]["name"] == "bounds"
    ]  # fmt: skip
    assert [(event["type"], event["reason"], event["count"]) for event in told] == [("Warning", "InvalidRule", 1)]
    assert "two-bounds" in told[0]["message"]
    assert told[0]["involvedObject"]["kind"] == "NodeFeatureRule"
    assert [rule["name"] for rule in yaml.safe_load(data(client)["bounds.yaml"])["spec"]["rules"]] == ["fpga"]


def test_the_definition_refuses_what_is_certainly_wrong(client: Client) -> None:
    """An operator that does not exist never gets into the cluster."""
    with pytest.raises(Invalid, match="Inn"):
        create(client, "wrong", BAD)


def test_applying_our_manifests_again_keeps_the_rules(client: Client, sync: FeatureRulesSync) -> None:
    """An upgrade must not take the rules from the nodes."""
    create(client, "boards", GOOD)
    sync.sync()
    install(client)
    assert sorted(data(client)) == ["boards.yaml"]


def test_the_thread_follows_changes(client: Client, control_plane_ground: Testbed) -> None:
    """Woken by a watch, it writes within a second or two."""
    stop = threading.Event()
    own = as_service_account(control_plane_ground, NAMESPACE, "driver-builder")
    sync = FeatureRulesSync(own, namespace=NAMESPACE, stop=stop)
    thread = threading.Thread(target=sync.run)
    thread.start()
    try:
        create(client, "late", GOOD)
        sync.wake.set()
        deadline = time.monotonic() + 600
        while "late.yaml" not in data(client) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert "late.yaml" in data(client)
    finally:
        stop.set()
        thread.join(600)
    assert not thread.is_alive()


def test_a_missing_config_map_is_no_crash(client: Client, sync: FeatureRulesSync) -> None:
    """Workers that are not installed need no rules."""
    create(client, "boards", GOOD)
    client.delete(RULES)
    sync.sync()
    with pytest.raises(NotFound):
        client.get(RULES)
