"""A real Docker Engine of the testbed's own, apart from any that the machine runs."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import docker

from testbed import engine_kind, runtime_wrapper
from testbed.engine_kind import EngineKind
from testbed.process import Processes
from testbed.progress import Progress

PACKAGES = ("docker.io", "containerd", "runc")
_NAME = "dockerd"
_READY_TIMEOUT = 240.0
_STOP_TIMEOUT = 240.0


class Engine:
    """The container engine of one testbed; containers and builds use the host's network."""

    def __init__(self, processes: Processes, kind: EngineKind = engine_kind.OF_TREE) -> None:
        self._processes = processes
        self.kind = kind
        self._folder = processes.folder
        self._socket_path = self._folder / "docker.sock"

    @property
    def socket(self) -> str:
        """The engine's address, as DOCKER_HOST takes it."""
        return f"unix://{self._socket_path}"

    @property
    def data(self) -> Path:
        """The folder of all its images and containers."""
        return self._folder / "docker"

    def client(self, *, timeout: float = 300) -> docker.APIClient:
        """Return a new client; the caller closes it."""
        return docker.APIClient(base_url=self.socket, version="auto", timeout=int(timeout))

    def bring_up(self, progress: Progress) -> None:
        """Start the engine for the first time and wait until it answers."""
        with progress.step("Start the container engine") as step:
            launcher = self._folder / "oci-runtime"
            launcher.write_text(runtime_wrapper.launcher_text(sys.executable))
            launcher.chmod(0o755)
            variables = engine_kind.variables(self.kind, step)
            self._processes.spawn(_NAME, self._command(launcher), env=variables)
            self._processes.wait_ready(_NAME, self.is_ready, _READY_TIMEOUT, step)

    def _command(self, launcher: Path) -> list[str]:
        folder = self._folder
        return [
            "dockerd",
            f"--data-root={self.data}",
            f"--exec-root={folder}/dockerx",
            f"--pidfile={folder}/docker.pid",
            f"--host={self.socket}",
            # No bridge and no rules: nothing of the machine's network is touched.
            *("--bridge=none", "--iptables=false", "--ip6tables=false"),
            *engine_kind.flags(self.kind, folder),
            "--exec-opt=native.cgroupdriver=cgroupfs",
            f"--cgroup-parent=/{folder.name}",
            f"--add-runtime=ground={launcher}",
            "--default-runtime=ground",
        ]

    def is_ready(self) -> bool:
        """Return whether the engine answers."""
        # Not by its client library, which leaves sockets open when nobody answers.
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            try:
                connection.connect(str(self._socket_path))
                connection.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                return b" 200 " in connection.recv(100)
            except OSError:
                return False

    def start(self) -> None:
        """Start the engine again after `stop` or `kill`, with all its images and containers."""
        self._processes.start_again(_NAME)
        self._processes.wait_ready(_NAME, self.is_ready, _READY_TIMEOUT)

    def stop(self) -> None:
        """End the engine in an orderly way; its containers are stopped."""
        self._processes.stop(_NAME, timeout=_STOP_TIMEOUT)

    def kill(self) -> None:
        """End the engine at once, as a crash would (SIGKILL)."""
        self._processes.kill(_NAME)
