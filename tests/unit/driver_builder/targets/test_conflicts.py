"""Two drivers that name one module on one node: one keeps it, the other replaces nothing and says so."""

from dataclasses import replace

import pytest

from driver_builder.api.driver_container import DriverContainer
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.permissions import Permissions
from driver_builder.objects import loaded
from driver_builder.objects.driver_keys import driver_keys
from driver_builder.objects.loaded import Load, Loaded
from driver_builder.objects.manifests import DRIVER_LABEL
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets.conflicts import Conflict
from driver_builder.targets.conflicts import conflicts as conflicts_within
from kube_api.resources import NODES
from tests.support.driver_builder.factories import BOOT_ID, KERNEL, OTHER_KERNEL, driver, node, snapshot
from tests.support.driver_builder.model_world import World

ANYTHING = Permissions()
OLD, NEW = DriverKey("driverwright/old"), DriverKey("driverwright/new")


def conflicts(seen: Snapshot, allowed: Permissions = ANYTHING) -> dict[DriverKey, tuple[Conflict, ...]]:
    """Return what each driver must leave to others, where the settings allow everything unless they are given."""
    return conflicts_within(seen, allowed)


def named(name: str, *, age: float, modules: tuple[str, ...] = ("edudrv",), **changes: object) -> DriverContainer:
    """Make a driver of some modules; a greater age is older."""
    module = {
        "names": list(modules),
        **({"inTreeModulesToRemove": changes.pop("removes")} if "removes" in changes else {}),
    }
    return replace(driver(name, spec_changes={"module": module, **changes}), created_at=1000.0 - age)


def remembering(driver_key: str, at: Node, *, boot_id: str = BOOT_ID) -> Node:
    """Make a node remember that a driver's module was loaded."""
    load = Load(target="aaaa1111", kernel=KERNEL, boot_id=boot_id, modules=(("edudrv", "1"),))
    text = loaded.render(Loaded(loads=(load,)))
    return replace(at, annotations={**at.annotations, loaded.annotation(driver_key): text})


@pytest.mark.parametrize(
    ("at", "loser", "keeper"),
    [
        pytest.param(node(), NEW, OLD, id="nothing is live: the older one"),
        pytest.param(remembering(NEW, node()), OLD, NEW, id="the newer one is live"),
        pytest.param(remembering(OLD, remembering(NEW, node())), NEW, OLD, id="both say so: the older one"),
        pytest.param(remembering(NEW, node(), boot_id="before"), NEW, OLD, id="live before the last boot"),
        pytest.param(
            node(labels={"driverwright.io/driverwright.new.ready": "1"}), OLD, NEW, id="proven by an older version"
        ),
    ],
)
def test_whose_build_is_live_keeps_the_module(at: Node, loser: str, keeper: str) -> None:
    """Otherwise the older DriverContainer does."""
    seen = snapshot(at, drivers=(named("old", age=2), named("new", age=1)))
    assert conflicts(seen) == {loser: (Conflict(other=keeper, module="edudrv", nodes=("node-a",)),)}


@pytest.mark.parametrize(
    ("one", "two", "is_conflict"),
    [
        pytest.param(named("a", age=2), named("b", age=1), True, id="one module"),
        pytest.param(
            named("a", age=2, modules=("edu-drv",)), named("b", age=1, modules=("edu_drv",)), True, id="a dash"
        ),
        pytest.param(named("a", age=2), named("b", age=1, modules=("other",), removes=["edudrv"]), True, id="removed"),
        pytest.param(
            named("a", age=2, modules=("x",), removes=["nouveau"]),
            named("b", age=1, modules=("y",), removes=["nouveau"]),
            False,
            id="both remove a third one",
        ),
        pytest.param(named("a", age=2), named("b", age=1, modules=("other",)), False, id="other modules"),
        pytest.param(named("a", age=2), named("b", age=1, nodeSelector={"pool": "web"}), False, id="other nodes"),
        pytest.param(
            named("a", age=2),
            named("b", age=1, kernelMappings=[{"literal": KERNEL, "skip": True}]),
            False,
            id="a skipped kernel",
        ),
        pytest.param(named("a", age=2), named("b", age=1, version="no version!"), False, id="an invalid spec"),
        pytest.param(named("a", age=2), replace(named("b", age=1), deleting=True), False, id="a deleted driver"),
    ],
)
def test_drivers_are_in_conflict_where_both_are(one: DriverContainer, two: DriverContainer, is_conflict: bool) -> None:
    """On the same nodes, by modules that one of them loads."""
    assert bool(conflicts(snapshot(drivers=(one, two)))) is is_conflict


def test_a_ready_label_is_not_of_modules_that_a_driver_removes() -> None:
    """The older driver is ready with a module of its own, and removes that of the newer one, which is live."""
    old, new = named("old", age=2, modules=("other",), removes=["edudrv"]), named("new", age=1)
    labels = {driver_keys(old.key).ready: "1", driver_keys(new.key).ready: "1"}
    for at in (node(labels=labels), remembering(NEW, node(labels={driver_keys(old.key).ready: "1"}))):
        assert list(conflicts(snapshot(at, drivers=(old, new)))) == [OLD]


def test_what_a_node_remembers_decides_before_its_label() -> None:
    """A label may be older than the boot."""
    old, new = named("old", age=2), named("new", age=1)
    at = remembering(OLD, remembering(NEW, node(labels={driver_keys(old.key).ready: "1"})), boot_id="before")
    assert list(conflicts(snapshot(at, drivers=(old, new)))) == [OLD]


def test_a_deleted_driver_keeps_its_module_until_it_is_unloaded() -> None:
    """Nobody replaces what is about to go; where the other driver has the module too, nothing is in its way."""
    old, new = replace(named("old", age=2), deleting=True), named("new", age=1)
    kept = conflicts(snapshot(remembering(OLD, node()), drivers=(old, new)))
    assert {loser: found[0].other for loser, found in kept.items()} == {NEW: OLD}
    for at in (remembering(NEW, node()), remembering(OLD, remembering(NEW, node()))):
        assert conflicts(snapshot(at, drivers=(old, new))) == {}


def test_a_conflict_is_counted_by_node() -> None:
    """Its words name the other driver, the module, and the first nodes."""
    nodes = tuple(node(f"node-{number}") for number in range(5))
    (conflict,) = conflicts(snapshot(*nodes, drivers=(named("old", age=2), named("new", age=1))))[NEW]
    words = "module edudrv is also named by driver driverwright/old on 5 nodes: node-0, node-1, node-2 and 2 more"
    assert str(conflict) == words


def test_the_other_driver_replaces_nothing_and_is_degraded() -> None:
    """The one that runs keeps module and label; where they do not meet, both work."""
    world = World()
    world.add_node("node-0", KERNEL)
    world.add_driver()
    world.settle()
    before = dict(world.live["node-0"])
    world.now += 60
    world.add_driver("second", module={"names": ["edudrv"]})
    world.add_node("node-1", OTHER_KERNEL, pool="web")
    world.settle()
    assert world.live["node-0"] == before
    assert [key for key in world.nodes()["node-0"] if "second" in key] == []
    degraded = next(item for item in world.status("second")["conditions"] if item["type"] == "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "ModuleConflict")
    assert "driverwright/edu" in degraded["message"]
    assert world.status()["readyNodes"] == 1
    world.delete_driver("edu")
    world.settle()
    assert world.nodes()["node-0"] == {"driverwright.io/driverwright.second.ready": "1.0.0"}


def test_a_node_that_joins_a_second_drivers_pool_keeps_its_module() -> None:
    """Its DaemonSet is there before the controller has seen it: the loader is refused, and nothing moves."""
    world = joined()
    live, pods = dict(world.live["node-0"]), pods_of(world)
    world.turn()
    world.settle()
    assert world.live["node-0"] == live
    assert pods_of(world) == pods | {"second"}
    assert world.loads.count(("driverwright/second", "node-0")) == 0
    assert world.nodes()["node-0"] == {"driverwright.io/driverwright.edu.ready": "1.0.0"}


def test_what_is_refused_on_a_node_is_not_remembered_there() -> None:
    """The node would say that both builds are live, and the older driver, which has nothing there, would keep it."""
    world = joined()
    world.turn()
    world.settle()
    (at,) = (item for item in world.observe().nodes if item.name == "node-0")
    assert loaded.annotation("driverwright/second") not in at.annotations
    assert {loser: found[0].other for loser, found in conflicts(world.observe()).items()} == {
        "driverwright/second": "driverwright/edu"
    }


def test_a_loader_that_is_refused_is_left_to_its_kubelet() -> None:
    """No pod of it is replaced, however often a pass sees it."""
    world = joined()
    world.turn()
    world.settle()
    before = len(world.client.writes)
    for _ in range(10):
        world.now += 3600
        world.reconcile()
        world.turn()
    assert not [write for write in world.client.writes[before:] if "/pods/" in write]


@pytest.mark.parametrize("leave", ["deleted", "moved"])
def test_the_second_driver_loads_once_the_first_is_gone(leave: str) -> None:
    """Nobody has to ask for it."""
    world = joined()
    world.turn()
    world.settle()
    if leave == "deleted":
        world.delete_driver("edu")
    else:
        world.client.patch(NODES.path(name="node-0"), {"metadata": {"labels": {"first": "no"}}})
    world.settle()
    assert world.nodes()["node-0"] == {"driverwright.io/driverwright.second.ready": "1.0.0"}


def test_a_conflict_that_only_the_loader_knows_is_degraded_as_well() -> None:
    """The first driver is gone and its module stayed: no other DriverContainer names it any more."""
    world = left_behind()
    degraded = next(item for item in world.status("second")["conditions"] if item["type"] == "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "ModuleConflict")
    assert "module edudrv was loaded on this node by driver driverwright/edu" in degraded["message"]
    assert world.nodes()["node-1"] == {"driverwright.io/driverwright.second.ready": "1.0.0"}


def test_a_node_that_is_held_keeps_no_other_node_from_what_is_new() -> None:
    """What stands in its way is no fault of the image."""
    world = left_behind()
    before = world.loads.count(("driverwright/second", "node-1"))
    world.annotate_driver("second", "again")
    world.settle()
    assert world.loads.count(("driverwright/second", "node-1")) == before + 1
    assert world.loads.count(("driverwright/second", "node-0")) == 0


def left_behind() -> World:
    """Make a node that both drivers have lose the first one, whose module stays."""
    world = joined()
    world.in_use.add("node-0")
    world.dead.add("node-0")
    world.delete_driver("edu")
    world.settle()
    world.now += 601
    world.settle()
    return world


def joined() -> World:
    """Make a node of one driver join the nodes of another, with the same module, between two passes.

    The second one is the older, and has a node of its own.
    """
    world = World()
    world.add_node("node-1", KERNEL)
    world.add_driver("second", module={"names": ["edudrv"]}, nodeSelector={"second": "yes"})
    world.client.patch(NODES.path(name="node-1"), {"metadata": {"labels": {"second": "yes"}}})
    world.settle()
    world.now += 60
    world.add_node("node-0", KERNEL)
    world.client.patch(NODES.path(name="node-0"), {"metadata": {"labels": {"first": "yes"}}})
    world.add_driver(nodeSelector={"first": "yes"})
    world.settle()
    world.client.patch(NODES.path(name="node-0"), {"metadata": {"labels": {"second": "yes"}}})
    return world


def pods_of(world: World) -> set[str]:
    """Name the drivers that have pods on the node that both select."""
    return {pod["metadata"]["labels"][DRIVER_LABEL] for pod in world.pods_on("node-0")}


@pytest.mark.parametrize(
    ("at", "loser"),
    [
        pytest.param(node(), OLD, id="nothing is live: the one that is allowed"),
        pytest.param(remembering(OLD, node()), NEW, id="the one that is not allowed is live"),
        pytest.param(remembering(NEW, node()), OLD, id="the one that is allowed is live"),
    ],
)
def test_a_driver_that_is_not_allowed_keeps_no_module_that_it_has_not_loaded(at: Node, loser: str) -> None:
    """It would never load it, and the other one would wait for ever; what is live stays."""
    old = named("old", age=2, image="evil.example/edu")
    seen = snapshot(at, drivers=(old, named("new", age=1)))
    assert list(conflicts(seen, Permissions(registries=("registry.example.com:5000/drivers/*",)))) == [loser]


def test_a_driver_that_only_a_protected_secret_keeps_from_its_builds_keeps_no_module() -> None:
    """It is refused as one that names something else that is not allowed."""
    old = named("old", age=2, build={"builder": "job", "secrets": [{"name": "pull"}]})
    new = named("new", age=1, registry={"secretRef": {"name": "pull"}})
    seen = snapshot(node(), drivers=(old, new))
    assert list(conflicts(seen)) == [NEW]
    assert list(conflicts(seen, Permissions(protected_secrets=True))) == [OLD]
