"""Draining in any history of a fleet: what leaves a node, and that everything is as it was in the end."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.model.permissions import Permissions
from driver_builder.nodes.changes import Change, takes_driver
from driver_builder.rollout.draining import PAUSED
from driver_builder.tasks.pull_pod import PULL
from kube_api import names
from kube_api.client import Object
from kube_api.resources import DAEMON_SETS, DRIVER_CONTAINERS, NODES, PODS, RESOURCE_CLAIMS
from kube_api.timestamps import timestamp
from tests.support.driver_builder.changes import moved
from tests.support.driver_builder.factories import KERNEL, NAMESPACE, OTHER_KERNEL
from tests.support.driver_builder.journal import is_tainted
from tests.support.driver_builder.worlds import told
from tests.support.examples import few
from tests.unit.driver_builder.world import test_world_rollout as waves
from tests.unit.driver_builder.world.test_world_rollout import (
    GOOD,
    NODE_NAMES,
    Step,
    WaveWorld,
    driver_of,
    live_through,
)

COMMAND: Object = {"image": "registry.example.com/edu-test:1", "command": ["/test"]}
APPS, RESOURCE = "apps", "example.com/fpga"
LABEL = "example.com/fpga.deploy.plugin"
YEAR = 365 * 86400.0
DRAIN = {"resources": [RESOURCE], "pauseLabels": [LABEL], "deadline": "60s"}


class DrainWorld(WaveWorld):
    """A world in which each node has a pod that uses the driver, and one of a DaemonSet that a label deploys."""

    def add_node(self, name: str, kernel: str, *, pool: str = "edu") -> None:
        """Let a node join, which an operator has labelled."""
        super().add_node(name, kernel, pool=pool)
        self.patch_node(name, {"metadata": {"labels": {LABEL: "true"}}})

    def turn(self) -> None:
        """Let other controllers do their part as well."""
        super().turn()
        nodes = {name: self.client.objects[NODES.path(name=name)] for name in self.kernels}
        for path, pod in list(self.client.objects.items()):
            if f"/namespaces/{APPS}/pods/" in path:
                node = nodes.get(pod["spec"]["nodeName"])
                if node is None or "deletionTimestamp" in pod["metadata"] or not self._stays(pod, node):
                    del self.client.objects[path]
        for name, node in nodes.items():
            if node["metadata"]["labels"].get(LABEL) == "true":
                owner = {"kind": "DaemonSet", "controller": True, "uid": "plugin"}
                self._add(f"plugin-{name}", name, {"nodeSelector": {LABEL: "true"}}, ownerReferences=[owner])
            if not is_tainted(node):
                spec = {"containers": [{"resources": {"requests": {RESOURCE: "1"}}}]}
                owner = {"kind": "ReplicaSet", "controller": True, "uid": "web"}
                self._add(f"web-{name}", name, spec, ownerReferences=[owner])

    def _stays(self, pod: Object, node: Object) -> bool:
        wanted: Object = pod["spec"].get("nodeSelector", {})
        return all(node["metadata"]["labels"].get(key) == value for key, value in wanted.items())

    def _add(self, name: str, node: str, spec: Object, **metadata: Any) -> None:
        if web_path(name) not in self.client.objects:
            body = {"metadata": {"name": name, **metadata}, "spec": {"nodeName": node, **spec}}
            self.client.create(PODS.path(namespace=APPS), body)

    def _collect_orphans(self) -> None:
        kept = {path: obj for path, obj in self.client.objects.items() if f"/namespaces/{APPS}/" in path}
        super()._collect_orphans()
        self.client.objects |= kept

    def heal(self) -> None:
        """Let budgets allow everything."""
        self.client.budgets.clear()
        super().heal()

    def leftovers(self) -> list[str]:
        """Name what is still on nodes because of drains."""
        found: list[str] = []
        for name in self.kernels:
            node = self.client.objects[NODES.path(name=name)]
            keys = node["metadata"].get("annotations") or {}
            found += [f"{name}: {key}" for key in (names.LOCK_ANNOTATION, names.DRAINING_ANNOTATION) if key in keys]
            found += [f"{name}: taint"] if is_tainted(node) else []
            found += [f"{name}: label"] if node["metadata"]["labels"].get(LABEL) == PAUSED else []
        return found


def web_path(name: str) -> str:
    """Return the path of a pod that somebody else made."""
    return PODS.path(namespace=APPS, name=name)


def drained_world(*kernels: str, identity: str = "", validation: Object | None = None) -> DrainWorld:
    """Make a world of one driver with a drain, which works; all builds have the same ``identity``, if one is given."""
    world = DrainWorld()
    world.identity = identity
    for name, kernel in zip(NODE_NAMES, kernels, strict=False):
        world.add_node(name, kernel)
    world.add_driver("edu", rollout={"drain": DRAIN}, validation=validation)
    world.arrive()
    return world


def assert_all_is_well(world: DrainWorld) -> None:
    """Every node has the new driver, what uses it, and nothing of ours that is for upgrades."""
    assert world.leftovers() == []
    for name in world.kernels:
        (pod,) = [pod for pod in world.pods_on(name) if driver_of(pod) == "edu"]
        assert world.works(pod)
        assert web_path(f"web-{name}") in world.client.objects
        assert web_path(f"plugin-{name}") in world.client.objects
    assert "rollout" not in world.status()


def test_an_upgrade_drains_each_node_and_restores_it() -> None:
    """Users are evicted, the DaemonSet's pod leaves by its label, and both come back."""
    world = drained_world(KERNEL, OTHER_KERNEL)
    world.edit_source(GOOD[1])
    world.arrive()
    assert_all_is_well(world)
    assert world.client.evicted == [web_path("web-node-0"), web_path("web-node-1")]


class NotebookWorld(DrainWorld):
    """On some nodes nothing would create the pod again that uses the driver."""

    bare: frozenset[str] = frozenset()

    def turn(self) -> None:
        """Let the pods of those nodes have no owner."""
        super().turn()
        for node in self.bare:
            if (pod := self.client.objects.get(web_path(f"web-{node}"))) is not None:
                pod["metadata"].pop("ownerReferences", None)


@pytest.mark.parametrize(
    ("forbidden", "expected"),
    [(False, ["node-1", "node-2", "node-0"]), (True, ["node-0", "node-1", "node-2"])],
    ids=["pods are read", "pods may not be read"],
)
def test_a_node_whose_pods_a_drain_may_not_evict_goes_last(*, forbidden: bool, expected: list[str]) -> None:
    """It is upgraded after the others, when its pod has ended; without the right to list pods it goes by its name."""
    world = NotebookWorld()
    for name in NODE_NAMES[:3]:
        world.add_node(name, KERNEL)
    world.add_driver("edu", rollout={"drain": {**DRAIN, "deadline": "1h"}})
    world.arrive()
    world.bare = frozenset({"node-0"})
    world.turn()
    if forbidden:
        world.client.forbidden, world.recorder.broken = (PODS.path(),), {"not_under_its_users"}
    world.loads.clear()
    said: set[str] = set()
    world.edit_source(GOOD[1])
    for _ in range(30):
        world.rounds(1)
        said.add(world.status().get("rollout", {}).get("message", ""))
    words = "after the others, because a drain waits for pods there: node-0"
    assert any(words in message for message in said) is not forbidden
    if not forbidden:
        assert [node for _, node in world.loads] == expected[:2]
        world.bare = frozenset()
        del world.client.objects[web_path("web-node-0")]
    world.arrive()
    assert [node for _, node in world.loads] == expected
    assert_all_is_well(world)


class ClaimWorld(DrainWorld):
    """Pods that use the driver have a ResourceClaim of a template, and request nothing."""

    def __init__(self, *versions: str) -> None:
        super().__init__()
        group = {"metadata": {"uid": "group"}, "versions": [{"version": version} for version in versions]}
        self.client.objects["/apis/resource.k8s.io"] = group

    def _add(self, name: str, node: str, spec: Object, **metadata: Any) -> None:
        if "containers" in spec and web_path(name) not in self.client.objects:
            allocation = {"devices": {"results": [{"driver": "fpga.example.com"}]}}
            claim = {"metadata": {"name": f"{name}-fpga"}, "status": {"allocation": allocation}}
            path = RESOURCE_CLAIMS.path(namespace=APPS)
            if f"{path}/{name}-fpga" not in self.client.objects:
                self.client.create(path, claim)
            spec = {"resourceClaims": [{"name": "fpga", "resourceClaimTemplateName": "one"}]}
            super()._add(name, node, spec, **metadata)
            made = {"resourceClaimStatuses": [{"name": "fpga", "resourceClaimName": f"{name}-fpga"}]}
            self.client.objects[web_path(name)]["status"] = made
            return
        super()._add(name, node, spec, **metadata)


def upgraded_by_claims(*versions: str) -> ClaimWorld:
    """Upgrade a driver whose users have claims, with an API server that serves these versions."""
    world = ClaimWorld(*versions)
    world.add_node("node-0", KERNEL)
    drain = {"draDrivers": ["fpga.example.com"], "pauseLabels": [LABEL], "deadline": "60s"}
    world.add_driver("edu", rollout={"drain": drain})
    world.arrive()
    world.edit_source(GOOD[1])
    return world


def test_pods_with_a_claim_are_users_as_well() -> None:
    """They leave before the driver is replaced, and come back."""
    world = upgraded_by_claims("v1")
    world.arrive()
    assert_all_is_well(world)
    assert world.client.evicted == [web_path("web-node-0")]


def test_an_api_server_without_the_stable_version_is_named() -> None:
    """The wave goes on as for a driver that nothing uses."""
    world = upgraded_by_claims("v1beta1")
    said: set[str] = set()
    for _ in range(20):
        world.rounds(1)
        said.add(world.status().get("rollout", {}).get("message", ""))
    assert any("node-0 is drained, but ResourceClaims are not seen: the API server has" in words for words in said), (
        said
    )
    assert world.client.evicted == []


def test_a_budget_is_named_and_the_node_keeps_its_driver() -> None:
    """After the deadline the node is as it was, and rests; once the budget allows it, it is upgraded."""
    world = drained_world(KERNEL)
    world.client.budgets.add(web_path("web-node-0"))
    world.edit_source(GOOD[1])
    world.rounds(30)
    message = world.status()["rollout"]["message"]
    assert "web-node-0 stays: " in message
    assert "the disruption budget needs it" in message
    assert world.leftovers() == [f"node-0: {names.DRAINING_ANNOTATION}"]
    assert world.working() == {"node-0"}
    (condition,) = [item for item in world.status()["conditions"] if item["type"] == "Draining"]
    assert (condition["status"], condition["reason"]) == ("False", "DrainTimeout")
    assert "node-0: pod apps/web-node-0: web-node-0 stays: " in condition["message"]
    assert "the disruption budget needs it" in condition["message"]
    assert told(world)["DrainTimeout"] == 1
    world.client.budgets.clear()
    world.arrive()
    assert_all_is_well(world)
    assert "Draining" not in {item["type"] for item in world.status()["conditions"]}


def test_a_pod_outside_of_the_allowed_namespaces_keeps_its_node_from_the_wave() -> None:
    """The controller's setting holds for what an author selects; the status names the flag."""
    world = drained_world(KERNEL)
    versions = world.settings.template_versions
    limited = replace(versions, permissions=Permissions(drain_namespaces=("jobs",)))
    world.settings = replace(world.settings, template_versions=limited)
    world.edit_source(GOOD[1])
    world.rounds(30)
    assert "web-node-0 is not evicted: --drain-namespaces" in world.status()["rollout"]["message"]
    assert world.client.evicted == []
    assert world.working() == {"node-0"}
    limited = replace(versions, permissions=Permissions(drain_namespaces=(APPS,)))
    world.settings = replace(world.settings, template_versions=limited)
    world.arrive()
    assert_all_is_well(world)


def test_without_rights_the_status_says_what_is_missing_and_the_wave_goes_on() -> None:
    """Where nothing is in the way the driver is replaced all the same."""
    world = drained_world(KERNEL)
    world.client.forbidden, world.recorder.broken = ("/api/v1/pods",), {"not_under_its_users"}
    world.edit_source(GOOD[1])
    said: set[str] = set()
    for _ in range(20):
        world.reconcile(world.look)
        said.add(world.status().get("rollout", {}).get("message", ""))
        world.finish_builds()
        world.turn()
        world.now += 5.0
    assert any("node-0 is not drained: apply deploy/driver-builder/drain.yaml" in words for words in said)
    world.arrive()
    assert_all_is_well(world)
    assert world.client.evicted == []


@pytest.mark.parametrize("writes", range(8))
def test_a_controller_that_is_killed_after_any_write_ends_the_same(writes: int) -> None:
    """What was begun is on the Node."""
    world = drained_world(KERNEL)
    world.edit_source(GOOD[1])
    world.rounds_with_a_kill(writes, 20)
    world.arrive()
    assert_all_is_well(world)


@pytest.mark.parametrize("what", ["deleted", "paused", "without a drain", "old source"])
def test_what_was_begun_is_undone_when_it_is_not_wanted_any_more(what: str) -> None:
    """Whatever ends the wave."""
    world = drained_world(KERNEL)
    world.client.budgets.add(web_path("web-node-0"))
    world.edit_source(GOOD[1])
    world.rounds(6)
    assert f"node-0: {names.LOCK_ANNOTATION}" in world.leftovers()
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu")
    match what:
        case "deleted":
            world.delete_driver("edu")
        case "paused":
            world.client.patch(path, {"metadata": {"annotations": {names.PAUSE_ANNOTATION: "true"}}})
        case "without a drain":
            world.client.patch(path, {"spec": {"rollout": {"drain": None}}})
        case _:
            world.change_source("int x;")
    world.arrive()
    assert world.leftovers() == []
    assert (path in world.client.objects) is (what != "deleted")
    assert [path for path in world.client.objects if path.startswith(DAEMON_SETS.path(namespace=NAMESPACE))] or (
        what == "deleted"
    )


def begun(*kernels: str) -> DrainWorld:
    """Make a world in which the first node is being drained, and a budget keeps what uses its driver."""
    world = drained_world(*kernels)
    world.client.budgets.add(web_path("web-node-0"))
    world.edit_source(GOOD[1])
    while "node-0: taint" not in world.leftovers():
        world.rounds(1)
    world.rounds(2)
    return world


def annotate(world: DrainWorld, value: str | None) -> None:
    """Let somebody remove the record of a drain, or write over it."""
    world.patch_node("node-0", {"metadata": {"annotations": {names.DRAINING_ANNOTATION: value}}})


LOST = pytest.mark.parametrize("value", [None, "{", "{}"], ids=["removed", "unreadable", "of nobody"])


@LOST
@pytest.mark.parametrize("is_killed", [False, True], ids=["", "and a controller that restarts"])
def test_a_drain_whose_record_is_lost_is_begun_anew(value: str | None, is_killed: bool) -> None:
    """It ends by its deadline, or is done once the budget allows it; labels get the values that the status records."""
    world = begun(KERNEL, KERNEL)
    annotate(world, value)
    if is_killed:
        world.kill()
    world.rounds(20)
    assert told(world)["DrainTimeout"] == 1
    assert not [item for item in world.leftovers() if item in ("node-0: taint", "node-0: label")]
    assert world.working() >= {"node-0"}
    world.client.budgets.clear()
    world.arrive()
    assert_all_is_well(world)
    assert "draining" not in world.status()


@LOST
def test_a_record_that_is_lost_again_and_again_does_not_keep_the_node(value: str | None) -> None:
    """The deadline counts from the begin of the drain, which the status records."""
    world = begun(KERNEL)
    before, tainted = world.live["node-0"], 0
    for _ in range(40):
        annotate(world, value)
        world.rounds(1)
        tainted += "node-0: taint" in world.leftovers()
        assert world.live["node-0"] == before
    assert tainted < 40
    assert told(world)["DrainTimeout"]
    world.heal()
    world.arrive()
    assert_all_is_well(world)


@pytest.mark.parametrize("ends", ["by hand", "by the end of the driver", "by the end of the wave"])
def test_labels_are_given_back_when_nothing_else_of_a_drain_is_left(ends: str) -> None:
    """Somebody removes record, lock and taint, as a page may tell them."""
    world = begun(KERNEL)
    annotations = {names.DRAINING_ANNOTATION: None, names.LOCK_ANNOTATION: None}
    world.patch_node("node-0", {"metadata": {"annotations": annotations}, "spec": {"taints": None}})
    if ends == "by the end of the driver":
        world.delete_driver("edu")
    elif ends == "by the end of the wave":
        world.change_source("int x;")
    world.rounds(3)
    assert ("node-0: label" in world.leftovers()) is (ends == "by hand")
    world.heal()
    world.arrive()
    assert world.leftovers() == []


def test_a_drain_that_begins_while_the_clock_is_ahead_ends_by_its_deadline() -> None:
    """Its begin is written back as now, once the clock is right."""
    world = drained_world(KERNEL)
    world.client.budgets.add(web_path("web-node-0"))
    world.edit_source(GOOD[1])
    world.now += YEAR
    while "node-0: taint" not in world.leftovers():
        world.rounds(1)
    world.now -= YEAR
    world.rounds(16)
    assert told(world)["DrainTimeout"] == 1
    assert world.leftovers() == [f"node-0: {names.DRAINING_ANNOTATION}"]


@pytest.mark.parametrize("is_deleted", [False, True], ids=["", "of a driver that is gone"])
def test_a_drain_that_fails_while_the_clock_is_ahead_is_tried_again(is_deleted: bool) -> None:
    """Within the time that a node rests at most."""
    world = begun(KERNEL)
    world.now += YEAR
    world.rounds(16)
    assert world.leftovers() == [f"node-0: {names.DRAINING_ANNOTATION}"]
    world.now -= YEAR
    world.client.budgets.clear()
    if is_deleted:
        path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu")
        del world.client.objects[path]
        world.rounds(2)
        assert world.leftovers() == []
        return
    world.rounds(1)
    world.now += 600.0
    world.rounds(15)
    world.arrive()
    assert_all_is_well(world)


@pytest.mark.parametrize("is_renewed", [False, True], ids=["", "and is renewed"])
def test_another_programs_lock_from_the_future_expires_after_it_was_first_seen(is_renewed: bool) -> None:
    """Its clock is wrong; while it renews the lock, that is honoured."""
    world = drained_world(KERNEL)
    before = dict(world.live["node-0"])
    world.edit_source(GOOD[1])
    for number in range(60):
        if number == 0 or (is_renewed and number % 10 == 0):
            lock = {"holder": "gpu-partitioner", "renewTime": timestamp(world.now + YEAR)}
            world.patch_node("node-0", {"metadata": {"annotations": {names.LOCK_ANNOTATION: json.dumps(lock)}}})
        world.rounds(1)
        world.now += 10.0
        if number < 35:
            assert world.live["node-0"] == before
    assert (world.live["node-0"] == before) is is_renewed


def _hold(world: WaveWorld, node: str, yes: bool) -> None:
    """Let a PodDisruptionBudget keep the pod of a node, or not."""
    (world.client.budgets.add if yes else world.client.budgets.discard)(web_path(f"web-{node}"))


steps = st.one_of(waves.steps, waves._step("a budget", _hold, waves.nodes, st.booleans()))


@pytest.mark.costly
@few(5)
@given(
    st.lists(waves.kernels, min_size=2, max_size=3),
    st.sampled_from([1, 2]),
    st.lists(steps, max_size=8),
)
def test_no_history_leaves_anything_on_a_node(first: list[str], budget: int, history: list[Step]) -> None:
    """No taint, lock, or changed label; no driver goes under what uses it, and all ends as wanted."""
    world = DrainWorld()
    for name, kernel in zip(NODE_NAMES, first, strict=False):
        world.add_node(name, kernel)
    world.add_driver("edu")
    world.roll({"maxUnavailable": budget, "drain": DRAIN})
    world.arrive()
    live_through(world, history)
    assert_all_is_well(world)


def stay_drained(world: DrainWorld, node: str) -> None:
    """Let time pass in which nothing that uses the driver may come to a node."""
    world.rounds(20)
    assert {f"{node}: taint", f"{node}: label", f"{node}: {names.LOCK_ANNOTATION}"} <= set(world.leftovers())
    assert web_path(f"web-{node}") not in world.client.objects


@pytest.mark.parametrize("what", ["modules", "parameters"])
def test_a_node_is_given_back_once_its_new_driver_is_validated(what: str) -> None:
    """Until then neither pods nor the ready label come back, also where only parameters have changed."""
    world = drained_world(KERNEL, identity="SAME" if what == "parameters" else "", validation=COMMAND)
    world.validating.add("node-0")
    if what == "modules":
        world.edit_source(GOOD[1])
    else:
        spec = {"spec": {"module": {"parameters": {"edudrv": ["level=2"]}}}}
        world.client.patch(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu"), spec)
    stay_drained(world, "node-0")
    assert names.ready_label(NAMESPACE, "edu") not in world.nodes()["node-0"]
    world.validating.clear()
    world.arrive()
    assert_all_is_well(world)


@pytest.mark.parametrize("max_failed", [0, 1])
def test_a_node_whose_new_driver_is_not_valid_is_given_back_with_the_one_of_before(max_failed: int) -> None:
    """Nothing comes back to the driver that has failed; if one may fail, the next node gets it meanwhile."""
    world = drained_world(KERNEL, KERNEL, validation={**COMMAND, "retries": 0})
    world.roll({"maxFailed": max_failed})
    before = dict(world.live["node-0"])
    world.invalid["node-0"] = 1
    world.edit_source(GOOD[1])
    for _ in range(60):
        world.reconcile()
        world.finish_builds()
        world.turn()
        assert world.live["node-0"] == before or web_path("web-node-0") not in world.client.objects
        world.now += 5.0
    rollout = world.status()["rollout"]
    assert (rollout["phase"], rollout["returned"], rollout["updatedNodes"]) == ("Halted", ["node-0"], max_failed)
    assert "it failed on node-0: ValidationFailed" in rollout["message"]
    assert (world.leftovers(), world.live["node-0"]) == ([], before)
    assert (world.live["node-1"] == before) is not bool(max_failed)
    assert web_path("web-node-0") in world.client.objects


@pytest.mark.parametrize("whose", ["driver", "node"])
def test_a_rebuild_of_the_same_modules_drains_its_nodes(whose: str) -> None:
    """The loader loads them anew under whatever uses them."""
    world = drained_world(KERNEL, identity="SAME")
    reloaded: list[str] = []

    def look(action: Change) -> bool:
        if takes_driver(action) and world.pods_on("node-0"):
            reloaded.append(action.node)
            assert is_tainted(world.client.objects[NODES.path(name="node-0")])
            assert web_path("web-node-0") not in world.client.objects
        return world.look(action)

    if whose == "driver":
        world.annotate_driver("edu", "now")
    else:
        world.patch_node("node-0", {"metadata": {"annotations": {names.REBUILD_ANNOTATION: "now"}}})
    while not reloaded:
        world.rounds(1, look)
    world.arrive()
    assert_all_is_well(world)


def test_a_node_that_returns_to_the_selector_is_drained_before_it_gets_another_image() -> None:
    """Its modules of before are loaded and in use."""
    world = drained_world(KERNEL, OTHER_KERNEL)
    before = dict(world.live["node-0"])
    world.move_node("node-0", "web")
    world.one_round()
    world.edit_source(GOOD[1])
    let_in: list[str] = []

    def look(action: Change) -> bool:
        if any(part.lets_in for part in moved([action])):
            let_in.extend(part.node for part in moved([action]))
            assert is_tainted(world.client.objects[NODES.path(name="node-0")])
            assert web_path("web-node-0") not in world.client.objects
            assert world.live["node-0"] == before
        return world.look(action)

    world.rounds(10, look)
    world.move_node("node-0", "edu")
    world.rounds(30, look)
    assert let_in == ["node-0"]
    world.arrive()
    assert_all_is_well(world)
    assert world.live["node-0"] != before


def test_an_image_is_pulled_before_anything_leaves_its_node() -> None:
    """While it cannot be pulled the node keeps driver and users, and the status has the kubelet's words."""
    world = drained_world(KERNEL)
    world.without_images.add("node-0")
    world.edit_source(GOOD[1])
    for _ in range(10):
        world.reconcile(world.look)
        world.finish_builds()
        world.turn()
        world.now += 15.0
    words = "held back: node-0: the next image cannot be pulled there: ImagePullBackOff: Back-off pulling image"
    assert world.status()["rollout"]["message"].startswith(words)
    assert (world.leftovers(), world.working(), world.client.evicted) == ([], {"node-0"}, [])
    world.without_images.clear()
    world.arrive()
    assert_all_is_well(world)
    assert [pod["metadata"]["name"] for pod in world.pods_on("node-0") if PULL.label in pod["metadata"]["labels"]] == []
