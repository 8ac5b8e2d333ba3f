"""The agent's own Node behind an API server that fails; ``tests/api/test_device_agent_node.py`` has a real one."""

import asyncio
import json
import queue
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from device_agent.node.asked import ABSENT, Asked, Wish
from device_agent.node.attempts import Pauses
from device_agent.node.own_node import OwnNode
from device_agent.profiles.verdict import Verdict
from kube_api.client import Client
from kube_api.connection import Timeout
from kube_api.errors import Unreachable
from kube_api.names import GPU_PROFILE_ANNOTATION, GPU_PROFILE_LABEL, GPU_PROFILE_STATE_LABEL

Json = dict[str, Any]
Response = tuple[int, Json]

SECONDS = 120.0
FORBIDDEN: Response = (403, {"reason": "Forbidden", "message": 'nodes is forbidden: User "u" cannot list resource "x"'})
GONE: Response = (410, {"reason": "Expired", "message": "too old"})
AWAY = Unreachable("connection refused")
FAILED = Verdict(asked="b", applied="a", message="no profile b", has_failed=True)
BRIEF = partial(Pauses, 0.001, 0.002)
ENDING = """
import asyncio
from device_agent.node.own_node import OwnNode
from kube_api.client import Client
from tests.unit.device_agent.node.test_own_node import Server, until

async def work():
    server = Server()
    following = asyncio.create_task(OwnNode(Client(server), "n", lambda asked: None).follow())
    await until(lambda: any(line.startswith("WATCH") for line in server.asked))
    following.cancel()
    await asyncio.wait([following])
    print("ended")

asyncio.run(work())
"""


@dataclass
class Answer:
    """A response; ``lines`` of a watch come until None."""

    status: int
    body: Json
    lines: "queue.Queue[Json | None] | None" = None

    def header(self, _name: str) -> str | None:
        """Have none."""
        return None

    def read(self) -> bytes:
        """Return the body."""
        return json.dumps(self.body).encode()

    def chunks(self) -> Iterator[bytes]:
        """Return events as they come."""
        assert self.lines is not None
        while (line := self.lines.get(timeout=SECONDS)) is not None:
            yield json.dumps(line).encode() + b"\n"

    def close(self) -> None:
        """Be closed."""


@dataclass
class Server:
    """One Node, and what fails next: by method, or WATCH."""

    node: Json | None = field(default_factory=lambda: {"metadata": {"name": "n", "uid": "u", "labels": {}}})
    fails: dict[str, list[Response | Unreachable]] = field(default_factory=dict)
    watch: "queue.Queue[Json | None]" = field(default_factory=queue.Queue)
    events: list[Json] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def send(self, method: str, path: str, *, body: str | None, headers: Mapping[str, str], timeout: Timeout) -> Answer:
        """Respond as an API server does."""
        del headers, timeout
        verb = "WATCH" if "watch=true" in path else method
        self.asked.append(f"{verb} {path}")
        if self.fails.get(verb):
            failure = self.fails[verb].pop(0)
            if isinstance(failure, Unreachable):
                raise failure
            return Answer(*failure)
        if verb == "WATCH":
            return Answer(200, {}, self.watch)
        if verb == "GET":
            items = [self.node, {"metadata": {"name": "other", "labels": {GPU_PROFILE_LABEL: "theirs"}}}]
            return Answer(200, {"metadata": {"resourceVersion": "7"}, "items": [item for item in items if item]})
        written = json.loads(body or "")
        if verb == "PATCH" and self.node is None:  # what the agent last saw of it may be older
            return Answer(404, {"message": 'nodes "n" not found'})
        self._write(written)
        return Answer(200, self.node or {})

    def _write(self, body: Json) -> None:
        if body.get("kind") == "Event":
            self.events.append(body)
            return
        assert self.node is not None
        for name, values in body["metadata"].items():
            self.node["metadata"].setdefault(name, {}).update(values)
        self.changed()

    def changed(self, kind: str = "MODIFIED") -> None:
        """Show the Node to who watches."""
        self.watch.put({"type": kind, "object": json.loads(json.dumps(self.node))})

    @property
    def state(self) -> str | None:
        """The label."""
        return None if self.node is None else self.node["metadata"].get("labels", {}).get(GPU_PROFILE_STATE_LABEL)


async def until(is_true: Callable[[], object]) -> None:
    """Let the loop and its threads go on until something is true."""
    async with asyncio.timeout(SECONDS):
        while not is_true():
            await asyncio.sleep(0.001)


def followed(
    server: Server, scenario: Callable[[OwnNode, list[Asked]], Any], pauses: Callable[[], Pauses] = BRIEF
) -> list[Asked]:
    """Follow the Node while a scenario runs; returns what was asked."""
    asked: list[Asked] = []

    async def run() -> None:
        own = OwnNode(Client(server), "n", asked.append, pauses)
        task = asyncio.create_task(own.follow())
        try:
            await scenario(own, asked)
        finally:
            server.watch.put(None)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    asyncio.run(run())
    return asked


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        pytest.param(AWAY, "no response from the API server", id="away"),
        pytest.param(FORBIDDEN, "admission-policy --account", id="the role is missing"),
        pytest.param((401, {"message": "no"}), "admission-policy --account", id="the token is not accepted"),
        pytest.param((503, {}), "label changes wait", id="overloaded"),
    ],
)
def test_what_cannot_be_read_is_logged_once(
    failure: Response | Unreachable, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """However often it is tried; and once when it is read again."""
    caplog.set_level("INFO")
    server = Server(fails={"GET": [failure] * 5})

    async def scenario(_: OwnNode, asked: list[Asked]) -> None:
        await until(lambda: asked)

    assert followed(server, scenario) == [ABSENT]
    waits, again, _ = [record.getMessage() for record in caplog.records]
    assert words in waits
    assert "label changes wait" in waits
    assert "read again" in again


def test_failures_of_several_kinds_are_a_line_each(caplog: pytest.LogCaptureFixture) -> None:
    """Also in turn: as of a server that starts, or of one behind a proxy."""
    server = Server(fails={"GET": [AWAY, (503, {}), AWAY, FORBIDDEN, (503, {}), FORBIDDEN]})

    async def scenario(_: OwnNode, asked: list[Asked]) -> None:
        await until(lambda: asked)

    followed(server, scenario)
    assert caplog.text.count("label changes wait") == 3


def test_a_version_that_is_too_old_is_listed_again(caplog: pytest.LogCaptureFixture) -> None:
    """Also when the watch breaks, at once or later; this is nothing to log, and what changed meanwhile is seen."""
    server = Server(fails={"WATCH": [GONE, AWAY]})

    async def scenario(_: OwnNode, asked: list[Asked]) -> None:
        await until(lambda: asked)
        server.watch.put({"type": "ERROR", "object": {"code": 410, "message": "too old"}})
        await until(lambda: sum(line.startswith("WATCH") for line in server.asked) > 3)
        assert server.node is not None
        server.node["metadata"]["labels"][GPU_PROFILE_LABEL] = "a"
        server.watch.put(None)
        await until(lambda: len(asked) > 1)

    assert followed(server, scenario) == [ABSENT, Asked(wish=Wish.KEY, key="a")]
    assert [record for record in caplog.records if record.levelname != "INFO"] == []
    assert all("fieldSelector=metadata.name%3Dn" in line for line in server.asked if "PATCH" not in line)


def test_a_node_that_is_made_anew_is_answered_again(caplog: pytest.LogCaptureFixture) -> None:
    """While it is not there, what was asked stays, and nothing is written."""
    server = Server()

    async def scenario(own: OwnNode, asked: list[Asked]) -> None:
        await until(lambda: asked)
        own.answer(FAILED)
        await until(lambda: server.events)
        server.changed("DELETED")
        server.node = None
        await until(lambda: "there is no Node" in caplog.text)
        assert own.asked == ABSENT
        server.node = {"metadata": {"name": "n", "uid": "v"}}
        server.changed("ADDED")
        await until(lambda: server.state == "failed")

    assert followed(server, scenario) == [ABSENT]


def test_an_answer_is_written_when_it_can_be(caplog: pytest.LogCaptureFixture) -> None:
    """One before the Node was read, and one that failed; both in one line of the log."""
    caplog.set_level("INFO")
    server = Server(fails={"GET": [AWAY], "PATCH": [(500, {}), (503, {}), AWAY, AWAY]})

    async def scenario(own: OwnNode, _: list[Asked]) -> None:
        own.answer(Verdict(asked="a", applied="a"))
        await until(lambda: server.state == "success")
        await until(lambda: "is written" in caplog.text)

    followed(server, scenario)
    assert caplog.text.count("cannot be written") == 2, "an error of the server, then no server"


def test_an_answer_that_waits_is_written_when_the_node_can_be_read_again() -> None:
    """The long pause after failures to write ends then."""
    server = Server(fails={"PATCH": [AWAY]})
    pauses = iter((BRIEF(), Pauses(1e6, 1e6)))

    async def scenario(own: OwnNode, asked: list[Asked]) -> None:
        await until(lambda: asked)
        own.answer(Verdict(asked="a", applied="a"))
        await until(lambda: not server.fails["PATCH"])
        server.fails["GET"] = [AWAY]
        server.watch.put(None)
        await until(lambda: server.state == "success")

    followed(server, scenario, lambda: next(pauses))


def test_an_event_that_is_refused_keeps_no_answer_back(caplog: pytest.LogCaptureFixture) -> None:
    """Label and annotation say the same; it is tried once."""
    server = Server(fails={"POST": [FORBIDDEN]})

    async def scenario(own: OwnNode, _: list[Asked]) -> None:
        own.answer(FAILED)
        await until(lambda: "an Event cannot be written" in caplog.text)
        own.answer(Verdict(asked="a", applied="a"))
        await until(lambda: server.state == "success")

    followed(server, scenario)
    assert server.events == []


def test_an_answer_that_is_removed_comes_back_without_another_event() -> None:
    """The Node does not show the failure any more, but it was reported."""
    server = Server()

    async def scenario(own: OwnNode, _: list[Asked]) -> None:
        own.answer(FAILED)
        await until(lambda: server.events)
        assert server.node is not None
        del server.node["metadata"]["annotations"][GPU_PROFILE_ANNOTATION]
        server.changed()
        await until(lambda: server.node and GPU_PROFILE_ANNOTATION in server.node["metadata"]["annotations"])
        own.answer(Verdict(asked="a", applied="a"))
        await until(lambda: server.state == "success")
        own.answer(FAILED)
        await until(lambda: len(server.events) > 1)

    followed(server, scenario)
    assert len(server.events) == 2, "one for each time that it failed anew"


def test_a_watch_that_waits_keeps_no_process_from_ending() -> None:
    """Its thread is given up with what followed the Node; the server here says nothing for longer than this waits."""
    command = [sys.executable, "-c", ENDING]
    printed = subprocess.run(
        command, cwd=Path(__file__).parents[4], capture_output=True, text=True, check=True, timeout=SECONDS / 2
    )
    assert printed.stdout == "ended\n"


def test_pauses_grow_and_are_bounded() -> None:
    """Each is up to a quarter less than twice the one before, and five minutes at most."""
    pauses = Pauses()
    found = [pauses.next() for _ in range(12)]
    for number, pause in enumerate(found):
        whole = min(300.0, 2.0**number)
        assert whole * 0.75 <= pause <= whole
    pauses.reset()
    assert pauses.next() <= 1.0
