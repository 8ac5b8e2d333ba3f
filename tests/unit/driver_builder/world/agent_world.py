"""A world whose nodes have a device agent, which takes the lock and asks for drains."""

import json
import random
from dataclasses import replace

from driver_builder.model.agent_drains import AgentDrains
from driver_builder.rollout.node_lock import lock_of
from driver_builder.snapshot.inventory import read_node
from kube_api import names
from kube_api.client import Object
from kube_api.drain_contract import HOLDER, DrainState, digest_of, parse_answer
from kube_api.node_lock import LOCK_SECONDS, render_lock
from kube_api.resources import NODES, PODS
from tests.support.driver_builder.journal import is_tainted
from tests.unit.driver_builder.world.hostile_histories import Event, some_node
from tests.unit.driver_builder.world.test_world_attack import EVENTS, AttackWorld
from tests.unit.driver_builder.world.test_world_drain import APPS, RESOURCE, web_path

AGENTS, AGENT = "agents", "agent"
GPU = "nvidia.com/gpu"
ALLOWED = AgentDrains(resources=("nvidia.com/gpu*",), daemon_sets=frozenset({f"{AGENTS}/{AGENT}"}))
KEYS = (names.DRAIN_REQUEST_ANNOTATION, names.DRAIN_STATE_ANNOTATION)


class AgentWorld(AttackWorld):
    """Each node has a pod of the agent, and three pods of others.

    Requests name ``train``, which has a GPU, and ``cpu``, which has none; ``keep`` has one of a card that stays.
    """

    def __init__(self, allowed: AgentDrains = ALLOWED) -> None:
        super().__init__()
        self.settings = replace(self.settings, agent_drains=allowed)
        self.requested: dict[str, str] = {}
        """By node, the request of an agent that has the lock."""
        self.gone: set[str] = set()
        """Nodes whose agent does not run any more, whatever it has left."""
        self.answers: list[tuple[str, DrainState]] = []
        """What agents were answered, in this order."""

    # ------------------------------------------------------------ what agents do

    def node(self, name: str) -> Object:
        """Return a Node as it is."""
        found: Object = self.client.objects[NODES.path(name=name)]
        return found

    def annotation(self, node: str, key: str) -> str | None:
        """Return an annotation of a Node."""
        annotations: Object = self.node(node)["metadata"].get("annotations") or {}
        return annotations.get(key)

    def has_lock(self, node: str) -> bool:
        """Return whether an agent has the lock of its node, and it has not ended."""
        lock = lock_of(read_node(self.node(node)))
        return lock is not None and lock.holder == HOLDER and not lock.is_expired(self.now)

    def ask(self, node: str, text: str = "") -> None:
        """Let an agent take the lock of its node, if it may, and ask for a drain in the same patch."""
        lock = lock_of(read_node(self.node(node)))
        if node in self.gone or (lock is not None and lock.holder != HOLDER and not lock.is_expired(self.now)):
            return
        self.requested[node] = text or request(node)
        self._write(node, self.requested[node])

    def give_back(self, node: str) -> None:
        """Let an agent release its lock, with its request."""
        self.requested.pop(node, None)
        self.patch_node(
            node, {"metadata": {"annotations": {names.LOCK_ANNOTATION: None, names.DRAIN_REQUEST_ANNOTATION: None}}}
        )

    def _write(self, node: str, text: str) -> None:
        lock = render_lock(HOLDER, self.boots[node], self.now)
        annotations = {names.LOCK_ANNOTATION: lock, names.DRAIN_REQUEST_ANNOTATION: text}
        self.patch_node(node, {"metadata": {"annotations": annotations}})

    def _work(self, node: str) -> None:
        """Let an agent renew its lock, read its answer, and give the node back when it has one."""
        lock = lock_of(read_node(self.node(node)))
        if lock is None or lock.holder != HOLDER or self.annotation(node, names.DRAIN_REQUEST_ANNOTATION) is None:
            # It ended, and is another's by now, or the Node is a new one.
            del self.requested[node]
            return
        answer = parse_answer(self.annotation(node, names.DRAIN_STATE_ANNOTATION))
        if answer is not None and answer.request == digest_of(self.requested[node]) and not lock.is_expired(self.now):
            if answer.state is not DrainState.DRAINING:
                self.answers.append((node, answer.state))
                self.give_back(node)
        elif lock.is_due(self.boots[node], self.now):
            self._write(node, self.requested[node])

    # ------------------------------------------------------------ what the rest of the cluster does

    def turn(self) -> None:
        """Let other controllers, kubelets and agents do their part as well."""
        super().turn()
        for path in [path for path in self.client.objects if f"/namespaces/{AGENTS}/pods/" in path]:
            if self.client.objects[path]["spec"]["nodeName"] not in self.kernels:
                del self.client.objects[path]
        for name in self.kernels:
            self._add_agent(name)
            if not is_tainted(self.node(name)):
                owner = {"kind": "Job", "controller": True, "uid": "job"}
                for kind, resource in (("train", GPU), ("keep", GPU), ("cpu", "cpu")):
                    spec = {"containers": [{"resources": {"requests": {resource: "1"}}}]}
                    self._add(f"{kind}-{name}", name, spec, ownerReferences=[owner])
        for name in [name for name in self.requested if name in self.kernels and name not in self.gone]:
            self._work(name)

    def _add_agent(self, node: str) -> None:
        path = PODS.path(namespace=AGENTS, name=f"{AGENT}-{node}")
        if path not in self.client.objects:
            owner = {"kind": "DaemonSet", "name": AGENT, "controller": True, "uid": AGENT}
            metadata = {"name": f"{AGENT}-{node}", "ownerReferences": [owner]}
            self.client.create(PODS.path(namespace=AGENTS), {"metadata": metadata, "spec": {"nodeName": node}})

    def _collect_orphans(self) -> None:
        kept = {path: obj for path, obj in self.client.objects.items() if f"/namespaces/{AGENTS}/" in path}
        super()._collect_orphans()
        self.client.objects |= kept

    # ------------------------------------------------------------ what can be said about it

    def leftovers(self) -> list[str]:
        """Name what is still on nodes because of drains, of drivers and of agents."""
        keys = [f"{name}: {key}" for name in self.kernels for key in KEYS if self.annotation(name, key) is not None]
        return [*super().leftovers(), *keys]

    def heal(self) -> None:
        """Let agents that run give their nodes back; those that are gone leave what they have left."""
        for name in [name for name in self.requested if name in self.kernels and name not in self.gone]:
            if self.has_lock(name):
                self.give_back(name)
        self.requested.clear()
        super().heal()
        # Whatever is left of the others ends with their locks.
        self.now += LOCK_SECONDS


def request(
    node: str, *, deadline: str = "60s", resources: tuple[str, ...] = (GPU,), pods: tuple[str, ...] = ()
) -> str:
    """Write what an agent asks for: a pod with a GPU, one without, and one that is not there."""
    named = pods or (f"train-{node}", f"cpu-{node}", "ended")
    return json.dumps(
        {"pods": [f"{APPS}/{name}" for name in named], "resources": list(resources), "deadline": deadline}
    )


# ---------------------------------------------------------------- events


def agent_asks(world: AgentWorld, chance: random.Random) -> None:
    """An agent takes the lock of its node and asks."""
    world.ask(some_node(world, chance))


def agent_changes_its_request(world: AgentWorld, chance: random.Random) -> None:
    """Its layout was changed again meanwhile."""
    working = sorted(world.requested.keys() & world.kernels.keys())
    for node in working[:1]:
        world.ask(node, request(node, deadline=chance.choice(("30s", "2m"))))


def agent_asks_for_what_is_not_allowed(world: AgentWorld, chance: random.Random) -> None:
    """It is somebody else by now."""
    node = some_node(world, chance)
    wrong = (
        request(node, resources=(RESOURCE,), pods=(f"web-{node}",)),
        request(node, resources=(GPU, RESOURCE), pods=(f"web-{node}", f"train-{node}")),
        request(node, deadline="1000h"),
        "{",
    )
    world.ask(node, chance.choice(wrong))


def agent_gives_back(world: AgentWorld, _chance: random.Random) -> None:
    """It does not need the node any more: the label that asked for a layout is gone."""
    for node in sorted(world.requested.keys() & world.kernels.keys())[:1]:
        world.give_back(node)


def agent_dies(world: AgentWorld, chance: random.Random) -> None:
    """With its lock, if it has one; or it is started again, and goes on with that."""
    node = some_node(world, chance)
    (world.gone.add if chance.random() < 0.6 else world.gone.discard)(node)


def agents_pod_goes(world: AgentWorld, chance: random.Random) -> None:
    """Its DaemonSet replaces it."""
    world.client.objects.pop(PODS.path(namespace=AGENTS, name=f"{AGENT}-{some_node(world, chance)}"), None)


def budget_holds(world: AgentWorld, chance: random.Random) -> None:
    """A PodDisruptionBudget keeps a pod that is asked for, or does so no longer."""
    path = web_path(f"train-{some_node(world, chance)}")
    (world.client.budgets.add if chance.random() < 0.6 else world.client.budgets.discard)(path)


OF_AGENTS: tuple[Event[AgentWorld], ...] = (
    agent_asks, agent_asks, agent_asks, agent_changes_its_request, agent_asks_for_what_is_not_allowed,
    agent_gives_back, agent_dies, agents_pod_goes, budget_holds,
)  # fmt: skip
AGENT_EVENTS: tuple[Event[AgentWorld], ...] = (*EVENTS, *OF_AGENTS, *OF_AGENTS)
"""Beside those of other histories, which stay as they are, by their seeds."""
