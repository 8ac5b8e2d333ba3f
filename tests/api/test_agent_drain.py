"""A device agent's drain on a real API server: with driver-builder's account, within a PodDisruptionBudget."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from driver_builder.builds.build_queue import BuildQueue
from driver_builder.cluster.observe import Observer
from driver_builder.cluster.read_node_pods import read_node_pods
from driver_builder.controller.execute import Executor
from driver_builder.model.agent_drains import AgentDrains
from driver_builder.rollout.agent_drain import agent_drains
from driver_builder.snapshot.node_pods import EvictionRefused
from kube_api import names
from kube_api.drain_contract import DrainAnswer, DrainState, parse_answer
from kube_api.errors import KubeApiError, NotFound
from kube_api.resources import DAEMON_SETS, NODES, PODS
from kube_api.timestamps import timestamp
from testbed.testbed import Testbed
from tests.support.forbidden_acts import ELSEWHERE, NAMESPACE
from tests.support.real_parts.acts import wait_for
from tests.support.real_parts.cluster_setup import (
    FIELD_MANAGER,
    Json,
    admin,
    as_service_account,
    create_quietly,
    documents,
    install,
    make_namespace,
    path_of,
)

NODE, GPU, USER = "agent-drain", "nvidia.com/gpu", "trains-for-an-agent"
REPLICA_SETS = f"/apis/apps/v1/namespaces/{ELSEWHERE}/replicasets"
ALLOWED = AgentDrains(resources=("nvidia.com/gpu*",), daemon_sets=frozenset({f"{ELSEWHERE}/agent-of-a-node"}))


def workload(name: str, *, kind: str, resource: str, **spec: Any) -> Json:
    """Make a ReplicaSet or a DaemonSet whose pods are on the node."""
    limits = {"limits": {resource: "1"}} if resource else {}
    container = {"name": "c", "image": "registry.example.com/none:1", "resources": limits}
    pod = {
        "nodeName": NODE,
        "automountServiceAccountToken": False,
        "nodeSelector": {"agent-drain": "yes"},
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
    }
    template = {"metadata": {"labels": {"app": name}}, "spec": pod}
    selector = {"selector": {"matchLabels": {"app": name}}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {**selector, "template": template, **spec},
    }


class Lab:
    """A node with the pod of an agent and one of somebody else, whose kubelet the test plays."""

    def __init__(self, ground: Testbed) -> None:
        self.root = admin(ground)
        install(self.root)
        make_namespace(self.root, ELSEWHERE)
        self.builder = as_service_account(ground, NAMESPACE, "driver-builder")
        self.refused: dict[str, EvictionRefused] = {}

    def pods(self, app: str) -> list[Json]:
        """Return the pods of a workload on the node."""
        found = self.root.list(PODS.path(namespace=ELSEWHERE), label_selector=f"app={app}").items
        return [pod for pod in found if pod["spec"].get("nodeName") == NODE]

    def run(self, app: str) -> Json | None:
        """Let a new pod run and be ready; return it."""
        for pod in self.pods(app):
            ready = [{"type": "Ready", "status": "True"}]
            path = PODS.path(namespace=ELSEWHERE, name=pod["metadata"]["name"])
            self.root.patch(f"{path}/status", {"status": {"phase": "Running", "conditions": ready}})
            return pod
        return None

    def reconcile(self) -> DrainAnswer | None:
        """Let the controller look once, and do what it does for agents; return what stands on the node."""
        observer = Observer(
            self.builder, namespaces=(NAMESPACE,), clock=time.time, refused_evictions=self.refused, agent_drains=ALLOWED
        )
        found = agent_drains(observer.observe(), ALLOWED)
        queue = BuildQueue(lambda *_: "", wake=lambda: None)
        try:
            executor = Executor(self.builder, queue, refused_evictions=self.refused)
            assert executor.perform((*found.released, *found.answers)) == ()
        finally:
            queue.stop()
        return parse_answer(self.annotations().get(names.DRAIN_STATE_ANNOTATION))

    def annotations(self) -> dict[str, str]:
        """Return the annotations of the node."""
        found: dict[str, str] = self.root.get(NODES.path(name=NODE))["metadata"].get("annotations") or {}
        return found

    def is_tainted(self) -> bool:
        """Return whether our taint keeps new pods away."""
        taints = self.root.get(NODES.path(name=NODE))["spec"].get("taints") or ()
        return any(taint["key"] == names.UPGRADING_TAINT for taint in taints)

    def write(self, **annotations: str | None) -> None:
        """Write annotations as an agent does."""
        keys = {"lock": names.LOCK_ANNOTATION, "request": names.DRAIN_REQUEST_ANNOTATION}
        body = {"metadata": {"annotations": {keys[key]: value for key, value in annotations.items()}}}
        self.root.patch(NODES.path(name=NODE), body)


@pytest.fixture
def lab(control_plane_ground: Testbed) -> Iterator[Lab]:
    """Make the node, the two workloads and the rights to drain; take all of it away again."""
    made = Lab(control_plane_ground)
    root = made.root
    metadata = {"name": NODE, "labels": {"agent-drain": "yes"}}
    create_quietly(root, NODES.path(), {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    agent = workload("agent-of-a-node", kind="DaemonSet", resource="")
    user = workload(USER, kind="ReplicaSet", resource=GPU, replicas=1)
    rights = tuple(documents("driver-builder/drain.yaml"))
    created = ((DAEMON_SETS.path(namespace=ELSEWHERE), agent), (REPLICA_SETS, user))
    for path, body in created:
        root.create(path, body)
    for obj in rights:
        root.apply(path_of(obj), obj, field_manager=FIELD_MANAGER)
    try:
        wait_for("the right to list pods", lambda: not read_node_pods(made.builder, [NODE])[NODE].unread)
        yield made
    finally:
        for path in (
            *(f"{path}/{body['metadata']['name']}" for path, body in created),
            *(path_of(obj) for obj in rights),
            NODES.path(name=NODE),
        ):
            with suppress(NotFound):
                root.delete(path)
        wait_for("no right to list pods", lambda: read_node_pods(made.builder, [NODE])[NODE].unread)


def test_an_agents_drain_keeps_a_budget_and_evicts_once_it_may(lab: Lab) -> None:
    """Until then the answer names pod and budget; the pod that comes in its place is not named, and stays."""
    wait_for("the agent's pod", lambda: lab.run("agent-of-a-node"))
    wait_for("the pod that has a GPU", lambda: lab.run(USER))
    (pod,) = lab.pods(USER)
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    policy = lab.root.get("/apis/policy")["preferredVersion"]["groupVersion"]
    budgets = f"/apis/{policy}/namespaces/{ELSEWHERE}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": USER}}}
    metadata = {"name": "keeps-the-training"}
    budget = {"apiVersion": policy, "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}
    lab.root.create(budgets, budget)
    pods = [f"{ELSEWHERE}/{name}"]
    lock = json.dumps({"holder": "device-agent", "bootID": "b", "renewTime": timestamp(time.time())})
    lab.write(lock=lock, request=json.dumps({"pods": pods, "resources": [GPU], "deadline": "1h"}))

    def says(state: DrainState, words: str = "") -> bool:
        # A server may be busy for a moment.
        with suppress(KubeApiError):
            answer = lab.reconcile()
            return answer is not None and answer.state is state and words in answer.message
        return False

    try:
        wait_for("the budget keeps the pod", lambda: says(DrainState.DRAINING, "keeps-the-training"))
        assert lab.is_tainted()
        assert [item["metadata"]["uid"] for item in lab.pods(USER)] == [uid]
        lab.root.delete(f"{budgets}/keeps-the-training")
        wait_for("it is evicted", lambda: says(DrainState.DRAINING, "is terminating"))
        by_uid = {item["metadata"]["uid"]: item["metadata"] for item in lab.pods(USER)}
        assert "deletionTimestamp" in by_uid[uid]
        # Its kubelet ends it.
        path = PODS.path(namespace=ELSEWHERE, name=name)
        lab.root.patch(f"{path}/status", {"status": {"phase": "Succeeded"}})
        wait_for("the node is drained", lambda: says(DrainState.DRAINED))
        assert "deletionTimestamp" not in lab.pods("agent-of-a-node")[0]["metadata"]
    finally:
        with suppress(NotFound):
            lab.root.delete(f"{budgets}/keeps-the-training")
    lab.write(lock=None, request=None)
    wait_for("the node is given back", lambda: lab.reconcile() is None and not lab.is_tainted())
    assert names.DRAINING_ANNOTATION not in lab.annotations()
    others = [item["metadata"] for item in lab.pods(USER) if item["metadata"]["uid"] != uid]
    assert all("deletionTimestamp" not in item for item in others)
