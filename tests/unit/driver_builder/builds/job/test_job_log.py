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
    """The API server repeats the last second; what was logged is not logged again."""
    streams = Streams([f"{A} one", f"{B} two", Unreachable("silence")], [f"{A} one", f"{B} two", f"{C} three"])
    assert told(streams, 2) == ["one", "two", "three"]
    assert [query["sinceTime"] for query in streams.asked] == ["", B]


def test_lines_of_one_moment_are_distinguished_by_their_number() -> None:
    """Two lines may have the same time."""
    streams = Streams([f"{A} one"], [f"{A} one", f"{A} two"], [f"{A} one", f"{A} two", f"{B} three"])
    assert told(streams, 3) == ["one", "two", "three"]


def test_what_is_no_line_of_the_log_is_left_out() -> None:
    """The kubelet puts its own excuses into the stream."""
    assert told(Streams(["unable to retrieve container logs", f"{A} one", f"{A}"]), 1) == ["one", ""]


def test_no_log_is_no_error() -> None:
    """Before the container starts, and after its pod is gone; the pod's state says which."""
    assert told(Streams([NotFound("gone")], [Unreachable("silence")]), 2) == []
