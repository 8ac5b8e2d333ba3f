"""When to publish, and the life of the publish child: start, deadline, end, back-off.

Nothing is sent while what the Node should carry is what was last published. A failure of any kind is tried again for
ever, later and later; what is tried is always the newest request.
"""

import logging
import signal
import zlib
from collections.abc import Callable, Mapping

from nfd_worker.child import Child, Ended, fork
from nfd_worker.labels.node_content import NO_ORIGINS, NodeContent, Origins, Unknown
from nfd_worker.publish.wire import PublishAnswer, PublishRequest

log = logging.getLogger(__name__)

CHILD_DEADLINE_SECONDS = 120.0
"""Generous: an emulated guest needs half a minute for the imports alone."""

_LATE = PublishAnswer(
    f"the publish child did not respond within {CHILD_DEADLINE_SECONDS:.0f} s and was killed: "
    "the API server or the node is too slow",
    "Late",
)

FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 120.0


def jitter(*seed: object) -> float:
    """Draw a number from 0 to 1 that is the same for the same seed: nodes differ, and a test can know it."""
    return float(zlib.crc32(repr(seed).encode()) / 0xFFFFFFFF)


def retry_seconds(node_name: str, failures: int, retry_after: float | None) -> float:
    """Return how long to wait after so many failures in a row: doubled each time, spread over the upper half.

    What the API server asks for (``retry_after``) is the least.
    """
    longest = min(FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 10), LAST_RETRY_SECONDS)
    return max(longest * (1 + jitter(node_name, failures)) / 2, retry_after or 0.0)


def start_child(request: bytes) -> Child:
    """Start a publish child."""
    return fork(request, _publish)


def _publish() -> int:
    from nfd_worker.publish.publish_child import main  # noqa: PLC0415 - only in the child: TLS would stay for ever

    return main()


def read_answer(ended: Ended) -> PublishAnswer:
    """Read what a publish child left; one that could not say how it went has failed."""
    return PublishAnswer.from_line(ended.output) or PublishAnswer(_last_words(ended.status), "Crashed")


def _last_words(status: int) -> str:
    if status == -signal.SIGKILL:
        return "the publish child was killed, probably for memory: raise the container's memory limit"
    return f"the publish child ended with status {status} without a response: its traceback is in the log above"


class Publisher:
    """Keeps the Node in line with the newest request. Driven by the daemon's loop: it never waits by itself.

    ``take_over``: also take the Node over from an upstream Node Feature Discovery.
    ``on_answer`` is called for each attempt that ended, with the bytes of its request.
    """

    def __init__(
        self,
        node_name: str,
        kubeconfig: str | None,
        *,
        on_answer: Callable[[PublishAnswer, int], None],
        take_over: bool = False,
        start: Callable[[bytes], Child] = start_child,
    ) -> None:
        self._node_name = node_name
        self._kubeconfig = kubeconfig
        self._take_over = take_over
        self._on_answer = on_answer
        self._start = start
        self._wanted: bytes | None = None
        self._published: bytes | None = None
        self._running: bytes | None = None
        self._child: Child | None = None
        self._deadline = float("inf")
        self._not_before = 0.0
        self._noted: tuple[str, ...] = ()
        self._has_taken_over = False
        self.failures = 0

    def want(self, content: NodeContent, unknown: Unknown | None = None, origins: Origins = NO_ORIGINS) -> None:
        """Set what the Node should carry; the rest as in :class:`nfd_worker.publish.wire.PublishRequest`."""
        request = PublishRequest(self._node_name, content, unknown, origins, self._take_over, self._kubeconfig)
        self._wanted = request.to_bytes()

    def repeat(self) -> None:
        """Publish again although nothing changed here: somebody may have changed the Node by hand."""
        self._published = None

    @property
    def is_settled(self) -> bool:
        """Whether the Node carries what is wanted, as far as we know."""
        return self._child is None and self._wanted == self._published

    def readers(self) -> Mapping[int, Callable[[float], None]]:
        """Name the file descriptor to wait for, and what to call with the time when it is ready."""
        return {} if self._child is None else {self._child.answer_pipe: self._on_answer_ready}

    def step(self, now: float) -> float:
        """Start or kill a child if it is time; returns when to call again at the latest."""
        if self._child is not None:
            if now < self._deadline:
                return self._deadline
            self._child.kill()
            self._finish(now, _LATE)
        if self._wanted == self._published:
            return float("inf")
        if now < self._not_before:
            return self._not_before
        self._spawn(now)
        return self._deadline

    def stop(self) -> None:
        """End a running child; what it was about to publish is published by the next worker."""
        if self._child is not None:
            self._child.kill()
            self._child.reap()
            self._child = None

    def _spawn(self, now: float) -> None:
        assert self._wanted is not None  # noqa: S101 - nothing wanted equals nothing published
        try:
            self._child = self._start(self._wanted)
        except OSError as error:
            self._failed(now, PublishAnswer(f"cannot start the publish child: {error}", "NotStarted"), self._wanted)
            return
        self._running = self._wanted
        self._deadline = now + CHILD_DEADLINE_SECONDS

    def _on_answer_ready(self, now: float) -> None:
        if self._child is not None and self._child.has_ended():
            self._finish(now)

    def _finish(self, now: float, late: PublishAnswer | None = None) -> None:
        assert self._child is not None  # noqa: S101 - called only while one runs
        assert self._running is not None  # noqa: S101 - as above
        ended = self._child.reap()
        self._child = None
        answer = late or read_answer(ended)
        if answer.is_published:
            self._succeeded(answer, self._running)
        else:
            self._failed(now, answer, self._running)

    def _succeeded(self, answer: PublishAnswer, request: bytes) -> None:
        self._published = request
        self.failures = 0
        self._not_before = 0.0
        log.info("publish: node %s labelled, %d bytes", self._node_name, len(request))
        self._log_notes(answer)
        self._on_answer(answer, len(request))

    def _log_notes(self, answer: PublishAnswer) -> None:
        """Log what else the answer says; a repeated note is logged once."""
        for note in answer.notes:
            if note not in self._noted:
                log.warning("publish: %s", note)
        self._noted = answer.notes
        if not answer.took_over:
            return
        if self._has_taken_over:
            log.warning(
                "publish: an upstream Node Feature Discovery wrote to node %s again (%s) after nfd-worker adopted it: "
                "stop its nfd-master, or both keep overwriting each other",
                self._node_name,
                answer.took_over,
            )
        else:
            log.info("publish: adopted the node from an upstream Node Feature Discovery: %s", answer.took_over)
        self._has_taken_over = True

    def _failed(self, now: float, answer: PublishAnswer, request: bytes) -> None:
        self.failures += 1
        delay = retry_seconds(self._node_name, self.failures, answer.retry_after)
        self._not_before = now + delay
        log.warning("publish: %s; trying again in %.1f s (failure %d)", answer.error, delay, self.failures)
        self._on_answer(answer, len(request))
