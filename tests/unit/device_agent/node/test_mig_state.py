"""What the Node says about MIG, written behind an API server that fails, or that somebody else writes to."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from device_agent.mig.values import NodeMig, NodeWrite
from device_agent.node.asked import Asked
from device_agent.node.attempts import Budget, Pauses
from device_agent.node.mig_on_node import REASON
from device_agent.node.mig_state import MigState
from device_agent.node.own_node import OwnNode
from device_agent.profiles.verdict import Verdict
from kube_api.client import Client
from kube_api.connection import Timeout
from kube_api.names import GPU_PROFILE_LABEL, MIG_ANNOTATION, MIG_CONFIG_LABEL, MIG_STATE_LABEL
from tests.unit.device_agent.node.test_own_node import AWAY, BRIEF, FORBIDDEN, Answer, Server, until

Json = dict[str, Any]

CONFLICT = (409, {"reason": "Conflict", "message": "the object has been modified"})


@dataclass
class VersionedServer(Server):
    """One Node with versions, which are compared; ``silent``: the watch does not show what is written."""

    version: int = 10
    silent: bool = False
    patches: list[Json] = field(default_factory=list)

    def send(self, method: str, path: str, *, body: str | None, headers: Mapping[str, str], timeout: Timeout) -> Answer:
        """Respond as an API server does: also with one Node, and with a conflict."""
        if self.node is not None:
            self.node["metadata"]["resourceVersion"] = str(self.version)
        if method == "PATCH" and not self.fails.get("PATCH"):
            found = json.loads(body or "")["metadata"].pop("resourceVersion", None)
            self.patches.append(json.loads(body or ""))
            if found not in (None, str(self.version)):
                self.asked.append("CONFLICT")
                return Answer(*CONFLICT)
        if method == "GET" and path.endswith("/nodes/n"):
            self.asked.append(f"GET {path}")
            return Answer(200, json.loads(json.dumps(self.node)))
        return super().send(method, path, body=body, headers=headers, timeout=timeout)

    def _write(self, body: Json) -> None:
        if body.get("kind") == "Event":
            self.events.append(body)
            return
        body["metadata"].pop("resourceVersion", None)
        self.change(body["metadata"])

    def change(self, metadata: Json, *, shown: bool = True) -> None:
        """Merge labels and annotations into the Node."""
        assert self.node is not None
        for name, values in metadata.items():
            target = self.node["metadata"].setdefault(name, {})
            target.update(values)
            for key in [key for key, value in values.items() if value is None]:
                del target[key]
        self.version += 1
        self.node["metadata"]["resourceVersion"] = str(self.version)
        if shown and not self.silent:
            self.changed()

    @property
    def labels(self) -> Json:
        """Those of the Node."""
        return dict(self.node["metadata"]["labels"]) if self.node else {}


@dataclass
class Node:
    """A Node that is followed. ``seen``: what was shown so far, with whether a write was under way."""

    server: VersionedServer
    own: OwnNode
    seen: list[tuple[NodeMig | None, bool]]

    @property
    def mig(self) -> MigState:
        """What is written by."""
        assert self.own.mig is not None
        return self.own.mig

    @property
    def now(self) -> NodeMig:
        """The Node as it is shown."""
        assert self.mig.seen is not None
        return self.mig.seen

    async def write(self, *, event: str | None = None, version: str | None = None, **labels: str | None) -> None:
        """Write labels by the version that is shown, and wait until that has ended."""
        named = {f"x/{key}" if key != "state" else MIG_STATE_LABEL: value for key, value in labels.items()}
        known = self.now.resource_version if version is None else version
        self.mig.write(NodeWrite(labels=named, event=event, resource_version=known))
        await until(lambda: not self.mig.is_writing)


def followed(
    server: VersionedServer, scenario: Callable[[Node], Awaitable[None]], pauses: Callable[[], Pauses] = BRIEF
) -> Node:
    """Follow the Node while a scenario runs, once it was read."""
    found: list[Node] = []

    async def run() -> None:
        seen: list[tuple[NodeMig | None, bool]] = []
        own = OwnNode(Client(server), "n", None, pauses, on_mig=lambda: seen.append((own.mig.seen, own.mig.is_writing)))  # type: ignore[union-attr]
        found.append(Node(server, own, seen))
        task = asyncio.create_task(own.follow())
        try:
            await until(lambda: found[0].mig.seen is not None)
            await scenario(found[0])
        finally:
            server.watch.put(None)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    asyncio.run(run())
    return found[0]


def test_one_watch_serves_profile_and_mig() -> None:
    """A change of either label is told to whom it concerns, and one list and one watch were asked for."""
    server = VersionedServer()
    asked: list[Asked] = []
    woken: list[str | None] = []

    async def run() -> None:
        own = OwnNode(
            Client(server),
            "n",
            asked.append,
            BRIEF,
            on_mig=lambda: woken.append(own.mig.seen.asked),  # type: ignore[union-attr]
        )
        task = asyncio.create_task(own.follow())
        await until(lambda: woken)
        server.change({"labels": {MIG_CONFIG_LABEL: "all-1g"}})
        await until(lambda: woken[-1] == "all-1g")
        assert len(asked) == 1
        server.change({"labels": {GPU_PROFILE_LABEL: "a"}})
        await until(lambda: len(asked) == 2)
        own.answer(Verdict(asked="a", applied="a"))
        await until(lambda: server.state == "success")
        server.watch.put(None)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(run())
    assert sum("watch=true" in line for line in server.asked) == 1


def test_what_is_written_is_read_back_from_the_response() -> None:
    """Also where the watch is slow: the next step has the version that the server gave."""

    async def scenario(node: Node) -> None:
        node.server.silent = True
        await node.write(state="pending")
        assert (node.now.state, node.now.resource_version) == ("pending", "11")
        await node.write(state="success")
        assert (node.now.state, node.now.resource_version) == ("success", "12")

    server = VersionedServer()
    followed(server, scenario)
    assert "CONFLICT" not in server.asked


def test_a_slow_watch_shows_nothing_that_is_older() -> None:
    """Its events come after the responses; a step back would be decided by what is no more."""

    async def scenario(node: Node) -> None:
        old = json.loads(json.dumps(server.node))
        await node.write(state="pending")
        server.watch.put({"type": "MODIFIED", "object": old})
        server.change({"labels": {"later": "x"}})
        await until(lambda: node.now.resource_version == "12")

    server = VersionedServer()
    node = followed(server, scenario)
    states = [seen.state for seen, _ in node.seen if seen is not None]
    assert states == sorted(states, key=lambda state: state is not None), "nothing, then pending"


def test_a_conflict_writes_nothing_and_reads_anew() -> None:
    """Who decides sees the other's change before the write counts as ended, and the dropped one is not sent again."""

    async def scenario(node: Node) -> None:
        server.silent = True
        server.change({"labels": {MIG_CONFIG_LABEL: "other"}})
        await node.write(state="pending")
        assert (node.now.asked, node.now.state) == ("other", None)
        assert node.seen[-1] == (node.now, False)
        await node.write(state="failed")

    server = VersionedServer()
    followed(server, scenario)
    assert server.labels == {MIG_CONFIG_LABEL: "other", MIG_STATE_LABEL: "failed"}
    assert len(server.patches) == 2


def test_a_write_of_no_version_is_never_sent() -> None:
    """The server would take it for any version: it counts as a conflict."""

    async def scenario(node: Node) -> None:
        await node.write(state="pending", version="")
        assert node.now.state is None

    server = VersionedServer()
    followed(server, scenario)
    assert server.patches == []


def test_one_write_at_a_time() -> None:
    """Another one is dropped meanwhile."""

    async def scenario(node: Node) -> None:
        first = NodeWrite(labels={MIG_STATE_LABEL: "pending"}, resource_version=node.now.resource_version)
        node.mig.write(first)
        assert node.mig.is_writing
        await node.write(state="failed")
        assert node.now.state == "pending"

    server = VersionedServer()
    followed(server, scenario)
    assert len(server.patches) == 1


def test_what_cannot_be_written_is_dropped_after_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    """Logged once for each kind, with the command that prints the rights; then it is decided anew."""

    async def scenario(node: Node) -> None:
        for _ in range(4):
            await node.write(state="pending")
            assert node.now.state is None
        await node.write(state="pending")
        assert node.now.state == "pending"

    caplog.set_level("INFO")
    followed(VersionedServer(fails={"PATCH": [FORBIDDEN, FORBIDDEN, AWAY, (422, {})]}), scenario)
    waits = [line for line in caplog.messages if "cannot be written" in line]
    assert len(waits) == 3
    assert "admission-policy --account --mig" in waits[0]
    assert caplog.messages[-1] == "node n: the state of its MIG layout is written"


@pytest.mark.parametrize(
    "metadata",
    [pytest.param({"labels": {MIG_CONFIG_LABEL: "new"}}, id="the label"), pytest.param(None, id="the Node is back")],
)
def test_the_pause_ends_when_something_new_is_asked(metadata: Json | None) -> None:
    """A long one after many failures keeps no admin waiting."""

    async def scenario(node: Node) -> None:
        version = node.now.resource_version
        node.mig.write(NodeWrite(labels={MIG_STATE_LABEL: "pending"}, resource_version=version))
        await until(lambda: not server.fails["PATCH"])
        await asyncio.sleep(0.01)
        assert node.mig.is_writing
        if metadata is not None:
            server.change(metadata)
        else:
            server.fails["GET"] = [AWAY]
            server.watch.put(None)
        await until(lambda: not node.mig.is_writing)

    server = VersionedServer(fails={"PATCH": [AWAY]})
    pauses = iter((BRIEF(), BRIEF(), Pauses(1e6, 1e6)))
    followed(server, scenario, lambda: next(pauses))


def test_a_change_of_somebody_else_ends_no_pause() -> None:
    """A busy Node does not void the pauses between failures."""

    async def scenario(node: Node) -> None:
        node.mig.write(NodeWrite(labels={MIG_STATE_LABEL: "pending"}, resource_version=node.now.resource_version))
        await until(lambda: not server.fails["PATCH"])
        server.change({"annotations": {"other": "x"}})
        await until(lambda: node.now.resource_version == "11")
        await asyncio.sleep(0.05)
        assert node.mig.is_writing

    server = VersionedServer(fails={"PATCH": [AWAY]})
    pauses = iter((BRIEF(), BRIEF(), Pauses(1e6, 1e6)))
    followed(server, scenario, lambda: next(pauses))


def test_an_event_is_written_once_for_each_new_message() -> None:
    """About the Node; again after a success, and not where the Node showed it already."""

    async def scenario(node: Node) -> None:
        for event in ("no room", "no room", "in use"):
            await node.write(state="failed", event=event)
        await node.write(state="success")
        await node.write(state="failed", event="in use")
        server.change({"annotations": {MIG_ANNOTATION: '{"message":"gone"}'}})
        await until(lambda: node.now.record is not None)
        await node.write(state="failed", event="gone")

    server = VersionedServer()
    followed(server, scenario)
    assert [event["message"] for event in server.events] == ["no room", "in use", "in use"]
    about = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}
    for event in server.events:
        assert (event["type"], event["reason"], event["involvedObject"]) == ("Warning", REASON, about)
        assert event["metadata"]["namespace"] == "default"
        assert len(event["metadata"]["name"]) <= 253


def test_an_event_that_is_refused_holds_nothing_up(caplog: pytest.LogCaptureFixture) -> None:
    """Label and annotation say the same; and without a patch there is no Event."""

    async def scenario(node: Node) -> None:
        await node.write(state="failed", event="no room")
        server.fails["PATCH"] = [AWAY]
        await node.write(state="failed", event="in use")

    server = VersionedServer(fails={"POST": [FORBIDDEN]})
    followed(server, scenario)
    assert server.labels == {MIG_STATE_LABEL: "failed"}
    assert server.events == []
    assert "an Event cannot be written" in caplog.text


def test_a_node_that_is_gone_is_nothing() -> None:
    """Until it is made anew; what nobody may decide by is not kept."""

    async def scenario(node: Node) -> None:
        server.changed("DELETED")
        server.node = None
        await until(lambda: node.mig.seen is None)
        server.node = {"metadata": {"name": "n", "uid": "v", "labels": {MIG_CONFIG_LABEL: "a"}}}
        server.version += 1
        server.node["metadata"]["resourceVersion"] = str(server.version)
        server.changed("ADDED")
        await until(lambda: node.mig.seen is not None)
        assert (node.now.asked, node.now.uid) == ("a", "v")

    server = VersionedServer()
    followed(server, scenario)


def test_profile_and_mig_hold_each_other_up_in_nothing() -> None:
    """A policy that refuses the one lets the other be written."""

    async def scenario(node: Node) -> None:
        node.mig.write(NodeWrite(labels={MIG_STATE_LABEL: "pending"}, resource_version=node.now.resource_version))
        await until(lambda: not server.fails["PATCH"])
        node.own.answer(Verdict(asked="a", applied="a"))
        await until(lambda: server.state == "success")
        assert node.mig.is_writing

    server = VersionedServer(fails={"PATCH": [FORBIDDEN]})
    pauses = iter((BRIEF(), BRIEF(), Pauses(1e6, 1e6)))
    followed(server, scenario, lambda: next(pauses))


def test_who_fights_is_slowed_down() -> None:
    """Twenty writes follow each other at once, then one every ten seconds; a calm time makes up for it."""
    budget = Budget()
    assert [budget.wait(5.0) for _ in range(20)] == [0.0] * 20
    assert budget.wait(5.0) == pytest.approx(10.0)
    assert budget.wait(15.0) == pytest.approx(10.0)
    assert budget.wait(1000.0) == 0.0
