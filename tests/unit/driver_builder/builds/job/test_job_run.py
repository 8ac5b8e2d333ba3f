"""Following a Job: states in, a digest or an error out, and the log complete. Time is simulated."""

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from driver_builder.base.errors import (
    BuildFailed,
    DriverBuilderError,
    RegistryRefused,
    RegistryUnavailable,
    TemporaryError,
)
from driver_builder.base.reasons import Reason
from driver_builder.builds.build_limits import BuildLimits
from driver_builder.builds.job.job_cluster import JobCluster
from driver_builder.builds.job.job_run import JobRun, Patience
from driver_builder.builds.job.job_state import (
    Building,
    HandedOver,
    HandingOver,
    JobState,
    Lost,
    NotBuilt,
    TimedOut,
    Waiting,
)

DIGEST = "sha256:" + "1" * 64
DONE = HandedOver(pod="p", digest=DIGEST)
FAR = 10_000.0


class Log:
    """A log whose streams end or break off."""

    def __init__(self, pod: str, streams: list[tuple[list[str], bool]]) -> None:
        self.pod = pod
        self.is_whole = False
        self._streams = streams

    def lines(self) -> Iterator[str]:
        """Return the next stream."""
        lines, self.is_whole = self._streams.pop(0) if self._streams else ([], True)
        yield from lines


class Cluster:
    """Shows one state after the other, the last one for ever; a pause is a second."""

    def __init__(self, *states: JobState, streams: list[tuple[list[str], bool]] | None = None) -> None:
        self.states = list(states)
        self.streams = streams or []
        self.now = 0.0

    def look(self, _job: object, _limits: object) -> JobState:
        """Return the state of the moment."""
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def log_of(self, pod: str) -> Log:
        """Return the log of a pod."""
        return Log(pod, self.streams)

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class Follow:
    """One run over a played cluster."""

    def __init__(self, cluster: Cluster, *, deadline: float = FAR, cancelled: bool = False) -> None:
        self.said: list[str] = []
        event = threading.Event()
        if cancelled:
            event.set()

        def clock() -> float:
            return cluster.now

        self.run = JobRun(
            cast(JobCluster, cast(Any, cluster)),
            {"metadata": {"name": "driver-build-k", "namespace": "n"}},
            log=self.said.append,
            limits=BuildLimits(deadline, event, clock),
            patience=Patience(look=1.0, mention=5.0, start=600.0, hopeless=60.0),
            clock=clock,
        )

    def error(self) -> DriverBuilderError:
        """Follow to a bad end."""
        with pytest.raises(DriverBuilderError) as caught:
            self.run.follow()
        return caught.value


def test_a_build_is_followed_to_its_digest() -> None:
    """Its lines are logged as they come, the last ones too, each without its colours."""
    states = (Waiting(), Building(pod="p"), Building(pod="p"), HandingOver(pod="p"), DONE)
    follow = Follow(Cluster(*states, streams=[(["one"], False), (["\x1b[31mtwo"], False), (["three"], True)]))
    assert follow.run.follow() == DIGEST
    assert follow.said == ["one", "two", "three"]
    assert not follow.run.is_spent


def test_the_end_of_a_log_is_asked_for_again() -> None:
    """The compiler's first error may be in what a broken stream has kept back."""
    streams = [(["STEP 1/2: RUN make"], False), ([], False), (["x.c:3:1: error: bad", "Error: x"], True)]
    error = Follow(Cluster(NotBuilt(pod="p", exit_code=125), streams=streams)).error()
    assert isinstance(error, BuildFailed)
    assert error.log_tail[-2:] == ("x.c:3:1: error: bad", "Error: x")


def test_a_pod_that_starts_soon_is_not_worth_a_word() -> None:
    """Every pod waits a moment for the scheduler."""
    follow = Follow(Cluster(Waiting(why="no pod was created for the Job"), Waiting(why="pulling"), DONE))
    follow.run.follow()
    assert follow.said == []


def test_waiting_is_reported_once_and_given_up_in_the_end() -> None:
    """A cluster may have to grow a node first; ten minutes are enough."""
    cluster = Cluster(Waiting(why="0/3 nodes are available"))
    follow = Follow(cluster)
    error = follow.error()
    assert isinstance(error, TemporaryError)
    assert "0/3 nodes are available" in str(error)
    assert "kubectl describe job driver-build-k" in str(error)
    assert follow.said == ["waiting: 0/3 nodes are available"]
    assert 600 < cluster.now < 603
    assert follow.run.is_spent


def test_what_seldom_goes_by_itself_is_given_up_sooner() -> None:
    """Counted from when it was first said, not from when the pod began to wait."""
    slow = [Waiting(why="pulling")] * 100
    cluster = Cluster(*slow, Waiting(why="ErrImagePull: not found", is_hopeless=True))
    error = Follow(cluster).error()
    assert "ErrImagePull: not found" in str(error)
    assert 160 < cluster.now < 163


def test_a_deadline_of_a_build_that_ran_is_the_builds() -> None:
    """Also when the Job's deadline has removed the pod and the Job does not say so yet."""
    cluster = Cluster(Building(pod="p"), Waiting(why="no pod was created for the Job"), streams=[(["hanging"], True)])
    error = Follow(cluster, deadline=1.0).error()
    assert isinstance(error, BuildFailed)
    assert error.reason is Reason.DEADLINE_EXCEEDED
    assert "last line: hanging" in str(error)


def test_a_deadline_that_finds_nothing_running_says_so() -> None:
    """It is the cluster's failure and not the build's."""
    error = Follow(Cluster(Waiting(why="0/3 nodes are available")), deadline=20.0).error()
    assert isinstance(error, TemporaryError)
    assert "0/3 nodes" in str(error)


@pytest.mark.parametrize(
    ("state", "kind", "reason", "words"),
    [
        pytest.param(TimedOut(), BuildFailed, Reason.DEADLINE_EXCEEDED, "within 10000 s", id="deadline"),
        pytest.param(
            Lost(why="EmptyDir", is_full=True), BuildFailed, Reason.DISK_FULL, "EmptyDir", id="wrote too much"
        ),
        pytest.param(Lost(why="evicted"), TemporaryError, None, "the next attempt creates another Job", id="lost"),
        pytest.param(
            HandedOver(pod="p", digest=None, why="password", is_refused=True),
            RegistryRefused,
            None,
            "password",
            id="registry refuses",
        ),
        pytest.param(
            HandedOver(pod="p", digest=None, why="no answer"),
            RegistryUnavailable,
            None,
            "no answer",
            id="registry away",
        ),
    ],
)
def test_each_end_has_its_error(
    state: JobState, kind: type[DriverBuilderError], reason: Reason | None, words: str
) -> None:
    """Another Job is tried where that can help."""
    follow = Follow(Cluster(state))
    error = follow.error()
    assert isinstance(error, kind)
    assert words in str(error)
    assert getattr(error, "reason", None) is reason
    assert follow.run.is_spent or isinstance(error, BuildFailed)


def test_a_cancelled_build_ends_at_once() -> None:
    """Also one that waits for a node."""
    error = Follow(Cluster(Waiting(why="0/3 nodes are available")), cancelled=True).error()
    assert isinstance(error, BuildFailed)
    assert error.reason is Reason.CANCELLED
