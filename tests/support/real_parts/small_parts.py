"""A registry and an engine on disks of their own, small enough to be full, beside those of a ground.

Their disks are file systems in memory, mounted where only the ground's processes see them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from driver_builder.builds.docker.docker_engine import docker_engine
from testbed import engine_kind, runtime_wrapper
from testbed.engine_kind import EngineKind
from testbed.ports import accepts_connections, free_ports
from testbed.process import Processes
from testbed.progress import Silent
from testbed.registry import config_text

_READY_TIMEOUT = 240.0


@dataclass(slots=True)
class _Disk:
    """A file system in memory."""

    processes: Processes
    name: str
    folder: Path
    mounted: str = "64m"
    resized: int = 0

    def start_on(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Mount it and start a process on it."""
        self.folder.mkdir()
        command = f'mount -t tmpfs -o size={self.mounted} {self.name} "{self.folder}" && exec "$@"'
        self.processes.spawn(self.name, ["sh", "-c", command, "sh", *argv], env=env)

    def resize(self, size: str) -> None:
        """Make it larger or smaller; what is there stays."""
        self.resized += 1
        name = f"{self.name}-resize-{self.resized}"
        self.processes.spawn(name, ["mount", "-o", f"remount,size={size}", str(self.folder)])
        assert self.processes.wait_ended(name, _READY_TIMEOUT)
        assert self.processes.exit_status(name) == 0, self.processes.log(name).read_text()


class MemoryGroup:
    """A control group by its path, such as the ground's, with the containers of its engine."""

    def __init__(self, path: str) -> None:
        version_1 = Path("/sys/fs/cgroup/memory")
        self._folder = (version_1 if version_1.is_dir() else Path("/sys/fs/cgroup")) / path
        self._file = "memory.limit_in_bytes" if version_1.is_dir() else "memory.max"
        self._no_limit = "-1" if version_1.is_dir() else "max"

    def limit(self, size: int) -> None:
        """Let all of its processes together have so many bytes; -1: as many as there are."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / self._file).write_text(self._no_limit if size < 0 else str(size))


class SmallRegistry:
    """A registry whose disk can be full."""

    def __init__(self, disk: _Disk, host: str) -> None:
        self._disk = disk
        self.host = host

    @classmethod
    def start(cls, processes: Processes) -> SmallRegistry:
        """Start it with room enough."""
        disk = _Disk(processes, "small-registry", processes.folder / "small-registry")
        (port,) = free_ports(1)
        config = processes.folder / "small-registry.yml"
        config.write_text(config_text(f"127.0.0.1:{port}", disk.folder, None))
        disk.start_on(["docker-registry", "serve", str(config)])
        processes.wait_ready(disk.name, lambda: accepts_connections(port), _READY_TIMEOUT)
        return cls(disk, f"127.0.0.1:{port}")

    def resize(self, size: str) -> None:
        """Change the size of its disk, in the notation of ``mount``."""
        self._disk.resize(size)


class SmallEngine:
    """A Docker Engine whose disk can be full, and whose containers can be short of memory."""

    def __init__(self, disk: _Disk, socket: str, memory: MemoryGroup) -> None:
        self._disk = disk
        self.socket = socket
        self.memory = memory

    @classmethod
    def start(
        cls, processes: Processes, *flags: str, name: str = "small-engine", kind: EngineKind = engine_kind.OF_TREE
    ) -> SmallEngine:
        """Start it with room and memory enough."""
        folder = processes.folder
        disk = _Disk(processes, name, folder / name, mounted="256m")
        launcher = folder / f"{name}-runtime"
        launcher.write_text(runtime_wrapper.launcher_text(sys.executable))
        launcher.chmod(0o755)
        socket, group = f"unix://{folder}/{name}.sock", f"/{folder.name}/{name}"
        settings = folder / f"{name}-settings"
        settings.mkdir(exist_ok=True)
        with Silent().step("") as step:
            variables = engine_kind.variables(kind, step)
        disk.start_on([
            "dockerd", f"--data-root={disk.folder}/docker", f"--exec-root={folder}/{name}-x",
            f"--pidfile={folder}/{name}.pid", f"--host={socket}",
            "--bridge=none", "--iptables=false", "--ip6tables=false",
            "--exec-opt=native.cgroupdriver=cgroupfs", f"--cgroup-parent={group}",
            f"--add-runtime=ground={launcher}", "--default-runtime=ground", *engine_kind.flags(kind, settings), *flags,
        ], env=variables)  # fmt: skip
        engine = cls(disk, socket, MemoryGroup(group.lstrip("/")))
        processes.wait_ready(disk.name, engine.answers, _READY_TIMEOUT)
        return engine

    def answers(self) -> bool:
        """Return whether it takes requests."""
        return Path(self.socket.removeprefix("unix://")).exists() and self._pings()

    def _pings(self) -> bool:
        try:
            with docker_engine(self.socket) as api:
                return bool(api.ping())
        except Exception:  # noqa: BLE001 - whatever it is, it is not ready
            return False

    def pull(self, image: str) -> None:
        """Get an image from the testbed's registry."""
        with docker_engine(self.socket) as api:
            repository, _, tag = image.rpartition(":")
            api.pull(repository, tag=tag)
            assert api.inspect_image(image)

    def resize(self, size: str) -> None:
        """Change the size of its disk, in the notation of ``mount``."""
        self._disk.resize(size)

    def stop(self) -> None:
        """End it: nothing else needs it."""
        self._disk.processes.stop(self._disk.name)
