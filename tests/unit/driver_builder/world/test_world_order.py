"""Waves of a driver that others depend on: its module is replaced under none of theirs, and all are back in the end."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from driver_builder.model.build import BuildRequest
from driver_builder.model.images import KEY_LABEL, MODULES_LABEL
from driver_builder.nodes.changes import Change, PatchNode, takes_driver
from driver_builder.objects import manifests
from driver_builder.objects.yielding import is_yield_label
from driver_builder.tasks.pull_pod import PULL
from driver_builder.tasks.unload_pod import UNLOAD
from kube_api import names
from kube_api.client import Object
from kube_api.resources import CONFIG_MAPS, DRIVER_CONTAINERS, NODES
from tests.support.driver_builder.changes import holds, patches
from tests.support.driver_builder.factories import KERNEL, NAMESPACE
from tests.support.driver_builder.journal import is_for, is_ready
from tests.support.driver_builder.memory_client import copied
from tests.support.driver_builder.model_world import World, pod_status
from tests.support.driver_builder.worlds import told
from tests.support.examples import few
from tests.unit.driver_builder.world.test_world_rollout import boot_of, result_of

FIRST, SECOND, THIRD = "ofed", "mem", "app"
MODULES = {name: f"{name}drv" for name in (FIRST, SECOND, THIRD)}
USES = {MODULES[FIRST]: MODULES[SECOND], MODULES[SECOND]: MODULES[THIRD]}
"""Which module uses another one, by the other one."""
BOUND = 80


class OrderWorld(World):
    """A world whose kernel knows which module uses another one, and for which build of it each was made."""

    def __init__(self) -> None:
        super().__init__()
        self.made_for: dict[str, set[str]] = {}
        """The identities of the modules whose symbols a build has got, by its own."""
        self.bad: set[str] = set()
        """Identities of modules that no kernel takes."""
        self.is_bad = False
        """Whether what is built of the first driver from now on is bad."""
        self.uses = USES
        self.has_same_crcs = False
        """Whether upgrades leave the symbols of all drivers as they are."""
        self.failed: list[str] = []
        """What loaders have reported of modules that could not be loaded."""
        self.budget = 1

    # ---------------------------------------------------------- what people do

    def edit(self, name: str, text: str) -> None:
        """Upgrade a driver."""
        self.client.patch(CONFIG_MAPS.path(namespace=NAMESPACE, name=f"{name}-source"), {"data": {"edudrv.c": text}})

    def add(self, name: str, *needs: str, **changes: Any) -> None:
        """Add a driver with a source of its own."""
        self.client.create(
            CONFIG_MAPS.path(namespace=NAMESPACE),
            {"metadata": {"name": f"{name}-source"}, "data": {"edudrv.c": "int x;"}},
        )
        source = {"configMap": {"name": f"{name}-source"}}
        self.add_driver(name, dependsOn=[{"name": other} for other in needs] or None, source=source, **changes)

    # ---------------------------------------------------------- what kernels do

    def identity_of(self, request: BuildRequest) -> str:
        """Two builds with symbols of the same CRCs give one module."""
        return super().identity_of(replace(request, depends=()) if self.has_same_crcs else request)

    def finish_builds(self) -> None:
        """Let builds end, and note for which builds of others each one is."""
        for action in self.builds.running.values():
            made = self.identity_of(action.request)
            self.made_for.setdefault(made, set()).update(key.upper() for _, key in action.request.depends)
            if self.is_bad and action.request.driver.endswith(f"/{FIRST}"):
                self.bad.add(made)
        super().finish_builds()

    def _load(self) -> None:
        for pod in self._drivers():
            if result_of(pod) == "LoadFailed" and not self._obstacle(pod):
                pod["status"] = {}
        waiting = [pod for pod in self._drivers() if not is_ready(pod)]
        for pod in waiting:
            others = [(item, item.get("status")) for item in waiting if item is not pod]
            for item, _ in others:
                item["status"] = {"phase": "Pending"}
            if not pod.get("status") and (why := self._obstacle(pod)):
                node = pod["spec"]["nodeName"]
                verdict = {"result": "LoadFailed", "kernel": self.kernels[node], "bootID": self.boots[node],
                           "message": why}  # fmt: skip
                pod["status"] = pod_status(verdict, ready=False)
                self.failed.append(f"{node}: {why}")
            super()._load()
            for item, status in others:
                item["status"] = status or {}

    def _obstacle(self, pod: Object) -> str:
        """Return why the modules of a pod cannot be loaded now; empty also while its loader waits."""
        live = self.live[pod["spec"]["nodeName"]]
        modules: dict[str, str] = json.loads(pod["metadata"]["annotations"][manifests.MODULES_ANNOTATION])
        if modules.items() <= live.items() or next(self._missing(pod), None) is not None:
            return ""
        for name, identity in modules.items():
            if USES.get(name) in live:
                return f"module {name} is in use (refcnt 1, used by modules {USES[name]})"
            if identity in self.bad:
                return f"{name}: Invalid module format"
            below = {live[other] for other, user in USES.items() if user == name and other in live}
            if not below <= self.made_for[identity]:
                return f"{name} disagrees about version of symbol"
        return ""

    def _unload(self) -> None:
        """A module that another one uses stays. The newest pod is first: nothing says which one runs before another."""
        pods = (pod for _, pod in self._objects("pods") if UNLOAD.label in pod["metadata"]["labels"])
        waiting = [pod for pod in pods if not pod.get("status")]
        for pod in reversed(waiting):
            others = [(item, item.get("status")) for item in waiting if item is not pod]
            for item, _ in others:
                item["status"] = {"phase": "Pending"}
            node = pod["spec"]["nodeName"]
            before, self.in_use = self.in_use, self.in_use | ({node} if self._is_used(node, self.live[node]) else set())
            super()._unload()
            self.in_use = before
            for item, status in others:
                item["status"] = status or {}

    def _is_used(self, node: str, live: dict[str, str]) -> bool:
        """Return whether what an unload pod of a node would unload is used by another module."""
        named = {
            word.partition(":")[0]
            for pod in self.pods_on(node)
            for container in pod["spec"]["containers"]
            for item in container.get("env") or ()
            if item["name"] == "UNLOAD" and not pod.get("status")
            for word in item["value"].split()
        }
        return any(USES.get(name) in live for name in named)

    # ---------------------------------------------------------- what can be said about it

    def _drivers(self) -> list[Object]:
        return [pod for _, pod in self._objects("pods") if manifests.TARGET_LABEL in pod["metadata"]["labels"]]

    def down(self) -> set[str]:
        """Name the nodes where one of the drivers does not work."""
        owners = {obj["metadata"]["uid"]: obj for _, obj in self._objects("daemonsets")}

        def works(pod: Object) -> bool:
            name = pod["spec"]["nodeName"]
            owner = owners.get(pod["metadata"]["ownerReferences"][0]["uid"])
            belongs = owner is not None and is_for(
                owner["spec"]["template"]["spec"], self.client.objects[NODES.path(name=name)]
            )
            is_well = is_ready(pod) and result_of(pod) == "Loaded" and boot_of(pod) == self.boots[name]
            return belongs and is_well and "deletionTimestamp" not in pod["metadata"]

        wanted = {path.rpartition("/")[2] for path, _ in self._objects("drivercontainers")}
        found = {(pod["spec"]["nodeName"], pod["metadata"]["labels"][manifests.DRIVER_LABEL])
                 for pod in self._drivers() if works(pod)}  # fmt: skip
        return {node for node in self.kernels for driver in wanted if (node, driver) not in found}

    def look(self, _action: Change) -> bool:
        """Check after each write that no more nodes are without a driver than the budget allows."""
        down = self.down()
        assert len(down) <= self.budget, f"{down} are without a driver after {_action}"
        return False

    def arrive(self, bound: int = BOUND) -> None:
        """Let rounds pass until nothing moves any more."""
        for _ in range(bound):
            before = copied(self.client.objects)
            decided = self.reconcile(self.look)
            moves = bool(decided.actions or self.builds.running)
            self.finish_builds()
            self.turn()
            if not moves and before == self.client.objects:
                if decided.requeue_at is None:
                    return
                self.now = max(self.now + 1.0, decided.requeue_at)
            self.now += 1.0
        raise AssertionError(f"still moving: {[str(action) for action in self.decide().actions]}")

    def leftovers(self) -> list[str]:
        """Name what is still on nodes because of waves."""
        found: list[str] = []
        for name in sorted(self.kernels):
            metadata = self.client.objects[NODES.path(name=name)]["metadata"]
            keys = (names.LOCK_ANNOTATION, names.DRAINING_ANNOTATION, names.YIELDING_ANNOTATION)
            found += [f"{name}: {key}" for key in keys if key in (metadata.get("annotations") or {})]
            found += [f"{name}: {key}" for key in metadata["labels"] if key.endswith(".wave") or is_yield_label(key)]
        return found

    def wanted(self, name: str) -> str:
        """Return the identity that a driver should have everywhere."""
        (found,) = self.status(name)["targets"]
        every = (labels for labels in self.registries.images.values() if labels[KEY_LABEL] == found["buildKey"])
        (module,) = json.loads(next(every)[MODULES_LABEL])
        identity: str = module["identity"]
        return identity


def ordered(
    nodes: int = 2, *, third: bool = False, budget: int = 1, world: OrderWorld | None = None, **changes: Any
) -> OrderWorld:
    """Make a world of drivers of which each depends on the one before, and which work."""
    world = OrderWorld() if world is None else world
    world.budget = nodes
    for number in range(nodes):
        world.add_node(f"node-{number}", KERNEL)
    rollout = {"maxUnavailable": budget}
    world.add(FIRST, rollout=rollout, **changes)
    world.add(SECOND, FIRST, rollout=rollout)
    if third:
        world.add(THIRD, SECOND, rollout=rollout)
    world.arrive()
    world.budget = budget
    assert_all_is_well(world)
    return world


def drivers_of(world: OrderWorld) -> list[str]:
    """Return the drivers, the first one first."""
    paths = world.client.objects
    return [name for name in MODULES if DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=name) in paths]


def assert_all_is_well(world: OrderWorld) -> None:
    """Every node has what is wanted of all drivers, and nothing of ours that is for upgrades."""
    assert world.leftovers() == []
    wanted = {MODULES[name]: world.wanted(name) for name in drivers_of(world)}
    assert world.live == dict.fromkeys(world.kernels, wanted)
    assert world.down() == set()
    assert {world.status(name)["targets"][0]["state"] for name in drivers_of(world)} == {"Ready"}
    assert not any("rollout" in world.status(name) for name in drivers_of(world))


@pytest.mark.parametrize("third", [False, True])
@pytest.mark.parametrize("budget", [1, 2])
def test_in_a_wave_those_that_depend_on_the_driver_yield_and_come_back(third: bool, budget: int) -> None:
    """On each node in the order of their dependencies, with what is built with the new symbols; nothing fails."""
    world = ordered(3, third=third, budget=budget)
    before = dict(world.live["node-0"])
    world.loads.clear()
    world.edit(FIRST, "int y;")
    world.arrive()
    assert_all_is_well(world)
    assert world.failed == []
    assert before.items().isdisjoint(world.live["node-0"].items())
    for node in world.kernels:
        loaded = [driver.partition("/")[2] for driver, where in world.loads if where == node]
        assert loaded == [FIRST, SECOND, *([THIRD] if third else [])]


@pytest.mark.parametrize("every", [15, pytest.param(1, marks=pytest.mark.long)])
def test_killed_after_any_write_a_wave_ends_the_same(every: int) -> None:
    """Kill the controller right after a write; ``make test-long`` does so for each of them."""

    def run(after_each: Callable[[Change], bool]) -> OrderWorld:
        world = ordered(2)
        world.edit(FIRST, "int y;")
        for _ in range(30):
            if not world.kills:
                world.rounds(1, after_each)
        world.arrive()
        assert_all_is_well(world)
        assert world.failed == []
        return world

    writes: list[Change] = []

    def look(world_action: Change) -> bool:
        writes.append(world_action)
        return False

    run(look)
    assert len(writes) > 20
    for number in range(0, len(writes), every):
        left = iter(range(number + 1))
        run(lambda _action, left=left: next(left, None) == number)  # type: ignore[misc]  # noqa: B023


def test_before_their_new_images_are_there_no_node_is_touched() -> None:
    """The status of the first driver says for whom its wave waits."""
    world = ordered(2)
    before = {name: dict(live) for name, live in world.live.items()}
    world.edit(FIRST, "int y;")
    world.reconcile(world.look)
    world.finish_builds()
    world.reconcile(world.look)
    # The build of the second one fails for now.
    world.fail_builds = 1
    world.rounds(4)
    assert world.live == before
    assert world.leftovers() == []
    message = world.status(FIRST)["rollout"]["message"]
    assert (
        f"driver {NAMESPACE}/{SECOND}, which depends on {NAMESPACE}/{FIRST}: its image for the new symbols" in message
    )
    world.arrive()
    assert_all_is_well(world)


@pytest.mark.parametrize("drain", [None, {"resources": ["example.com/nic"], "deadline": "60s"}], ids=["", "drain"])
def test_where_one_cannot_be_unloaded_all_stays_as_it_was(drain: Object | None) -> None:
    """The first one is not replaced, the reason is said, and the wave goes on elsewhere; later it is tried again."""
    world = ordered(2)
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=FIRST)
    world.client.patch(path, {"spec": {"rollout": {"drain": drain}}})
    before = dict(world.live["node-0"])
    world.in_use.add("node-0")
    world.edit(FIRST, "int y;")
    world.rounds(60)
    assert world.live["node-0"] == before
    assert world.down() == set()
    assert before.items().isdisjoint(world.live["node-1"].items())
    message = world.status(FIRST)["rollout"]["message"]
    assert f"driver {NAMESPACE}/{SECOND}, which depends on it, is not unloaded" in message
    assert "refcnt 1" in message
    conditions = {item["type"]: item for item in world.status(FIRST)["conditions"]}
    assert "Draining" not in conditions
    assert conditions["Yielding"]["reason"] == "DependentNotUnloaded"
    words = f"node-0: driver {NAMESPACE}/{SECOND}, which depends on it, is not unloaded: module memdrv: refcnt 1"
    assert words in conditions["Yielding"]["message"]
    assert told(world, FIRST) == {"DependentNotUnloaded": 1}
    assert world.leftovers() == [f"node-0: {names.DRAINING_ANNOTATION}",
                                 *(item for item in world.leftovers() if item.endswith(".wave"))]  # fmt: skip
    world.in_use.clear()
    world.arrive()
    assert_all_is_well(world)
    assert "Yielding" not in {item["type"] for item in world.status(FIRST)["conditions"]}
    assert world.failed == []


def test_where_one_stays_loaded_with_the_module_that_is_wanted_the_wave_goes_on() -> None:
    """Its next image has the same module, since no symbol has another CRC: nothing holds the node any more."""
    world = ordered(2)
    world.has_same_crcs = True
    world.edit(SECOND, "int z;")
    world.arrive()
    before = dict(world.live["node-0"])
    world.in_use.add("node-0")
    world.edit(FIRST, "int y;")
    world.rounds(60)
    assert world.live["node-0"] == before
    assert world.down() == set()
    assert before[MODULES[FIRST]] != world.live["node-1"][MODULES[FIRST]] == world.wanted(FIRST)
    assert not [item for item in world.leftovers() if item.startswith("node-1") and not item.endswith(".wave")]
    world.in_use.clear()
    world.arrive()
    assert_all_is_well(world)


def test_a_driver_whose_spec_is_invalid_still_depends_on_the_first() -> None:
    """Nothing is unloaded: its DaemonSets say what it needs. The message names it."""
    world = ordered(2)
    before = {name: dict(live) for name, live in world.live.items()}
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=SECOND)
    modules = world.client.objects[path]["spec"]["module"]
    world.client.patch(path, {"spec": {"module": None}})
    world.edit(FIRST, "int y;")
    world.rounds(10)
    assert world.live == before
    assert world.down() == set()
    words = f"driver {NAMESPACE}/{SECOND}, which depends on {NAMESPACE}/{FIRST}: its spec is invalid"
    assert words in world.status(FIRST)["rollout"]["message"]
    world.client.patch(path, {"spec": {"module": modules}})
    world.arrive()
    assert_all_is_well(world)
    assert world.failed == []


@pytest.mark.parametrize("max_failed", [0, 1])
def test_where_the_first_one_fails_all_return_to_what_they_were(max_failed: int) -> None:
    """The wave halts, after another node if one may fail; the others load again with the image of before."""
    world = ordered(3)
    body: Object = {"spec": {"rollout": {"maxFailed": max_failed}}}
    world.client.patch(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=FIRST), body)
    before = {name: dict(live) for name, live in world.live.items()}
    world.is_bad = True
    world.edit(FIRST, "int y;")
    world.rounds(40)
    assert world.live == before
    assert world.down() == set()
    rollout = world.status(FIRST)["rollout"]
    assert (rollout["phase"], len(rollout["returned"])) == ("Halted", max_failed + 1)
    assert not [item for item in world.leftovers() if not item.endswith(".wave")]
    world.is_bad = False
    world.edit(FIRST, "int z;")
    world.arrive()
    assert_all_is_well(world)


def test_while_the_image_of_one_cannot_be_pulled_nobody_yields() -> None:
    """All drivers work from the images of before, and the status says why; then the wave goes on."""
    world = ordered(2)
    before = {name: dict(live) for name, live in world.live.items()}
    world.unpulled.add(SECOND)
    world.edit(FIRST, "int y;")
    world.rounds(20)
    assert world.live == before
    assert not [item for item in world.leftovers() if not item.endswith(".wave")]
    assert "the next image cannot be pulled there: " in world.status(FIRST)["rollout"]["message"]
    world.unpulled.clear()
    world.arrive()
    assert_all_is_well(world)
    assert world.failed == []


def test_the_images_of_drivers_that_yield_stay_until_they_are_back() -> None:
    """Their pull pods are there before they yield, although their own canary would go elsewhere."""
    world = ordered(2)
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=SECOND)
    rollout = {"canary": None, "canaryNodeSelector": {"kubernetes.io/hostname": "elsewhere"}}
    world.client.patch(path, {"spec": {"rollout": rollout}})
    world.edit(FIRST, "int y;")
    brought: set[str] = set()

    def look(action: Change) -> bool:
        if isinstance(action, PatchNode) and any(
            is_yield_label(label) for part in holds([action]) for label in part.labels
        ):
            pods = [pod["metadata"] for pod in world.pods_on(action.node)]
            labels = [metadata["labels"] for metadata in pods if "deletionTimestamp" not in metadata]
            brought.add(action.node)
            assert SECOND in {found[manifests.DRIVER_LABEL] for found in labels if PULL.label in found}
        return world.look(action)

    world.rounds(30, look)
    assert brought == set(world.kernels)


@pytest.mark.parametrize("is_late", [False, True])
def test_where_a_driver_yields_its_taint_stays_as_it_is(is_late: bool) -> None:
    """It was proven on that boot, also where the taint was asked for later."""
    world = ordered(2)
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=SECOND)
    world.client.patch(path, {"spec": {"validation": {"taint": True}}})
    world.arrive()
    if not is_late:
        for node in world.kernels:
            world.reboot(node, KERNEL)
        world.budget = 2
        world.reconcile(world.look)
        world.arrive()
        world.budget = 1
    tainted: list[Change] = []

    def look(action: Change) -> bool:
        tainted.extend(patches([action], "taint Node"))
        return world.look(action)

    world.edit(FIRST, "int y;")
    for _ in range(30):
        world.finish_builds()
        for step in world.steps():
            step()
            world.reconcile(look)
        world.now += 5.0
    world.arrive()
    assert_all_is_well(world)
    assert tainted == []


def test_nothing_is_unloaded_where_the_modules_stay_the_same() -> None:
    """Another image with the same modules replaces no module, and asks nobody to yield."""
    world = OrderWorld()
    world.identity = "SAME"
    world.made_for["SAME"] = {"SAME"}
    world.budget = 2
    for name in ("node-0", "node-1"):
        world.add_node(name, KERNEL)
    world.add(FIRST)
    world.add(SECOND, FIRST)
    world.arrive()
    world.loads.clear()
    world.edit(FIRST, "int y;")
    world.client.patch(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=FIRST), {"spec": {"version": "2.0.0"}})
    world.arrive()
    assert world.leftovers() == []
    assert f"{NAMESPACE}/{SECOND}" not in [driver for driver, _ in world.loads]


def test_a_rebuild_of_one_node_unloads_what_depends_on_the_driver() -> None:
    """The driver is loaded anew there; the other node keeps what it has."""
    world = ordered(2)
    world.loads.clear()
    patch = {"metadata": {"annotations": {names.REBUILD_ANNOTATION: "now"}}}
    world.client.patch(NODES.path(name="node-0"), patch)
    world.arrive()
    assert world.failed == []
    assert not [item for item in world.leftovers() if not item.endswith(".wave")]
    assert [(driver.rpartition("/")[2], node) for driver, node in world.loads] == [
        (FIRST, "node-0"),
        (SECOND, "node-0"),
    ]
    assert world.down() == set()


@pytest.mark.parametrize("what", ["paused", "old source", "the second paused", "rebooted"])
@pytest.mark.parametrize("number", [19, *(pytest.param(number, marks=pytest.mark.long) for number in (7, 13, 25))])
def test_a_wave_that_is_disturbed_leaves_no_driver_away(what: str, number: int) -> None:
    """At any moment: what has yielded is loaded again."""
    world = ordered(2)
    world.edit(FIRST, "int y;")
    left = iter(range(number))
    stop: list[Change] = []

    def look(action: Change) -> bool:
        if not stop and next(left, None) is None:
            stop.append(action)
        return False

    while not stop:
        world.rounds(1, look)
    pause: Object = {"metadata": {"annotations": {names.PAUSE_ANNOTATION: "true"}}}
    first, second = (DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=name) for name in (FIRST, SECOND))
    match what:
        case "paused":
            world.client.patch(first, pause)
        case "the second paused":
            world.client.patch(second, pause)
        case "old source":
            world.edit(FIRST, "int x;")
        case _:
            world.reboot("node-0", KERNEL)
    world.rounds(40, lambda _action: False)
    for name in world.kernels:
        assert set(world.live[name]) == {MODULES[FIRST], MODULES[SECOND]}
    assert world.failed == []
    pause = {"metadata": {"annotations": {names.PAUSE_ANNOTATION: None}}}
    for path in (first, second):
        world.client.patch(path, pause)
    world.arrive()
    assert_all_is_well(world)


def test_undone_by_an_admin_all_return_to_what_they_were() -> None:
    """Where the new image works as well, within the budget."""
    world = ordered(2)
    before = {name: dict(live) for name, live in world.live.items()}
    # The last node cannot be reached: the wave goes on while it is undone.
    world.in_use.add("node-1")
    world.edit(FIRST, "int y;")
    world.rounds(30)
    assert world.live["node-0"] != before["node-0"]
    targets = world.status(FIRST)["rollout"]["targets"]
    annotations = {names.UNDO_ROLLOUT_ANNOTATION: ",".join(sorted(set(targets.values())))}
    body: Object = {"metadata": {"annotations": annotations}}
    world.client.patch(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=FIRST), body)
    world.rounds(40)
    assert world.live == before
    assert world.failed == []
    assert world.down() == set()


def test_at_once_everywhere_is_in_order_as_well() -> None:
    """Without waves: on each node the others yield first."""
    world = ordered(2)
    world.client.patch(
        DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=FIRST), {"spec": {"rollout": {"strategy": "immediate"}}}
    )
    world.arrive()
    world.budget = 2
    world.edit(FIRST, "int y;")
    world.arrive()
    assert_all_is_well(world)
    assert world.failed == []


def _pause(world: OrderWorld, name: str, value: str | None) -> None:
    body: Object = {"metadata": {"annotations": {names.PAUSE_ANNOTATION: value}}}
    world.client.patch(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=name), body)


def _use(world: OrderWorld, node: str, _: str) -> None:
    (world.in_use.discard if node in world.in_use else world.in_use.add)(node)


def _spoil(world: OrderWorld, _node: str, _name: str) -> None:
    world.is_bad = not world.is_bad


def _edit(world: OrderWorld, node: str, name: str) -> None:
    world.edit(name, f"int {node.replace('-', '_')}_{len(world.made_for)};")


def _rebuild(world: OrderWorld, _node: str, name: str) -> None:
    world.annotate_driver(name, str(len(world.made_for)))


STEPS: dict[str, Callable[[OrderWorld, str, str], None]] = {
    "edit": _edit,
    "reboot": lambda world, node, _: world.reboot(node, KERNEL),
    "use": _use,
    "spoil": _spoil,
    "pause": lambda world, _, name: _pause(world, name, "true"),
    "resume": lambda world, _, name: _pause(world, name, None),
    "kill": lambda world, _node, _name: world.kill(),
    "rebuild": _rebuild,
    "silence": lambda world, node, _: world.silence(node),
    "hear": lambda world, node, _: world.hear(node),
}
histories = st.lists(
    st.tuples(
        st.sampled_from(sorted(STEPS)),
        st.sampled_from(["node-0", "node-1"]),
        st.sampled_from([FIRST, SECOND, THIRD]),
        st.integers(1, 6),
    ),
    max_size=8,
)


@pytest.mark.costly
@few(3)
@given(histories)
def test_after_any_history_every_driver_is_back(history: list[tuple[str, str, str, int]]) -> None:
    """No module is replaced under one that uses it, and nothing of ours is left on a node."""
    world = ordered(2, third=True)
    world.edit(FIRST, "int y;")
    for step, node, name, number in history:
        event(step)
        STEPS[step](world, node, name)
        world.rounds(number, lambda _action: False)
    world.in_use.clear()
    world.is_bad = False
    for node in world.kernels:
        world.hear(node)
    for name in drivers_of(world):
        _pause(world, name, None)
        world.edit(name, "int z;")
    world.budget = 2
    world.rounds(30)
    world.arrive()
    assert_all_is_well(world)
    # What is wanted may change twice within a wave: then one image fits another one that is not there any more.
    assert [why for why in world.failed if "in use" in why] == []


def half_done(world: OrderWorld, *, is_built: bool = True) -> None:
    """Edit the first driver once more before its new pod loads on a node; ``is_built``: so are those that yield."""
    world.edit(FIRST, "int y;")
    moved: list[Change] = []

    def look(action: Change) -> bool:
        is_taken = takes_driver(action) and FIRST in f"{action}"
        moved.extend([action] if is_taken else [])
        return world.look(action)

    while not moved:
        world.rounds(1)
        world.reconcile(look)
    world.edit(FIRST, "int z;")
    world.reconcile(world.look)
    for number in range(6):
        world.fail_builds = int(number > 0 and not is_built)
        world.finish_builds()
        for step in world.steps():
            if step != world._load:
                step()
        world.now += 5.0
        world.reconcile(world.look)
    world.fail_builds = 0


@pytest.mark.parametrize("budget", [1, 2])
def test_a_node_where_others_yield_gets_what_is_wanted_since(budget: int) -> None:
    """What would be loaded again is built for another image by then: the first driver is replaced once more before."""
    world = ordered(2, budget=budget)
    half_done(world)
    world.arrive()
    assert_all_is_well(world)
    assert world.failed == []


def test_a_node_where_others_yield_is_given_back_while_their_next_images_are_missing() -> None:
    """They are loaded again with the images that fit; the first driver is not replaced under none of theirs."""
    world = ordered(2, budget=2)
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=FIRST)
    world.client.patch(path, {"spec": {"rollout": {"strategy": "immediate"}}})
    world.arrive()
    half_done(world, is_built=False)
    world.rounds(2)
    assert world.down() == set()
    world.arrive()
    assert_all_is_well(world)
    assert world.failed == []


def test_what_cannot_be_loaded_again_as_it_was_is_unloaded_once_its_users_end() -> None:
    """A node that the wave has reached, where another image is wanted since: nothing is tried that cannot fit."""
    world = ordered(2)
    before = dict(world.live["node-0"])
    world.edit(FIRST, "int y;")
    while world.down() or world.live["node-0"] == before:
        world.rounds(1)
    world.in_use |= {"node-0", "node-1"}
    world.edit(FIRST, "int z;")
    world.rounds(20)
    assert "is not unloaded: module memdrv: refcnt 1" in world.status(FIRST)["rollout"]["message"]
    world.in_use.clear()
    world.arrive()
    assert_all_is_well(world)
    assert [why for why in world.failed if why.startswith("node-0")] == []


@pytest.mark.parametrize("later", [1, 2])
def test_what_is_being_written_of_the_next_image_does_not_come_where_the_image_of_before_fits(later: int) -> None:
    """A dependent driver in a wave of its own yields, and is edited then: it returns to the image of before."""
    world = ordered(2, budget=2)

    def has_label(label: str) -> bool:
        return label in world.client.objects[NODES.path(name="node-0")]["metadata"]["labels"]

    world.edit(SECOND, "int a;")
    while not has_label(names.wave_label(NAMESPACE, SECOND)):
        world.rounds(1)
    world.edit(FIRST, "int y;")
    while not has_label(names.yield_label(NAMESPACE, SECOND)):
        world.rounds(1)
    world.rounds(later)
    world.edit(SECOND, "int b;")
    world.arrive()
    assert_all_is_well(world)
    assert world.failed == []


@pytest.mark.parametrize("later", [0, 1])
def test_a_driver_that_has_not_yielded_moves_under_none_that_uses_it(later: int) -> None:
    """The middle one of three has to return to the image of before with the last one: it is unloaded first as well."""
    world = ordered(2, third=True)

    def says(name: str) -> str | None:
        label = names.yield_label(NAMESPACE, name)
        found: str | None = world.client.objects[NODES.path(name="node-0")]["metadata"]["labels"].get(label)
        return found

    before = world.live["node-0"][MODULES[SECOND]]
    world.edit(SECOND, "int a;")
    while world.live["node-0"].get(MODULES[SECOND]) == before or len(world.live["node-0"]) < len(MODULES):
        world.rounds(1)
    world.edit(FIRST, "int y;")
    while says(THIRD) != FIRST:
        world.rounds(1)
    world.rounds(later)
    world.edit(SECOND, "int b;")
    world.arrive()
    assert_all_is_well(world)
    assert world.failed == []
