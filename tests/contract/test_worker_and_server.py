"""A worker whose API server misbehaves: it says what is wrong, waits as told, and ends at once when asked to."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from nfd_worker.labels.node_content import NodeContent
from nfd_worker.publish.wire import PublishRequest
from tests.contract.misbehaving_server import Handler, misbehaving_server, status
from tests.support.nfd_worker.publish_child import PUBLISH_CHILD

HOST = Path(__file__).parents[1] / "data/hosts/intel-gpu-server"
PATH = "/api/v1/nodes/n"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Start the server that misbehaves."""
    with misbehaving_server() as url:
        yield url


@pytest.fixture
def kubeconfig(server: str, tmp_path: Path) -> Path:
    """Return how to reach it."""
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "it", "users": [{"name": "it", "user": {}}],
        "clusters": [{"name": "it", "cluster": {"server": server}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }))  # fmt: skip
    return file


@pytest.fixture
def start(kubeconfig: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start workers that publish to it; they are killed after the test."""
    started: list[subprocess.Popen[str]] = []

    def give(command: str, *flags: str) -> subprocess.Popen[str]:
        argv = [
            sys.executable,
            "-m",
            "nfd_worker",
            command,
            "--node-name",
            "n",
            "--kubeconfig",
            str(kubeconfig),
            *flags,
        ]
        started.append(subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield give
    for worker in started:
        worker.kill()
        worker.communicate()


RUN = ("run", "--root", str(HOST), "--port", "0")


UNPUBLISH = ("unpublish",)
FAULTS = (
    ("a proxy's 502", "/bad-gateway", "502"),
    ("a login page", "/login-page", "is not JSON"),
    ("closed", "/close", "could not be reached"),
    ("JSON of something else", "/no-metadata", "not a Node"),
    ("429", "/too-many", "overloaded"),
)


@pytest.mark.parametrize(
    ("command", "fault", "words"),
    [
        *(pytest.param((*RUN, "--oneshot"), fault, words, id=f"run, {name}") for name, fault, words in FAULTS),
        *(
            pytest.param(
                UNPUBLISH, fault, words, id=f"unpublish, {name}", marks=() if name == "closed" else pytest.mark.long
            )
            for name, fault, words in FAULTS
        ),
    ],
)
def test_a_fault_is_reported_and_is_a_failure(
    start: Callable[..., subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    fault: str,
    words: str,
) -> None:
    """No traceback, and exit status 1 for who works only once."""
    monkeypatch.setitem(Handler.faults, PATH, Handler.faults[fault])
    worker = start(*command)
    _, said = worker.communicate(timeout=600)
    assert worker.returncode == 1
    assert words in said
    assert "Traceback" not in said


def test_a_worker_goes_on_trying_until_the_server_is_well(
    start: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits at least as long as it was told."""
    faults = [lambda h: h.send(429, status(429, "TooManyRequests"), Retry_After="2")]
    asked: list[float] = []

    def answer(handler: Handler) -> None:
        asked.append(time.monotonic())
        (faults.pop() if faults else Handler.faults["/good"])(handler)

    monkeypatch.setitem(Handler.faults, PATH, answer)
    worker = start(*RUN)
    assert worker.stderr is not None
    lines = iter(worker.stderr.readline, "")
    assert any("trying again in 2.0 s" in line for line in lines)
    assert any("labelled" in line for line in lines)
    assert asked[1] - asked[0] >= 2.0


def test_a_worker_ends_at_once_though_the_server_hangs(
    start: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM does not wait for the publish child."""
    asked: list[float] = []

    def hang(handler: Handler) -> None:
        asked.append(time.monotonic())
        time.sleep(30)
        handler.close_connection = True

    monkeypatch.setitem(Handler.faults, PATH, hang)
    worker = start(*RUN)
    deadline = time.monotonic() + 600
    while not asked:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    worker.terminate()
    assert worker.wait(25) == 0


@pytest.mark.parametrize("is_read", [True, False], ids=["worker lives", "worker was killed"])
def test_a_child_whose_worker_is_gone_sends_nothing(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, is_read: bool
) -> None:
    """What it was to publish may be old by now."""
    asked: list[str] = []

    def answer(handler: Handler) -> None:
        asked.append(handler.command)
        Handler.faults["/good"](handler)

    monkeypatch.setitem(Handler.faults, PATH, answer)
    request = PublishRequest("n", NodeContent(), kubeconfig=str(kubeconfig)).to_bytes()
    child = subprocess.Popen(PUBLISH_CHILD, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    if not is_read:
        child.stdout.close()
    child.stdin.write(request)
    child.stdin.close()
    assert child.wait(60) == (0 if is_read else 1)
    assert asked == (["PATCH"] if is_read else [])
    child.stdout.close()
