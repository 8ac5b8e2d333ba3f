"""A supervisor in a process of its own, and its clients, for tests. Each wait is for an event, and bounded."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from device_agent.gpu_state.limits import PodLimit
from device_agent.gpu_state.mig_change import MigChange
from device_agent.gpu_state.requests import CHANGE_MIG, FOLLOW, FOLLOW_USE, dump_request
from device_agent.gpu_state.state import State
from device_agent.gpu_state.state_json import parse_state
from device_agent.gpu_state.use import Use
from device_agent.gpu_state.use_json import parse_use

SECONDS = 180.0
"""How long anything may take here, on a busy machine."""

REPOSITORY = Path(__file__).parents[4]

QUICK = {
    "look": 0.2, "use": 0.1, "silence": 60.0, "patience": 0.2, "first_pause": 0.1, "longest_pause": 0.2,
    "absent_pause": 30.0, "unloaded_pause": 30.0, "reopen": 0.3, "sign_of_life": 0.3, "idle": 30.0,
}  # fmt: skip
"""Deadlines for tests; those of which most tests expect no effect are long."""


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    """Wait until something is so."""
    end = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < end, f"waited {SECONDS:g} s for {what}"
        time.sleep(0.01)


class Client:
    """A client of the socket."""

    def __init__(self, path: Path) -> None:
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.settimeout(SECONDS)
        self._received = b""
        try:
            self.connection.connect(str(path))
        except OSError:
            self.connection.close()
            raise

    def ask(
        self, request: str, pods: tuple[str, ...] | None = None, limits: tuple[PodLimit, ...] | None = None
    ) -> None:
        """Send a request."""
        self.connection.sendall(dump_request(request, pods, limits=limits))

    def change(self, change: MigChange) -> None:
        """Ask for a change of MIG."""
        self.connection.sendall(dump_request(CHANGE_MIG, change=change))

    def line(self) -> bytes:
        """Wait for a line; empty when the connection has ended."""
        while b"\n" not in self._received:
            chunk = self.connection.recv(1 << 20)
            if not chunk:
                return b""
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        return line

    def state(self, is_wanted: Callable[[State], bool] = lambda _: True) -> State:
        """Wait for a state that is wanted."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            if is_wanted(state := parse_state(self.line())):
                return state
        raise AssertionError(f"the last state after {SECONDS:g} s is {state}")

    def use(self, is_wanted: Callable[[Use], bool] = lambda _: True) -> Use:
        """Wait for a use of cards that is wanted."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            if is_wanted(use := parse_use(self.line())):
                return use
        raise AssertionError(f"the last use after {SECONDS:g} s is {use}")

    def has_ended(self) -> bool:
        """Wait for the end of the connection."""
        try:
            while self.connection.recv(1 << 20):
                pass
        except ConnectionResetError:
            pass
        return True

    def close(self) -> None:
        """End the connection."""
        self.connection.close()


def answers(sock: Path) -> bool:
    """Return whether somebody listens there."""
    try:
        Client(sock).close()
    except OSError:
        return False
    return True


class Running:
    """A supervisor that was started; ended with its context."""

    def __init__(self, folder: Path, command: tuple[str, ...], environment: Mapping[str, str]) -> None:
        self.socket = folder / "nvml.sock"
        self.log = folder / "log"
        self._clients: list[Client] = []
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                (sys.executable, *command), cwd=REPOSITORY, env={**os.environ, **environment}, stderr=log
            )

    def __enter__(self) -> Self:
        wait_for(lambda: self.is_listening() or self.process.poll() is not None, "the socket")
        assert self.process.poll() is None, self.log.read_text()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for client in self._clients:
            client.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if error is not None:
            print(self.log.read_text())

    def is_listening(self) -> bool:
        """Return whether somebody accepts connections."""
        return answers(self.socket)

    def client(self) -> Client:
        """Connect."""
        self._clients.append(Client(self.socket))
        return self._clients[-1]

    def follower(self) -> Client:
        """Connect, and follow the state."""
        client = self.client()
        client.ask(FOLLOW)
        return client

    def user(self, pods: tuple[str, ...] | None = None) -> Client:
        """Connect, and follow the use of cards."""
        client = self.client()
        client.ask(FOLLOW_USE, pods)
        return client

    def children(self) -> list[int]:
        """Return the processes that the supervisor has, those that were not reaped included."""
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in text.split()]

    def child(self) -> int:
        """Wait for the one child."""
        wait_for(lambda: len(self.children()) == 1, "a child")
        return self.children()[0]

    def terminate(self) -> int:
        """End it as the kubelet does; returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)


class StandIn(Running):
    """A supervisor with a child that does what files say; see :mod:`stand_in`."""

    def __init__(self, folder: Path, say: bytes, then: str = "", **timing: float) -> None:
        self.folder = folder
        self.do(say, then)
        module = f"{__name__.rpartition('.')[0]}.stand_in"
        super().__init__(folder, ("-m", module, str(folder), json.dumps({**QUICK, **timing})), {})

    def do(self, say: bytes, then: str = "") -> None:
        """Change what the child, and each later one, does at its next look."""
        for name, content in (("say", say), ("then", then.encode())):
            new = self.folder / f"{name}.new"
            new.write_bytes(content)
            if content or name == "say":
                new.rename(self.folder / name)
            else:
                (self.folder / name).unlink(missing_ok=True)

    def left(self, name: str) -> str:
        """Return what the children have written into a file."""
        return (self.folder / name).read_text() if (self.folder / name).exists() else ""


RUN = """
import ctypes, json, os, sys
from device_agent.nvml_container.run import supervise
from device_agent.nvml_container.settings import Places, Settings, Timing
folder, library, timing = sys.argv[1:]
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans become its children, as those of a container's first
places = Places(root=folder, proc_root=folder, dev=f"{folder}/dev", library=library)
timing = Timing(**json.loads(timing))
may = ["DEVICE_AGENT_" + what in os.environ for what in ("ENDS_PROCESSES", "CHANGES_MIG")]
sys.exit(supervise(Settings(f"{folder}/nvml.sock", "debug", "text", places, timing, *may)))
"""


class WithNvml(Running):
    """The command's supervisor and child, with a library in place of the driver's, on a folder in place of a node."""

    def __init__(self, folder: Path, library: Path, environment: Mapping[str, str], **timing: float) -> None:
        timing_json = json.dumps({**QUICK, **timing})
        super().__init__(folder, ("-c", RUN, str(folder), str(library), timing_json), environment)


def is_gone(pid: int) -> bool:
    """Return whether a process has ended; one that nobody has reaped yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True
