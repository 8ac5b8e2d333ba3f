"""The harness's end of the supervisor: start, stop and kill the processes of one testbed by name."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed import supervisor
from testbed.command import environment, tail
from testbed.errors import NotReadyError, TestbedError
from testbed.progress import Step

_SUPERVISOR_START_TIMEOUT = 120.0
_KILL_SECONDS = 240.0
"""A process that waits for a busy disk ends when the disk has answered."""
_REMOVAL_SECONDS = 300.0
"""A testbed may hold a kernel's whole source, unpacked in an engine, on a busy disk."""


class Processes:
    """The processes of one testbed, below its supervisor."""

    def __init__(self, folder: Path, watcher: subprocess.Popen[bytes] | None = None) -> None:
        self.folder = folder
        self._watcher = watcher
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(str(folder / supervisor.SOCKET_NAME))
        except OSError:
            self._socket.close()
            raise
        self._file = self._socket.makefile("rb")

    @classmethod
    def start(cls, folder: Path, *, outlive_harness: bool) -> Processes:
        """Start the supervisor of a new testbed; without `outlive_harness` it ends when this process does."""
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        lifeline = [] if outlive_harness else ["--lifeline"]
        with (folder / "logs" / "watcher.log").open("ab") as log:
            watcher = subprocess.Popen(
                [sys.executable, supervisor.__file__, "watch", str(folder), *lifeline],
                stdin=subprocess.DEVNULL if outlive_harness else subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        deadline = time.monotonic() + _SUPERVISOR_START_TIMEOUT
        while not (folder / supervisor.SOCKET_NAME).exists():
            if watcher.poll() is not None or time.monotonic() > deadline:
                output = tail(folder / "logs" / "keeper.log") + tail(folder / "logs" / "watcher.log")
                hint = "it makes a process and a mount namespace: is this root with CAP_SYS_ADMIN?"
                raise TestbedError(f"the supervisor of {folder} did not start: {output}", hint=hint)
            time.sleep(0.02)
        while True:
            try:
                return cls(folder, watcher)
            except ConnectionRefusedError:  # bound, but not listening yet
                time.sleep(0.02)

    def _ask(self, op: str, **fields: Any) -> dict[str, Any]:
        with self._lock:
            self._socket.sendall(json.dumps({"op": op, **fields}).encode() + b"\n")
            line = self._file.readline()
        if not line:
            raise TestbedError(f"the supervisor of {self.folder} is gone", hint="start the testbed again")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise TestbedError(f"supervisor: {op} {fields.get('name', '')}: {reply['error']}")
        return reply

    def log(self, name: str) -> Path:
        """Return the path of a process's log."""
        return self.folder / "logs" / f"{name}.log"

    def spawn(self, name: str, argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> None:
        """Start a process under a name that is free."""
        words = [str(word) for word in argv]
        spec = {"argv": words, "env": environment(env), "cwd": "/", "log": str(self.log(name))}
        self._ask("spawn", name=name, spec=spec)

    def start_again(self, name: str) -> None:
        """Start a process that has ended as it was started before."""
        self._ask("spawn", name=name)

    def is_running(self, name: str) -> bool:
        """Return whether the process runs."""
        return bool(self._ask("status", names=[name])["processes"][name]["pid"])

    def exit_status(self, name: str) -> int | None:
        """Return the exit status of an ended process (negative: the signal), or None."""
        status: int | None = self._ask("status", names=[name])["processes"][name]["exit"]
        return status

    def states(self) -> dict[str, str]:
        """Return all processes with a word or two about each."""
        processes = self._ask("status")["processes"]
        return {name: "running" if state["pid"] else f"ended ({state['exit']})" for name, state in processes.items()}

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a process, if it runs."""
        self._ask("signal", name=name, signal=int(number))

    def stop(self, name: str, *, timeout: float = 20) -> None:
        """End a process in an orderly way, and by force when that takes too long."""
        self.signal(name, signal.SIGTERM)
        if not self.wait_ended(name, timeout):
            self.kill(name)

    def kill(self, name: str) -> None:
        """End a process at once, as a crash would."""
        self.signal(name, signal.SIGKILL)
        self.wait_ended(name, _KILL_SECONDS)

    def wait_ended(self, name: str, timeout: float) -> bool:
        """Wait for a process to end; returns whether it did."""
        deadline = time.monotonic() + timeout
        while self.is_running(name):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def wait_ready(self, name: str, is_ready: Callable[[], bool], timeout: float, step: Step | None = None) -> None:
        """Wait until `is_ready` says so; a process that ends meanwhile is an error with the end of its log."""
        began = time.monotonic()
        while not is_ready():
            waited = time.monotonic() - began
            if step is not None:
                step.detail(f"waiting for {name}, {waited:.0f} s")
            if not self.is_running(name):
                raise NotReadyError(f"{name} ended with {self.exit_status(name)}:\n{tail(self.log(name), 2000)}")
            if waited > timeout:
                raise NotReadyError(f"{name} was not ready after {timeout:.0f} s:\n{tail(self.log(name), 2000)}")
            time.sleep(0.1)

    def end(self, *, keep_logs: bool) -> None:
        """End everything and remove the folder of the testbed, all but its logs where these are wanted."""
        try:
            self._ask("shutdown", keep_logs=keep_logs)
        except (TestbedError, OSError):
            pass  # No reply is the reply: process 1 is gone.
        finally:
            self._file.close()
            self._socket.close()
        self._wait_for_watcher()

    def _wait_for_watcher(self) -> None:
        if self._watcher is not None:
            try:
                self._watcher.wait(timeout=_REMOVAL_SECONDS)
            finally:
                # Only now: a closed lifeline would be taken for a crash of the harness, whose logs are kept.
                if self._watcher.stdin is not None:
                    self._watcher.stdin.close()
            return
        deadline = time.monotonic() + _REMOVAL_SECONDS
        while time.monotonic() < deadline:
            if not self.folder.exists() or {path.name for path in self.folder.iterdir()} <= {"logs"}:
                return
            time.sleep(0.05)
