"""Threads are kept alive, and a thread that cannot live ends the process."""

import threading
from collections.abc import Callable

import pytest
from prometheus_client import REGISTRY

from driver_builder.base.retry import Backoff
from driver_builder.controller.lease import RENEW_DEADLINE_SECONDS, Lease
from driver_builder.controller.supervisor import Supervisor
from kube_api.client import Object
from tests.support.driver_builder.memory_client import MemoryClient

PATIENCE = 60.0


class Clock:
    """A clock that the test moves."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture(autouse=True)
def _no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backoff, "next", lambda _self: 0.0)


def restarts(thread: str) -> float:
    """Return how often a thread was started again."""
    return REGISTRY.get_sample_value("driver_builder_thread_restarts_total", {"thread": thread}) or 0.0


def ending(*ends: Callable[[], None], stop: threading.Event) -> Callable[[], None]:
    """Make a thread's work that ends in these ways, one after the other, and then waits to be stopped."""
    left = list(ends)

    def run() -> None:
        if left:
            left.pop(0)()
        else:
            stop.wait(PATIENCE)

    return run


def fail() -> None:
    """Fail as a bug does."""
    raise MemoryError("an allocation failed")


def test_a_thread_that_ends_is_started_again() -> None:
    """With an error or without; it is counted, and it is alive."""
    stop = threading.Event()
    supervisor = Supervisor(stop)
    before = restarts("one")
    done = threading.Event()
    thread = supervisor.start("one", ending(fail, done.set, stop=stop))
    assert done.wait(PATIENCE)
    assert supervisor.is_alive()
    assert not stop.is_set()
    stop.set()
    thread.join(PATIENCE)
    assert restarts("one") - before >= 1
    assert supervisor.broken == ""


def test_the_third_end_within_a_minute_ends_the_process() -> None:
    """What cannot live is not tried for ever: a new container starts from nothing."""
    stop = threading.Event()
    supervisor = Supervisor(stop)
    thread = supervisor.start("two", ending(fail, fail, fail, stop=stop))
    thread.join(PATIENCE)
    assert stop.is_set()
    assert supervisor.broken == "two"
    assert not supervisor.is_alive()


def test_ends_that_are_far_apart_do_not_add_up() -> None:
    """A thread that fails once an hour goes on for ever."""
    stop, clock = threading.Event(), Clock()
    supervisor = Supervisor(stop, clock=clock)

    def later() -> None:
        clock.now += 3600.0
        fail()

    thread = supervisor.start("three", ending(later, later, later, later, stop.set, stop=stop))
    thread.join(PATIENCE)
    assert supervisor.broken == ""


def test_a_lease_thread_that_fails_does_not_act_without_the_lease() -> None:
    """Started again, it counts from its last renewal: it gives up before another controller takes the Lease."""
    clock = Clock()

    class Broken(MemoryClient):
        def get(self, path: str) -> Object:
            clock.now += RENEW_DEADLINE_SECONDS / 2
            raise MemoryError(path)

    class AtOnce(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout
            return self.is_set()

    lease = Lease(Broken(), namespace="n", name="l", identity="me", clock=clock)
    for _ in range(3):
        with pytest.raises(MemoryError):
            lease.hold(AtOnce())
    lease.hold(AtOnce())
