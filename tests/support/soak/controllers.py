"""Controllers of a soak as processes: started, killed, stopped, with a wrong clock and a disk that may be full.

The temporary folder of each is a small file system in memory, mounted where only its own process sees it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import requests

from testbed import metrics
from testbed.ports import free_ports
from tests.support.loopback import ALLOWED, VARIABLE

ROOT = Path(__file__).parents[3]
DISK_MIB = 32
RECONCILES = 'driver_builder_reconcile_seconds_count{result="Succeeded"}'
ANSWER_SECONDS = 10.0
_START = 'mount -t tmpfs -o size={size}m soak "$TMPDIR" && exec "$@"'
_BUILD_LINE = re.compile(r"build (?P<key>[0-9a-f]{20}): (?P<text>.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A line about a build: which process of which controller said it, and when (of the monotonic clock)."""

    at: float
    controller: str
    life: int
    key: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A moment from which a process may have left something half done: killed, stopped, or without its Lease."""

    at: float
    controller: str
    life: int
    why: str


class Controller:
    """One controller, which may have several lives. ``arguments`` are those of ``driver-builder run``."""

    def __init__(self, name: str, folder: Path, arguments: list[str], clock: Path) -> None:
        self.name = name
        self.said: list[Said] = []
        self.ended: list[Ended] = []
        self.life = 0
        self._folder = folder / name
        self._disk = self._folder / "tmp"
        self._disk.mkdir(parents=True)
        (self._port,) = free_ports(1)
        self._log = self._folder / "controller.log"
        self._log.touch()
        self._clock = clock
        self._arguments = ["run", *arguments, "--port", str(self._port)]
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    @property
    def is_alive(self) -> bool:
        """Tell whether its process runs, or is stopped."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Begin a life."""
        python = [sys.executable, "-m", "tests.support.soak.shifted_controller", str(self._clock)]
        mounted = ["unshare", "--mount", "sh", "-c", _START.format(size=DISK_MIB), "sh"]
        self.life += 1
        # Before its process has one: whoever reads the log of this life must not find that of the last one.
        with self._log.open("a") as log:
            log.write(f"---- life {self.life} begins\n")
        self._process = subprocess.Popen(
            [*mounted, *python, *self._arguments],
            cwd=ROOT,
            env=os.environ | {"TMPDIR": str(self._disk), VARIABLE: ALLOWED, "POD_NAME": self.name},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process, self.life), daemon=True)
        self._reader.start()

    def keep_running(self) -> None:
        """Start it where it does not run, as a kubelet would.

        Raises:
            AssertionError: when it ended by itself, and not because it lost its Lease.
        """
        if self.is_alive:
            return
        if self._process is not None:
            self._note_end()
        self.start()

    def _note_end(self) -> None:
        assert self._process is not None
        assert self._reader is not None
        self._reader.join()
        killed = self._process.returncode == -signal.SIGKILL
        words = self.log()[-6000:]
        lost = any(text in words for text in ("lease: not renewed for", "was taken by another controller"))
        assert killed or (self._process.returncode == 0 and lost), (
            f"{self.name} ended by itself ({self._process.returncode}): {words}"
        )
        if not killed:
            self._ended("lost its Lease")

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None and self.is_alive:
            self._ended("killed")
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """SIGSTOP."""
        if self._process is not None and self.is_alive:
            self._ended("stopped")
            self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        if self._process is not None and self.is_alive:
            self._process.send_signal(signal.SIGCONT)

    def is_waiting(self) -> bool:
        """Tell whether it has asked for the Lease in this life, and another one has it."""
        words = self._words_of_this_life()
        return "waiting for the lease" in words and not self.is_acting()

    def is_acting(self) -> bool:
        """Tell whether it has the Lease."""
        return self.is_alive and f"acting as {self.name} " in self._words_of_this_life()

    def _words_of_this_life(self) -> str:
        return self.log().rpartition(f"life {self.life} begins\n")[2]

    def _ended(self, why: str) -> None:
        self.ended.append(Ended(at=time.monotonic(), controller=self.name, life=self.life, why=why))

    def _read(self, process: subprocess.Popen[bytes], life: int) -> None:
        assert process.stdout is not None
        with self._log.open("ab", buffering=0) as log, process.stdout as lines:
            for line in lines:
                at = time.monotonic()
                log.write(line)
                if found := _BUILD_LINE.search(line.decode(errors="replace")):
                    self.said.append(Said(at=at, controller=self.name, life=life, key=found["key"], text=found["text"]))

    def log(self) -> str:
        """Return what it said in all its lives."""
        return self._log.read_text(errors="replace")

    def passes(self) -> float | None:
        """Count the reconciles of this life that succeeded; None where it does not answer."""
        try:
            answer = requests.get(f"http://127.0.0.1:{self._port}/metrics", timeout=ANSWER_SECONDS)
        except requests.RequestException:
            return None
        return metrics.total(answer.text, RECONCILES) if answer.ok else None

    def internal_errors(self) -> list[str]:
        """Return the lines that report bugs."""
        return [line for line in self.log().splitlines() if "internal error" in line or "Traceback" in line]

    def resident_mib(self) -> float:
        """Return the memory of its process."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) / 1024

    def fill_disk(self) -> None:
        """Leave no room in its temporary folder."""
        with self._filler().open("wb") as file:
            left = os.statvfs(file.fileno())
            os.posix_fallocate(file.fileno(), 0, max(1, left.f_bavail * left.f_frsize))

    def empty_disk(self) -> None:
        """Give the room back."""
        if self.is_alive:
            self._filler().unlink(missing_ok=True)

    def _filler(self) -> Path:
        assert self._process is not None
        return Path(f"/proc/{self._process.pid}/root{self._disk}") / "filler"

    def close(self) -> None:
        """End it."""
        self.go_on()
        self.kill()
        if self._reader is not None:
            self._reader.join()
