"""Real processes beside a ``/proc`` that says of which pod each is: no test is in a pod's cgroup.

``stat`` is the kernel's own file, so that a PID that is used again is seen as in a node's ``/proc``. As a program, in a
PID namespace of its own, it has the kernel use a PID again: ``python -m ... before|between FOLDER``.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from device_agent.boot import seconds_since_boot
from device_agent.gpu_state.ending import EndRequest
from device_agent.nvml_container.ending import end_process

CARD = "GPU-0"
POD, OTHER_POD = "a" * 32, "b" * 32
CGROUP = "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice/cri-containerd-0a.scope\n"
_LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
_ATTEMPTS = 100


class Echo:
    """A process that sends back what it gets, so that one that is killed is known to be dead."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.pid = self._process.pid

    def lives(self) -> bool:
        """Return whether it answers. One with a signal that kills runs no more: its pipe ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(b"x")
        except BrokenPipeError:
            return False
        return self._process.stdout.read(1) == b"x"

    def end(self) -> int:
        """Kill it if it lives, reap it, and return its status: negative for a signal."""
        if self._process.poll() is None:
            self._process.kill()
        return self.reap()

    def reap(self) -> int:
        """Wait for its end, and return its status."""
        with self._process:
            return self._process.wait(60)


class Proc:
    """A folder ``proc`` with what the kernel says of processes, and of which pod they are."""

    def __init__(self, root: Path) -> None:
        self._folder = root / "proc"
        self.path = str(self._folder)
        pid = os.getpid()
        while pid:
            self._link(pid)
            pid = int(_stat(pid)[1])

    def put(self, pid: int, cgroup: str) -> EndRequest:
        """Put a process in a pod, and return the request to end it."""
        self._link(pid)
        (self._folder / str(pid) / "cgroup").write_text(cgroup)
        return EndRequest(card=CARD, uid=POD, pid=pid, start=int(_stat(pid)[19]), at=seconds_since_boot())

    def _link(self, pid: int) -> None:
        folder = self._folder / str(pid)
        if not folder.exists():
            folder.mkdir(parents=True)
            (folder / "stat").symlink_to(f"/proc/{pid}/stat")


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _again(pid: int) -> Echo:
    """Start processes until one has this PID; its start is another one, as after some ticks."""
    tick = time.clock_gettime(time.CLOCK_BOOTTIME) + 2 / os.sysconf("SC_CLK_TCK")
    while time.clock_gettime(time.CLOCK_BOOTTIME) < tick:
        pass
    for _ in range(_ATTEMPTS):
        _LAST_PID.write_text(str(pid - 1))
        process = Echo()
        if process.pid == pid:
            return process
        process.end()
    raise SystemExit(f"the kernel does not use {pid} again")


def main(when: str, root: Path) -> None:
    """Have the PID used again before the request, or between the comparison and the kill; print what became of both."""
    old, proc = Echo(), Proc(root)
    request = proc.put(old.pid, CGROUP.format(POD))
    young: list[Echo] = []

    def use_again(_card: str = "") -> set[int]:
        old.end()
        young.append(_again(old.pid))
        return {old.pid}

    if when == "before":
        use_again()
    why = end_process(request, use_again if when == "between" else lambda _card: {old.pid}, proc.path)
    print(f"{'lives' if young[0].lives() else 'is dead'}: {why}")
    young[0].end()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
