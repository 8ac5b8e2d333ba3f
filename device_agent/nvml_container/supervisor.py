"""The resident process of the container ``nvml``: one thread, which waits for a child, clients, signals and deadlines.

It touches no driver: what may hang in the kernel is done by the child. A child that says nothing is killed, and the
next one is started when that one is gone, not before.
"""

import os
import selectors
import signal
import socket
import time
from contextlib import suppress

from device_agent.errors import StateInvalid
from device_agent.gpu_state.requests import LOOK, MAKE_NODES, Request
from device_agent.gpu_state.state import FAILED, State
from device_agent.gpu_state.state_json import dump_state
from device_agent.gpu_state.use import Use, XidCount
from device_agent.gpu_state.use_json import dump_use
from device_agent.nvml_container import following, messages
from device_agent.nvml_container.child_process import Child, Wanted, Work, start_child
from device_agent.nvml_container.clients import Clients
from device_agent.nvml_container.log import Log
from device_agent.nvml_container.settings import Timing
from device_agent.nvml_container.sysfs import read_load

_NEVER = float("inf")
_KERNEL_LOG = "the kernel log may have an NVRM or Xid message"


class Supervisor:
    """Keeps a child that does ``work``, and gives its state to the clients of ``listening``."""

    def __init__(self, *, work: Work, state: State, root: str, timing: Timing, log: Log) -> None:
        self._work = work
        self._root = root
        self._timing = timing
        self._log = log
        self._state = state
        self._selector = selectors.DefaultSelector()
        self._child: Child | None = None
        self._has_verdict = False
        self._wanted = Wanted()
        self._use: Use | None = None
        self._xids: tuple[XidCount, ...] = ()
        self._is_ending = False
        self._failures = 0
        self._started = -_NEVER
        self._next_start = -_NEVER
        self._sent: tuple[State | None, float] = (None, -_NEVER)
        self._stepped = _NEVER

    def run(self, listening: socket.socket) -> None:
        """Serve until SIGTERM or SIGINT; the child is killed then."""
        clients = Clients(listening, self._selector, self._asked, self._timing.idle)
        wake_reader = self._follow_signals()
        try:
            while not self._is_ending:
                self._step(clients)
                for key, events in self._selector.select(self._patience(clients)):
                    key.data(events, time.monotonic())
        finally:
            signal.set_wakeup_fd(-1)
            clients.close()
            self._end_child()
            self._selector.close()
            wake_reader.close()

    # ------------------------------------------------------------ what has to be done now

    def _step(self, clients: Clients) -> None:
        now = time.monotonic()
        self._note_load(now)
        self._note_use(clients.use, now)
        if self._child is not None:
            if now > self._stepped + self._timing.sign_of_life + self._timing.late:
                self._forgive(self._child, now)
            self._watch(self._child, now)
        if self._child is None and now >= self._next_start:
            self._start(now)
        self._stepped = now
        clients.drop_idle(now)
        state, at = self._sent
        has_changed = state is None or following.differ(state, self._state)
        if self._has_verdict and (has_changed or now >= at + self._timing.sign_of_life):
            self._sent = (self._state, now)
            clients.send(dump_state(self._state), now)
        if self._use is not None:
            clients.send_use(dump_use(self._use), now)
            self._use = None
        self._wait_for_room()

    def _patience(self, clients: Clients) -> float:
        """Return the seconds until something has to be done without an event."""
        now = time.monotonic()
        deadlines = [self._sent[1] + self._timing.sign_of_life if self._has_verdict else _NEVER]
        deadlines.append(clients.next_deadline())
        if self._child is None:
            deadlines.append(self._next_start)
        elif self._child.killed is None:
            deadlines.append(self._child.heard + self._timing.silence)
        elif now < self._child.killed + self._timing.patience:
            deadlines.append(self._child.killed + self._timing.patience)
        # One that cannot be killed is looked at again with the sign of life.
        return min(max(min(deadlines) - now, 0.01), self._timing.sign_of_life)

    def _note_load(self, now: float) -> None:
        before, self._state = self._state, following.after_load(self._state, read_load(self._root))
        if before.load != self._state.load:
            self._log.info(f"the module nvidia is {'loaded' if self._state.load else 'not loaded'}")
            self._look_now(now)

    def _note_use(self, use: Request, now: float) -> None:
        if use != self._wanted.use:
            self._wanted = self._wanted._replace(use=use)
            if self._child is not None:
                self._child.ask(use)
            elif self._wanted.is_used:
                self._look_now(now)

    # ------------------------------------------------------------ the child

    def _start(self, now: float) -> None:
        self._started = now
        try:
            self._child = start_child(self._work, self._wanted, now)
        except OSError as error:
            self._fail(f"no process can be started that asks NVML: {error.strerror}", now)
            return
        self._selector.register(self._child.lines, selectors.EVENT_READ, self._hear)

    def _hear(self, _events: int, now: float) -> None:
        child = self._child
        if child is None or child.is_closed:
            return
        try:
            lines = child.read(now)
            for line in lines or ():
                self._take(child, messages.parse_message(line))
        except StateInvalid as error:
            self._give_up(child, f"the process that asks NVML said what makes no sense: {error}", now)
            return
        if lines is None:
            self._deafen(child)
            child.kill(now)

    def _wait_for_room(self) -> None:
        """Write to the child as soon as its pipe has room, while something has to be written."""
        child = self._child
        if child is None or child.is_closed:
            return
        is_waited_for = child.requests in self._selector.get_map()
        if child.is_asked and not is_waited_for:
            self._selector.register(child.requests, selectors.EVENT_WRITE, lambda _events, _now: child.write())
        elif is_waited_for and not child.is_asked:
            self._selector.unregister(child.requests)

    def _take(self, child: Child, message: messages.Message) -> None:
        at = time.clock_gettime(time.CLOCK_BOOTTIME)
        if isinstance(message, messages.Doing):
            self._log.info(f"MIG: {message.step}")
            return
        if isinstance(message, Use):
            self._use = message._replace(session=self._state.session, xids=self._xids)
            return
        if isinstance(message, messages.XidSeen):
            if following.is_news(self._state, message, at):
                self._log.warning(f"Xid {message.xid} of GPU {message.uuid}")
            self._state = following.after_xid(self._state, message, at)
            self._xids = following.count_xid(self._xids, message)
            return
        child.has_spoken = True
        for one in message.mig_changes:
            log = self._log.warning if one.why else self._log.info
            log(f"MIG: change {one.id} of {one.card}: {one.outcome}{': ' if one.why else ''}{one.why}")
        self._report(following.after_look(self._state, message, at))
        if message.status == FAILED:
            self._failures += 1
            child.failed = child.heard
        elif child.heard >= child.started + self._timing.longest_pause:
            self._failures = 0  # and not earlier: one that crashes after each inventory has pauses as well

    def _watch(self, child: Child, now: float) -> None:
        """Reap a child that has ended, kill one that says nothing, and report one that cannot be killed."""
        status = child.reap()
        if status is not None:
            self._deafen(child)
            self._child = None
            self._note_end(child, status, now)
        elif child.killed is None and now >= child.heard + self._timing.silence:
            self._give_up(child, f"NVML gave no answer for {self._timing.silence:g} s: its process was killed and is "
                          f"started again; {_KERNEL_LOG}", now)  # fmt: skip
        elif child.killed is not None and now >= child.killed + self._timing.patience:
            reason = f"{_who_is_left(child)} hangs in the kernel and cannot be killed; {_KERNEL_LOG}"
            self._report(following.after_failure(self._state, reason))

    def _note_end(self, child: Child, status: int, now: float) -> None:
        if child.why:
            self._report(following.after_failure(self._state, child.why))
        elif status or not child.has_spoken:
            how = f"by signal {-status}" if status < 0 else f"with exit status {status}"
            self._fail(f"the process that asks NVML has ended {how}; {_KERNEL_LOG}", now)
        # One that has failed, and stayed for the cards of other drivers, has waited itself.
        failed = now if child.failed is None else child.failed
        self._next_start = max(failed + self._pause(), now + self._timing.first_pause)

    def _forgive(self, child: Child, now: float) -> None:
        """Let a child begin anew after a time in which this process was stopped: the child probably was as well."""
        self._log.info("this process was stopped for a while; the one that asks NVML has its full time again")
        child.heard = now
        child.ask(Request(LOOK))

    def _give_up(self, child: Child, reason: str, now: float) -> None:
        child.why = reason
        self._deafen(child)
        child.kill(now)
        self._fail(reason, now)

    def _fail(self, reason: str, now: float) -> None:
        self._failures += 1
        self._report(following.after_failure(self._state, reason))
        self._next_start = now + self._pause()

    def _pause(self) -> float:
        return following.pause(self._state, self._failures, self._timing, is_used=self._wanted.is_used)

    def _report(self, state: State) -> None:
        if (state.status, state.reason) != (self._state.status, self._state.reason) or not self._has_verdict:
            log = self._log.warning if state.status == FAILED else self._log.info
            log(f"{state.status}: {state.reason or f'driver {state.driver} with {len(state.cards)} GPUs'}")
        self._state, self._has_verdict = state, True

    def _deafen(self, child: Child) -> None:
        if not child.is_closed:
            child.is_closed = True
            self._selector.unregister(child.lines)
            if child.requests in self._selector.get_map():
                self._selector.unregister(child.requests)

    def _end_child(self) -> None:
        """Kill the child, and wait for its end for a moment only: it may hang in the kernel."""
        child, end = self._child, time.monotonic() + self._timing.end
        if child is None:
            return
        child.kill(time.monotonic())
        while child.reap() is None and time.monotonic() < end:
            time.sleep(0.01)

    # ------------------------------------------------------------ what clients and signals ask for

    def _asked(self, request: Request) -> None:
        # Without a child there is nobody who could compare what they say.
        if request.process is not None or request.change is not None:
            if self._child is not None:
                self._child.ask(request)
            return
        if request.name == MAKE_NODES and not self._wanted.makes_nodes:
            self._wanted = self._wanted._replace(makes_nodes=True)
            self._log.info("device nodes are made from now on")
            if self._child is not None:
                self._child.ask(request)
        self._look_now(time.monotonic())

    def _look_now(self, now: float) -> None:
        """Read the inventory now; a child that failed is started again, but not more often than a pause allows."""
        if self._child is not None:
            self._child.ask(Request(LOOK))
        else:
            self._next_start = min(self._next_start, max(now, self._started + self._timing.first_pause))

    def _follow_signals(self) -> socket.socket:
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note_signal)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
        self._selector.register(reader, selectors.EVENT_READ, lambda _events, _now: _drain(reader))
        return reader

    def _note_signal(self, _number: int, _frame: object) -> None:
        self._is_ending = True


def _drain(reader: socket.socket) -> None:
    with suppress(BlockingIOError):
        reader.recv(1024)


def _who_is_left(child: Child) -> str:
    if child.status is None:
        return f"process {child.pid}, which asks NVML,"
    return f"a program that the driver's library has started, in process group {child.pid},"


def new_state(boot: str) -> State:
    """Make the state of a session that begins now."""
    return State(session=os.urandom(8).hex(), boot=boot)
