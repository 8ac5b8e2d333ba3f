"""A second registry, another program's: `crane registry serve` of Debian sid, unpacked into the cache.

It keeps no list of referrers, knows no password, and forgets all manifests when it ends.
"""

from __future__ import annotations

from testbed import unpacked
from testbed.ports import accepts_connections
from testbed.process import Processes
from testbed.progress import Progress

SUITE = "sid"
_NAME = "crane-registry"
_READY_TIMEOUT = 240.0


class CraneRegistry:
    """A registry on 127.0.0.1, as :class:`testbed.registry.Registry` has one."""

    def __init__(self, processes: Processes, port: int) -> None:
        self._processes = processes
        self._folder = processes.folder / _NAME
        self.port = port
        self.host = f"127.0.0.1:{port}"

    def bring_up(self, progress: Progress) -> None:
        """Start it.

        Raises:
            ArchiveError: the archives do not give it, and it was not unpacked before.
        """
        with progress.step("Start the registry of crane") as step:
            program = unpacked.packages("crane", SUITE, ("crane",), step) / "usr/bin/crane"
            self._folder.mkdir(exist_ok=True)
            words = ["registry", "serve", f"--address={self.host}", f"--disk={self._folder}"]
            self._processes.spawn(_NAME, [program, *words])
            self._processes.wait_ready(_NAME, self.is_ready, _READY_TIMEOUT, step)

    def is_ready(self) -> bool:
        """Return whether it takes connections."""
        return accepts_connections(self.port)
