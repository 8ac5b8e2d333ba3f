"""Which kernels have headers in a package repository, asked from inside the base image.

Place in the flow: the plan requests a kernel discovery, ``discovery_queue`` runs it. A script (``kernel_script``)
refreshes the package lists and prints the releases. The engine that builds drivers runs it in a build, so it finds what
a build would find, mirrors, proxies and credentials included. What a repository prints is checked before it is used.
"""

import hashlib
import io
import json
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping
from threading import Event
from typing import Protocol

import docker

from driver_builder.builds.build_limits import BuildLimits
from driver_builder.builds.docker.docker_builder import DockerBuilder
from driver_builder.discovery.kernel_script import KernelScript, script_for
from driver_builder.model.engine_images import DISCOVERY
from driver_builder.model.kernels import is_kernel_version
from driver_builder.model.repositories import Repository
from driver_builder.registry.credentials import Credentials

MARK = "driverwright-kernel: "
"""Before each release in what the script prints."""
MAX_RELEASES = 20_000
_MAX_LINE = len(MARK) + 128
"""Characters. A line that is cut is not a release: those have 64 at most."""
DEADLINE_SECONDS = 600.0


class KernelDiscovery(Protocol):
    """Asks one repository."""

    def discover(self, repository: Repository, *, cancelled: Event) -> tuple[str, ...]:
        """Return the kernel releases that it has headers of, in order.

        Raises:
            BuildFailed: the repository, or the base image, cannot be reached; or it was cancelled.
            TemporaryError: the engine or cluster that asks is unavailable.
            ConfigurationError: such a repository cannot be asked.
        """


class DockerKernelDiscovery:
    """Asks with the engine behind ``api``; ``credentials`` by host are for the base image, ``clock`` counts seconds.

    ``network`` is that of builds.
    """

    def __init__(
        self,
        api: docker.APIClient,
        *,
        credentials: Mapping[str, Credentials] | None = None,
        network: str = "host",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = DockerBuilder(api, credentials=credentials, network=network, clock=clock)
        self._clock = clock

    def discover(self, repository: Repository, *, cancelled: Event) -> tuple[str, ...]:
        """Build and read the log; see :class:`KernelDiscovery`."""
        lines = ReleaseLines()
        name = hashlib.sha256(repr(repository).encode()).hexdigest()[:32]
        limits = BuildLimits(DEADLINE_SECONDS, cancelled, self._clock)
        self._engine.run(build_context(repository), name=f"{DISCOVERY}/{name}:latest", log=lines.take, limits=limits)
        return lines.releases()


class ReleaseLines:
    """Takes the lines that a script prints, and keeps those that name a release, within bounds."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def take(self, line: str) -> None:
        """Add a line."""
        if line.startswith(MARK) and len(self._lines) < MAX_RELEASES:
            self._lines.append(line[:_MAX_LINE])

    def releases(self) -> tuple[str, ...]:
        """The releases, in order."""
        return parse_releases(self._lines)


def parse_releases(lines: Iterable[str]) -> tuple[str, ...]:
    """Read the releases from what a script printed; other words are left out."""
    words = {line.removeprefix(MARK) for line in lines if line.startswith(MARK)}
    return tuple(sorted(word for word in words if is_kernel_version(word))[:MAX_RELEASES])


def dockerfile(repository: Repository, script: KernelScript) -> str:
    """The Dockerfile in which an engine runs the script."""
    place = f"/driverwright/{script.name}"
    command = json.dumps(["/bin/bash", place, *script.arguments])
    return f"FROM {repository.base_image}\nCOPY {script.name} {place}\nRUN {command}\n"


def build_context(repository: Repository) -> bytes:
    """The tar of that Dockerfile and the script.

    Raises:
        ConfigurationError: as :func:`~driver_builder.discovery.kernel_script.script_for`.
    """
    script = script_for(repository)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, text in (("Dockerfile", dockerfile(repository, script)), (script.name, script.text)):
            content = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
