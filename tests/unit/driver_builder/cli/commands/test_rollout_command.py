"""The command ``rollout``: what it writes, what it prints, how it ends."""

import json
import sys
import time
from typing import Any

import pytest

from driver_builder.cli import main
from driver_builder.cli.commands import rollout_command
from kube_api import names
from kube_api.client import Client, Object
from kube_api.errors import Forbidden, NotFound, Unreachable
from kube_api.resources import DRIVER_CONTAINERS
from tests.support.driver_builder.factories import NAMESPACE
from tests.support.driver_builder.installation import as_client
from tests.support.driver_builder.memory_client import MemoryClient
from tests.unit.driver_builder.cli.test_rollout_view import WAVE, driver, target

PATH = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu")
READY, ROLLING = driver(target()), driver(target("RollingOut", ready=1), wave=WAVE)
BLOCKED = driver(target("Blocked", ready=0, reason="RegistryUnauthorized"))


class Told(MemoryClient):
    """An API server that answers with one object or error after the other, the last one for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Object | Exception] = []

    def get(self, path: str) -> Object:
        """Answer."""
        if not self.answers:
            return super().get(path)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Let the command line see a cluster with one driver, which is ready."""
    made = Told()
    made.objects[PATH] = {**READY, "metadata": {**READY["metadata"], "resourceVersion": "1"}}
    monkeypatch.setattr(Client, "from_environment", as_client(made))
    monkeypatch.setattr(rollout_command, "POLL_SECONDS", 0.0)
    return made


def annotations(cluster: Told) -> dict[str, str]:
    """Return those of the driver."""
    found: dict[str, str] = cluster.objects[PATH]["metadata"].get("annotations") or {}
    return found


def test_a_driver_is_paused_and_resumed(cluster: Told, capsys: pytest.CaptureFixture[str]) -> None:
    """By its annotation; the command says what it did, and what undoes it."""
    assert main.main(["rollout", "pause", "edu"]) == 0
    assert annotations(cluster) == {names.PAUSE_ANNOTATION: "true"}
    assert "driver-builder rollout resume driverwright/edu" in capsys.readouterr().out
    assert main.main(["rollout", "resume", "driverwright/edu"]) == 0
    assert annotations(cluster) == {}
    assert capsys.readouterr().out == "driverwright/edu resumed\n"


@pytest.mark.parametrize(
    ("action", "before", "words"),
    [
        pytest.param("pause", {names.PAUSE_ANNOTATION: "true"}, "is paused already", id="paused"),
        pytest.param("resume", {"other": "x"}, "is not paused", id="not paused"),
    ],
)
def test_what_is_so_already_is_not_written(
    cluster: Told, capsys: pytest.CaptureFixture[str], action: str, before: dict[str, str], words: str
) -> None:
    """It is no failure."""
    cluster.objects[PATH]["metadata"]["annotations"] = before
    assert main.main(["rollout", action, "edu"]) == 0
    assert capsys.readouterr().out == f"driverwright/edu {words}\n"
    assert cluster.writes == []


def test_a_wave_is_undone_for_what_is_asked_for_now(cluster: Told, capsys: pytest.CaptureFixture[str]) -> None:
    """The annotation names what the wave brings, so that it ends with the next image; resume withdraws it."""
    metadata = {**ROLLING["metadata"], "annotations": {names.REBUILD_ANNOTATION: "again"}}
    cluster.objects[PATH] = {**ROLLING, "metadata": {**metadata, "resourceVersion": "1"}}
    assert main.main(["rollout", "undo", "edu"]) == 0
    assert annotations(cluster)[names.UNDO_ROLLOUT_ANNOTATION] == ",".join(sorted(WAVE["targets"].values()))
    assert "driver-builder rollout resume driverwright/edu" in capsys.readouterr().out
    assert main.main(["rollout", "undo", "edu"]) == 0
    assert "is undone already" in capsys.readouterr().out
    assert main.main(["rollout", "resume", "edu"]) == 0
    assert annotations(cluster) == {names.REBUILD_ANNOTATION: "again"}


def test_without_a_wave_there_is_nothing_to_undo(cluster: Told, capsys: pytest.CaptureFixture[str]) -> None:
    """The spec is what to set back."""
    assert main.main(["rollout", "undo", "edu"]) != 0
    assert "no wave is under way; set its spec back" in capsys.readouterr().err
    assert cluster.writes == []


def test_a_pause_that_is_not_true_becomes_one(cluster: Told) -> None:
    """The controller takes no other value for a pause; resume removes any."""
    cluster.objects[PATH]["metadata"]["annotations"] = {names.PAUSE_ANNOTATION: "yes"}
    assert main.main(["rollout", "pause", "edu"]) == 0
    assert annotations(cluster) == {names.PAUSE_ANNOTATION: "true"}


def test_a_pause_that_is_refused_fails(cluster: Told, capsys: pytest.CaptureFixture[str]) -> None:
    """With the words of the API server."""
    cluster.patch = lambda *_, **__: (_ for _ in ()).throw(Forbidden("PATCH: 403"))  # type: ignore[method-assign]
    assert main.main(["rollout", "pause", "edu"]) == 1
    assert "PATCH: 403" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("obj", "code", "words"),
    [
        pytest.param(READY, 0, "rolled out, 2 of 2 nodes ready", id="rolled out"),
        pytest.param(ROLLING, 1, "rolling out, 1 of 2 nodes ready", id="under way"),
        pytest.param(BLOCKED, 1, "RegistryUnauthorized: Correct the Secret", id="stuck, with what to do"),
    ],
)
def test_the_status_is_an_exit_code(
    cluster: Told, capsys: pytest.CaptureFixture[str], obj: Object, code: int, words: str
) -> None:
    """0 when the driver is rolled out, with the table of its targets; a file gets no bars."""
    cluster.answers = [obj]
    assert main.main(["rollout", "status", "edu"]) == code
    printed = capsys.readouterr().out
    assert words in printed
    assert "KERNEL" in printed
    assert "#" not in printed


def test_the_status_can_be_read_by_programs(cluster: Told, capsys: pytest.CaptureFixture[str]) -> None:
    """The outcome, and the status as the controller wrote it."""
    cluster.answers = [ROLLING]
    assert main.main(["rollout", "status", "edu", "-o", "json"]) == 1
    made = json.loads(capsys.readouterr().out)
    assert (made["outcome"], made["status"]["rollout"]["phase"]) == ("under way", "Rolling")


@pytest.mark.parametrize(
    ("answers", "code", "words"),
    [
        pytest.param([ROLLING, ROLLING, READY], 0, "rolled out, 2 of 2", id="until it is rolled out"),
        pytest.param([ROLLING, BLOCKED], 1, "not rolled out", id="until it is stuck"),
        pytest.param([ROLLING, Unreachable("away"), READY], 0, "rolled out", id="through an outage"),
        pytest.param([driver(target("Blocked"), paused=True), READY], 0, "rolled out", id="paused, then resumed"),
        pytest.param([ROLLING, NotFound("GET: 404")], 1, "rolling out", id="deleted meanwhile"),
        pytest.param([ROLLING, Forbidden("GET: 403")], 1, "rolling out", id="forbidden meanwhile"),
    ],
)
def test_a_watch_waits(
    cluster: Told, capsys: pytest.CaptureFixture[str], answers: list[Object | Exception], code: int, words: str
) -> None:
    """And prints a line for each change, where the output is no terminal."""
    cluster.answers = answers
    assert main.main(["rollout", "status", "edu", "-w"]) == code
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("driverwright/edu")]
    assert words in lines[-1]
    assert len(lines) == len(set(lines))


def test_a_watch_ends_in_time(cluster: Told, capsys: pytest.CaptureFixture[str]) -> None:
    """It fails then."""
    cluster.answers = [ROLLING]
    assert main.main(["rollout", "status", "edu", "-w", "--timeout", "0s"]) == 1
    assert "is not rolled out after 0 s" in capsys.readouterr().err


def test_a_watch_can_be_interrupted(cluster: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a shell expects."""
    cluster.answers = [ROLLING]
    monkeypatch.setattr(time, "sleep", lambda _: (_ for _ in ()).throw(KeyboardInterrupt()))
    assert main.main(["rollout", "status", "edu", "-w"]) == 130


@pytest.mark.parametrize(("columns", "is_cut"), [("60", True), ("300", False)])
def test_a_terminal_shows_the_table_in_place(
    cluster: Told, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str, is_cut: bool
) -> None:
    """Each state over the one before, with bars, cut to the width; at the end the whole table stays."""
    cluster.answers = [ROLLING, READY]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", columns)
    assert main.main(["rollout", "status", "edu", "-w"]) == 0
    first, second, last = capsys.readouterr().out.split("\x1b[J")
    assert "█" in first
    assert all(len(line) < int(columns) for line in first.split("\x1b")[0].splitlines()) or not is_cut
    assert "rolled out" in second
    assert last.splitlines()[-1].endswith("2 of 2")


def wrong(*words: str) -> Any:
    """Make a case of wrong usage."""
    return pytest.param(list(words), id=" ".join(words))


@pytest.mark.parametrize(
    "words",
    [
        wrong("status", "nobody"),
        wrong("status", "elsewhere/edu"),
        wrong("pause", "edu", "-w"),
        wrong("resume", "edu", "--timeout", "1m"),
        wrong("status", "edu", "-w", "-o", "json"),
        wrong("status", "edu", "--timeout", "soon"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(cluster: Told, words: list[str]) -> None:
    """Nothing is written."""
    assert main.main(["rollout", *words]) == 2
    assert cluster.writes == []


def test_a_name_in_two_namespaces_needs_its_namespace(cluster: Told, capsys: pytest.CaptureFixture[str]) -> None:
    """Which one is meant is not guessed."""
    cluster.objects[DRIVER_CONTAINERS.path(namespace="more", name="edu")] = cluster.objects[PATH]
    words = ["-n", "more", "-n", NAMESPACE]
    assert main.main(["rollout", "pause", "edu", *words]) == 2
    assert "write NAMESPACE/NAME" in capsys.readouterr().err
    assert main.main(["rollout", "pause", f"{NAMESPACE}/edu", *words]) == 0
