"""Follows one Job from start to end: forwards its log, and turns its states into a digest or an error.

Place in the flow: ``job_builder`` or ``job_kernel_discovery`` created or found the Job, ``job_cluster`` returns its
states, which are those of ``job_state``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

from driver_builder.base.errors import (
    BuildFailed,
    DriverBuilderError,
    RegistryRefused,
    RegistryUnavailable,
    TemporaryError,
)
from driver_builder.base.reasons import Reason
from driver_builder.builds.build_limits import BuildLimits
from driver_builder.builds.build_output import BuildOutput
from driver_builder.builds.job.job_cluster import JobCluster
from driver_builder.builds.job.job_failures import build_failure
from driver_builder.builds.job.job_log import PodLog
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
from driver_builder.model.build import LogSink

Json = dict[str, Any]

_LOG_TRIES = 3
"""How often the log of a container that ended is requested until all of it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds between looks, until waiting is logged, and until a Job that does not start is given up.

    ``hopeless`` is for what seldom resolves itself, such as an image that cannot be pulled.
    """

    look: float = 1.0
    mention: float = 5.0
    start: float = 600.0
    hopeless: float = 60.0


PATIENCE = Patience()


class JobRun:
    """Follows one Job; ``is_spent`` once it can have no other result, although another Job may.

    ``failure`` makes the error of a first container that ended with an exit code, out of that and its output.
    """

    def __init__(
        self,
        cluster: JobCluster,
        job: Json,
        *,
        log: LogSink,
        limits: BuildLimits,
        patience: Patience,
        clock: Callable[[], float],
        failure: Callable[[int, BuildOutput], BuildFailed] = build_failure,
    ) -> None:
        self._cluster = cluster
        self._job = job
        self._log = log
        self._limits = limits
        self._patience = patience
        self._clock = clock
        self._failure = failure
        self._output = BuildOutput()
        self._pod_log: PodLog | None = None
        self._waits_since: float | None = None
        self._hopeless_since: float | None = None
        self._why = ""
        self.is_spent = False

    def follow(self) -> str:
        """Pass the log on, and return the digest of what was uploaded.

        Raises:
            BuildFailed, RegistryRefused: the Job ended so.
            TemporaryError: a fault of the cluster.
        """
        while True:
            state = self._look()
            if isinstance(state, HandedOver) and state.digest is not None:
                self._tell_rest(state.pod)
                return state.digest
            self._go_on(state)

    def follow_first(self) -> None:
        """Pass on the whole log of the first container, and return when that has succeeded.

        Raises:
            BuildFailed, TemporaryError: as :meth:`follow`.
        """
        while not isinstance(state := self._look(), HandingOver | HandedOver):
            self._go_on(state)
        self._tell_rest(state.pod)

    def _look(self) -> JobState:
        return self._cluster.look(self._job, self._limits)

    def _go_on(self, state: JobState) -> None:
        """Do what a state requires, and wait until the next look.

        Raises:
            DriverBuilderError: the Job has ended.
        """
        self._take(state)
        has_begun = self._pod_log is not None
        is_late = self._limits.are_reached() and not self._limits.is_cancelled()
        if self._waits_since is not None and is_late and not has_begun:
            raise self._not_started()
        self._limits.check(self._output.tail)
        self._cluster.pause(self._patience.look)

    def _take(self, state: JobState) -> None:
        """Do what a state requires.

        Raises:
            DriverBuilderError: the Job has ended.
        """
        match state:
            case Waiting():
                self._wait(state)
            case Building(pod=pod):
                self._waits_since = self._hopeless_since = None
                self._tell(pod)
            case HandingOver():
                self._waits_since = self._hopeless_since = None
            case NotBuilt(pod=pod, exit_code=code):
                self._tell_rest(pod)
                raise self._failure(code, self._output)
            case HandedOver(pod=pod):
                self._tell_rest(pod)
                raise self._not_handed_over(state)
            case TimedOut():
                raise self._limits.exceeded(self._output.tail)
            case Lost():
                raise self._lost(state)
            case _ as never:
                assert_never(never)

    def _tell(self, pod: str) -> bool:
        """Log the new output of ``build``; returns whether that was all. Another pod starts anew."""
        if self._pod_log is None or self._pod_log.pod != pod:
            self._pod_log = self._cluster.log_of(pod)
        for text in self._pod_log.lines():
            for line in self._output.take({"stream": f"{text}\n"}):
                self._log(line)
            if self._limits.are_reached():
                return False
        return self._pod_log.is_whole

    def _tell_rest(self, pod: str) -> None:
        """Log the rest of the output of a container that ended."""
        for _ in range(_LOG_TRIES):
            if self._tell(pod):
                return

    def _wait(self, state: Waiting) -> None:
        """Wait for a pod that has not started, up to a bound.

        Raises:
            TemporaryError: with the message of scheduler or kubelet.
        """
        now = self._clock()
        self._waits_since = now if self._waits_since is None else self._waits_since
        if not state.is_hopeless:
            self._hopeless_since = None
        elif self._hopeless_since is None:
            self._hopeless_since = now
        is_worth_a_word = state.is_hopeless or now - self._waits_since >= self._patience.mention
        if state.why and state.why != self._why and is_worth_a_word:
            self._why = state.why
            self._log(f"waiting: {state.why}")
        if now - self._waits_since > self._patience.start:
            raise self._not_started()
        if self._hopeless_since is not None and now - self._hopeless_since > self._patience.hopeless:
            raise self._not_started()

    def _not_started(self) -> DriverBuilderError:
        name = self._job["metadata"]["name"]
        why = self._why or "its pod does not start"
        words = f"no node runs the Job: {why}; see kubectl describe job {name}, and the controller's --job flags"
        return self._spent(TemporaryError(words))

    def _lost(self, state: Lost) -> DriverBuilderError:
        if state.is_full:
            words = f"the build filled its node's disk: {state.why}"
            return BuildFailed(Reason.DISK_FULL, words, log_tail=self._output.tail)
        return self._spent(TemporaryError(f"the Job's pod is lost: {state.why}; the next attempt creates another Job"))

    def _not_handed_over(self, state: HandedOver) -> DriverBuilderError:
        words = f"the Job built the image and could not upload it: {state.why}"
        return self._spent(RegistryRefused(words) if state.is_refused else RegistryUnavailable(words))

    def _spent(self, error: DriverBuilderError) -> DriverBuilderError:
        self.is_spent = True
        return error
