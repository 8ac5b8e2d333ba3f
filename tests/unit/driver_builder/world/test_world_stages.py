"""``spec.stages`` on a model of a cluster: the plugin comes after its driver, and leaves before it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from driver_builder.model.driver_key import DriverKey
from driver_builder.nodes.changes import Change, RunTask, takes_driver
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.objects import plugin
from driver_builder.objects.stage_labels import Stage, stage_label
from driver_builder.tasks import validation_pod
from driver_builder.tasks.unload_pod import UNLOAD
from kube_api import names
from kube_api.client import Object
from kube_api.names import ready_label
from kube_api.node_lock import render_lock
from kube_api.resources import CONFIG_MAPS, DAEMON_SETS, DRIVER_CONTAINERS, NODES, PODS
from tests.support.driver_builder.changes import applied, moved, pods_replaced
from tests.support.driver_builder.factories import KERNEL, NAMESPACE, SETTINGS
from tests.support.driver_builder.model_world import World
from tests.support.driver_builder.worlds import told

KEY = DriverKey(f"{NAMESPACE}/edu")
READY = ready_label(NAMESPACE, "edu")
VALID, RUN, PLUG, PLGOK = (stage_label(KEY, stage) for stage in (Stage.VALID, Stage.RUN, Stage.PLUG, Stage.PLGOK))
RESOURCE: dict[str, Any] = {"name": "example.com/edu", "groups": [{"paths": [{"path": "/dev/edu*"}]}]}
PLUGIN: dict[str, Any] = {"devicePlugin": {"resource": RESOURCE}}
VENDOR: dict[str, Any] = {"devicePlugin": {"image": "registry.example.com/plugin:1", "resourceName": "example.com/edu"}}
VALIDATION: dict[str, Any] = {"image": "registry.example.com/test:1", "command": ["/test"], "retries": 1}
CHAIN: dict[str, Any] = {**PLUGIN, "pluginValidation": VALIDATION}
EVERY = {VALID, RUN, PLUG, PLGOK}
ORDERS = [set(), {VALID}, {VALID, RUN}, {VALID, RUN, PLUG}, EVERY]
PLUG_SET = DAEMON_SETS.path(namespace=NAMESPACE, name="edu-plug")
CONFIG = CONFIG_MAPS.path(namespace=NAMESPACE, name="edu-plug")
DRIVER = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu")
WITH_AGENT = replace(SETTINGS, device_agent_image="registry.example.com/device-agent:1")


class Watched(World):
    """A world that checks at every moment what must hold: the plugin is never there without its module."""

    def __init__(self, settings: PlanSettings = WITH_AGENT) -> None:
        super().__init__(settings)
        self.labels: dict[str, list[set[str]]] = {}
        """The stage labels that each node had, in this order."""

    def steps(self) -> tuple[Any, ...]:
        """Check after each part of a round."""
        return tuple(step for part in super().steps() for step in (part, self.check))

    def check(self) -> None:
        """A node says that its plugin is there only while its module is live."""
        for name, labels in self.nodes().items():
            now = labels.keys() & EVERY
            seen = self.labels.setdefault(name, [])
            if not seen or seen[-1] != now:
                seen.append(now)

    def plugins_on(self, node: str) -> list[Object]:
        """Return the pods of the plugin on a node."""
        return [pod for pod in self.pods_on(node) if plugin.STAGE_LABEL in pod["metadata"]["labels"]]

    def in_the_way(self, action: Change) -> bool:
        """Return whether an action takes a module from a node where the plugin still is."""
        moves = (part for part in moved([action]) if part.why != "the wave has ended")
        unloads = (item for item in [action] if isinstance(item, RunTask) and item.kind is UNLOAD)
        places = (item.node for items in (moves, unloads, pods_replaced([action])) for item in items)
        return any(self.plugins_on(node) for node in places)


def fleet(names: Iterable[str] = "abc", **changes: Any) -> Watched:
    """Make nodes of one kernel and a driver."""
    world = Watched()
    for name in names:
        world.add_node(name, KERNEL)
    world.add_driver(**changes)
    return world


def edit(world: World, **spec: Any) -> None:
    """Let somebody edit the driver."""
    world.client.patch(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu"), {"spec": spec})


def stages(world: World) -> dict[str, set[str]]:
    """Return the labels of stages that each node has."""
    return {name: labels.keys() & EVERY for name, labels in world.nodes().items()}


def records(world: World) -> set[str]:
    """Return the annotations of stages on all nodes."""
    nodes = (world.client.get(NODES.path(name=name)) for name in world.nodes())
    return {key for obj in nodes for key in obj["metadata"]["annotations"] if key in EVERY}


def condition(world: World) -> tuple[str, str]:
    """Return what the condition says."""
    (found,) = [item for item in world.status()["conditions"] if item["type"] == "Stages"]
    return found["status"], found["reason"]


def settle(world: World) -> None:
    """Let everything happen, and check that nothing is left to do or to wait for."""
    for _ in range(10):
        world.settle()
        due = world.decide().requeue_at
        if due is None:
            break
        world.now = max(world.now, due)
    decided = world.decide()
    assert (decided.actions, decided.requeue_at) == ((), None)


def rounds(world: Watched, count: int = 40) -> Iterator[None]:
    """Let so many passes and rounds follow each other; no pass takes a module from under a plugin."""
    for _ in range(count):
        assert [str(action) for action in world.reconcile().actions if world.in_the_way(action)] == []
        yield
        world.finish_builds()
        world.turn()
        world.now += 5


def test_each_stage_follows_the_one_before() -> None:
    """The labels come one after the other, each after what it says; in the end every node has them all."""
    world = fleet(stages=CHAIN)
    settle(world)
    assert stages(world) == dict.fromkeys("abc", EVERY)
    assert world.labels["a"] == [set(), {VALID, RUN}, {VALID, RUN, PLUG}, EVERY]
    assert sorted(node for _, node, _ in world.plugin_validations) == ["a", "b", "c"]
    assert [pod for name in "abc" for pod in world.pods_on(name)
            if validation_pod.PLUGIN_VALIDATION.label in pod["metadata"]["labels"]] == []  # fmt: skip
    assert condition(world) == ("True", "StagesReady")
    counts = {key: world.status()["stages"][key] for key in ("validNodes", "runNodes", "plugNodes", "plgokNodes")}
    assert set(counts.values()) == {3}


def test_without_a_plugin_nodes_have_the_labels_that_others_select() -> None:
    """An empty ``stages`` is enough."""
    world = fleet(stages={})
    settle(world)
    assert stages(world) == {name: {VALID, RUN} for name in "abc"}
    assert (PLUG_SET in world.client.objects, CONFIG in world.client.objects) == (False, False)


def test_without_stages_there_is_no_label_and_no_object() -> None:
    """And no status of them."""
    world = fleet()
    settle(world)
    assert stages(world) == {name: set() for name in "abc"}
    assert "stages" not in world.status()
    assert not [item for item in world.status()["conditions"] if item["type"] == "Stages"]


def test_a_wave_takes_the_plugin_first() -> None:
    """On each node: run goes, the pod leaves, the module is replaced and proven, and all comes back in order."""
    world = fleet(stages=CHAIN)
    settle(world)
    world.labels.clear()
    world.change_source("int y;")
    edit(world, version="2.0.0")
    for _ in rounds(world, 80):
        for name, labels in world.nodes().items():
            is_old = labels.get(READY) == "1.0.0" and world.live[name]
            assert RUN in labels or not world.plugins_on(name) or is_old
    settle(world)
    assert {labels[READY] for labels in world.nodes().values()} == {"2.0.0"}
    assert stages(world) == dict.fromkeys("abc", EVERY)
    for name in "abc":
        # Each says no more than the one before it.
        assert all(labels in ORDERS for labels in world.labels[name])
        assert any(RUN not in labels for labels in world.labels[name])
    assert len(world.plugin_validations) == 6
    assert records(world) == {PLGOK}


def test_a_wave_says_what_it_waits_for() -> None:
    """The pod that has not left, by its name."""
    world = fleet(stages=PLUGIN)
    settle(world)
    world.change_source("int y;")
    edit(world, version="2.0.0")
    messages = []
    for _ in rounds(world, 20):
        messages.append((world.status().get("rollout") or {}).get("message", ""))
    assert any("a: its device plugin has to leave first: pod driverwright/edu-plug-a" in text for text in messages)


def test_a_plugin_that_does_not_leave_is_waited_for_so_long() -> None:
    """Then the driver is replaced all the same, and the message says so."""
    world = fleet("a", stages=PLUGIN)
    settle(world)
    world.stuck.add("a")
    world.change_source("int y;")
    edit(world, version="2.0.0")
    began, taken, messages = world.now, 0.0, []
    for _ in range(60):
        decided = world.reconcile()
        if not taken and any(takes_driver(action) for action in decided.actions):
            taken = world.now
        messages.append((world.status().get("rollout") or {}).get("message", ""))
        world.finish_builds()
        world.turn()
        world.now += 5
    assert 120 <= taken - began <= 150
    assert any("did not leave within 120 seconds" in text for text in messages)


def test_the_same_modules_move_no_label() -> None:
    """A pod that is deleted by hand, and a version that has the same modules."""
    world = fleet(stages=CHAIN)
    world.identity = "SAME"
    settle(world)
    world.labels.clear()
    for pod in world.pods_on("a"):
        if plugin.STAGE_LABEL not in pod["metadata"]["labels"]:
            world.client.delete(PODS.path(namespace=NAMESPACE, name=pod["metadata"]["name"]))
    settle(world)
    world.silence("b")
    world.reconcile()
    world.hear("b")
    world.change_source("int y;")
    edit(world, version="2.0.0")
    settle(world)
    assert {labels[READY] for labels in world.nodes().values()} == {"2.0.0"}
    assert world.labels == {name: [EVERY] for name in "abc"}


def test_what_changes_without_the_modules_moves_no_label() -> None:
    """Every driver pod is replaced, and loads nothing: the plugin stays."""
    world = fleet(stages=CHAIN)
    world.identity = "SAME"
    settle(world)
    world.labels.clear()
    edit(world, module={"names": ["edudrv"], "blacklist": ["other"]})
    settle(world)
    assert world.labels == {name: [EVERY] for name in "abc"}


def test_other_parameters_are_a_reason_to_leave() -> None:
    """The module is loaded anew with them."""
    world = fleet("a", stages=CHAIN)
    world.identity = "SAME"
    settle(world)
    world.labels.clear()
    edit(world, module={"names": ["edudrv"], "parameters": {"edudrv": ["x=1"]}})
    for _ in rounds(world):
        pass
    settle(world)
    assert [RUN in labels for labels in world.labels["a"]][:2] == [True, False]
    assert stages(world)["a"] == EVERY


def test_a_lost_module_takes_every_label() -> None:
    """And the plugin leaves before the module is loaded again."""
    world = fleet(stages=CHAIN)
    settle(world)
    world.remove_module("b")
    world.live["b"].clear()
    world.reconcile()
    assert stages(world) == {**dict.fromkeys("ac", EVERY), "b": set()}
    for _ in rounds(world, 5):
        pass
    assert [(item["name"], item["reloads"]) for item in world.status()["nodes"]] == [("b", 1)]
    assert world.live["b"] == world.live["a"]
    settle(world)
    assert stages(world) == dict.fromkeys("abc", EVERY)


def test_a_boot_takes_the_labels_and_they_come_back() -> None:
    """The plugin is validated once more: it is another boot."""
    world = fleet(stages=CHAIN)
    settle(world)
    world.reboot("b", KERNEL)
    world.reconcile()
    assert stages(world)["b"] == set()
    settle(world)
    assert stages(world) == dict.fromkeys("abc", EVERY)
    assert [node for _, node, _ in world.plugin_validations].count("b") == 2


def test_a_node_without_a_device_loses_the_label_of_the_plugin() -> None:
    """The kubelet says so; the driver stays."""
    world = fleet(stages=CHAIN)
    settle(world)
    world.without_devices.add("b")
    world.now += 100
    settle(world)
    assert stages(world)["b"] == {VALID, RUN}
    assert condition(world) == ("False", "ResourceMissing")
    world.without_devices.clear()
    settle(world)
    assert stages(world)["b"] == EVERY
    assert len(world.plugin_validations) == 3


@pytest.mark.parametrize("ends", ["done", "gone"])
def test_a_node_whose_gpus_are_partitioned_keeps_the_label_of_the_plugin(ends: str) -> None:
    """As long as its agent has the lock; if the agent is gone, until that ends."""
    world = fleet("a", stages=CHAIN)
    settle(world)
    world.labels.clear()
    node, lock = NODES.path(name="a"), render_lock("device-agent", world.boots["a"], world.now)
    annotations = {names.LOCK_ANNOTATION: lock}
    world.client.patch(node, {"metadata": {"annotations": annotations, "labels": {names.MIG_STATE_LABEL: "pending"}}})
    world.without_devices.add("a")
    for _ in range(50):
        world.turn()
        world.reconcile()
        world.now += 10
    assert stages(world)["a"] == EVERY
    if ends == "done":
        world.without_devices.clear()
        done = {"annotations": {names.LOCK_ANNOTATION: None}, "labels": {names.MIG_STATE_LABEL: "success"}}
        world.client.patch(node, {"metadata": done})
        settle(world)
        assert world.labels == {"a": [EVERY]}
        return
    world.now += 100
    settle(world)
    assert stages(world)["a"] == {VALID, RUN}


def test_a_kubelet_that_starts_again_moves_no_label() -> None:
    """It reports none of the resource until its plugins have registered: what selects the labels stays."""
    world = fleet(stages=CHAIN)
    settle(world)
    world.labels.clear()
    world.now += 100
    world.without_devices.add("b")
    for _ in range(3):
        world.turn()
        world.reconcile()
        world.now += 10
    assert records(world) == {PLUG, PLGOK}
    world.without_devices.clear()
    settle(world)
    assert world.labels == {name: [EVERY] for name in "abc"}
    assert (records(world), len(world.plugin_validations)) == ({PLGOK}, 3)
    assert condition(world) == ("True", "StagesReady")


def test_a_report_of_the_plugin_before_says_nothing_of_the_one_after() -> None:
    """A kubelet reports every ten seconds, in which one plugin may leave and another one start."""
    world = fleet("a", stages=CHAIN)
    settle(world)
    world.late.add("a")
    world.labels.clear()
    world.change_source("int y;")
    edit(world, version="2.0.0")
    for _ in rounds(world, 12):
        pass
    assert {READY: "2.0.0", RUN: "true"}.items() <= world.nodes()["a"].items()
    assert world.plugins_on("a")
    assert world.labels["a"][-1] == {VALID, RUN}
    world.late.clear()
    world.without_devices.add("a")
    world.turn()
    world.reconcile()
    assert stages(world)["a"] == {VALID, RUN}
    world.without_devices.clear()
    settle(world)
    assert stages(world)["a"] == EVERY


def test_a_resource_that_no_kubelet_has_reported_as_gone_counts_after_a_minute() -> None:
    """It had nothing to report: the plugin was away for a moment."""
    world = fleet("a", stages=CHAIN)
    settle(world)
    world.late.add("a")
    world.change_source("int y;")
    edit(world, version="2.0.0")
    for _ in rounds(world, 12):
        pass
    assert stages(world)["a"] == {VALID, RUN}
    settle(world)
    assert stages(world)["a"] == EVERY


def test_a_validation_that_fails_for_good_is_reported() -> None:
    """The node keeps driver and plugin, and the last pod stays for its log."""
    world = fleet(stages=CHAIN)
    world.invalid["b"] = 2
    settle(world)
    assert stages(world)["b"] == {VALID, RUN, PLUG}
    assert condition(world) == ("False", "PluginValidationFailed")
    assert world.status()["stages"]["message"] == "b: the command failed (1): no answer"
    names = [pod["metadata"]["name"] for pod in world.pods_on("b")]
    assert validation_pod.PLUGIN_VALIDATION.name_of(KEY, "b") in names


def test_it_is_skipped_where_pods_use_the_resource() -> None:
    """They prove the plugin as well, and nothing may be left for another pod."""
    world = fleet("a", stages=CHAIN)
    container = {"name": "x", "resources": {"limits": {"example.com/edu": "1"}}}
    user = {
        "metadata": {"name": "user", "ownerReferences": [{"uid": "uid-edu", "kind": "Job"}]},
        "spec": {"nodeName": "a", "containers": [container]},
        "status": {"phase": "Running"},
    }
    world.client.create(PODS.path(namespace="others"), user)
    settle(world)
    assert stages(world)["a"] == EVERY
    assert world.plugin_validations == []


def test_a_plugin_is_edited_by_a_rolling_update() -> None:
    """With another ConfigMap; the driver stays, and so do its labels."""
    world = fleet(stages=PLUGIN)
    settle(world)
    before = world.client.get(CONFIG)["metadata"]["uid"]
    other = {**RESOURCE, "groups": [{"count": 2, "paths": [{"path": "/dev/edu*"}]}]}
    edit(world, stages={"devicePlugin": {"resource": other}})
    settle(world)
    assert '"count": 2' in world.client.get(CONFIG)["data"][plugin.CONFIG_KEY]
    assert world.client.get(CONFIG)["metadata"]["uid"] != before
    assert stages(world) == {name: {VALID, RUN, PLUG} for name in "abc"}


def test_an_exporter_comes_and_goes_as_any_edit() -> None:
    """Pods get a network and a view of processes of their own, and are as before when it is switched off again."""
    world = fleet(stages=PLUGIN)
    settle(world)
    before = world.client.get(PLUG_SET)["spec"]
    edit(world, stages={"devicePlugin": {**PLUGIN["devicePlugin"], "exporter": {"enabled": True, "perPod": True}}})
    settle(world)
    pod = world.client.get(PLUG_SET)["spec"]["template"]["spec"]
    assert (pod.get("hostNetwork"), pod["hostPID"]) == (None, True)
    assert '"perPod": true' in world.client.get(CONFIG)["data"][plugin.CONFIG_KEY]
    assert stages(world) == {name: {VALID, RUN, PLUG} for name in "abc"}
    edit(world, stages={"devicePlugin": {**PLUGIN["devicePlugin"], "exporter": {"enabled": False, "perPod": True}}})
    settle(world)
    assert world.client.get(PLUG_SET)["spec"] == before


def _touched_config(world: World) -> None:
    world.client.patch(CONFIG, {"data": {plugin.CONFIG_KEY: "resources: []"}})


def _deleted_config(world: World) -> None:
    world.client.delete(CONFIG)


def _touched_set(world: World) -> None:
    world.client.objects[PLUG_SET]["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "edu"}


def _deleted_set(world: World) -> None:
    world.client.delete(PLUG_SET)


def _added_to_set(world: World) -> None:
    obj = world.client.objects[PLUG_SET]
    obj["spec"]["template"]["spec"] |= {"hostPID": True, "dnsPolicy": "Default"}
    written: dict[str, Any] = {"f:template": {"f:spec": {"f:hostPID": {}, "f:dnsPolicy": {}}}}
    obj["metadata"]["managedFields"] = [{"manager": "kubectl-edit", "fieldsV1": {"f:spec": written}}]


@pytest.mark.parametrize("drift", [_touched_config, _deleted_config, _touched_set, _deleted_set, _added_to_set])
def test_drift_of_the_plugins_objects_is_repaired(drift: Any) -> None:
    """Whatever somebody has changed."""
    world = fleet(stages=PLUGIN)
    settle(world)
    spec, data = world.client.get(PLUG_SET)["spec"], world.client.get(CONFIG)["data"]
    drift(world)
    settle(world)
    assert (world.client.get(PLUG_SET)["spec"], world.client.get(CONFIG)["data"]) == (spec, data)
    assert stages(world) == {name: {VALID, RUN, PLUG} for name in "abc"}


def test_what_the_api_server_fills_in_is_no_drift() -> None:
    """Defaults, and values that it leaves out."""
    world = fleet(stages=VENDOR, tolerations=[{"operator": "Exists", "value": ""}])
    settle(world)
    spec = world.client.objects[PLUG_SET]["spec"]
    spec["revisionHistoryLimit"] = 10
    spec["template"]["spec"]["dnsPolicy"] = "ClusterFirst"
    del spec["template"]["spec"]["tolerations"][0]["value"]
    assert not any(applied(world.reconcile().actions))


def test_a_config_map_of_somebody_else_is_left_alone() -> None:
    """The status names it."""
    world = fleet(stages=PLUGIN)
    world.client.create(CONFIG_MAPS.path(namespace=NAMESPACE), {"metadata": {"name": "edu-plug"}, "data": {"a": "b"}})
    settle(world)
    assert world.client.get(CONFIG)["data"] == {"a": "b"}
    assert condition(world) == ("False", "StageNameTaken")


def _theirs(world: World) -> tuple[str, Object, object]:
    obj = world.client.get(PLUG_SET)
    return obj["metadata"]["uid"], obj["spec"], obj["metadata"].get("labels")


def test_a_daemon_set_of_somebody_else_is_left_alone() -> None:
    """The status names it; once it is gone the plugin comes."""
    world = fleet(stages=PLUGIN)
    theirs = {"metadata": {"name": "edu-plug"}, "spec": {"selector": {}, "template": {"metadata": {}, "spec": {}}}}
    world.client.create(DAEMON_SETS.path(namespace=NAMESPACE), theirs)
    made = _theirs(world)
    settle(world)
    assert _theirs(world) == made
    assert condition(world) == ("False", "StageNameTaken")
    assert f"DaemonSet {NAMESPACE}/edu-plug exists" in world.status()["stages"]["message"]
    assert stages(world) == {name: {VALID, RUN} for name in "abc"}
    world.delete_driver("edu")
    settle(world)
    assert _theirs(world) == made
    assert DRIVER not in world.client.objects
    world.add_driver(stages=PLUGIN)
    world.client.delete(PLUG_SET)
    settle(world)
    assert stages(world) == {name: {VALID, RUN, PLUG} for name in "abc"}


def test_a_name_that_is_taken_is_not_asked_for_in_each_reconcile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one that nobody has while the plugin cannot be made: after an edit at once, otherwise after half a minute."""
    world = fleet(stages=PLUGIN)
    world.is_followed, world.settings = True, SETTINGS
    asked, lists = [], world.client.list

    def listed(path: str, **how: Any) -> Any:
        asked.append(how.get("field_selector"))
        return lists(path, **how)

    monkeypatch.setattr(world.client, "list", listed)
    settle(world)
    assert condition(world) == ("False", "NoDeviceAgent")
    for spec, seconds, times in (({}, 1, 0), ({"version": "2.0.0"}, 1, 1), ({}, 60, 1)):
        asked.clear()
        edit(world, **spec)
        world.now += seconds
        world.reconcile()
        world.reconcile()
        assert asked.count("metadata.name=edu-plug") == times


def test_a_plugin_that_nobody_controls_any_more_is_ours_all_the_same() -> None:
    """Somebody has taken its owner away; what we wrote is known by its writer."""
    world = fleet(stages=PLUGIN)
    settle(world)
    metadata = world.client.objects[PLUG_SET]["metadata"]
    del metadata["ownerReferences"]
    metadata["managedFields"] = [{"manager": "driver-builder", "fieldsV1": {}}]
    settle(world)
    assert (
        world.client.get(PLUG_SET)["metadata"]["ownerReferences"][0]["uid"]
        == world.client.get(DRIVER)["metadata"]["uid"]
    )
    assert condition(world) == ("True", "StagesReady")


def _other(world: World, **changes: Any) -> None:
    """Let somebody add a younger driver with another module, which offers the same resource."""
    world.now += 60
    world.add_driver("other", **changes)


def _labels_of(world: World, driver: str) -> dict[str, set[str]]:
    prefix = stage_label(DriverKey(f"{NAMESPACE}/{driver}"), Stage.VALID).removesuffix(Stage.VALID)
    return {name: {key.removeprefix(prefix) for key in labels if key.startswith(prefix)} - {"ready"}
            for name, labels in world.nodes().items()}  # fmt: skip


def _condition_of(world: World, driver: str) -> dict[str, str]:
    found: list[dict[str, str]] = [item for item in world.status(driver)["conditions"] if item["type"] == "Stages"]
    return found[0]


@pytest.mark.parametrize("offers", [PLUGIN, VENDOR], ids=["agent", "vendor"])
def test_of_two_drivers_with_one_resource_the_one_that_has_it_keeps_it(offers: Any) -> None:
    """Nothing of it moves; the other one has no plugin there, and says which driver keeps the resource."""
    world = fleet(stages=CHAIN)
    settle(world)
    world.labels.clear()
    _other(world, stages=offers)
    settle(world)
    assert world.labels == {name: [EVERY] for name in "abc"}
    assert _labels_of(world, "other") == {name: {"valid"} for name in "abc"}
    assert len(world.plugins_on("a")) == 1
    assert condition(world) == ("True", "StagesReady")
    found = _condition_of(world, "other")
    assert (found["status"], found["reason"]) == ("False", "ResourceConflict")
    words = f"drivers {NAMESPACE}/other and {NAMESPACE}/edu both offer example.com/edu; {NAMESPACE}/edu keeps it"
    assert words in found["message"]
    assert told(world, "other")["ResourceConflict"] == 1


def test_a_younger_driver_that_offers_a_resource_already_keeps_it() -> None:
    """Also while it is upgraded, and its own plugin is away: the older one gets nothing."""
    world = fleet("a", stages={})
    _other(world, stages=PLUGIN)
    settle(world)
    edit(world, stages=VENDOR)
    settle(world)
    assert (_labels_of(world, "other")["a"], stages(world)["a"]) == ({"valid", "run", "plug"}, {VALID})
    assert condition(world) == ("False", "ResourceConflict")
    world.change_source("int y;")
    edit_other = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="other")
    world.client.patch(edit_other, {"spec": {"version": "2.0.0"}})
    for _ in range(40):
        world.reconcile()
        assert RUN not in stages(world)["a"]
        world.finish_builds()
        world.turn()
        world.now += 5
    settle(world)
    assert _labels_of(world, "other")["a"] == {"valid", "run", "plug"}
    assert world.nodes()["a"][ready_label(NAMESPACE, "other")] == "2.0.0"


def test_the_older_of_two_new_drivers_with_one_resource_gets_it() -> None:
    """After a boot as well; when it goes, the other one comes in its place."""
    world = Watched()
    world.add_driver(stages=PLUGIN)
    _other(world, stages=PLUGIN)
    world.add_node("a", KERNEL)
    settle(world)
    assert (stages(world)["a"], _labels_of(world, "other")["a"]) == ({VALID, RUN, PLUG}, {"valid"})
    world.reboot("a", KERNEL)
    settle(world)
    assert (stages(world)["a"], _labels_of(world, "other")["a"]) == ({VALID, RUN, PLUG}, {"valid"})
    world.delete_driver("edu")
    settle(world)
    assert _labels_of(world, "other")["a"] == {"valid", "run", "plug"}
    assert _condition_of(world, "other")["status"] == "True"


@pytest.mark.parametrize("is_killed", [False, True], ids=["", "killed"])
def test_a_driver_that_is_edited_to_the_resource_of_another_one_takes_nothing(*, is_killed: bool) -> None:
    """Also if it is the older one: its label ``plug`` stood for the resource that it offered before."""
    world = fleet("a", stages={"devicePlugin": {**VENDOR["devicePlugin"], "resourceName": "example.com/else"}})
    settle(world)
    _other(world, stages=PLUGIN)
    settle(world)
    world.client.objects[NODES.path(name="a")]["metadata"]["labels"][PLUG] = "true"
    edit(world, stages=VENDOR)
    if is_killed:
        world.reconcile(lambda action: bool(applied([action])))
    for _ in rounds(world, 10):
        assert "plug" in _labels_of(world, "other")["a"]
    settle(world)
    assert (stages(world)["a"], _labels_of(world, "other")["a"]) == ({VALID}, {"valid", "run", "plug"})
    assert condition(world) == ("False", "ResourceConflict")


def test_a_driver_whose_spec_is_invalid_keeps_its_resource() -> None:
    """Its plugin goes on; that of another driver, though it is of a vendor, does not come there."""
    world = fleet("a", stages=PLUGIN)
    settle(world)
    edit(world, module={"names": ["-"]})
    _other(world, stages=VENDOR)
    settle(world)
    assert (stages(world)["a"], _labels_of(world, "other")["a"]) == ({VALID, RUN, PLUG}, {"valid"})
    assert _condition_of(world, "other")["reason"] == "ResourceConflict"
    edit(world, module={"names": ["edudrv"]}, stages={"devicePlugin": None})
    settle(world)
    assert _labels_of(world, "other")["a"] == {"valid", "run", "plug"}


def test_drivers_with_one_resource_on_different_nodes_have_their_plugins() -> None:
    """A kubelet knows of its own node alone."""
    world = fleet("a", stages=PLUGIN)
    world.add_node("b", KERNEL, pool="other")
    edit(world, nodeSelector={"pool": "edu"})
    _other(world, stages=PLUGIN, nodeSelector={"pool": "other"})
    settle(world)
    assert (stages(world)["a"], _labels_of(world, "other")["b"]) == ({VALID, RUN, PLUG}, {"valid", "run", "plug"})


def test_kubelets_that_have_had_both_plugins_are_left_as_they_are() -> None:
    """Which of them registered last is not known; the younger driver says so."""
    world = fleet("a", stages=PLUGIN)
    _other(world, stages=VENDOR)
    settle(world)
    node = world.client.objects[NODES.path(name="a")]["metadata"]["labels"]
    node |= {stage_label(DriverKey(f"{NAMESPACE}/other"), stage): "true" for stage in (Stage.RUN, Stage.PLUG)}
    settle(world)
    assert (stages(world)["a"], _labels_of(world, "other")["a"]) == ({VALID, RUN, PLUG}, {"valid", "run", "plug"})
    assert _condition_of(world, "other")["reason"] == "ResourceConflict"


def test_without_an_image_of_the_agent_the_reason_is_in_the_status() -> None:
    """The driver is there all the same."""
    world = fleet(stages=PLUGIN)
    world.settings = SETTINGS
    settle(world)
    assert condition(world) == ("False", "NoDeviceAgent")
    assert stages(world) == {name: {VALID, RUN} for name in "abc"}


def test_nvidias_devices_go_through_every_stage_and_leave_first() -> None:
    """Also where the cards have MIG devices alone; a drain takes the pods that have one, without naming it."""
    mig = "nvidia.com/mig-1g.5gb"
    validation = {**VALIDATION, "resourceName": mig}
    chain = {"devicePlugin": {"nvidia": {"migStrategy": "mixed"}}, "pluginValidation": validation}
    world = fleet("a", stages=chain, rollout={"drain": {"resources": ["example.com/other"], "force": True}})
    world.resource = mig
    settle(world)
    assert (stages(world)["a"], condition(world)) == (EVERY, ("True", "StagesReady"))
    assert world.client.get(PLUG_SET)["metadata"]["annotations"][plugin.RESOURCE_ANNOTATION] == "nvidia.com/"
    user = PODS.path(namespace="others", name="user")
    container = {"name": "x", "resources": {"limits": {mig: "1"}}}
    spec = {"nodeName": "a", "containers": [container]}
    pod = {"metadata": {"name": "user"}, "spec": spec, "status": {"phase": "Running"}}
    world.client.create(PODS.path(namespace="others"), pod)
    world.change_source("int y;")
    edit(world, version="2.0.0")
    for _ in rounds(world):
        if user in world.client.objects and "deletionTimestamp" in world.client.objects[user]["metadata"]:
            assert (world.nodes()["a"][READY], stages(world)["a"]) == ("1.0.0", {VALID})
            del world.client.objects[user]
    settle(world)
    assert (world.nodes()["a"][READY], stages(world)["a"]) == ("2.0.0", EVERY)
    assert world.client.evicted == [user]


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb"])
def test_another_drivers_resource_in_the_domain_of_nvidias_devices_does_not_come(resource: str) -> None:
    """Whatever its name: which resources the cards bring is not known before they are there."""
    world = fleet("a", stages={"devicePlugin": {"nvidia": {}}})
    world.resource = "nvidia.com/gpu"
    settle(world)
    _other(world, stages={"devicePlugin": {"image": "registry.example.com/plugin:1", "resourceName": resource}})
    settle(world)
    assert (stages(world)["a"], _labels_of(world, "other")["a"]) == ({VALID, RUN, PLUG}, {"valid"})
    found = _condition_of(world, "other")
    words = f"drivers {NAMESPACE}/other and {NAMESPACE}/edu both offer {resource}; {NAMESPACE}/edu keeps it"
    assert (found["reason"], words in found["message"]) == ("ResourceConflict", True)


def test_a_drain_begins_with_the_plugin() -> None:
    """What uses the driver is evicted, DaemonSets that require run are waited for, and all comes back."""
    world = fleet("a", stages=PLUGIN, rollout={"drain": {"resources": ["example.com/edu"]}})
    settle(world)
    container = {"name": "x", "resources": {"limits": {"example.com/edu": "1"}}}
    for name, kind in (("user", "Job"), ("exporter", "DaemonSet")):
        spec = {"nodeName": "a", "containers": [container], "nodeSelector": {RUN: "true"}}
        metadata = {"name": name, "ownerReferences": [{"uid": "uid-edu", "kind": kind, "controller": True}]}
        world.client.create(
            PODS.path(namespace="others"), {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}
        )
    exporter = PODS.path(namespace="others", name="exporter")
    world.change_source("int y;")
    edit(world, version="2.0.0")
    for number, _ in enumerate(rounds(world)):
        labels = world.nodes()["a"]
        is_locked = "driverwright.io/lock" in world.client.get(NODES.path(name="a"))["metadata"]["annotations"]
        assert not (is_locked and labels[READY] == "1.0.0" and RUN in labels)
        if number == 20:
            assert labels[READY] == "1.0.0"
            assert "exporter has not left" in world.status()["rollout"]["message"]
            del world.client.objects[exporter]
        for path, obj in list(world.client.objects.items()):
            if path.startswith(PODS.path(namespace="others")) and "deletionTimestamp" in obj["metadata"]:
                del world.client.objects[path]
    settle(world)
    assert world.nodes()["a"][READY] == "2.0.0"
    assert stages(world)["a"] == {VALID, RUN, PLUG}
    assert world.client.evicted == [PODS.path(namespace="others", name="user")]


def test_a_vendors_plugin_has_no_config_map() -> None:
    """And takes the place of our agent."""
    world = fleet(stages=PLUGIN)
    settle(world)
    edit(world, stages={"devicePlugin": {**VENDOR["devicePlugin"], "resource": None}})
    settle(world)
    assert CONFIG not in world.client.objects
    (container,) = world.client.get(PLUG_SET)["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/plugin:1"
    assert stages(world) == {name: {VALID, RUN, PLUG} for name in "abc"}


def test_a_stage_that_goes_from_the_spec_takes_its_objects_and_labels() -> None:
    """The others stay; without any stage nothing is left."""
    world = fleet(stages=CHAIN)
    settle(world)
    edit(world, stages={"pluginValidation": None})
    settle(world)
    assert stages(world) == {name: {VALID, RUN, PLUG} for name in "abc"}
    edit(world, stages={"devicePlugin": None})
    settle(world)
    assert stages(world) == {name: {VALID, RUN} for name in "abc"}
    assert PLUG_SET not in world.client.objects
    assert CONFIG not in world.client.objects
    edit(world, stages=None)
    settle(world)
    assert stages(world) == {name: set() for name in "abc"}
    assert records(world) == set()
    assert {labels[READY] for labels in world.nodes().values()} == {"1.0.0"}


def test_a_deleted_driver_leaves_nothing() -> None:
    """The plugin leaves before the modules are unloaded."""
    world = fleet(stages=CHAIN)
    settle(world)
    world.delete_driver("edu")
    for _ in rounds(world, 20):
        pass
    assert stages(world) == {name: set() for name in "abc"}
    assert records(world) == set()
    assert all(not live for live in world.live.values())
    assert not [path for path in world.client.objects if "-plug" in path or "drivercontainers" in path]


def test_a_plugin_that_does_not_leave_holds_a_removal_for_so_long() -> None:
    """The condition names its pod; then the modules are unloaded all the same."""
    world = fleet("a", stages=PLUGIN)
    settle(world)
    world.stuck.add("a")
    world.delete_driver("edu")
    began = world.now
    for _ in rounds(world, 20):
        assert world.live["a"]
        (found,) = [item for item in world.status()["conditions"] if item["type"] == "Unloading"]
        assert found["reason"] == "Unloading"
    assert world.now < began + 120
    for _ in range(20):
        world.reconcile()
        world.turn()
        world.now += 5
    assert world.live["a"] == {}
    world.stuck.clear()
    for _ in range(5):
        world.turn()
        if DRIVER in world.client.objects:
            world.reconcile()
    assert not [path for path in world.client.objects if "-plug" in path or "drivercontainers" in path]


def test_a_node_that_the_driver_leaves_has_no_label() -> None:
    """After the time in which it might come back; the plugin goes before the module."""
    world = fleet(stages=CHAIN)
    settle(world)
    world.move_node("b", "other")
    for _ in rounds(world, 4):
        pass
    assert stages(world)["b"] == EVERY
    world.now += 700
    for _ in rounds(world, 20):
        pass
    assert stages(world) == {**dict.fromkeys("ac", EVERY), "b": set()}
    assert world.live["b"] == {}


def test_a_paused_driver_loses_labels_that_are_not_true() -> None:
    """As it loses its ready label."""
    world = fleet(stages=CHAIN)
    settle(world)
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu")
    world.client.patch(path, {"metadata": {"annotations": {"driverwright.io/pause": "true"}}})
    world.remove_module("b")
    world.reconcile()
    assert stages(world) == {**dict.fromkeys("ac", EVERY), "b": set()}


def test_a_driver_that_waits_for_its_dependents_loses_labels_that_are_not_true() -> None:
    """It is being deleted, and stays on its nodes until then; what it says of them is true all the same."""
    world = fleet("ab", stages=PLUGIN)
    world.add_driver("other", dependsOn=[{"name": "edu"}])
    settle(world)
    world.delete_driver("edu")
    world.reconcile()
    world.remove_module("b")
    world.reconcile()
    assert stages(world) == {"a": {VALID, RUN, PLUG}, "b": set()}


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("story", ["installation", "upgrade", "removal"])
def test_killed_after_any_action_it_comes_to_the_same_end(story: str, every: int) -> None:
    """Kill the controller right after an action on the way; ``make test-long`` does so for each of them."""

    def end(killed_after: int) -> tuple[Watched, int]:
        world, seen = fleet("ab", stages=CHAIN), 0
        if story != "installation":
            settle(world)
        if story == "upgrade":
            world.change_source("int y;")
            edit(world, version="2.0.0")
        elif story == "removal":
            world.delete_driver("edu")

        def kill_here(action: Change) -> bool:
            nonlocal seen
            assert not world.in_the_way(action)
            seen += 1
            return seen == killed_after

        for _ in range(30):
            world.reconcile(kill_here)
            world.finish_builds()
            world.turn()
            world.now += 31
        return world, seen

    straight, actions = end(0)
    for number in range(1, actions + 1, every):
        world, _ = end(number)
        assert (stages(world), world.live, records(world)) == (stages(straight), straight.live, records(straight))


def test_a_plugin_comes_where_another_driver_is_not_proven() -> None:
    """Its pods tolerate the taints of all drivers, also where the spec names tolerations of its own."""
    world = fleet("a", stages=VENDOR, tolerations=[{"key": "gpu", "operator": "Exists"}])
    world.add_driver("other", nodeSelector={"pool": "others"}, validation={"taint": True})
    settle(world)
    (found,) = [obj for path, obj in world.client.objects.items() if path.endswith("/daemonsets/edu-plug")]
    keys = {item["key"] for item in found["spec"]["template"]["spec"]["tolerations"]}
    assert f"driverwright.io/{NAMESPACE}.other" in keys
