"""What probes and scrapers are answered, and when the reconcile loop counts as alive."""

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from driver_builder import telemetry
from driver_builder.telemetry import SILENCE_SECONDS, Heartbeat


class Clock:
    """A clock that the test moves."""

    now = 1000.0

    def __call__(self) -> float:
        """Give the time."""
        return self.now


@pytest.mark.parametrize(
    ("beats", "silence", "alive"),
    [
        pytest.param(0, 10 * SILENCE_SECONDS, True, id="still waiting for the Lease"),
        pytest.param(1, 0.0, True, id="just now"),
        pytest.param(1, SILENCE_SECONDS, True, id="a long pass"),
        pytest.param(1, SILENCE_SECONDS + 1, False, id="a pass that hangs"),
        pytest.param(2, SILENCE_SECONDS + 1, False, id="a later pass that hangs"),
    ],
)
def test_a_loop_is_alive_as_long_as_it_gives_signs_of_life(beats: int, silence: float, alive: bool) -> None:
    """Only a loop that has begun can be missed."""
    clock = Clock()
    heartbeat = Heartbeat(clock=clock)
    for _ in range(beats):
        clock.now += SILENCE_SECONDS
        heartbeat.beat()
    clock.now += silence
    assert heartbeat.is_alive() is alive


def test_a_loop_that_goes_on_is_alive_again() -> None:
    """One beat is enough."""
    clock = Clock()
    heartbeat = Heartbeat(clock=clock)
    heartbeat.beat()
    clock.now += 2 * SILENCE_SECONDS
    assert not heartbeat.is_alive()
    heartbeat.beat()
    assert heartbeat.is_alive()


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: str


@pytest.fixture
def ask() -> Iterator[Callable[[str, bool], Answer]]:
    """Serve on a free port; ask for a path of a controller that is healthy or not."""
    health = [True]
    server = telemetry.serve(0, healthy=lambda: health[0])

    def get(path: str, healthy: bool) -> Answer:
        health[0] = healthy
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}{path}") as response:
                return Answer(response.status, response.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read().decode())

    yield get
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("path", "healthy", "status", "words"),
    [
        pytest.param("/healthz", True, 200, "ok", id="healthy"),
        pytest.param("/healthz", False, 503, "hangs", id="not healthy"),
        pytest.param("/metrics", False, 200, "driver_builder_builds_total", id="metrics all the same"),
        pytest.param("/", True, 404, "try /healthz", id="anything else"),
    ],
)
def test_probes_are_answered(
    ask: Callable[[str, bool], Answer], path: str, healthy: bool, status: int, words: str
) -> None:
    """The answer of /healthz follows the loop, metrics are always there."""
    answer = ask(path, healthy)
    assert answer.status == status
    assert words in answer.body
