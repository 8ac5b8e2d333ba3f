"""What works on a node is believed from its record: DaemonSets and Nodes that go and come take nothing away."""

import json
from collections.abc import Callable

import pytest

from driver_builder.nodes.changes import Change
from driver_builder.objects.manifests import DRIVER_LABEL
from kube_api import names
from kube_api.client import Object
from kube_api.resources import DRIVER_CONTAINERS, NODES
from tests.support.driver_builder.factories import KERNEL, NAMESPACE
from tests.unit.driver_builder.world.test_world_attack import AttackWorld, forget_node
from tests.unit.driver_builder.world.test_world_drain import DRAIN
from tests.unit.driver_builder.world.test_world_order import FIRST, MODULES, SECOND, OrderWorld, ordered
from tests.unit.driver_builder.world.test_world_rollout import BAD, GOOD, NODE_NAMES, result_of

READY = f"driverwright.io/{NAMESPACE}.edu.ready"


def fleet(*, rounds: int = 0, source: str = GOOD[1], **rollout: object) -> AttackWorld:
    """Make a world of four nodes in a wave; each round is checked: what is replaced goes by the wave."""
    world = AttackWorld()
    for name in NODE_NAMES:
        world.add_node(name, KERNEL)
    world.add_driver("edu", rollout={"maxUnavailable": 1, "drain": DRAIN, **rollout})
    world.arrive()
    world.edit_source(source)
    pass_rounds(world, rounds)
    return world


def pass_rounds(world: AttackWorld, number: int) -> None:
    """Let rounds pass."""
    for _ in range(number):
        world.one_round()
    world.recorder.check()


def delete_daemon_sets(world: AttackWorld, which: Callable[[str], bool]) -> None:
    """Let somebody delete DaemonSets by hand: their pods go."""
    for path in [path for path in world.client.objects if "/daemonsets/" in path and which(path)]:
        world.client.delete(path)
    world._collect_orphans()


def delete_daemon_sets_alone(world: AttackWorld, which: Callable[[str], bool]) -> None:
    """Let somebody take the labels of DaemonSets: the controller deletes them, and has seen their pods."""
    for path in [path for path in world.client.objects if "/daemonsets/" in path and which(path)]:
        metadata = world.client.objects[path]["metadata"]
        metadata["labels"] = {DRIVER_LABEL: metadata["labels"][DRIVER_LABEL]}


def is_new(path: str) -> bool:
    """Return whether a DaemonSet is the one that a first wave has added."""
    return path.endswith("-b")


def is_before(path: str) -> bool:
    """Return whether it is the one that was there before."""
    return not is_new(path)


def is_any(_path: str) -> bool:
    """Return true of each."""
    return True


def identities(world: AttackWorld) -> dict[str, str]:
    """Return what is live, by node."""
    return {name: live["edudrv"] for name, live in world.live.items()}


def undo(world: AttackWorld) -> None:
    """Let an admin undo the wave."""
    words = ",".join(world.status()["rollout"]["targets"].values())
    world.client.patch(_driver("edu"), {"metadata": {"annotations": {names.UNDO_ROLLOUT_ANNOTATION: words}}})


def ready_nodes(world: AttackWorld) -> set[str]:
    """Name the nodes with the ready label."""
    return {
        name for name in world.kernels if READY in world.client.objects[NODES.path(name=name)]["metadata"]["labels"]
    }


@pytest.mark.parametrize("rounds", [pytest.param(1, id="while it builds"), pytest.param(8, id="in the wave")])
@pytest.mark.parametrize(
    "which",
    [pytest.param(is_before, id="of before"), pytest.param(is_new, id="new"), pytest.param(is_any, id="both")],
)
def test_a_daemon_set_that_somebody_deletes(rounds: int, which: Callable[[str], bool]) -> None:
    """Its nodes keep what is loaded until the wave comes to them, and have the new version in the end (N1)."""
    world = fleet(rounds=rounds)
    delete_daemon_sets(world, which)
    pass_rounds(world, 10)
    world.arrive()
    assert len(set(identities(world).values())) == 1
    assert ready_nodes(world) == set(NODE_NAMES)
    assert (world.leftovers(), world.wave_labels()) == ([], [])


@pytest.mark.parametrize("strategy", ["waves", "immediate"])
@pytest.mark.parametrize("which", [pytest.param(is_before, id="of before"), pytest.param(is_any, id="both")])
def test_a_refused_image_goes_to_no_node_that_works(which: Callable[[str], bool], strategy: str) -> None:
    """The DaemonSet with the image of before is deleted in a halted wave: no node gets the other image (N1)."""
    world = fleet(rounds=25, source=BAD[0])
    assert world.status()["rollout"]["phase"] == "Halted"
    before = identities(world)
    world.roll({"strategy": strategy})
    delete_daemon_sets(world, which)
    pass_rounds(world, 30)
    assert identities(world) == before
    assert ready_nodes(world) == set(NODE_NAMES)
    assert [pod for pod in world._pods() if result_of(pod) == "LoadFailed"] == []


@pytest.mark.parametrize("which", [pytest.param(is_before, id="of before"), pytest.param(is_any, id="both")])
def test_the_daemon_set_of_before_is_made_anew_in_a_halted_wave(which: Callable[[str], bool]) -> None:
    """Its nodes have driver pods again, one that reboots loads the image of before, and a new node gets it (N1)."""
    world = fleet(rounds=25, source=BAD[0])
    before = identities(world)
    delete_daemon_sets(world, which)
    pass_rounds(world, 5)
    world.reboot("node-1", KERNEL)
    world.add_node("node-9", KERNEL)
    pass_rounds(world, 10)
    assert identities(world) == {**before, "node-9": before["node-1"]}
    assert ready_nodes(world) == {*NODE_NAMES, "node-9"}
    assert world.status()["rollout"]["phase"] == "Halted"


def test_the_daemon_set_of_before_has_the_version_of_before() -> None:
    """Ready labels say which version is loaded, and not which one is wanted by now."""
    world = fleet()
    world.client.patch(_driver("edu"), {"spec": {"version": "2.0.0"}})
    world.fail_builds = 1000
    delete_daemon_sets(world, is_any)
    pass_rounds(world, 10)
    labels = [world.client.objects[NODES.path(name=name)]["metadata"]["labels"].get(READY) for name in NODE_NAMES]
    assert set(labels) == {"1.0.0"}
    assert [name for name in NODE_NAMES if any(map(world.works, world.pods_on(name)))] == [*NODE_NAMES]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"module": {"names": ["edudrv"], "parameters": {"edudrv": ["debug=1"]}}}, id="other parameters"),
        pytest.param({"image": "registry.example.com:5000/others/edu"}, id="another repository"),
    ],
)
def test_a_daemon_set_is_not_made_anew_of_other_settings(change: Object) -> None:
    """It would load modules anew, or run an image of which the spec says nothing: pods are kept away as long (N1)."""
    world = fleet()
    world.client.patch(_driver("edu"), {"spec": change})
    world.fail_builds = 1000
    before = identities(world)
    delete_daemon_sets(world, is_any)
    pass_rounds(world, 10)
    assert [path for path in world.client.objects if "/daemonsets/" in path] == []
    assert identities(world) == before


def test_immediate_is_no_exception_for_a_refused_image() -> None:
    """The strategy is changed after the wave has halted."""
    world = fleet(rounds=25, source=BAD[0])
    before = identities(world)
    world.roll({"strategy": "immediate"})
    pass_rounds(world, 10)
    assert (identities(world), world.status()["rollout"]["phase"]) == (before, "Halted")


def test_the_record_of_a_node_that_leaves_says_what_its_pod_has_loaded() -> None:
    """It leaves the selector between the load and the next reconcile (N3)."""
    world = fleet(canary=1, soak="1h")
    first = identities(world)
    while identities(world) == first:
        world.one_round()
    (node,) = [name for name, identity in identities(world).items() if identity != first[name]]
    world.move_node(node, "away")
    pass_rounds(world, 3)
    text = world.client.objects[NODES.path(name=node)]["metadata"]["annotations"][
        f"loaded.{names.GROUP}/{NAMESPACE}.edu"
    ]
    assert json.loads(text)["loads"][0]["modules"] == [f"edudrv:{identities(world)[node]}"]


def moving_node(world: AttackWorld) -> str:
    """Let the wave reach its first node: it has the label, and no pod of the next image yet."""
    while True:
        world.reconcile(world.look)
        world.finish_builds()
        labelled = world.wave_labels()
        if not labelled:
            world.turn()
        world.now += 1.0
        if labelled:
            (node,) = labelled
            return node


def registered_anew(world: AttackWorld) -> str:
    """Let the wave reach a node, and register that one anew, without any label or record."""
    first = identities(world)
    while identities(world) == first:
        world.one_round()
    world.one_round()
    (node,) = [name for name, identity in identities(world).items() if identity != first[name]]
    forget_node(world, node)
    return node


def test_a_node_that_is_registered_anew_keeps_what_the_wave_has_brought() -> None:
    """The status knows its label and its boot: a missing record proves nothing (N9)."""
    world = fleet(canary=1, soak="1h")
    node = registered_anew(world)
    brought = identities(world)[node]
    pass_rounds(world, 8)
    assert identities(world)[node] == brought
    assert node in ready_nodes(world)


def test_a_node_that_is_registered_anew_as_it_moves_waits_for_the_wave() -> None:
    """It is not known which image its modules are of: it is replaced under the lock, or not at all (N9)."""
    world = fleet(canary=1, soak="1h")
    node = moving_node(world)
    forget_node(world, node)
    pass_rounds(world, 12)
    assert node in ready_nodes(world)


def test_a_node_that_waits_for_a_wave_and_is_registered_anew_still_waits() -> None:
    """Its DaemonSet was deleted and could not be made anew; the status knows that pods are kept from it (N9)."""
    world = fleet(canary=1, soak="1h", maxUnavailable=1)
    world.client.patch(_driver("edu"), {"spec": {"module": {"parameters": {"edudrv": ["debug=1"]}}}})
    delete_daemon_sets(world, is_any)
    while f"{names.GROUP}/{NAMESPACE}.edu.yield" not in str(world.client.objects[NODES.path(name="node-2")]):
        world.one_round()
    pass_rounds(world, 2)
    before = identities(world)
    for node in NODE_NAMES:
        forget_node(world, node)
    pass_rounds(world, 4)
    assert [name for name, identity in identities(world).items() if identity != before[name]] in ([], ["node-0"])
    world.arrive()
    assert ready_nodes(world) == set(NODE_NAMES)
    assert (world.leftovers(), world.wave_labels()) == ([], [])


def test_a_node_that_is_registered_anew_in_an_undone_wave_goes_back_under_its_lock() -> None:
    """The drain takes a while; the label is its own until it moves (N9)."""
    world = fleet(canary=1, soak="1h")
    while world.status().get("rollout", {}).get("phase") != "Soaking":
        world.one_round()
    (node,) = world.wave_labels()
    brought = identities(world)[node]
    undo(world)
    world.reconcile(world.look)
    forget_node(world, node)
    world.one_round()
    assert identities(world)[node] == brought
    world.arrive()
    assert len(set(identities(world).values())) == 1


def test_an_invalid_spec_leaves_a_node_that_has_just_moved_its_lock() -> None:
    """The pod with the next image comes all the same, and its modules are replaced; the label is put back as well."""
    world = fleet(canary=1, soak="1h")
    node = moving_node(world)
    world.client.patch(_driver("edu"), {"spec": {"version": "not valid!!"}})
    pass_rounds(world, 3)
    brought = identities(world)[node]
    forget_node(world, node)
    pass_rounds(world, 3)
    assert identities(world)[node] == brought


def test_a_node_that_waits_gets_no_pod_of_the_daemon_set_for_other_nodes() -> None:
    """The one that it would have is missing, and the one for moved nodes does not come to it."""
    world = fleet(canary=1, soak="1h")
    while world.status().get("rollout", {}).get("phase") != "Soaking":
        world.one_round()
    (node,) = world.wave_labels()
    brought = identities(world)[node]
    prefix = f"{names.GROUP}/{NAMESPACE}.edu"
    world.client.patch(
        NODES.path(name=node), {"metadata": {"labels": {f"{prefix}.wave": None, f"{prefix}.yield": "outside"}}}
    )
    world.status()["rollout"]["reached"][node] = f"outside {world.boots[node][:13]}"
    world.turn()
    delete_daemon_sets(world, is_before)
    pass_rounds(world, 6)
    assert identities(world)[node] == brought


def test_an_image_that_was_loaded_since_the_record_is_believed_from_the_pod() -> None:
    """The new DaemonSet goes just then: the image of before does not come to the node at once."""
    world = fleet(canary=1, soak="1h")
    first = identities(world)
    while identities(world) == first:
        world.one_round()
    world.fail_builds = 1000
    world.edit_source(GOOD[2])
    delete_daemon_sets_alone(world, is_new)
    pass_rounds(world, 6)


def test_an_undo_drains_a_node_although_the_new_daemon_set_is_gone() -> None:
    """The label of the wave still decides which modules it has, and these are replaced (N1)."""
    world = fleet(canary=1, soak="1h")
    while world.status().get("rollout", {}).get("phase") != "Soaking":
        world.one_round()
    undo(world)
    delete_daemon_sets(world, is_new)
    pass_rounds(world, 20)
    assert len(set(identities(world).values())) == 1


def test_all_nodes_are_registered_anew_as_the_next_image_arrives() -> None:
    """None of them has a pod or a record: they get the image of before, and the next one by the wave (N9)."""
    world = fleet()
    world.reconcile(world.look)
    world.finish_builds()
    for node in NODE_NAMES:
        forget_node(world, node)
    pass_rounds(world, 5)
    world.arrive()
    assert ready_nodes(world) == set(NODE_NAMES)


@pytest.mark.parametrize(
    "forget",
    [pytest.param(forget_node, id="registered anew"), pytest.param(lambda world, node: world.reboot(node, KERNEL),
                                                                   id="booted and loaded since")],
)  # fmt: skip
def test_nodes_without_a_record_wait_where_their_daemon_set_is_deleted(
    forget: Callable[[AttackWorld, str], None],
) -> None:
    """Nothing says which modules they have, and what they had cannot be made anew: the wave comes to them (N1, N9)."""
    world = fleet()
    for node in NODE_NAMES:
        forget(world, node)
    world.turn()
    delete_daemon_sets(world, is_any)
    before = identities(world)
    world.is_stale = True
    pass_rounds(world, 1)
    world.is_stale = False
    pass_rounds(world, 6)
    assert [name for name, identity in identities(world).items() if identity != before[name]] in ([], ["node-0"])
    world.arrive()
    assert ready_nodes(world) == set(NODE_NAMES)
    assert (world.leftovers(), world.wave_labels()) == ([], [])


@pytest.mark.parametrize("writes", range(4))
def test_killed_before_the_status_names_them_such_nodes_still_wait(writes: int) -> None:
    """The label is there, the status is not: no DaemonSet comes before it."""
    world = fleet()
    world.reconcile(world.look)
    world.finish_builds()
    for node in NODE_NAMES:
        forget_node(world, node)
    delete_daemon_sets(world, is_any)
    for _ in range(5):
        done = 0

        def look(action: Change) -> bool:
            nonlocal done
            world.look(action)
            done += 1
            return done > writes

        world.reconcile(look)
        world.finish_builds()
        world.turn()
        world.now += 1.0
    world.arrive()
    assert ready_nodes(world) == set(NODE_NAMES)


def test_nodes_whose_boot_is_not_known_hold_up_no_daemon_set() -> None:
    """The status could not say that they wait: they get their driver as a new node does."""
    world = fleet()
    world.reconcile(world.look)
    world.finish_builds()
    for node in NODE_NAMES:
        forget_node(world, node)
        world.patch_node(node, {"metadata": {"annotations": {names.BOOT_ID_ANNOTATION: None}}})
        world.live[node] = {}
    delete_daemon_sets(world, is_any)
    pass_rounds(world, 6)
    assert [path for path in world.client.objects if "/daemonsets/" in path] != []


def test_a_target_that_was_skipped_has_its_driver_at_once() -> None:
    """Its DaemonSet was deleted by the plan: nothing is loaded that a wave would have to answer for."""
    world = fleet(canary=1, soak="1h")
    world.client.patch(_driver("edu"), {"spec": {"kernelMappings": [{"regexp": ".*", "skip": True}]}})
    pass_rounds(world, 20)
    assert set(map(str, world.live.values())) == {"{}"}
    world.client.patch(_driver("edu"), {"spec": {"kernelMappings": [{"regexp": ".*"}]}})
    pass_rounds(world, 6)
    assert ready_nodes(world) == set(NODE_NAMES)


def test_another_machine_under_the_name_is_not_taken_for_the_one_before() -> None:
    """Its boot is another one: nothing is put back."""
    world = fleet(canary=1, soak="1h")
    node = registered_anew(world)
    world.reboot(node, KERNEL)
    world.one_round()
    assert (
        f"{names.GROUP}/{NAMESPACE}.edu.wave" not in world.client.objects[NODES.path(name=node)]["metadata"]["labels"]
    )


def test_a_wave_label_that_somebody_removes_is_put_back() -> None:
    """The controller is there before the DaemonSet's pods are replaced (N4, as far as an affinity allows it)."""
    world = fleet(canary=1, soak="1h")
    while world.status().get("rollout", {}).get("phase") != "Soaking":
        world.one_round()
    before = identities(world)
    for node in NODE_NAMES:
        label = {f"{names.GROUP}/{NAMESPACE}.edu.wave": None}
        world.client.patch(NODES.path(name=node), {"metadata": {"labels": label}})
    pass_rounds(world, 4)
    assert identities(world) == before


@pytest.mark.xfail(strict=True, reason="N2: a third version is written into the DaemonSet of the second one")
def test_a_node_that_loses_its_pod_after_another_edit_keeps_the_second_version() -> None:
    """docs/upgrades.md: a node whose pod is deleted gets the image that it had."""
    world = fleet(rounds=12)
    world.edit_source(GOOD[2])
    pass_rounds(world, 2)
    for name in NODE_NAMES:
        for pod in world.pods_on(name):
            world.client.delete(f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}")
    pass_rounds(world, 10)


# ---------------------------------------------------------------- drivers that depend on each other


def _driver(name: str) -> str:
    return DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=name)


def _undo(world: OrderWorld, name: str) -> None:
    status: Object = world.client.objects[_driver(name)].get("status") or {}
    words = ",".join(status.get("rollout", {}).get("targets", {}).values())
    world.client.patch(_driver(name), {"metadata": {"annotations": {names.UNDO_ROLLOUT_ANNOTATION: words}}})


def test_an_undo_of_a_dependent_alone_is_refused_with_the_reason() -> None:
    """Its image of before is built for the symbols that the first driver had before (N5)."""
    world = ordered(2)
    before = dict(world.live["node-0"])
    world.edit(FIRST, "int y;")
    while world.live["node-0"].get(MODULES[FIRST]) == before[MODULES[FIRST]] or world.down():
        _one_round(world)
    live = dict(world.live["node-0"])
    _undo(world, SECOND)
    messages = []
    for _ in range(5):
        _one_round(world)
        messages.append(world.status(SECOND).get("rollout", {}).get("message", ""))
    assert (world.failed, world.live["node-0"]) == ([], live)
    assert any(f"is built for other symbols than {NAMESPACE}/{FIRST} has on node-0" in words for words in messages)


@pytest.mark.parametrize("number", range(5, 10))
def test_an_invalid_spec_of_the_first_driver_brings_no_dependent_for_other_symbols(number: int) -> None:
    """The dependent has yielded, and the node is left out by an admin: the dependent comes back as it was (N5)."""
    world = ordered(1)
    world.edit(FIRST, "int y;")
    for _ in range(number):
        _one_round(world)
    skip = {names.SKIP_ROLLOUT_ANNOTATION: "true"}
    world.client.patch(NODES.path(name="node-0"), {"metadata": {"annotations": skip}})
    _one_round(world)
    world.client.patch(_driver(FIRST), {"spec": {"version": "not valid!!"}})
    for _ in range(40):
        _one_round(world)
    assert (world.failed, world.down()) == ([], set())


def returned_later(*, is_used: bool, edited: str = FIRST) -> OrderWorld:
    """Make a world of three drivers whose node has left them, and returned after one was edited; then the first is."""
    world = ordered(1, third=True)
    world.move_node("node-0", "web")
    for _ in range(4):
        _one_round(world)
    world.edit(edited, "int y;")
    if is_used:
        world.in_use.add("node-0")
    world.move_node("node-0", "edu")
    if edited != FIRST:
        _one_round(world)
        world.edit(FIRST, "int y;")
    for _ in range(40):
        _one_round(world)
    return world


@pytest.mark.parametrize("edited", [FIRST, SECOND])
def test_drivers_that_waited_yield_in_their_turn(edited: str) -> None:
    """The last one of the order is unloaded first, and no other one is tried before: each would be in use (N5)."""
    world = returned_later(is_used=False, edited=edited)
    assert (world.failed, world.down(), world.leftovers()) == ([], set(), [])


@pytest.mark.parametrize("edited", [FIRST, SECOND])
def test_a_driver_that_waited_and_cannot_yield_keeps_waiting_as_it_was(edited: str) -> None:
    """Somebody uses it: what is built for the next symbols does not come over those that are loaded (N5)."""
    world = returned_later(is_used=True, edited=edited)
    assert world.failed == []
    assert set(world.live["node-0"]) == set(MODULES.values())
    world.in_use.clear()
    for _ in range(80):
        _one_round(world)
        world.now += 55.0
    assert (world.failed, world.down(), world.leftovers()) == ([], set(), [])


def _one_round(world: OrderWorld) -> None:
    world.reconcile(lambda _action: False)
    world.finish_builds()
    world.turn()
    world.now += 5.0
