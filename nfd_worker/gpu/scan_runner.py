"""When to scan for GPUs, and the life of the scan child: spawn, deadline, kill, reaping.

Driven by the daemon's loop as the publisher is; it never waits by itself, except for :meth:`ScanRunner.run_once`. A
scan that hangs in the kernel (a GPU that fell off the bus) does not die when it is killed: it is left to die in its own
time, and none other is started before.
"""

import json
import logging
import select
import sys
import time
from collections.abc import Callable, Iterable, Mapping

from feature_rules.features import Failed, Features
from nfd_worker.child import Child, spawn
from nfd_worker.errors import HostReadError
from nfd_worker.host import Host
from nfd_worker.sources import gpu

log = logging.getLogger(__name__)

SCAN_COMMAND = (sys.executable, "-I", "-m", "nfd_worker.gpu.gpu_scan")

SCAN_DEADLINE_SECONDS = 30.0
"""A first scan wakes GPUs from their sleep, which takes some seconds each without persistence mode."""

RESCAN_SECONDS = 300.0
"""How often GPUs are asked again without an event: MIG devices and modes change without one."""

RETRY_SECONDS = 60.0
"""The same while there are NVIDIA devices and no good answer: a driver is being installed or repaired."""

_DEATH_SECONDS = 1.0
_WAS_KILLED = float("inf")


class ScanRunner:
    """Keeps the newest answer of the scan child. ``on_change`` is called with the time when the answer has changed."""

    def __init__(
        self, command: tuple[str, ...] = SCAN_COMMAND, *, on_change: Callable[[float], None] = lambda _now: None
    ) -> None:
        self._command = command
        self._on_change = on_change
        self._outcome: Features | Failed | None = None
        self._cards = gpu.Cards(are_there=False, have_driver=False)
        self._logged = ""
        self._sharing_problem = ""
        self._child: Child | None = None
        self._deadline = _WAS_KILLED
        self._due = 0.0

    def outcome(self) -> Features | Failed | None:
        """Give the newest answer; None while there was none: nothing is known yet."""
        return self._outcome

    def poke(self) -> None:
        """Scan as soon as possible: devices came or went. A scan that runs is followed by another."""
        self._due = 0.0

    def readers(self) -> Mapping[int, Callable[[float], None]]:
        """Name the file descriptor to wait for, and what to call with the time when it is ready."""
        return {} if self._child is None else {self._child.answer_pipe: self._on_answer_ready}

    def step(self, now: float, host: Host) -> float:
        """Start or kill a child if it is time; returns when to call again at the latest."""
        if self._child is not None and now >= self._deadline:
            self._child.kill()
            self._deadline = _WAS_KILLED
            self._conclude(now, Failed(f"the GPU scan took longer than {SCAN_DEADLINE_SECONDS:.0f} s and was killed"))
        if self._child is not None:
            return self._deadline
        if now >= self._due:
            self._due = now + RESCAN_SECONDS
            self._start(now, host)
        return self._due if self._child is None else self._deadline

    def run_once(self, host: Host) -> Features | Failed:
        """Scan and wait for the answer, at most until the deadline; for one who asks only once."""
        while True:
            wake = self.step(time.monotonic(), host)
            if self._outcome is not None:
                self.stop()
                return self._outcome
            for descriptor in _ready(self.readers(), wake - time.monotonic()):
                self.readers()[descriptor](time.monotonic())

    def stop(self) -> None:
        """End a running child at once; one that hangs in the kernel is left for the process that reaps after us."""
        if self._child is None:
            return
        self._child.kill()
        deadline = time.monotonic() + _DEATH_SECONDS
        while _ready(self.readers(), deadline - time.monotonic()):
            if self._child.has_ended():
                self._child.reap()
                break
        self._child = None

    def _start(self, now: float, host: Host) -> None:
        try:
            if not gpu.needs_scan(host):
                self._logged = ""
                self._tell(now, Features())
                return
            self._cards = gpu.cards(host)
            self._child = spawn(json.dumps({"root": host.root}).encode(), self._command)
        except (HostReadError, OSError) as error:
            self._conclude(now, Failed(f"cannot scan for GPUs: {error}"))
            return
        self._deadline = now + SCAN_DEADLINE_SECONDS

    def _on_answer_ready(self, now: float) -> None:
        if self._child is None or not self._child.has_ended():
            return
        ended = self._child.reap()
        self._child = None
        if self._deadline == _WAS_KILLED:
            return
        died = Failed(f"the GPU scan ended with status {ended.status}")
        outcome = died if ended.status else gpu.parse_answer(ended.output)
        if isinstance(outcome, Features):
            self._log(gpu.why_no_gpus(outcome, ended.output))
            self._log_sharing(gpu.sharing_problem(ended.output))
        self._conclude(now, outcome)

    def _log(self, why: str) -> None:
        """Log why a node with an NVIDIA card has no GPU labels, once until the reason changes.

        It is a warning where the driver is loaded. Where it is not, it may not be installed yet, or the card may be
        passed to a virtual machine.
        """
        level, state = (logging.WARNING, "loaded") if self._cards.have_driver else (logging.INFO, "not loaded")
        about = f"gpu: this node has an NVIDIA card and no GPU labels (the kernel module nvidia is {state})"
        message = f"{about}: {why}; see docs/gpu.md" if why and self._cards.are_there else ""
        if message and message != self._logged:
            log.log(level, "%s", message)
        self._logged = message

    def _log_sharing(self, problem: str) -> None:
        """Log why the labels do not say how GPUs are shared, once until the reason changes."""
        if problem and problem != self._sharing_problem:
            log.warning("gpu: labelled as if no GPU were shared: %s; see docs/gpu.md", problem)
        self._sharing_problem = problem

    def _conclude(self, now: float, outcome: Features | Failed) -> None:
        if isinstance(outcome, Failed) or "gpu.driver" not in outcome.attributes:
            self._due = min(self._due, now + RETRY_SECONDS)
        self._tell(now, outcome)

    def _tell(self, now: float, outcome: Features | Failed) -> None:
        if outcome != self._outcome:
            self._outcome = outcome
            self._on_change(now)


def _ready(descriptors: Iterable[int], seconds: float) -> list[int]:
    """Wait for some descriptor to be readable; none when the time is over."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(max(0, int(seconds * 1000) + 1))]
