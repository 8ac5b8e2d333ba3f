"""A change of MIG layouts from its label to its end, in a small world."""

import json

import pytest

from device_agent.mig.values import MigSettings
from kube_api.names import (
    DRAIN_REQUEST_ANNOTATION,
    DRAIN_STATE_ANNOTATION,
    GPU_DEPLOY_PREFIX,
    LOCK_ANNOTATION,
    MIG_ANNOTATION,
    MIG_STATE_LABEL,
    PAUSED_FOR_MIG_CHANGE,
    REBOOT_REQUIRED_LABEL,
)  # fmt: skip
from tests.unit.device_agent.mig.world import World, a100s
from tests.unit.device_agent.mig.world_card import Card, enabled

DEPLOY = f"{GPU_DEPLOY_PREFIX}dcgm-exporter"
THREE, ONE = ("3g.20gb", 4, (3,)), ("1g.5gb", 0, (1,))
DRAIN = MigSettings(drain=True)


def settled(world: World, rounds: int = 40) -> World:
    """Let everybody work, and expect that nothing is left to do or to give back."""
    for _ in range(rounds):
        step = world.round()
    assert (step.write, step.change, step.held) == (None, None, frozenset())
    assert world.leftovers == []
    return world


def test_a_layout_is_made_on_all_cards() -> None:
    """Two and three on four cards are 8 and 12 devices; pods of gpu-operator are away meanwhile and come back."""
    world = a100s(4)
    world.labels |= {DEPLOY: "true", f"{GPU_DEPLOY_PREFIX}mig-manager": "false"}
    world.ask("two-and-three")
    paused = set()
    for _ in range(20):
        world.round()
        paused.add(world.labels[DEPLOY])
    assert (world.devices("2g.10gb"), world.devices("1g.5gb")) == (8, 12)
    assert world.states == ["pending", "success"]
    assert paused == {"true", PAUSED_FOR_MIG_CHANGE}
    assert world.labels[f"{GPU_DEPLOY_PREFIX}mig-manager"] == "false"
    assert world.record == {
        "asked": "two-and-three", "applied": "two-and-three", "step": "", "before": None, "message": ""
    }  # fmt: skip
    settled(world)


def test_without_a_label_nothing_is_touched() -> None:
    """A layout that somebody made by hand stays, and nothing is written to the Node, whatever others wrote there."""
    world = World(cards=[enabled(0, THREE), Card(1)])
    world.labels |= {MIG_STATE_LABEL: "success", DEPLOY: PAUSED_FOR_MIG_CHANGE}
    world.lock_by("gpu-partitioner")
    keys, version = world.keys, world.version
    assert all(step.registers and not step.held and not step.looks for step in (world.round() for _ in range(5)))
    assert (world.keys, world.version) == (keys, version)


def test_cards_that_are_as_asked_are_left_alone() -> None:
    """The Node is told, and nobody is asked for anything."""
    world = World(cards=[enabled(0, ("3g.20gb", 0, (3,)), THREE), Card(1)])
    world.ask("first")
    settled(world, 5)
    assert (world.state, world.changes) == ("success", [])


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("too-much", "card 0 (NVIDIA A100-SXM4-40GB): 1g.5gb does not fit beside 2x 3g.20gb, wherever these are"),
        ("balancd", "config.yaml: mig-configs: there is no key balancd"),
    ],
)
def test_what_cannot_be_had_is_failed_and_nothing_is_destroyed(key: str, words: str) -> None:
    """The message names card and profile, or what is wrong with the file; it is an Event once."""
    world = World(cards=[enabled(0, ONE, THREE), Card(1)])
    keys = world.keys
    world.ask(key)
    settled(world, 10)
    assert (world.state, world.keys, world.changes) == ("failed", keys, [])
    assert words in str(world.record["message"])
    assert len(world.events) == 1
    world.ask("balanced")
    assert settled(world).state == "success"


def test_balanced_fits() -> None:
    """Two 1g, one 2g and one 3g need the 3g at slice 4; instances that can stay do."""
    world = World(cards=[enabled(0, THREE), Card(1)])
    world.ask("balanced")
    settled(world)
    assert [world.devices(name) for name in ("1g.5gb", "2g.10gb", "3g.20gb")] == [4, 2, 2]
    assert world.destroyed == []


def test_compute_instances_with_parts_are_made() -> None:
    """Three 1c share a 3g, and a 2c has another."""
    world = a100s(1)
    world.ask("parts")
    settled(world, 20)
    assert world.state == "failed"  # two 3g and a 1g do not fit
    world.file = world.file.replace(", 1g.5gb: 1}}]\n  too", "}}]\n  too")
    settled(world)
    assert (world.devices("1c.3g.20gb"), world.devices("2c.3g.20gb")) == (3, 1)


def test_users_are_waited_for_without_a_drain() -> None:
    """Pending with the pods' names; a pod of a card that stays does not matter; it goes on when they have ended."""
    world = World(cards=[Card(0), enabled(1, ONE)])
    world.pods = {"a/one": ("nvidia.com/gpu", "GPU-0"), "a/two": ("nvidia.com/mig-1g.5gb", "MIG-1-1g.5gb-0-0")}
    world.ask("first")
    for _ in range(30):
        step = world.round()
    assert (world.state, world.changes, step.held) == ("pending", [], frozenset())
    assert world.record["message"] == "pods use what goes on card 0: a/one"
    assert world.leftovers == []
    del world.pods["a/one"]
    settled(world)
    assert (world.state, world.devices("3g.20gb"), list(world.pods)) == ("success", 2, ["a/two"])


def test_users_are_drained_by_driver_builder() -> None:
    """Lock and request are one patch; only the pods of what goes are named, with their resources."""
    world = a100s(4, settings=DRAIN)
    world.pods = {f"a/pod-{n}": ("nvidia.com/gpu", f"GPU-{n}") for n in range(4)}
    world.ask("first")
    requests = set()
    for _ in range(30):
        step = world.step()
        if step.write is not None and step.write.annotations.get(DRAIN_REQUEST_ANNOTATION):
            requests.add(step.write.annotations[DRAIN_REQUEST_ANNOTATION])
            assert LOCK_ANNOTATION in step.write.annotations
        world.work()
        world.build()
        world.clock += 2
    assert requests == {'{"pods":["a/pod-0"],"resources":["nvidia.com/gpu"],"deadline":"30m"}'}
    assert (world.evicted, sorted(world.pods)) == (["a/pod-0"], ["a/pod-1", "a/pod-2", "a/pod-3"])
    assert settled(world).state == "success"


def test_a_drain_that_a_budget_refuses_changes_nothing() -> None:
    """Until the deadline the pod is named; then the lock is released, and it is tried again; at once when it ends."""
    world = a100s(2, settings=MigSettings(drain=True, deadline=60))
    world.pods = {"a/kept": ("nvidia.com/gpu", "GPU-0")}
    world.guarded = {"a/kept"}
    world.ask("first")
    had_lock, released = 0, 0
    for _ in range(120):
        world.round()
        assert world.state in (None, "pending")
        has_lock = LOCK_ANNOTATION in world.annotations
        had_lock, released = had_lock + has_lock, released + (had_lock > 0 and not has_lock)
    assert had_lock > 20
    assert released > 3
    assert "a/kept" in str(world.record["message"])
    assert (world.changes, world.evicted, list(world.pods)) == ([], [], ["a/kept"])
    world.pods.clear()
    assert settled(world).state == "success"


def test_a_pod_that_has_left_and_is_not_removed_yet_keeps_the_drain() -> None:
    """The kubelet names it no more. Lock and request stay as they were, so that no pod comes in its place."""
    world = a100s(2, settings=DRAIN)
    world.pods = {"a/one": ("nvidia.com/gpu", "GPU-0")}
    world.ask("first")
    while not world.evicted:
        world.round()
    asked = world.annotations[DRAIN_REQUEST_ANNOTATION]
    world.pods = {"": ("nvidia.com/gpu", "GPU-0")}
    for _ in range(20):
        world.round()
        assert (world.state, world.annotations[DRAIN_REQUEST_ANNOTATION], world.changes) == ("pending", asked, [])
        assert LOCK_ANNOTATION in world.annotations
        assert world.drain_since is not None
    world.pods.clear()
    settled(world)
    assert (world.state, world.devices("3g.20gb"), world.evicted) == ("success", 2, ["a/one"])


def test_podresources_that_does_not_answer_for_a_moment_keeps_the_drain() -> None:
    """Nobody that has left comes back meanwhile; where it stays so, the lock ends by itself."""
    world = a100s(1, settings=DRAIN)
    world.pods = {"a/kept": ("nvidia.com/gpu", "GPU-0")}
    world.guarded = {"a/kept"}
    world.ask("sevens")
    while DRAIN_REQUEST_ANNOTATION not in world.annotations:
        world.round()
    lock = world.annotations[LOCK_ANNOTATION]
    world.unknown = "the kubelet does not answer"
    for _ in range(20):
        step = world.round()
        assert (world.annotations[LOCK_ANNOTATION], world.changes) == (lock, [])
    assert "the kubelet does not answer" in step.why
    world.clock += 600
    for _ in range(3):
        world.round()
    assert (world.leftovers, "does not answer" in str(world.record["message"])) == ([], True)
    world.unknown = ""
    world.guarded.clear()
    assert settled(world).state == "success"


def test_a_driver_builder_that_never_answers_keeps_no_lock() -> None:
    """After the deadline and five minutes the lock goes, and it is tried again."""
    world = a100s(1, settings=MigSettings(drain=True, deadline=60), drains=False)
    world.pods = {"a/one": ("nvidia.com/gpu", "GPU-0")}
    world.ask("first")
    for _ in range(190):
        world.round()
        if world.state and LOCK_ANNOTATION not in world.annotations:
            break
    assert LOCK_ANNOTATION not in world.annotations
    assert "has not answered in time" in str(world.record["message"])


def test_a_lock_of_another_program_is_waited_for() -> None:
    """Nothing is touched until it ends, or is released."""
    world = a100s(1)
    world.lock_by("driverwright/edu")
    world.ask("sevens")
    for _ in range(20):
        world.round()
    assert (world.state, world.changes) == ("pending", [])
    assert world.record["message"] == "the node is locked by driverwright/edu"
    world.clock += 600
    assert settled(world).state == "success"


def test_the_lock_is_renewed() -> None:
    """While a boot is waited for it never ends."""
    world = World(cards=[Card(0, needs_boot=True)])
    world.ask("sevens")
    for _ in range(360):
        world.round(10)
        if LOCK_ANNOTATION in world.annotations:
            renewed = json.loads(world.annotations[LOCK_ANNOTATION])["renewTime"]
    assert world.state == "rebooting"
    assert LOCK_ANNOTATION in world.annotations
    assert renewed > "2027-01-15T08:50:00Z"


def test_a_mode_that_needs_a_boot() -> None:
    """The Node says so until the boot, which brings the mode; then the instances are made."""
    world = World(cards=[Card(0, needs_boot=True), Card(1)])
    world.labels[DEPLOY] = "true"
    world.ask("sevens")
    for _ in range(30):
        step = world.round()
    assert (world.state, world.labels[REBOOT_REQUIRED_LABEL]) == ("rebooting", "mig")
    assert "reboot the node: card 0" in str(world.record["message"])
    assert step.registers
    assert step.held == {"GPU-0", "GPU-1"}
    world.boot(1200)
    settled(world)
    assert world.devices("1g.5gb") == 14
    assert world.states == ["pending", "rebooting", "pending", "success"]
    assert world.labels[DEPLOY] == "true"


def test_the_label_is_removed_while_a_boot_is_waited_for() -> None:
    """The switch is taken back, and nothing is left."""
    world = World(cards=[Card(0, needs_boot=True)])
    world.ask("sevens")
    for _ in range(10):
        world.round()
    world.ask(None)
    settled(world)
    assert (world.cards[0].mode, world.cards[0].pending) == (0, 0)
    assert (world.state, world.annotations) == (None, {})


def test_a_reboot_that_somebody_else_asks_for_stays() -> None:
    """Only the agent's own value of the label is set and removed."""
    world = World(cards=[Card(0, needs_boot=True)])
    world.labels[REBOOT_REQUIRED_LABEL] = "kernel"
    world.ask("sevens")
    for _ in range(10):
        world.round()
    assert (world.state, world.labels[REBOOT_REQUIRED_LABEL]) == ("rebooting", "kernel")
    world.ask(None)
    for _ in range(10):
        world.round()
    assert world.labels[REBOOT_REQUIRED_LABEL] == "kernel"


@pytest.mark.parametrize("keeps_mode", [True, False], ids=["ampere", "hopper"])
def test_after_a_boot_the_layout_is_made_again_before_registration(keeps_mode: bool) -> None:
    """Instances do not survive a boot, and with a Hopper the mode does not either."""
    world = a100s(2)
    for card in world.cards:
        card.keeps_mode = keeps_mode
    world.ask("sevens")
    settled(world)
    world.boot()
    was_registered = [world.round().registers for _ in range(25)]
    assert world.devices("1g.5gb") == 14
    first = was_registered.index(True)
    assert first > 2
    assert all(was_registered[first:])
    assert world.state == "success"


@pytest.mark.parametrize("boots", [True, False], ids=["a boot", "a reload of the driver"])
def test_nobody_gets_what_another_program_left_of_the_layout(boots: bool) -> None:
    """While who replaces a driver has the lock: of a Hopper whole GPUs would be given, and be in the way afterwards."""
    world = a100s(2)
    for card in world.cards:
        card.keeps_mode = False
    world.ask("sevens")
    settled(world)
    world.lock_by("driverwright/edu")
    if boots:
        world.boot()
    else:
        for card in world.cards:
            card.boot()
        world.round()  # the devices of before go with what NVML says now
    for number in range(10):
        world.round()
        assert not world.run_pod(f"a/pod-{number}", "GPU-0")
    assert (world.state, world.record["message"]) == ("pending", "the node is locked by driverwright/edu")
    world.unlock("driverwright/edu")
    settled(world)
    assert (world.state, world.devices("1g.5gb")) == ("success", 14)


def test_a_card_that_is_busy_is_asked_again() -> None:
    """Something that is no pod has it open: with the lock for some minutes, then later; also by another agent."""
    world = World(cards=[Card(0, busy=True)])
    world.ask("sevens")
    for number in range(30):
        world.round()
        if number == 15:
            world.start_agent()
    assert world.states == ["pending"]
    world.cards[0].busy = False
    settled(world, 60)
    assert world.devices("1g.5gb") == 7


def test_a_card_that_stays_busy_is_failed_and_tried_again() -> None:
    """The lock and the labels go meanwhile, and the card may be given."""
    world = World(cards=[Card(0, busy=True)])
    world.labels[DEPLOY] = "true"
    world.ask("sevens")
    failed = []
    for _ in range(400):
        world.round()
        if world.state == "failed":
            failed.append((world.leftovers, world.shown.cards))
    assert "In use by another client" in " ".join(world.events)
    assert ([], frozenset()) in failed
    world.cards[0].busy = False
    world.clock += 300
    settled(world, 60)
    assert world.state == "success"


def test_a_failure_brings_back_what_was_there() -> None:
    """Card 1 refuses for good: card 0, which was done, becomes as before as well."""
    world = World(cards=[enabled(0, ONE, THREE), Card(1, fails=["create"] * 9)])
    world.labels[DEPLOY] = "true"
    keys = world.keys
    world.ask("two-and-three")
    for _ in range(40):
        world.round(1)
        if world.state == "failed":
            break
    assert world.keys == keys
    assert world.leftovers == []
    assert "card 1: create: Unknown Error" in str(world.record["message"])
    assert len(world.events) == 1
    for _ in range(600):
        world.round()
    assert world.state == "success"  # after some tries the card works


def test_neither_can_be_made() -> None:
    """What is there is named, the cards are held, the lock is released; both are tried again, and one works at last."""
    world = World(cards=[enabled(0, ONE, THREE)])
    world.ask("two-and-three")
    world.cards[0].fails = ["create"] * 5
    found = ""
    for _ in range(60):
        step = world.round(1)
        if world.state == "failed":
            found = found or str(world.record["message"])
            assert step.held == {"GPU-0"}
            assert world.leftovers == []
    assert "card 0 has" in found
    for _ in range(100):
        world.round()
    settled(world)
    assert world.state == "success"


def test_a_label_that_changes_in_the_middle() -> None:
    """The new layout is asked for from what the cards are then; a card that it leaves out becomes as before."""
    world = World(cards=[Card(0), enabled(1, THREE), Card(2)])
    world.ask("sevens")
    for _ in range(40):
        world.round()
        if len(world.changes) == 2:
            break
    world.ask("first")
    settled(world)
    assert world.state == "success"
    assert world.keys == [(1, (("3g.20gb", 0, (3,)), THREE)), (1, (THREE,)), (0, ())]


def test_a_label_that_is_removed_in_the_middle() -> None:
    """All becomes as before, and nothing is left on the Node."""
    world = World(cards=[enabled(0, ONE, THREE), Card(1)])
    keys = world.keys
    world.ask("sevens")
    for _ in range(40):
        world.round()
        if len(world.changes) == 1:
            break
    world.ask(None)
    settled(world)
    assert (world.keys, world.state, world.annotations) == (keys, None, {})


def test_a_label_that_is_removed_afterwards() -> None:
    """The layout stays: only a change under way is taken back."""
    world = a100s(1)
    world.ask("sevens")
    settled(world)
    world.ask(None)
    settled(world)
    assert (world.devices("1g.5gb"), world.annotations, world.state) == (7, {}, None)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"asked":"sevens","applied":"","step":"changing","before":null,"message":""}']
)
def test_a_record_that_cannot_be_read_stops_everything(text: str) -> None:
    """What was before is not known: failed, no card is touched, what was taken is given back."""
    world = World(cards=[enabled(0, ONE)])
    world.labels[DEPLOY] = PAUSED_FOR_MIG_CHANGE
    world.annotations[MIG_ANNOTATION] = text
    world.lock_by("device-agent")
    world.ask("sevens")
    for _ in range(10):
        world.round()
    assert (world.state, world.changes, world.annotations) == ("failed", [], {MIG_ANNOTATION: text})
    assert world.labels[DEPLOY] == "true"
    assert len(world.events) == 1
    del world.annotations[MIG_ANNOTATION]
    world.touch()
    assert settled(world).state == "success"


def test_podresources_that_are_away() -> None:
    """Nothing is changed; it is said why."""
    world = a100s(1, unknown="the kubelet cannot be asked")
    world.ask("sevens")
    for _ in range(10):
        step = world.round()
    assert (world.state, world.changes, world.leftovers) == ("pending", [], [])
    assert step.why == "it is not known who has devices: the kubelet cannot be asked"
    world.unknown = ""
    assert settled(world).state == "success"


def test_without_an_api_server_nothing_begins() -> None:
    """What was there cannot be written down."""
    world = a100s(1, has_api=False)
    world.labels["nvidia.com/mig.config"] = "sevens"
    for _ in range(10):
        step = world.round()
        assert not step.registers
    assert world.changes == []
    world.has_api = True
    assert settled(world).state == "success"


def test_a_card_without_a_table_says_what_fits_once_it_is_in_mig_mode() -> None:
    """The mode is switched first; what does not fit then is taken back."""
    world = World(cards=[Card(0, has_table=False)])
    world.ask("too-much")
    settled(world)
    assert (world.state, world.keys) == ("failed", [(0, ())])
    world.ask("balanced")
    settled(world)
    assert world.devices("3g.20gb") == 1


def test_a_card_that_is_lost_keeps_the_others_as_they_are() -> None:
    """A new layout waits for it; one that was reached stays so, and is made again without it."""
    world = a100s(2)
    world.cards[1].lost = "GPU is lost"
    world.ask("sevens")
    settled(world, 10)
    assert (world.state, world.changes) == ("failed", [])
    assert "card 1 cannot be read: GPU is lost" in str(world.record["message"])
    world.cards[1].lost = ""
    assert settled(world).devices("1g.5gb") == 14
    world.boot()
    world.cards[1].lost = "GPU is lost"
    settled(world)
    assert (world.state, world.cards[0].key[0], len(world.cards[0].instances)) == ("success", 1, 7)


def test_a_driver_that_is_away_in_the_middle_can_be_replaced() -> None:
    """The lock is not renewed while nobody knows the cards; they stay held, and the change goes on afterwards."""
    world = World(cards=[enabled(0, ONE), Card(1)])
    world.ask("sevens")
    while not world.changes:
        world.round()
    world.nvml_is_up = False
    for _ in range(100):
        step = world.round(10)
    assert step.held == {"GPU-0", "GPU-1"}
    lock = world.annotations[LOCK_ANNOTATION]
    world.lock_by("driverwright/edu")
    world.nvml_is_up = True
    for _ in range(10):
        step = world.round()
    assert (len(world.changes), set(step.held)) == (1, {"GPU-0", "GPU-1"})
    assert step.why.startswith("the node is locked by driverwright/edu until")
    world.unlock("driverwright/edu")
    settled(world)
    assert (world.devices("1g.5gb"), lock != world.annotations.get(LOCK_ANNOTATION)) == (14, True)


def test_a_pod_on_what_has_to_go_in_the_middle_keeps_no_lock() -> None:
    """Without a drain it is waited for, and others may work on the node meanwhile."""
    world = World(cards=[Card(0), Card(1)])
    world.ask("first")
    while not world.changes:
        world.round()
    world.ask("sevens")
    world.pods = {"a/one": ("nvidia.com/gpu", "GPU-1")}
    for _ in range(10):
        step = world.round()
    assert (world.state, world.leftovers) == ("pending", [])
    assert step.held == {"GPU-0"}
    world.pods.clear()
    assert settled(world).devices("1g.5gb") == 14


def test_who_was_seen_long_ago_does_not_count() -> None:
    """A pod of the same name may be on another card by now: it is not drained."""
    world = a100s(2, settings=DRAIN)
    world.pods = {"a/one": ("nvidia.com/gpu", "GPU-0")}
    world.look()
    world.pods = {"a/one": ("nvidia.com/gpu", "GPU-1")}
    world.clock += 3600
    world.work()
    world.ask("first")
    settled(world)
    assert (world.state, world.evicted) == ("success", [])


def test_a_card_that_is_not_as_the_driver_says_is_given_up() -> None:
    """It is not destroyed and created again and again, but failed, and tried again later."""
    world = World(cards=[Card(0)])
    world.ask("sevens")
    asked = []
    for _ in range(150):
        step = world.step()
        asked += [world.clock] if step.change is not None else []
        world.work()
        if len(world.cards[0].instances) == 7:
            del world.cards[0].instances[max(world.cards[0].instances)]
        world.clock += 2
    assert any("the driver said that it is done" in one for one in world.events)
    assert len(asked) < 30
    settled(world, 300)
    assert world.state == "success"


@pytest.mark.parametrize("what", ["unreadable", "removed", "node"])
def test_a_card_that_is_being_changed_is_held_whatever_the_node_says(what: str) -> None:
    """The request was sent, and is not answered."""
    world = World(cards=[enabled(0, ONE)])
    world.ask("sevens")
    while not world.queue:
        world.step()
        world.clock += 1
    match what:
        case "unreadable":
            world.annotations[MIG_ANNOTATION] = "{"
        case "removed":
            world.annotations.clear()
            world.ask(None)
        case _:
            world.has_api, world.cached = False, None
    world.touch()
    assert world.step().held == {"GPU-0"}
    world.work()
    assert world.step().held == ({"GPU-0"} if what == "node" else set())


def test_a_label_that_changes_while_what_was_before_is_made_again_is_tried() -> None:
    """Also where a pod is in the way first."""
    world = World(cards=[enabled(0, ONE), Card(1, fails=["create"] * 2)])
    world.ask("sevens")
    while world.annotations.get(MIG_ANNOTATION, "").find("restoring") < 0:
        world.round()
    world.pods = {"a/one": ("nvidia.com/gpu", "GPU-1")}
    world.cards[1].mode = world.cards[1].pending = 0
    world.ask("balanced")
    for _ in range(5):
        world.round()
    world.pods.clear()
    settled(world)
    assert (world.state, world.devices("3g.20gb")) == ("success", 2)


def test_an_answer_that_nobody_removes_is_said() -> None:
    """It is not taken for the one to the next request. Without a driver-builder it would be waited for in silence."""
    world = a100s(1, settings=DRAIN)
    assert world.run_pod("a/x", "GPU-0")
    world.annotations[DRAIN_STATE_ANNOTATION] = '{"state":"drained","message":"","request":"0123456789abcdef"}'
    world.ask("sevens")
    for _ in range(5):
        world.step()
        world.clock += 2
    assert world.states == ["pending"]
    assert "pods use what goes on card 0: a/x; driver-builder has not removed" in str(world.record["message"])
    assert "remove annotation driverwright.io/drain-state" in str(world.record["message"])
    assert world.leftovers == []
    del world.annotations[DRAIN_STATE_ANNOTATION]
    world.touch()
    for _ in range(20):
        world.round()
    assert (world.evicted, world.devices("1g.5gb")) == (["a/x"], 7)
