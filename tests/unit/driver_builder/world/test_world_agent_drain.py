"""Drains that device agents ask for: what leaves a node, and that all is as it was in the end, whatever ends it."""

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from driver_builder.model.agent_drains import AgentDrains
from kube_api import names
from kube_api.drain_contract import DrainState, parse_answer
from kube_api.node_lock import LOCK_SECONDS
from tests.support.driver_builder.factories import KERNEL, NAMESPACE
from tests.support.driver_builder.journal import holder_of, is_tainted
from tests.unit.driver_builder.world import test_world_attack as attacks
from tests.unit.driver_builder.world.agent_world import AGENT_EVENTS, GPU, KEYS, OF_AGENTS, AgentWorld, request
from tests.unit.driver_builder.world.hostile_histories import play_steps, rarely
from tests.unit.driver_builder.world.test_world_drain import DRAIN, web_path
from tests.unit.driver_builder.world.test_world_rollout import GOOD

NODE, TRAIN = "node-0", web_path("train-node-0")
FEW = 15
SEEDS = 300
"""So many histories are tried by ``make test-long``, the first ``FEW`` by ``make test`` as well."""


def agent_world(allowed: AgentDrains | None = None) -> AgentWorld:
    """Make a world of one node, on which everything runs."""
    world = AgentWorld() if allowed is None else AgentWorld(allowed)
    world.add_node(NODE, KERNEL)
    world.add_driver("edu", rollout={"drain": DRAIN})
    world.arrive()
    return world


def message(world: AgentWorld) -> str:
    """Return what the agent is answered."""
    answer = parse_answer(world.annotation(NODE, names.DRAIN_STATE_ANNOTATION))
    return answer.message if answer is not None else ""


def assert_as_before(world: AgentWorld) -> None:
    """Nothing of a drain is on the node, and what ran there runs there."""
    assert world.leftovers() == []
    names_of = ("web", "plugin", "train", "keep", "cpu")
    assert [name for name in names_of if web_path(f"{name}-{NODE}") not in world.client.objects] == []


def test_an_agent_that_asks_gets_its_node_without_the_pods_that_it_names() -> None:
    """One pass taints, the next one evicts, and once the pod is gone it is told so; then it gives the node back."""
    world = agent_world()
    world.ask(NODE)
    world.reconcile(world.look)
    assert is_tainted(world.node(NODE))
    assert world.client.evicted == []
    world.reconcile(world.look)
    assert world.client.evicted == [TRAIN]
    world.turn()
    world.reconcile(world.look)
    assert message(world) == "left alone, without such a resource: pod apps/cpu-node-0"
    before = dict(world.client.objects)
    assert world.reconcile(world.look).actions == ()
    assert before == world.client.objects
    world.turn()
    assert world.answers == [(NODE, DrainState.DRAINED)]
    world.arrive()
    assert_as_before(world)
    assert world.client.evicted == [TRAIN]


def test_by_default_no_agent_gets_anything() -> None:
    """It is told which flag would allow it; its node is not touched."""
    world = agent_world(AgentDrains())
    world.ask(NODE)
    world.reconcile(world.look)
    assert f"--agent-drain-resources of driver-builder allows no {GPU}" in message(world)
    assert world.leftovers() == [f"{NODE}: {key}" for key in (names.LOCK_ANNOTATION, *KEYS)]
    world.turn()
    assert world.answers == [(NODE, DrainState.FAILED)]
    world.arrive()
    assert_as_before(world)
    assert world.client.evicted == []


def test_a_budget_ends_the_drain_at_its_deadline_and_the_next_one_succeeds() -> None:
    """Nothing was taken; the agent knows the pod."""
    world = agent_world()
    world.client.budgets.add(TRAIN)
    world.ask(NODE)
    said = set()
    for _ in range(16):
        world.rounds(1)
        said.add(message(world))
    assert any("pod apps/train-node-0: train-node-0 stays: " in words for words in said)
    assert world.answers == [(NODE, DrainState.FAILED)]
    assert_as_before(world)
    world.client.budgets.clear()
    world.ask(NODE)
    world.arrive()
    assert world.answers == [(NODE, DrainState.FAILED), (NODE, DrainState.DRAINED)]
    assert world.client.evicted == [TRAIN]
    assert_as_before(world)


@pytest.mark.parametrize("writes", range(5))
def test_a_controller_that_is_killed_after_any_write_ends_the_same(writes: int) -> None:
    """What was begun is on the Node."""
    world = agent_world()
    world.ask(NODE)
    world.rounds_with_a_kill(writes, 6)
    world.arrive()
    assert world.answers == [(NODE, DrainState.DRAINED)]
    assert_as_before(world)


@pytest.mark.parametrize("rounds", [0, 1, 2, 5])
def test_what_an_agent_leaves_that_dies_with_its_lock_ends_with_the_lock(rounds: int) -> None:
    """Ten minutes later the node is as it was, also for a controller that has just started."""
    world = agent_world()
    world.client.budgets.add(TRAIN)
    world.ask(NODE, request(NODE, deadline="6h"))
    world.gone.add(NODE)
    world.rounds(rounds)
    world.kill()
    world.now += LOCK_SECONDS
    world.arrive()
    assert_as_before(world)
    assert world.client.evicted == []


def test_a_driver_waits_for_the_agent_and_the_agent_for_the_driver() -> None:
    """Two holders of a drain never meet."""
    world = agent_world()
    world.client.budgets.add(TRAIN)
    world.ask(NODE, request(NODE, deadline="5m"))
    world.rounds(2)
    before = dict(world.live[NODE])
    world.edit_source(GOOD[1])
    world.rounds(8)
    assert world.live[NODE] == before
    assert f"{NODE} is locked by device-agent" in world.status()["rollout"]["message"]
    world.client.budgets.clear()
    while not (holder_of(world.node(NODE)) == f"{NAMESPACE}/edu" and is_tainted(world.node(NODE))):
        world.rounds(1)
    world.ask(NODE)
    assert world.requested == {}
    world.arrive()
    assert world.live[NODE] != before
    assert world.answers == [(NODE, DrainState.DRAINED)]
    assert_as_before(world)


def test_without_the_right_to_drain_the_agent_is_told_so() -> None:
    """It must not take the node for drained."""
    world = agent_world()
    world.client.forbidden = ("/api/v1/pods",)
    world.ask(NODE)
    world.reconcile(world.look)
    assert message(world).startswith("not drained: apply deploy/driver-builder/drain.yaml to allow it")
    world.turn()
    world.arrive()
    assert world.answers == [(NODE, DrainState.FAILED)]
    assert world.leftovers() == []


def test_an_agent_that_gives_its_node_back_between_plan_and_eviction_gets_no_eviction() -> None:
    """What the plan has seen is read once more."""
    world = agent_world()
    world.ask(NODE)
    world.rounds(1)
    world.client.catch_up()
    decided = world.decide()
    world.give_back(NODE)
    world.decide = lambda: replace(decided)  # type: ignore[method-assign]
    world.reconcile(world.look)
    assert world.client.evicted == []


@cache
def play(seed: int) -> Counter[str]:
    """Play the history of a seed, in which agents ask as well, to its end: what left a node runs there again."""
    made = attacks.history(seed, AGENT_EVENTS)  # type: ignore[arg-type]
    world = AgentWorld()
    attacks.begin(world, made)
    play_steps(world, made.steps, AGENT_EVENTS)
    world.heal()
    world.arrive()
    assert [name for name in world.kernels if web_path(f"train-{name}") not in world.client.objects] == []
    return world.recorder.ended()


@pytest.mark.parametrize("seed", range(FEW))
def test_a_hostile_history_with_agents(seed: int) -> None:
    """All invariants hold, whoever evicts."""
    play(seed)


def test_evictions_occur_in_every_history() -> None:
    """An invariant whose premise hardly ever occurs is not tried."""
    assert rarely({"only_what_was_asked_for_is_evicted": FEW}, [play(seed) for seed in range(FEW)]) == {}


def test_every_event_of_agents_is_in_many_histories() -> None:
    """A kind of event that seeds hardly ever make is not tried."""
    made = [attacks.history(seed, AGENT_EVENTS) for seed in range(SEEDS)]  # type: ignore[arg-type]
    found = Counter(name for one in made for name in {step.name for step in one.steps})
    assert {event.__name__: found[event.__name__] for event in OF_AGENTS if found[event.__name__] < SEEDS // 8} == {}
