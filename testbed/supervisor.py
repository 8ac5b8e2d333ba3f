"""The supervisor: every process of one testbed lives and dies below it.

Two processes, started as `supervisor.py watch FOLDER`:

watch   stays outside; ends the testbed when its harness goes away, however it goes, and removes what is left on disk
serve   is process 1 of a process and mount namespace of its own; starts, signals and reaps what it is asked to

The namespaces are what makes the end certain: when process 1 is gone the kernel kills every process below it, daemons,
containers and their shims included, and drops every mount they made. Nothing has to be found or guessed.

Speaks JSON lines over FOLDER/keeper.sock (see `process.py`, the other end). Uses the standard library only, and is
started by its path, so that it needs neither the harness's working directory nor its packages.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SOCKET_NAME = "keeper.sock"
KEEP_LOGS_STATUS = 3
_CGROUPS = Path("/sys/fs/cgroup")

# Folders whose place is fixed in kubelet, containerd or Docker: each testbed sees folders of its own there.
_PRIVATE_FOLDERS = (
    "/etc/docker",
    "/etc/kubernetes",
    "/run/containerd",
    "/var/lib/dockershim",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
)


def private_folder(folder: Path, place: str) -> Path:
    """Return where the processes of a testbed have one of the private folders, as others see it."""
    return folder / "private" / place.strip("/").replace("/", "-")


# ------------------------------------------------------------------ watch


def watch(folder: Path, *, lifeline: bool) -> None:
    """Run the testbed until it ends by itself or the lifeline (standard input) is closed, then clean up."""
    # In case the watcher itself is killed: this process has one thread, so the signal comes exactly then.
    mortal = ["setpriv", "--pdeathsig", "KILL", "--"]
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
    argv = [*mortal, *namespaces, "--", sys.executable, __file__, "serve", str(folder)]
    with (folder / "logs" / "keeper.log").open("ab") as log:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    ending = os.pidfd_open(child.pid)
    ready, _, _ = select.select([ending, sys.stdin] if lifeline else [ending], [], [])
    keep_logs = ending not in ready
    if keep_logs:
        _kill_children_of(child.pid)
    # The launcher ends after process 1, and that one only after everything below it.
    keep_logs = child.wait() == KEEP_LOGS_STATUS or keep_logs
    remove_cgroups(folder.name)
    remove_folder(folder, keep_logs=keep_logs)


def _kill_children_of(pid: int) -> None:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for child in children or [str(pid)]:
        os.kill(int(child), signal.SIGKILL)


def remove_cgroups(name: str) -> None:
    """Remove the control groups called `name`, in every hierarchy, with all below them; they hold no process now."""
    for top in [_CGROUPS / name, *_CGROUPS.glob(f"*/{name}")]:
        if not top.is_dir():
            continue
        for group in [*sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True), top]:
            _remove_cgroup(group)


def _remove_cgroup(group: Path) -> None:
    # The kernel lets go of the last dead process a moment after it was reaped.
    for _ in range(50):
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.1)
        else:
            return


def remove_folder(folder: Path, *, keep_logs: bool) -> None:
    """Remove the folder of a testbed, all of it or all but its logs."""
    doomed = [path for path in folder.iterdir() if path.name != "logs"] if keep_logs else [folder]
    subprocess.run(["rm", "-rf", "--one-file-system", *map(str, doomed)], check=False)


# ------------------------------------------------------------------ serve


class Server:
    """Process 1 of the ground: answers requests, and reaps whatever ends below it."""

    def __init__(self, folder: Path) -> None:
        self._selector = selectors.DefaultSelector()
        self._specs: dict[str, dict[str, Any]] = {}
        self._pids: dict[str, int] = {}
        self._exits: dict[str, int] = {}
        self._buffers: dict[socket.socket, bytes] = {}
        self._wake, wakeup = socket.socketpair()
        self._wake.setblocking(False)
        wakeup.setblocking(False)
        signal.set_wakeup_fd(wakeup.fileno())
        self._wakeup = wakeup
        signal.signal(signal.SIGCHLD, lambda *_: None)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / SOCKET_NAME))
        (folder / SOCKET_NAME).chmod(0o600)
        listener.listen(16)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake, selectors.EVENT_READ, self._reap)

    def run(self) -> None:
        """Serve until asked to shut down."""
        while True:
            for key, _ in self._selector.select():
                key.data(key.fileobj)

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        self._buffers[connection] = b""
        self._selector.register(connection, selectors.EVENT_READ, self._read)

    def _read(self, connection: socket.socket) -> None:
        try:
            chunk = connection.recv(1 << 16)
        except ConnectionError:
            chunk = b""
        if not chunk:
            self._forget(connection)
            return
        *lines, self._buffers[connection] = (self._buffers[connection] + chunk).split(b"\n")
        for line in lines:
            reply = json.dumps(self._answer(json.loads(line))) + "\n"
            try:
                connection.sendall(reply.encode())
            except ConnectionError:
                self._forget(connection)
                return

    def _forget(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._buffers[connection]
        connection.close()

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "spawn": self._spawn,
            "signal": self._signal,
            "status": self._status,
            "shutdown": self._shutdown,
        }
        try:
            return operations[request["op"]](request)
        except (OSError, KeyError, ValueError) as error:
            return {"error": f"{type(error).__name__}: {error}"}

    def _spawn(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request["name"]
        if name in self._pids:
            raise ValueError(f"{name} is already running")
        spec = self._specs[name] = request.get("spec") or self._specs[name]
        self._exits.pop(name, None)
        self._pids[name] = _fork_and_execute(spec)
        return {"pid": self._pids[name]}

    def _signal(self, request: dict[str, Any]) -> dict[str, Any]:
        if pid := self._pids.get(request["name"]):
            os.kill(pid, request["signal"])
        return {}

    def _status(self, request: dict[str, Any]) -> dict[str, Any]:
        names = request.get("names") or list(self._specs)
        return {"processes": {name: {"pid": self._pids.get(name), "exit": self._exits.get(name)} for name in names}}

    def _shutdown(self, request: dict[str, Any]) -> dict[str, Any]:
        end_all()
        os._exit(KEEP_LOGS_STATUS if request["keep_logs"] else 0)

    def _reap(self, wake: socket.socket) -> None:
        wake.recv(4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for name in [name for name, known in self._pids.items() if known == pid]:
                del self._pids[name]
                self._exits[name] = os.waitstatus_to_exitcode(status)


def end_all() -> None:
    """Kill every process below process 1 and wait for them, so that the time they took is known to who waits for it.

    The kernel would kill them when process 1 ends, and count nothing.
    """
    if os.getpid() != 1:
        raise PermissionError("only process 1 of a testbed ends all processes that it sees")
    os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _fork_and_execute(spec: dict[str, Any]) -> int:
    argv, env = spec["argv"], spec["env"]
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.chdir(spec["cwd"])
        log = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.execvpe(argv[0], argv, env)  # noqa: S606
    except OSError as error:
        os.write(2, f"cannot start {argv[0]}: {error}\n".encode())
    os._exit(127)


def serve(folder: Path) -> None:
    """Be process 1 of the testbed."""
    for place in _PRIVATE_FOLDERS:
        own = private_folder(folder, place)
        own.mkdir(parents=True)
        Path(place).mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", own, place], check=True)
    # Kubelet wants a shared root for mount propagation; shared within this namespace only.
    subprocess.run(["mount", "--make-rshared", "/"], check=True)
    Server(folder).run()


def main() -> None:
    """Run as one of the two roles."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["watch", "serve"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lifeline", action="store_true", help="end when standard input is closed")
    arguments = parser.parse_args()
    if arguments.role == "serve":
        serve(arguments.folder)
    else:
        watch(arguments.folder, lifeline=arguments.lifeline)


if __name__ == "__main__":
    main()
