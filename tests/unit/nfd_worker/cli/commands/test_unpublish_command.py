"""Unpublishing: what the child is asked, and how its answer is reported."""

import json
import sys

import pytest

from nfd_worker.child import Child, spawn
from nfd_worker.cli.commands.unpublish_command import unpublish
from nfd_worker.config.config import Settings
from nfd_worker.publish.wire import UNPUBLISH, PublishAnswer, PublishRequest

SETTINGS = Settings(node_name="node-1", kubeconfig="/k")


def child(program: str) -> Child:
    """Start a child that is a line of Python."""
    return spawn(b"", (sys.executable, "-I", "-c", program))


def answering(answer: PublishAnswer) -> Child:
    """Start a child that gives this answer."""
    return child(f"print({answer.to_line().strip()!r})")


def test_everything_of_ours_is_asked_to_go() -> None:
    """One request with empty content removes everything of ours."""
    requests = []

    def start(request: bytes) -> Child:
        requests.append(PublishRequest.from_bytes(request))
        return answering(PublishAnswer())

    assert unpublish(SETTINGS, start) == 0
    (request,) = requests
    assert (request.node_name, request.kubeconfig, request.action) == ("node-1", "/k", UNPUBLISH)
    assert not any(json.loads(request.to_bytes())["content"].values())


def test_success_is_reported_with_what_was_left_undone(capsys: pytest.CaptureFixture[str]) -> None:
    """Success and the notes of the child are printed to standard output."""
    assert unpublish(SETTINGS, lambda _request: answering(PublishAnswer(notes=("a note",)))) == 0
    assert capsys.readouterr().out == "node node-1: everything that nfd-worker set is removed\na note\n"


def test_a_failure_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, with what the API server said."""
    assert unpublish(SETTINGS, lambda _request: answering(PublishAnswer("forbidden", "Forbidden"))) == 1
    assert capsys.readouterr().err == "nfd-worker: node node-1 could not be cleaned up: forbidden\n"


def test_a_child_that_dies_without_an_answer_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """A child that ends without a response is a failure that names its exit status."""
    assert unpublish(SETTINGS, lambda _request: child("raise SystemExit(3)")) == 1
    assert "status 3" in capsys.readouterr().err


def test_a_child_that_hangs_is_killed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A child without a response is killed at its deadline."""
    monkeypatch.setattr("nfd_worker.cli.commands.unpublish_command.CHILD_DEADLINE_SECONDS", 0.05)
    assert unpublish(SETTINGS, lambda _request: child("import time; time.sleep(60)")) == 1
    assert "no response within" in capsys.readouterr().err


def test_a_child_that_cannot_be_started_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """A child that cannot be started is a reported failure."""

    def start(_request: bytes) -> Child:
        raise OSError(11, "Resource temporarily unavailable")

    assert unpublish(SETTINGS, start) == 1
    assert "cannot start the publish child" in capsys.readouterr().err
