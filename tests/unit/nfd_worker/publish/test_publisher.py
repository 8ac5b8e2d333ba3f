"""Publisher: when a child is started, and what becomes of it. The children are real processes."""

import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nfd_worker.child import Child, spawn
from nfd_worker.labels.node_content import NodeContent, Unknown
from nfd_worker.publish.publisher import (
    CHILD_DEADLINE_SECONDS,
    LAST_RETRY_SECONDS,
    Publisher,
    jitter,
    retry_seconds,
)
from nfd_worker.publish.wire import CHECK, PublishAnswer, PublishRequest, Seen

PATIENCE = 120.0
"""Seconds: a child on a busy machine takes its time."""


def script(code: str) -> tuple[str, ...]:
    """Make a command that runs some Python."""
    return (sys.executable, "-I", "-c", code)


OK = script("import sys; sys.stdin.buffer.read(); print('{}')")
HANGS = script("import time; time.sleep(600)")
ECHOES = script("import json, sys; print(json.dumps({'error': sys.stdin.read()}))")
ECHOES_SIZE = script('import sys; n = len(sys.stdin.buffer.read()); print(\'{"error": "%d"}\' % n)')


class World:
    """A publisher whose children run a script, and what it told about them."""

    def __init__(self, *commands: tuple[str, ...]) -> None:
        self.commands = list(commands)
        self.started: list[Child] = []
        self.requests: list[bytes] = []
        self.answers: list[PublishAnswer] = []
        self.checked: list[PublishAnswer] = []
        self.publisher = Publisher(
            "node",
            None,
            on_answer=lambda answer, _: self.answers.append(answer),
            on_check=self.checked.append,
            start=self.start,
        )

    def start(self, request: bytes) -> Child:
        """Start the next command; the last one again and again."""
        self.requests.append(request)
        command = self.commands.pop(0) if len(self.commands) > 1 else self.commands[0]
        child = spawn(request, command)
        self.started.append(child)
        return child

    def want(self, **labels: str) -> None:
        """Want some labels."""
        self.publisher.want(NodeContent(labels), None)

    def wait(self, now: float = 0.0) -> None:
        """Serve the running child until it ends."""
        while readers := self.publisher.readers():
            (descriptor,) = readers
            ready, _, _ = select.select([descriptor], [], [], PATIENCE)
            assert ready, "the child did not end"
            readers[descriptor](now)


def says(answer: PublishAnswer) -> tuple[str, ...]:
    """Make a child that gives an answer."""
    return script(f"print({answer.to_line()!r})")


def is_gone(pid: int) -> bool:
    """Tell whether a child was reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_nothing_is_started_while_nothing_is_wanted_or_nothing_changed() -> None:
    """An unchanged cycle costs no child and no byte."""
    world = World(OK)
    assert world.publisher.step(0.0) == float("inf")
    world.want(a="1")
    assert world.publisher.step(0.0) == CHILD_DEADLINE_SECONDS
    world.wait()
    assert world.publisher.is_settled
    world.want(a="1")
    assert world.publisher.step(1.0) == float("inf")
    assert len(world.started) == 1


def test_a_change_starts_a_child() -> None:
    """What is wanted is published."""
    world = World(OK)
    for label in ("1", "2"):
        world.want(a=label)
        world.publisher.step(0.0)
        world.wait()
    assert len(world.started) == 2
    assert all(answer.is_published for answer in world.answers)


# ---------------------------------------------------------------- checks


SEEN = Seen("uid", "7", {"k": "v"})


def settled(*answers: PublishAnswer) -> World:
    """Make a publisher that has published, and whose checks are answered so."""
    world = World(says(PublishAnswer(seen=SEEN)), *map(says, answers))
    world.want(a="1")
    world.publisher.step(0.0)
    world.wait()
    world.answers.clear()
    return world


def check(world: World) -> PublishRequest:
    """Let it check; gives the request that the child was started with."""
    world.publisher.check()
    world.publisher.step(0.0)
    assert world.publisher.is_settled, "the Node is not wrong because it is looked at"
    world.wait()
    return PublishRequest.from_bytes(world.requests[-1])


def test_a_check_asks_for_what_was_published_and_publishes_nothing_itself() -> None:
    """It knows how the Node was left; every second one also looks at taints and capacity."""
    later = SEEN._replace(version="9")
    world = settled(PublishAnswer(seen=SEEN), PublishAnswer(seen=later), PublishAnswer(seen=later))
    asked = [check(world) for _ in range(3)]
    assert {(one.action, one.content.labels["a"]) for one in asked} == {(CHECK, "1")}
    assert [one.is_full for one in asked] == [False, True, False]
    assert [one.seen for one in asked] == [SEEN, SEEN, later]
    assert (len(world.answers), len(world.checked)) == (0, 3)
    assert world.publisher.step(1.0) == float("inf")


def test_nothing_is_checked_before_anything_is_published_nor_what_is_published_anyway() -> None:
    """A publish looks at everything itself."""
    world = World(OK)
    world.publisher.check()
    assert world.publisher.step(0.0) == float("inf")
    world.want(a="1")
    world.publisher.step(0.0)
    world.wait()
    assert world.publisher.step(0.0) == float("inf")
    assert [PublishRequest.from_bytes(one).action for one in world.requests] == ["publish"]


def test_what_a_check_restored_is_logged_and_counts_as_published(caplog: pytest.LogCaptureFixture) -> None:
    """With what was lost, in its words."""
    world = settled(PublishAnswer(seen=SEEN, lost=("labels were removed or changed: x",)))
    check(world)
    assert "check: node node: labels were removed or changed: x" in caplog.text
    assert [answer.is_published for answer in world.answers] == [True]
    assert world.publisher.is_settled


def test_what_is_lost_and_cannot_be_restored_is_tried_again_as_what_was_never_published() -> None:
    """A Node that was deleted is labelled soon after it is there again, and is not labelled until then."""
    world = settled(PublishAnswer("no such node", "NotFound", lost=("the Node object was deleted",)), PublishAnswer())
    check(world)
    assert not world.publisher.is_settled
    again = world.publisher.step(0.0)
    assert 0 < again <= 1
    world.publisher.step(again)
    world.wait()
    assert world.publisher.is_settled
    assert PublishRequest.from_bytes(world.requests[-1]).action == "publish"


@pytest.mark.parametrize("kind", ["Unreachable", "Forbidden"])
def test_a_check_that_fails_changes_nothing_and_is_logged_once(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """No answer is not evidence: the Node counts as published, and the next check comes at its time."""
    world = settled(*[PublishAnswer("no response", kind)] * 3)
    for _ in range(3):
        check(world)
        assert world.publisher.is_settled
        assert world.publisher.step(1.0) == float("inf")
    assert caplog.text.count("check: no response") == 1
    assert len(world.checked) == 3
    assert world.answers == []


def test_a_check_that_cannot_be_started_comes_again_at_its_time() -> None:
    """As one that fails."""
    world = settled()
    world.commands = [("/nonexistent/python",)]
    check(world)
    assert [answer.kind for answer in world.checked] == ["NotStarted"]
    assert world.publisher.is_settled


def test_what_changes_while_a_child_runs_is_published_by_the_next_one() -> None:
    """The newest request wins, and one child runs at a time."""
    world = World(OK)
    world.want(a="1")
    world.publisher.step(0.0)
    world.want(a="2")
    world.publisher.step(0.1)
    assert len(world.started) == 1
    world.wait()
    assert not world.publisher.is_settled
    world.publisher.step(0.2)
    assert len(world.started) == 2
    world.wait()
    assert world.publisher.is_settled


def test_a_request_of_any_size_reaches_the_child() -> None:
    """A request that is larger than a pipe's buffer arrives complete."""
    world = World(ECHOES_SIZE)
    world.want(**{f"key{n}": "x" * 60 for n in range(3000)})
    world.publisher.step(0.0)
    world.wait()
    assert int(world.answers[0].error) > 200_000


def test_a_child_is_killed_at_its_deadline_and_reaped() -> None:
    """A hanging API server does not hang the worker."""
    world = World(HANGS, OK)
    world.want(a="1")
    deadline = world.publisher.step(0.0)
    (child,) = world.started
    assert world.publisher.step(deadline - 1) == deadline
    assert not is_gone(child.pid)
    again = world.publisher.step(deadline)
    assert is_gone(child.pid)
    assert [answer.kind for answer in world.answers] == ["Late"]
    assert deadline < again <= deadline + 1
    world.publisher.step(again)
    world.wait(again)
    assert world.publisher.is_settled


def test_stopping_ends_a_running_child_at_once() -> None:
    """SIGTERM is not held up by a publish."""
    world = World(HANGS)
    world.want(a="1")
    world.publisher.step(0.0)
    start = time.monotonic()
    world.publisher.stop()
    assert time.monotonic() - start < 60, "it would have lived for ten minutes"
    assert is_gone(world.started[0].pid)
    world.publisher.stop()


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        pytest.param(script('print(\'{"error": "no", "kind": "Forbidden"}\')'), "Forbidden", id="refused"),
        pytest.param(script("raise SystemExit(3)"), "Crashed", id="crashed"),
        pytest.param(script("import os; os.kill(os.getpid(), 9)"), "Crashed", id="killed"),
        pytest.param(script("print('nonsense')"), "Crashed", id="nonsense"),
        pytest.param(("/nonexistent/python",), "NotStarted", id="not started"),
    ],
)
def test_any_failure_is_tried_again_later(command: tuple[str, ...], kind: str) -> None:
    """After any failure the publisher tries again."""
    world = World(command)
    world.want(a="1")
    world.publisher.step(0.0)
    world.wait(0.0)
    assert [answer.kind for answer in world.answers] == [kind]
    again = world.publisher.step(0.0)
    assert 0 < again <= 1
    assert world.publisher.failures == 1
    world.publisher.step(again)
    world.wait(again)
    assert world.publisher.failures == 2


def test_the_retries_come_later_and_later_and_differ_between_nodes() -> None:
    """A fleet does not come back all at once."""
    waits = [retry_seconds("a", failures, None) for failures in range(1, 20)]
    assert waits == [retry_seconds("a", failures, None) for failures in range(1, 20)]
    assert 0.5 <= waits[0] <= 1
    assert LAST_RETRY_SECONDS / 2 <= waits[-1] <= LAST_RETRY_SECONDS
    assert retry_seconds("a", 5, None) != retry_seconds("b", 5, None)
    assert retry_seconds("a", 1, 77.0) == 77.0
    assert all(0 <= jitter("node", n) <= 1 for n in range(100))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        pytest.param("import os; os.kill(os.getpid(), 9)", "memory limit", id="killed"),
        pytest.param("raise SystemExit(3)", "status 3", id="crashed"),
    ],
)
def test_a_child_without_an_answer_is_reported_by_its_end(code: str, words: str) -> None:
    """Too little memory is the usual reason for SIGKILL."""
    world = World(script(code))
    world.want(a="1")
    world.publisher.step(0.0)
    world.wait()
    assert words in world.answers[0].error


def test_the_server_says_when_to_come_back() -> None:
    """Retry-After is the least; the answer's words are logged."""
    world = World(says(PublishAnswer("slowly", "TooManyRequests", 40.0)))
    world.want(a="1")
    world.publisher.step(0.0)
    world.wait(5.0)
    assert world.publisher.step(5.0) == 45.0


def test_what_fails_is_not_sent_again_but_the_newest(caplog: pytest.LogCaptureFixture) -> None:
    """A bad value that was mended meanwhile is not tried for ever."""
    world = World(says(PublishAnswer("bad value: x y", "Invalid")), ECHOES)
    world.want(a="x y")
    world.publisher.step(0.0)
    world.wait()
    assert "bad value: x y" in caplog.text
    world.want(a="good")
    world.publisher.step(2.0)
    world.wait()
    assert '"a": "good"' in world.answers[1].error


def test_notes_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """The same note every hour would hide others; a new one is logged."""
    notes = [("one",), ("one",), ("one", "two")]
    world = World(*(says(PublishAnswer(notes=note)) for note in notes))
    for turn in range(3):
        world.want(turn=str(turn))
        world.publisher.step(0.0)
        world.wait()
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == ["publish: one", "publish: two"]
    assert world.publisher.is_settled


def test_an_upstream_that_comes_back_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Taking over once is what was asked for; twice means that it still runs."""
    caplog.set_level("INFO")
    world = World(says(PublishAnswer(took_over="3 labels")))
    levels = []
    for turn in range(2):
        caplog.clear()
        world.want(turn=str(turn))
        world.publisher.step(0.0)
        world.wait()
        levels += [record.levelname for record in caplog.records if "3 labels" in record.getMessage()]
    assert levels == ["INFO", "WARNING"]
    assert "nfd-master" in caplog.text


def test_the_request_says_whether_to_take_over() -> None:
    """It is a setting of the worker, not of a scan."""
    started: list[bytes] = []

    def start(request: bytes) -> Child:
        started.append(request)
        return spawn(request, OK)

    publisher = Publisher("node", "/k", on_answer=lambda *_: None, take_over=True, start=start)
    publisher.want(NodeContent({"a": "1"}), Unknown(("b",)), {"c": ("a",)})
    publisher.step(0.0)
    publisher.stop()
    assert PublishRequest.from_bytes(started[0]) == PublishRequest(
        "node", NodeContent({"a": "1"}), Unknown(("b",)), {"c": ("a",)}, take_over=True, kubeconfig="/k"
    )


REAL = """
import select, sys
from nfd_worker.labels.node_content import NodeContent
from nfd_worker.publish.publisher import Publisher
publisher = Publisher("node", sys.argv[1], on_answer=lambda answer, _: print(answer.kind, answer.error))
publisher.want(NodeContent({"a": "1"}))
publisher.step(0.0)
while readers := publisher.readers():
    (descriptor,) = readers
    select.select([descriptor], [], [])
    readers[descriptor](0.0)
print(sorted(sys.modules.keys() & {"kube_api.client", "kubernetes", "ssl", "urllib3"}))
"""


def test_the_real_child_answers_and_leaves_nothing_in_the_worker(tmp_path: Path) -> None:
    """It reads the request and says why it cannot publish it; what it imported to that end is gone with it."""
    program = [sys.executable, "-c", REAL, str(tmp_path / "kubeconfig")]
    told = subprocess.run(program, capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()
    assert told[0].startswith("Unreachable ")
    assert "--kubeconfig" in told[0]
    assert told[1:] == ["[]"]
