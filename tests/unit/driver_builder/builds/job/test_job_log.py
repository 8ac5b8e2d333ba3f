"""A container's log: every line once, however often the stream breaks off."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from driver_builder.builds.job.job_log import PodLog
from kube_api.client import Client
from kube_api.errors import NotFound, Unreachable


class Streams:
    """Plays the log endpoint: one list of lines for each time it is asked, ending as the API server does."""

    def __init__(self, *streams: list[str | Exception]) -> None:
        self.streams = list(streams)
        self.asked: list[Mapping[str, str]] = []

    def follow(self, _path: str, *, query: Mapping[str, str]) -> Iterator[str]:
        """Return the next stream."""
        self.asked.append(query)
        for line in self.streams.pop(0):
            if isinstance(line, Exception):
                raise line
            yield line


def told(streams: Streams, times: int) -> list[str]:
    """Follow a log so often."""
    log = PodLog(cast(Client, cast(Any, streams)), namespace="n", pod="p", container="build")
    return [line for _ in range(times) for line in log.lines()]


A, B, C = "2026-01-01T00:00:01.1Z", "2026-01-01T00:00:01.2Z", "2026-01-01T00:00:02.1Z"


def test_a_stream_that_breaks_off_is_taken_up_again() -> None:
    """The stream repeats the last ten seconds; what was logged is not logged again."""
    streams = Streams([f"{A} one", f"{B} two", Unreachable("silence")], [f"{A} one", f"{B} two", f"{C} three"])
    assert told(streams, 2) == ["one", "two", "three"]
    assert [query["sinceTime"] for query in streams.asked] == ["", "2025-12-31T23:59:51Z"]


def test_lines_of_one_moment_are_distinguished_by_their_number() -> None:
    """Two lines may have the same time."""
    streams = Streams([f"{A} one"], [f"{A} one", f"{A} two"], [f"{A} one", f"{A} two", f"{B} three"])
    assert told(streams, 3) == ["one", "two", "three"]


def test_a_line_that_was_written_after_a_later_one_is_not_lost() -> None:
    """Output and errors of a container are stamped side by side: their order in the log may differ."""
    early, late = "2026-01-01T00:00:01.999999999Z", "2026-01-01T00:00:02Z"
    step, building = f"{late} STEP 6/6", f"{early} building"
    streams = Streams([step, building], [step, building, f"{early} made"])
    assert told(streams, 2) == ["STEP 6/6", "building", "made"]


def test_a_log_that_was_rotated_away_costs_no_new_line() -> None:
    """What was given is known by its time, not by its place in the stream."""
    later = "2026-01-01T00:00:09+00:00"
    streams = Streams([f"{A} one", f"{B} two"], [f"{C} three", f"{later} four"])
    assert told(streams, 2) == ["one", "two", "three", "four"]


def test_what_is_older_than_what_a_stream_repeats_is_not_given_again() -> None:
    """An API server that ignores sinceTime repeats all."""
    later = "2026-01-01T00:01:00Z"
    assert told(Streams([f"{A} one", f"{later} two"], [f"{A} one", f"{later} two"]), 2) == ["one", "two"]


def test_what_is_no_line_of_the_log_is_left_out() -> None:
    """The kubelet puts its own excuses into the stream."""
    excuse, no_time = "unable to retrieve container logs", "2026-13-01T00:00:00Z no"
    assert told(Streams([excuse, no_time, f"{A} one", f"{A}"]), 1) == ["one", ""]


def test_no_log_is_no_error() -> None:
    """Before the container starts, and after its pod is gone; the pod's state says which."""
    assert told(Streams([NotFound("gone")], [Unreachable("silence")]), 2) == []
