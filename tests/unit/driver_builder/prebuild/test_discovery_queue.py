"""Look-ups run beside the reconciles: each repository once at a time, and no answer is lost or made up."""

import threading
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import pytest

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.base.errors import BuildFailed, TemporaryError
from driver_builder.base.reasons import Reason
from driver_builder.model.repositories import Discovery, Repository
from driver_builder.nodes.changes import DiscoverKernels
from driver_builder.prebuild.discovery_queue import MAX_REPOSITORIES, DiscoveryQueue
from tests.support.driver_builder.factories import NAMESPACE, NOW

DEBIAN = Repository("debian", "debian:bookworm-slim", "amd64")
ASK = DiscoverKernels(repository=DEBIAN, namespace=NAMESPACE, registry=RegistrySettings())


class Later(Executor):
    """Keeps work until the test lets it be done."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def submit(self, function: Any, /, *words: Any, **more: Any) -> Future[Any]:
        """Keep it."""
        self.waiting.append(lambda: function(*words, **more))
        return Future()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Drop what waits."""
        assert wait
        assert cancel_futures
        self.waiting.clear()


class Bench:
    """A queue whose repositories answer as arranged."""

    def __init__(self, *answers: tuple[str, ...] | Exception) -> None:
        self.answers = [*answers]
        self.pool = Later()
        self.woken = 0
        self.queue = DiscoveryQueue(self._work, wake=self._wake, pool=self.pool, clock=lambda: NOW)

    def run(self) -> Discovery:
        """Ask, let the repository answer, and return what is known."""
        self.queue.submit(ASK)
        self.pool.waiting.pop(0)()
        assert self.queue.states().running == frozenset()
        return self.queue.states().done[DEBIAN]

    def _work(self, action: DiscoverKernels, cancelled: threading.Event) -> tuple[str, ...]:
        assert action == ASK
        assert not cancelled.is_set()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _wake(self) -> None:
        self.woken += 1


def test_a_repository_is_asked_once_at_a_time() -> None:
    """While it is being asked it is said to be, and asking again changes nothing."""
    bench = Bench(("6.1.0-9-amd64",))
    bench.queue.submit(ASK)
    bench.queue.submit(ASK)
    assert (bench.queue.states().running, len(bench.pool.waiting)) == (frozenset([DEBIAN]), 1)


def test_an_answer_is_kept_with_its_time() -> None:
    """And a pass is due."""
    bench = Bench(("6.1.0-9-amd64",))
    assert bench.run() == Discovery(releases=("6.1.0-9-amd64",), at=NOW)
    assert bench.woken == 1


@pytest.mark.parametrize(
    ("error", "words"),
    [
        pytest.param(BuildFailed(Reason.REPOSITORY_UNAVAILABLE, "no route"), "no route", id="repository away"),
        pytest.param(TemporaryError("no engine"), "no engine", id="engine away"),
        pytest.param(KeyError("bug"), "KeyError('bug')", id="a bug"),
    ],
)
def test_a_failure_keeps_what_was_known(error: Exception, words: str) -> None:
    """A repository that does not answer has not lost its kernels; the next success forgets the failure."""
    bench = Bench(("6.1.0-9-amd64",), error, ("6.1.0-10-amd64",))
    bench.run()
    assert bench.run() == Discovery(releases=("6.1.0-9-amd64",), at=NOW, error=words, error_at=NOW)
    assert bench.run() == Discovery(releases=("6.1.0-10-amd64",), at=NOW)


def test_a_queue_that_was_stopped_asks_nobody() -> None:
    """What waited is dropped, and nothing new is taken."""
    bench = Bench(("6.1.0-9-amd64",))
    bench.queue.submit(ASK)
    bench.queue.stop()
    bench.queue.submit(ASK)
    assert bench.pool.waiting == []
    assert bench.woken == 0


def test_real_threads_do_the_same() -> None:
    """The pool of its own, from asking to the wake."""
    done = threading.Event()
    queue = DiscoveryQueue(lambda _action, _cancelled: ("6.1.0-9-amd64",), wake=done.set)
    queue.submit(ASK)
    assert done.wait(60)
    queue.stop()
    assert queue.states().done[DEBIAN].releases == ("6.1.0-9-amd64",)


def test_answers_of_long_ago_are_dropped() -> None:
    """Base images change; what nobody asks for any more does not stay."""
    bench = Bench()
    queue = DiscoveryQueue(lambda *_: ("6.1.0-1-amd64",), wake=lambda: None, pool=bench.pool, clock=lambda: NOW)
    for number in range(MAX_REPOSITORIES + 5):
        queue.submit(replace(ASK, repository=Repository("debian", f"debian:{number}", "amd64")))
        bench.pool.waiting.pop(0)()
    assert len(queue.states().done) == MAX_REPOSITORIES
    assert Repository("debian", f"debian:{MAX_REPOSITORIES + 4}", "amd64") in queue.states().done


def test_the_password_of_a_proxy_is_not_reported() -> None:
    """Programs print the address that they were given."""
    bench = Bench(BuildFailed(Reason.REPOSITORY_UNAVAILABLE, "no answer of http://me:s3cret@proxy.example.com:3128"))
    assert bench.run().error == "no answer of http://me:***@proxy.example.com:3128"
