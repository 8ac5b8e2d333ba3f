"""When a build must end."""

from threading import Event

import pytest

from driver_builder.base.errors import BuildFailed
from driver_builder.base.reasons import Reason
from driver_builder.builds.build_limits import BuildLimits


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


class Stream:
    """A stream that records that it was closed."""

    def __init__(self, error: Exception | None = None) -> None:
        self.closed = Event()
        self.error = error

    def close(self) -> None:
        """Be closed, perhaps by then already gone."""
        self.closed.set()
        if self.error:
            raise self.error


def test_within_its_limits_a_build_goes_on() -> None:
    """Nothing is raised, and the time that is left counts down to a moment, never to 0."""
    clock = Clock()
    limits = BuildLimits(30, Event(), clock)
    limits.check()
    assert limits.left() == 30
    clock.now += 29.95
    assert limits.left() == pytest.approx(0.1)
    assert not limits.are_reached()


def test_after_its_deadline_a_build_fails_with_its_last_line() -> None:
    """The message says how long it had, and where it was."""
    clock = Clock()
    limits = BuildLimits(30, Event(), clock)
    clock.now += 30
    with pytest.raises(BuildFailed, match=r"within 30 s \(last line: CC edudrv.o\)") as caught:
        limits.check(["make", "CC edudrv.o"])
    assert caught.value.reason is Reason.DEADLINE_EXCEEDED
    assert caught.value.log_tail == ("make", "CC edudrv.o")


def test_a_cancelled_build_fails_as_cancelled() -> None:
    """Also when its deadline has passed meanwhile."""
    clock, cancelled = Clock(), Event()
    limits = BuildLimits(30, cancelled, clock)
    cancelled.set()
    clock.now += 60
    with pytest.raises(BuildFailed) as caught:
        limits.check()
    assert caught.value.reason is Reason.CANCELLED


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(Stream(), id="an open stream"),
        pytest.param(Stream(OSError("not connected")), id="a connection that ends in the same moment"),
        pytest.param(Stream(AttributeError("_sock")), id="a response that was read to its end"),
    ],
)
def test_a_stream_is_closed_when_a_limit_is_reached(stream: Stream) -> None:
    """A reader that waits for the next line gets the end instead."""
    cancelled = Event()
    with BuildLimits(30, cancelled, Clock()).closing(stream):
        cancelled.set()
        assert stream.closed.wait(60)


def test_a_stream_that_ends_by_itself_is_not_closed() -> None:
    """Its watcher goes with it."""
    stream = Stream()
    with BuildLimits(30, Event(), Clock()).closing(stream):
        pass
    assert not stream.closed.is_set()
