"""The command ``status -w``: what it shows while drivers change, on a terminal and elsewhere."""

import io
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from driver_builder.cli import main
from driver_builder.cli.commands import status_command
from kube_api.client import Client, Object, WatchEvent
from kube_api.errors import KubeApiError, Unreachable
from kube_api.resources import DRIVER_CONTAINERS
from tests.support.driver_builder.factories import NAMESPACE
from tests.support.driver_builder.installation import as_client
from tests.support.driver_builder.memory_client import MemoryClient
from tests.unit.driver_builder.cli.test_rollout_view import WAVE, driver, target

PATH = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu")
PATIENCE = 60.0
"""Seconds until a test gives up: its verdict is what was shown by then."""


class Watched(MemoryClient):
    """An API server whose watches last a moment."""

    def watch(self, *words: Any, **more: Any) -> Iterator[WatchEvent]:
        """Give what has changed."""
        time.sleep(0.02)
        self._maybe_fail()
        return super().watch(*words, **more)

    def _maybe_fail(self, reading: str = "") -> None:
        # Another thread may add one or take it away at any moment.
        for fault in self.faults:
            raise fault
        assert reading not in self.forbidden

    def put(self, obj: Object, path: str = PATH) -> None:
        """Store a driver, and let watches bring it."""
        before = self.objects.get(path, {"metadata": {}})
        version = str(int(before["metadata"].get("resourceVersion", "0")) + 1)
        self.objects[path] = {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}}
        self.catch_up()


class Screen(io.StringIO):
    """A terminal, or a file."""

    encoding = "utf-8"

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        """Say which of both."""
        return self._is_terminal


Step = tuple[Callable[[], object], Callable[[str], bool]]
"""What is done, and how it is seen that it is shown."""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Let the command line see a cluster with one driver."""
    made = Watched()
    made.put(driver(target("Building", ready=0)))
    monkeypatch.setattr(Client, "from_environment", as_client(made))
    monkeypatch.setattr(status_command, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(status_command, "TURN_SECONDS", 0.05)
    return made


def has(words: str) -> Callable[[str], bool]:
    """Look for words in everything that was shown."""
    return lambda shown: words in shown


def watch(screen: Screen, monkeypatch: pytest.MonkeyPatch, *steps: Step, words: tuple[str, ...] = ()) -> str:
    """Run the command, take each step when the one before is shown, and end with Ctrl-C; returns what was shown."""
    monkeypatch.setattr(sys, "stdout", screen)
    seen: list[bool] = []

    def play() -> None:
        deadline = time.monotonic() + PATIENCE
        for act, is_shown in steps:
            act()
            while not is_shown(screen.getvalue()) and time.monotonic() < deadline:
                time.sleep(0.01)
            seen.append(is_shown(screen.getvalue()))
        signal.raise_signal(signal.SIGINT)

    # A shell starts what runs in the background with SIGINT ignored, and other tests may leave handlers of their own.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    player = threading.Thread(target=play)
    player.start()
    try:
        assert main.main(["status", "-w", *words]) == 130
    finally:
        player.join()
        signal.signal(signal.SIGINT, before)
    assert seen == [True] * len(steps)
    return screen.getvalue()


def nothing() -> None:
    """Wait only."""


def test_a_file_gets_a_line_for_each_change(cluster: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``kubectl get -w`` prints it: the headers once, and nothing where nothing changed."""
    shown = watch(
        Screen(is_terminal=False),
        monkeypatch,
        (nothing, has("Building")),
        (lambda: cluster.put(driver(target("RollingOut", ready=1), wave=WAVE)), has("RollingOut")),
        (lambda: cluster.put(driver(target())), has("Gone")),
    )
    lines = shown.splitlines()
    assert [line.split()[6] for line in lines] == [
        "STATE", "Building", "Rolling", "RollingOut", "Ready", "Gone",
    ]  # fmt: skip
    assert lines[0].split()[0] == "NAMESPACE"
    assert "\x1b" not in shown


def test_a_terminal_shows_one_table_in_place(cluster: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each over the one before, only when it differs, and no wider than the terminal."""
    monkeypatch.setenv("COLUMNS", "70")
    shown = watch(
        Screen(is_terminal=True),
        monkeypatch,
        (nothing, has("░░░░░░░░░░░░ 0/2")),
        (lambda: cluster.put(driver(target("RollingOut", ready=1), wave=WAVE)), has("██████░░░░░░ 1/2")),
        (lambda: cluster.put(driver(target())), has("████████████ 2/2")),
    )
    tables = shown.split("\x1b[J")
    assert len(tables) == 3
    assert all(len(line) < 70 for table in tables for line in table.partition("\x1b")[0].splitlines())


def test_an_outage_is_shown_and_goes(cluster: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table stays, and says that it is not up to date until it is."""
    note = "not up to date: the API server does not respond"
    monkeypatch.setattr("driver_builder.cluster.collection.MOMENT_SECONDS", 0.0)

    def back() -> None:
        cluster.faults = []
        cluster.put(driver(target()))

    def is_current(shown: str) -> bool:
        last = shown.rsplit("\x1b[J", maxsplit=1)[-1]
        return "Ready" in last and note not in last

    watch(
        Screen(is_terminal=True),
        monkeypatch,
        (nothing, has("Building")),
        (lambda: cluster.faults.append(Unreachable("no route")), has(note)),
        (back, is_current),
    )


def test_only_the_driver_that_was_asked_for_is_shown(cluster: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others come and go unseen."""
    other = driver(target())
    other["metadata"] |= {"name": "other", "uid": "uid-other"}
    shown = watch(
        Screen(is_terminal=False),
        monkeypatch,
        (lambda: cluster.put(other, PATH.replace("edu", "other")), has("Building")),
        (lambda: cluster.put(driver(target())), has("Ready")),
        words=("edu",),
    )
    assert "other" not in shown


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param(("-o", "json"), 2, id="as JSON"),
        pytest.param(("missing",), 1, id="a driver that is not there"),
    ],
)
def test_what_cannot_be_watched_ends_at_once(cluster: Watched, words: tuple[str, ...], code: int) -> None:
    """With the exit code of wrong usage, or of a failure."""
    assert cluster.objects
    assert main.main(["status", "-w", *words]) == code


@pytest.mark.parametrize("error", [Unreachable("no"), KubeApiError("no", status=403)])
def test_drivers_that_cannot_be_listed_are_a_failure(
    cluster: Watched, capsys: pytest.CaptureFixture[str], error: KubeApiError
) -> None:
    """Nothing is shown that was never seen."""
    cluster.faults = [error]
    assert main.main(["status", "-w"]) == 1
    assert "no" in capsys.readouterr().err
