"""When to publish, and the life of the publish child: spawn, deadline, reaping, back-off.

Nothing is sent while what the Node should carry is what was last published. A failure of any kind is tried again for
ever, later and later; what is tried is always the newest request.
"""

import logging
import os
import signal
import sys
import zlib
from collections.abc import Callable, Mapping

from nfd_worker.wire import PublishAnswer, PublishRequest

log = logging.getLogger(__name__)

CHILD_COMMAND = (sys.executable, "-I", "-m", "nfd_worker.publish")
CHILD_DEADLINE_SECONDS = 120.0
"""Generous: an emulated guest needs half a minute for the imports alone."""

FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 120.0

_PIPE_SIZE = 1 << 16


def jitter(*seed: object) -> float:
    """Draw a number from 0 to 1 that is the same for the same seed: nodes differ, and a test can know it."""
    return float(zlib.crc32(repr(seed).encode()) / 0xFFFFFFFF)


def retry_seconds(node_name: str, failures: int, retry_after: float | None) -> float:
    """Say how long to wait after so many failures in a row: doubled each time, spread over the upper half.

    What the API server asks for (``retry_after``) is the least.
    """
    longest = min(FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 10), LAST_RETRY_SECONDS)
    return max(longest * (1 + jitter(node_name, failures)) / 2, retry_after or 0.0)


class Child:
    """A running publish child.

    Its end is the end of the pipe it answers on. That needs no pidfd, which kernels before 5.3 (RHEL 8) do not have.
    """

    def __init__(self, pid: int, answer_pipe: int) -> None:
        self.pid = pid
        self.answer_pipe = answer_pipe
        self._answer = b""

    def has_ended(self) -> bool:
        """Read what there is on the pipe; tells whether that was the end. Call it when the pipe is ready."""
        chunk = os.read(self.answer_pipe, _PIPE_SIZE)
        self._answer += chunk
        return not chunk

    def kill(self) -> None:
        """End it at once; to be reaped after."""
        os.kill(self.pid, signal.SIGKILL)

    def reap(self) -> PublishAnswer:
        """Collect the answer of a child that has ended or was killed: the kernel alone is waited for."""
        os.close(self.answer_pipe)
        _, status = os.waitpid(self.pid, 0)
        died = PublishAnswer(f"the publish child ended with status {os.waitstatus_to_exitcode(status)}", "Crashed")
        return PublishAnswer.from_line(self._answer) or died


def spawn(request: bytes, command: tuple[str, ...] = CHILD_COMMAND) -> Child:
    """Start a publish child.

    The request travels as a memfd, because a pipe holds only 64 KiB and the worker does not wait for the child to read.
    """
    payload = os.memfd_create("publish-request", os.MFD_CLOEXEC)
    reader, writer = os.pipe()
    try:
        os.write(payload, request)
        os.lseek(payload, 0, os.SEEK_SET)
        moves = [(os.POSIX_SPAWN_DUP2, payload, 0), (os.POSIX_SPAWN_DUP2, writer, 1)]
        return Child(os.posix_spawn(command[0], command, os.environ, file_actions=moves), reader)
    except OSError:
        os.close(reader)
        raise
    finally:
        os.close(payload)
        os.close(writer)


class Publisher:
    """Keeps the Node in line with the newest request. Driven by the daemon's loop: it never waits by itself.

    ``on_answer`` is told of each attempt that ended, with the bytes of its request.
    """

    def __init__(
        self,
        node_name: str,
        kubeconfig: str | None,
        *,
        on_answer: Callable[[PublishAnswer, int], None],
        start: Callable[[bytes], Child] = spawn,
    ) -> None:
        self._node_name = node_name
        self._kubeconfig = kubeconfig
        self._on_answer = on_answer
        self._start = start
        self._wanted: bytes | None = None
        self._published: bytes | None = None
        self._running: bytes | None = None
        self._child: Child | None = None
        self._deadline = float("inf")
        self._not_before = 0.0
        self.failures = 0

    def want(self, labels: Mapping[str, str], annotations: Mapping[str, str], keep_prefixes: tuple[str, ...]) -> None:
        """Set what the Node should carry."""
        request = PublishRequest(self._node_name, labels, annotations, keep_prefixes, self._kubeconfig)
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
            log.warning("publish: the child took longer than %.0f s and is killed", CHILD_DEADLINE_SECONDS)
            self._child.kill()
            self._finish(now)
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

    def _finish(self, now: float) -> None:
        assert self._child is not None  # noqa: S101 - called only while one runs
        assert self._running is not None  # noqa: S101 - as above
        answer = self._child.reap()
        self._child = None
        if not answer.is_published:
            self._failed(now, answer, self._running)
            return
        self._published = self._running
        self.failures = 0
        self._not_before = 0.0
        log.info("publish: node %s labelled, %d bytes", self._node_name, len(self._running))
        self._on_answer(answer, len(self._running))

    def _failed(self, now: float, answer: PublishAnswer, request: bytes) -> None:
        self.failures += 1
        delay = retry_seconds(self._node_name, self.failures, answer.retry_after)
        self._not_before = now + delay
        log.warning("publish: %s; trying again in %.1f s (failure %d)", answer.error, delay, self.failures)
        self._on_answer(answer, len(request))
