"""When to publish, and the life of the publish child: start, deadline, end, back-off.

Nothing is published while what the Node should carry is what was last published. A failure of any kind is tried again
for ever, later and later; what is tried is always the newest request. Now and then a child checks whether the Node
still carries it (:mod:`nfd_worker.publish.node_check`), and publishes it again if not.
"""

import logging
import signal
import zlib
from collections.abc import Callable, Mapping

from nfd_worker.child import Child, Ended, fork
from nfd_worker.labels.node_content import NO_ORIGINS, NodeContent, Origins, Unknown
from nfd_worker.publish.wire import CHECK, PublishAnswer, PublishRequest, Seen

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

CHECKS_PER_FULL_ONE = 2
"""Every second check also looks at taints and extended resources, which may take a read of the whole Node."""


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
    ``on_answer`` is called for each attempt to publish that ended, with the bytes of its request, and ``on_check`` for
    each check.
    """

    def __init__(
        self,
        node_name: str,
        kubeconfig: str | None,
        *,
        on_answer: Callable[[PublishAnswer, int], None],
        on_check: Callable[[PublishAnswer], None] = lambda _: None,
        take_over: bool = False,
        start: Callable[[bytes], Child] = start_child,
    ) -> None:
        self._node_name = node_name
        self._kubeconfig = kubeconfig
        self._take_over = take_over
        self._on_answer = on_answer
        self._on_check = on_check
        self._start = start
        self._wanted: bytes | None = None
        self._published: bytes | None = None
        self._running: bytes | None = None
        self._child: Child | None = None
        self._deadline = float("inf")
        self._not_before = 0.0
        self._seen = Seen()
        self._has_to_check = self._is_checking = False
        self._checks = 0
        self._noted: tuple[str, ...] = ()
        self._noted_check = ""
        self._has_taken_over = False
        self.failures = 0

    def want(self, content: NodeContent, unknown: Unknown | None = None, origins: Origins = NO_ORIGINS) -> None:
        """Set what the Node should carry; the rest as in :class:`nfd_worker.publish.wire.PublishRequest`."""
        request = PublishRequest(self._node_name, content, unknown, origins, self._take_over, self._kubeconfig)
        self._wanted = request.to_bytes()

    def check(self) -> None:
        """Look whether the Node still carries what was published, when there is nothing else to do."""
        self._has_to_check = True

    @property
    def is_settled(self) -> bool:
        """Whether the Node carries what is wanted, as far as we know."""
        return (self._child is None or self._is_checking) and self._wanted == self._published

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
            if not self._has_to_check or self._published is None:
                return float("inf")
            self._spawn(now, self._check_of(self._published), is_check=True)
        elif now < self._not_before:
            return self._not_before
        else:
            assert self._wanted is not None  # noqa: S101 - nothing wanted equals nothing published
            self._spawn(now, self._wanted)
        if self._child is not None:
            return self._deadline
        return float("inf") if self._wanted == self._published else self._not_before

    def stop(self) -> None:
        """End a running child; what it was about to publish is published by the next worker."""
        if self._child is not None:
            self._child.kill()
            self._child.reap()
            self._child = None

    def _check_of(self, published: bytes) -> bytes:
        """Make the request that checks what was published."""
        self._checks += 1
        is_full = self._checks % CHECKS_PER_FULL_ONE == 0
        request = PublishRequest.from_bytes(published)._replace(action=CHECK, seen=self._seen, is_full=is_full)
        return request.to_bytes()

    def _spawn(self, now: float, request: bytes, *, is_check: bool = False) -> None:
        # What is published needs no check, and a check that fails has its time again.
        self._has_to_check, self._is_checking, self._running = False, is_check, request
        self._deadline = now + CHILD_DEADLINE_SECONDS
        try:
            self._child = self._start(request)
        except OSError as error:
            self._ended(now, PublishAnswer(f"cannot start the publish child: {error}", "NotStarted"))

    def _on_answer_ready(self, now: float) -> None:
        if self._child is not None and self._child.has_ended():
            self._finish(now)

    def _finish(self, now: float, late: PublishAnswer | None = None) -> None:
        assert self._child is not None  # noqa: S101 - called only while one runs
        ended = self._child.reap()
        self._child = None
        self._ended(now, late or read_answer(ended))

    def _ended(self, now: float, answer: PublishAnswer) -> None:
        assert self._running is not None  # noqa: S101 - called only for what was started
        request, self._running = self._running, None
        is_check, self._is_checking = self._is_checking, False
        if is_check:
            self._checked(now, answer, len(request))
        elif answer.is_published:
            self._published = request
            self._succeeded(answer, len(request))
        else:
            self._failed(now, answer, len(request))

    def _checked(self, now: float, answer: PublishAnswer, size: int) -> None:
        self._on_check(answer)
        if answer.lost:
            log.warning("check: node %s: %s", self._node_name, "; ".join(answer.lost))
        if answer.lost and answer.is_published:
            self._succeeded(answer, size)
        elif answer.lost:
            # Known to be wrong, and tried again as what was never published.
            self._published = None
            self._failed(now, answer, size)
        elif answer.is_published:
            self._seen = answer.seen
        elif answer.error != self._noted_check:
            log.warning(
                "check: %s; whether node %s still has its labels is checked again later", answer.error, self._node_name
            )
        self._noted_check = answer.error

    def _succeeded(self, answer: PublishAnswer, size: int) -> None:
        self._seen = answer.seen
        self.failures = 0
        self._not_before = 0.0
        log.info("publish: node %s labelled, %d bytes", self._node_name, size)
        self._log_notes(answer)
        self._on_answer(answer, size)

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

    def _failed(self, now: float, answer: PublishAnswer, size: int) -> None:
        self.failures += 1
        delay = retry_seconds(self._node_name, self.failures, answer.retry_after)
        self._not_before = now + delay
        log.warning("publish: %s; trying again in %.1f s (failure %d)", answer.error, delay, self.failures)
        self._on_answer(answer, size)
