"""The agent's own Node on a real API server: what its label asks for, the answer, and what the account may not do."""

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from device_agent.node.answered import REASON
from device_agent.node.asked import ABSENT, Asked, Wish
from device_agent.node.attempts import Pauses
from device_agent.node.own_node import OwnNode
from device_agent.profiles.verdict import Verdict
from kube_api.client import Client
from kube_api.errors import Forbidden, NotFound
from kube_api.names import GPU_PROFILE_ANNOTATION, GPU_PROFILE_LABEL, GPU_PROFILE_STATE_LABEL
from kube_api.resources import CONFIG_MAPS, EVENTS, NODES, PODS, SECRETS
from testbed.testbed import Testbed
from tests.support.real_parts.acts import wait_for
from tests.support.real_parts.agent_account import following, install_account
from tests.support.real_parts.cluster_setup import (
    Json,
    admin,
    connect_as_agent,
)
from tests.unit.device_agent.nvidia.states import state, xid
from tests.unit.device_agent.nvidia.test_profiles_in_use import RENAMED, WHOLE, live, mount
from tests.unit.device_agent.nvidia.test_profiles_in_use import Node as AgentLife

NAMESPACE, ACCOUNT = "gpu-profiles", "profiles"
SECONDS = 600.0
"""Generous, for a busy machine."""
SUCCESS = Verdict(asked="slice-4", applied="slice-4", resources=("nvidia.com/gpu.shared",))
FAILED = Verdict(asked="nothing", applied="slice-4", message="no profile nothing; there are slice-4", has_failed=True)


@pytest.fixture(scope="module")
def root(control_plane_ground: Testbed) -> Client:
    """Install the account and the roles that the command prints; give the administrator."""
    client = admin(control_plane_ground)
    install_account(client, f"{NAMESPACE}/{ACCOUNT}")
    return client


@pytest.fixture(scope="module")
def agent(control_plane_ground: Testbed, root: Client, tmp_path_factory: pytest.TempPathFactory) -> Client:
    """Connect as the agent does, with the files that a kubelet mounts."""
    assert root
    return connect_as_agent(control_plane_ground, f"{NAMESPACE}/{ACCOUNT}", tmp_path_factory.mktemp("token"))


@pytest.fixture
def make_node(root: Client) -> Iterator[Callable[[], str]]:
    """Make Nodes that ask for nothing."""
    made: list[str] = []

    def make() -> str:
        made.append(f"profiled-{time.monotonic_ns()}")
        root.create(NODES.path(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": made[-1]}})
        return made[-1]

    yield make
    for name in made:
        with contextlib.suppress(NotFound):
            root.delete(NODES.path(name=name))


@pytest.fixture
def node(make_node: Callable[[], str]) -> str:
    """Make one Node."""
    return make_node()


class Followed:
    """A Node that is followed, and what it asked for so far."""

    def __init__(self, client: Client, name: str) -> None:
        self.asked: asyncio.Queue[Asked] = asyncio.Queue()
        # Short, so that a server that is long in starting is found soon.
        self.own = OwnNode(client, name, self.asked.put_nowait, partial(Pauses, 0.5, 2.0))

    async def next(self) -> Asked:
        """Wait for what is asked next."""
        async with asyncio.timeout(SECONDS):
            return await self.asked.get()


@asynccontextmanager
async def followed(client: Client, name: str) -> AsyncIterator[Followed]:
    """Follow a Node for a while."""
    it = Followed(client, name)
    async with following(it.own):
        yield it


def ask(root: Client, node: str, key: str | None) -> None:
    """Set the label, or take it away."""
    root.patch(NODES.path(name=node), {"metadata": {"labels": {GPU_PROFILE_LABEL: key}}})


def answer_of(root: Client, node: str) -> tuple[str | None, Json | None]:
    """Read label and annotation."""
    metadata = root.get(NODES.path(name=node))["metadata"]
    text = metadata.get("annotations", {}).get(GPU_PROFILE_ANNOTATION)
    return metadata.get("labels", {}).get(GPU_PROFILE_STATE_LABEL), json.loads(text) if text else None


async def until_answered(root: Client, node: str, state: str, asked: str) -> Json:
    """Wait until the Node has this answer."""

    def is_there() -> bool:
        found, answer = answer_of(root, node)
        return found == state and answer is not None and answer["asked"] == asked

    await asyncio.to_thread(wait_for, f"{node} answers {state}", is_there)
    answer = answer_of(root, node)[1]
    assert answer is not None
    return answer


def events(root: Client, node: str) -> list[Json]:
    """List what was reported about a Node by the agent."""
    found = root.list(EVENTS.path(namespace="default"), field_selector=f"involvedObject.name={node}").items
    return [event for event in found if event["reason"] == REASON]


def test_what_the_label_asks_for_is_seen_and_answered(
    agent: Client, root: Client, node: str, make_node: Callable[[], str]
) -> None:
    """Each change of the label is reported once, another Node's never, and the answer is label and annotation."""
    other = make_node()

    async def scenario() -> None:
        async with followed(agent, node) as it:
            assert await it.next() == ABSENT
            ask(root, other, "theirs")
            ask(root, node, "slice-4")
            assert await it.next() == Asked(wish=Wish.KEY, key="slice-4")
            it.own.answer(SUCCESS)
            answer = await until_answered(root, node, "success", "slice-4")
            assert answer == {
                "asked": "slice-4", "applied": "slice-4", "message": "", "resources": ["nvidia.com/gpu.shared"],
            }  # fmt: skip
            ask(root, node, "")
            assert await it.next() == Asked(wish=Wish.EMPTY)
            ask(root, node, None)
            assert await it.next() == ABSENT

    asyncio.run(scenario())
    assert answer_of(root, other) == (None, None)


def test_an_answer_that_somebody_changes_is_written_again(agent: Client, root: Client, node: str) -> None:
    """Taken away or changed, label or annotation."""
    changes: tuple[Json, ...] = (
        {"labels": {GPU_PROFILE_STATE_LABEL: "failed"}},
        {"annotations": {GPU_PROFILE_ANNOTATION: None}},
    )

    async def scenario() -> None:
        async with followed(agent, node) as it:
            it.own.answer(SUCCESS)
            await until_answered(root, node, "success", "slice-4")
            for change in changes:
                root.patch(NODES.path(name=node), {"metadata": change})
                await until_answered(root, node, "success", "slice-4")

    asyncio.run(scenario())
    assert events(root, node) == []


def test_a_failure_is_one_event_also_after_a_restart(agent: Client, root: Client, node: str) -> None:
    """The next one is for another message."""

    async def scenario(verdict: Verdict) -> None:
        def is_there() -> bool:
            answer = answer_of(root, node)[1]
            messages = [event["message"] for event in events(root, node)]
            return bool(answer and answer["message"] == verdict.message and any(verdict.message in m for m in messages))

        async with followed(agent, node) as it:
            await it.next()
            it.own.answer(verdict)
            await asyncio.to_thread(wait_for, "its answer and its event", is_there)

    for verdict in (FAILED, FAILED, Verdict(asked="nothing", applied="", message="other", has_failed=True)):
        asyncio.run(scenario(verdict))
    first, second = sorted(events(root, node), key=lambda event: len(event["message"]), reverse=True)
    assert (first["type"], first["message"]) == ("Warning", f"profile nothing: {FAILED.message}")
    assert second["message"] == "profile nothing: other"


def test_while_the_api_server_is_away_the_last_that_was_asked_stays(
    control_plane_ground: Testbed, agent: Client, root: Client, node: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Label changes wait, in a line of the log for each kind of failure; the answer is written when it is back."""
    caplog.set_level("INFO")
    ask(root, node, "slice-4")

    async def scenario() -> None:
        async with followed(agent, node) as it:
            assert await it.next() == Asked(wish=Wish.KEY, key="slice-4")
            await asyncio.to_thread(control_plane_ground.control_plane.kill, "kube-apiserver")
            try:
                await asyncio.to_thread(wait_for, "it is logged", lambda: "label changes wait" in caplog.text)
                it.own.answer(SUCCESS)
                assert it.own.asked == Asked(wish=Wish.KEY, key="slice-4")
            finally:
                await asyncio.to_thread(control_plane_ground.control_plane.start, "kube-apiserver")
            ask(root, node, "whole")
            assert await it.next() == Asked(wish=Wish.KEY, key="whole")
            await until_answered(root, node, "success", "slice-4")

    asyncio.run(scenario())
    waits = [line for line in caplog.text.splitlines() if "label changes wait" in line]
    assert len([line for line in waits if "no response" in line]) == 1
    # While it starts, it may refuse what it allows.
    assert all("no response" in line or "403 Forbidden" in line for line in waits)
    assert len(waits) <= 2
    assert caplog.text.count("it is read again") == 1


def test_a_whole_agent_does_what_the_label_asks_for(
    control_plane_ground: Testbed, agent: Client, root: Client, node: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its answer, an Event on failure; while the API server is away health goes on, and the label waits."""
    caplog.set_level("INFO")
    ask(root, node, "slice-4")

    async def act(it: AgentLife) -> None:
        answer = await until_answered(root, node, "success", "slice-4")
        assert (answer["applied"], answer["resources"]) == ("slice-4", ["nvidia.com/gpu.shared"])
        await it.shows(shared=(16, 16))
        ask(root, node, None)
        await until_answered(root, node, "success", "default")
        await it.shows(gpu=(4, 4))
        ask(root, node, "slice-9")
        answer = await until_answered(root, node, "failed", "slice-9")
        assert (answer["applied"], answer["resources"]) == ("default", ["nvidia.com/gpu"])
        assert answer["message"].endswith("there are default, slice-4")
        await asyncio.to_thread(wait_for, "its event", lambda: events(root, node))
        assert answer["message"] in events(root, node)[0]["message"]
        await asyncio.to_thread(control_plane_ground.control_plane.kill, "kube-apiserver")
        try:
            await asyncio.to_thread(wait_for, "it is logged", lambda: "label changes wait" in caplog.text)
            it.nvml.show(state(at=110.0, xids=(xid(1, 79, of=2),)))
            await it.shows(gpu=(3, 4))
        finally:
            await asyncio.to_thread(control_plane_ground.control_plane.start, "kube-apiserver")
        ask(root, node, "slice-4")
        await until_answered(root, node, "success", "slice-4")
        await it.shows(shared=(12, 16))

    with tempfile.TemporaryDirectory() as folder:  # a short name, for sockets
        mount(Path(folder) / "profiles", WHOLE, **{"slice-4": RENAMED})
        live(Path(folder), act, own_node=lambda on_asked, _: OwnNode(agent, node, on_asked, partial(Pauses, 0.5, 2.0)))
    assert len(events(root, node)) == 1


MUST_NOT: dict[str, Callable[[Client, str], object]] = {
    "delete its node": lambda c, node: c.delete(NODES.path(name=node)),
    "delete all nodes": lambda c, _: c.delete(NODES.path()),
    "create nodes": lambda c, _: c.create(NODES.path(), {"metadata": {"name": "evil"}}),
    "replace its node": lambda c, node: c.replace(NODES.path(name=node), {"metadata": {"name": node}}),
    "change its node's status": lambda c, node: c.patch(NODES.path(name=node, subresource="status"), {"status": {}}),
    "reach its kubelet": lambda c, node: c.get(NODES.path(name=node, subresource="proxy")),
    "list pods": lambda c, _: c.list(PODS.path()),
    "create pods": lambda c, _: c.create(PODS.path(namespace=NAMESPACE), {"metadata": {"name": "p"}}),
    "list secrets": lambda c, _: c.list(SECRETS.path(namespace=NAMESPACE)),
    "read config maps": lambda c, _: c.list(CONFIG_MAPS.path(namespace=NAMESPACE)),
    "write events elsewhere": lambda c, _: c.create(EVENTS.path(namespace=NAMESPACE), {"metadata": {"name": "e"}}),
    "read events": lambda c, _: c.list(EVENTS.path(namespace="default")),
    "delete events": lambda c, _: c.delete(EVENTS.path(namespace="default", name="e")),
}


@pytest.mark.parametrize("request_name", MUST_NOT)
def test_its_role_refuses(agent: Client, node: str, request_name: str) -> None:
    """What the policy would refuse as well, and everything beside Nodes; its policy is evaluated in tests/contract."""
    with pytest.raises(Forbidden) as caught:
        MUST_NOT[request_name](agent, node)
    assert caught.value.lacks_permission


def test_without_a_policy_it_may_label_every_node(agent: Client, root: Client, node: str) -> None:
    """What such a token is worth on servers before 1.30, as docs/security.md says."""
    agent.patch(NODES.path(name=node), {"metadata": {"labels": {"example.com/anything": "x"}}})
    assert root.get(NODES.path(name=node))["metadata"]["labels"]["example.com/anything"] == "x"
