"""What the agent reads and writes about MIG on a real API server: versions, conflicts, and what its account may not do.

The account is that of ``admission-policy --account --mig``; the server here is too old for its policy, which
``tests/contract/test_device_agent_account.py`` evaluates.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest

from device_agent.mig.values import NodeMig, NodeWrite
from device_agent.node.attempts import Pauses
from device_agent.node.mig_on_node import REASON
from device_agent.node.mig_state import MigState
from device_agent.node.own_node import OwnNode
from device_agent.profiles.verdict import Verdict
from kube_api.client import Client
from kube_api.errors import Forbidden, NotFound
from kube_api.names import (
    DRAIN_REQUEST_ANNOTATION,
    GPU_DEPLOY_PREFIX,
    GPU_PROFILE_STATE_LABEL,
    LOCK_ANNOTATION,
    MIG_ANNOTATION,
    MIG_CONFIG_LABEL,
    MIG_STATE_LABEL,
    PAUSED_FOR_MIG_CHANGE,
)
from kube_api.resources import EVENTS, NODES, PODS
from testbed.testbed import Testbed
from tests.api.test_device_agent_node import MUST_NOT
from tests.support.real_parts.acts import wait_for
from tests.support.real_parts.agent_account import following, install_account
from tests.support.real_parts.cluster_setup import Json, admin, connect_as_agent

NAMESPACE, ACCOUNT = "gpu-mig", "mig"
SECONDS = 600.0
"""Generous, for a busy machine."""
PLUGIN = f"{GPU_DEPLOY_PREFIX}device-plugin"
EVICTION: Json = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "p", "namespace": NAMESPACE}}
EVICTS = PODS.path(namespace=NAMESPACE, name="p", subresource="eviction")


@pytest.fixture(scope="module")
def root(control_plane_ground: Testbed) -> Client:
    """Install the account and the roles that the command prints; give the administrator."""
    client = admin(control_plane_ground)
    install_account(client, f"{NAMESPACE}/{ACCOUNT}", "--mig")
    return client


@pytest.fixture(scope="module")
def agent(control_plane_ground: Testbed, root: Client, tmp_path_factory: pytest.TempPathFactory) -> Client:
    """Connect as the agent does, with the files that a kubelet mounts."""
    assert root
    return connect_as_agent(control_plane_ground, f"{NAMESPACE}/{ACCOUNT}", tmp_path_factory.mktemp("token"))


@pytest.fixture
def node(root: Client) -> Iterator[str]:
    """Make a Node that asks for a layout, on which the GPU Operator runs its plugin."""
    name = f"partitioned-{time.monotonic_ns()}"
    labels = {MIG_CONFIG_LABEL: "all-1g", PLUGIN: "true"}
    root.create(NODES.path(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
    yield name
    with contextlib.suppress(NotFound):
        root.delete(NODES.path(name=name))


class Followed:
    """A Node that is followed."""

    def __init__(self, client: Client, name: str) -> None:
        # Short, so that a server that is long in starting is found soon.
        self.own = OwnNode(client, name, None, partial(Pauses, 0.5, 2.0), on_mig=self._on_mig)
        self._woken = asyncio.Event()

    @property
    def mig(self) -> MigState:
        """What is written by."""
        assert self.own.mig is not None
        return self.own.mig

    async def until(self, is_so: Callable[[NodeMig], bool]) -> NodeMig:
        """Wait until the Node is shown so, and nothing is being written."""
        async with asyncio.timeout(SECONDS):
            while self.mig.is_writing or self.mig.seen is None or not is_so(self.mig.seen):
                await self._woken.wait()
                self._woken.clear()
        return self.mig.seen

    async def write(self, write: NodeWrite) -> NodeMig:
        """Write, and wait until that has ended."""
        self.mig.write(write)
        return await self.until(lambda _: True)

    async def decide(self, state: str, write: NodeWrite) -> NodeMig:
        """Write by the Node as it is, until it has a state: controllers of the cluster annotate a new Node as well."""
        while (seen := await self.until(lambda _: True)).state != state:
            labels = {**write.labels, MIG_STATE_LABEL: state}
            await self.write(replace(write, labels=labels, resource_version=seen.resource_version))
        return seen

    def _on_mig(self) -> None:
        self._woken.set()


def live(client: Client, name: str, act: Callable[[Followed], Awaitable[None]]) -> None:
    """Follow a Node while an act is done."""

    async def scenario() -> None:
        it = Followed(client, name)
        async with following(it.own):
            await act(it)

    asyncio.run(scenario())


def metadata(root: Client, node: str) -> Json:
    """Read labels and annotations."""
    found: Json = root.get(NODES.path(name=node))["metadata"]
    return found


def events(root: Client, node: str) -> list[str]:
    """List the messages that were reported about a Node."""
    found = root.list(EVENTS.path(namespace="default"), field_selector=f"involvedObject.name={node}").items
    return [event["message"] for event in found if event["reason"] == REASON]


def test_a_change_is_written_by_versions_and_read_back(agent: Client, root: Client, node: str) -> None:
    """Lock, request, record, state and the operator's label in one patch; each next one by the version of the last."""

    async def act(it: Followed) -> None:
        seen = await it.until(lambda found: found.asked == "all-1g")
        assert seen.deploy == {PLUGIN: "true"}
        begins = {MIG_ANNOTATION: "{}", LOCK_ANNOTATION: "{}", DRAIN_REQUEST_ANNOTATION: '{"pods":[]}'}
        write = NodeWrite(labels={PLUGIN: PAUSED_FOR_MIG_CHANGE}, annotations=begins)
        seen = await it.decide("pending", write)
        assert (seen.record, seen.lock, seen.drain_request) == ("{}", "{}", '{"pods":[]}')
        assert seen.deploy == {PLUGIN: PAUSED_FOR_MIG_CHANGE}
        ends = {LOCK_ANNOTATION: None, DRAIN_REQUEST_ANNOTATION: None}
        seen = await it.decide("success", NodeWrite(labels={PLUGIN: "true"}, annotations=ends))
        assert (seen.lock, seen.drain_request, seen.deploy) == (None, None, {PLUGIN: "true"})

    live(agent, node, act)
    found = metadata(root, node)
    assert found["labels"] == {MIG_CONFIG_LABEL: "all-1g", MIG_STATE_LABEL: "success", PLUGIN: "true"}
    assert {key for key in found["annotations"] if "driverwright" in key} == {MIG_ANNOTATION}


def test_what_somebody_else_wrote_meanwhile_is_never_overwritten(agent: Client, root: Client, node: str) -> None:
    """Two that take the lock by the same version: one has it, and the other one sees whose it is."""

    async def act(it: Followed) -> None:
        seen = await it.until(lambda found: found.asked == "all-1g")
        root.patch(NODES.path(name=node), {"metadata": {"annotations": {LOCK_ANNOTATION: "theirs"}}})
        seen = await it.write(NodeWrite(annotations={LOCK_ANNOTATION: "ours"}, resource_version=seen.resource_version))
        assert seen.lock == "theirs"
        seen = await it.decide("pending", NodeWrite(annotations={LOCK_ANNOTATION: "ours"}))
        assert seen.lock == "ours"

    live(agent, node, act)


def test_a_write_for_a_node_that_was_made_anew_is_refused(agent: Client, root: Client, node: str) -> None:
    """It was decided by the one before."""

    async def act(it: Followed) -> None:
        seen = await it.until(lambda found: found.asked == "all-1g")
        root.delete(NODES.path(name=node))
        root.create(NODES.path(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
        await it.write(NodeWrite(labels={MIG_STATE_LABEL: "failed"}, resource_version=seen.resource_version))
        again = await it.until(lambda found: found.uid != seen.uid)
        assert (again.asked, again.state) == (None, None)

    live(agent, node, act)
    assert MIG_STATE_LABEL not in metadata(root, node).get("labels", {})


def test_a_new_message_is_one_event(agent: Client, root: Client, node: str) -> None:
    """Not again for the same one, also after a restart."""

    async def act(it: Followed) -> None:
        for message in ("no room", "no room", "in use"):
            record = {MIG_ANNOTATION: f'{{"message":"{message}"}}'}
            await it.decide("failed", NodeWrite(annotations=record, event=message))
            await it.decide("pending", NodeWrite())

    async def again(it: Followed) -> None:
        assert (await it.until(lambda found: found.record is not None)).state == "pending"
        await it.decide("failed", NodeWrite(event="in use"))

    live(agent, node, act)
    live(agent, node, again)
    assert sorted(events(root, node)) == ["in use", "no room"]


def test_profile_and_layout_are_answered_beside_each_other(agent: Client, root: Client, node: str) -> None:
    """Each write of the one is a new version for the other: nothing is lost, and nothing waits."""

    async def act(it: Followed) -> None:
        await it.until(lambda found: found.asked == "all-1g")
        it.own.answer(Verdict(asked="a", applied="a"))
        for state in ("pending", "success"):
            await it.decide(state, NodeWrite())
        await asyncio.to_thread(
            wait_for, "its profile", lambda: GPU_PROFILE_STATE_LABEL in metadata(root, node)["labels"]
        )

    live(agent, node, act)
    assert metadata(root, node)["labels"][MIG_STATE_LABEL] == "success"


def test_what_cannot_be_written_is_decided_anew_when_the_server_is_back(
    control_plane_ground: Testbed, agent: Client, root: Client, node: str
) -> None:
    """A write of before is not sent then: somebody may have changed the Node."""

    async def act(it: Followed) -> None:
        seen = await it.until(lambda found: found.asked == "all-1g")
        await asyncio.to_thread(control_plane_ground.control_plane.kill, "kube-apiserver")
        try:
            it.mig.write(NodeWrite(labels={MIG_STATE_LABEL: "failed"}, resource_version=seen.resource_version))
            await it.until(lambda _: True)
        finally:
            await asyncio.to_thread(control_plane_ground.control_plane.start, "kube-apiserver")
        root.patch(NODES.path(name=node), {"metadata": {"labels": {MIG_CONFIG_LABEL: "all-2g"}}})
        seen = await it.until(lambda found: found.asked == "all-2g")
        assert seen.state is None

    live(agent, node, act)
    assert MIG_STATE_LABEL not in metadata(root, node)["labels"]


@pytest.mark.parametrize("request_name", MUST_NOT)
def test_its_role_refuses(agent: Client, node: str, request_name: str) -> None:
    """MIG changes need no role more than profiles."""
    with pytest.raises(Forbidden) as caught:
        MUST_NOT[request_name](agent, node)
    assert caught.value.lacks_permission


def test_it_evicts_nobody_itself(agent: Client) -> None:
    """It asks driver-builder for that, by an annotation."""
    with pytest.raises(Forbidden) as caught:
        agent.create(EVICTS, EVICTION)
    assert caught.value.lacks_permission


def test_without_a_policy_it_may_ask_for_evictions_on_every_node(agent: Client, root: Client, node: str) -> None:
    """What such a token is worth on servers before 1.30, as docs/security.md says: this Node is not that of its pod."""
    request = {LOCK_ANNOTATION: '{"holder":"device-agent"}', DRAIN_REQUEST_ANNOTATION: '{"pods":["a/b"]}'}
    agent.patch(NODES.path(name=node), {"metadata": {"annotations": request}})
    assert request.items() <= metadata(root, node)["annotations"].items()
