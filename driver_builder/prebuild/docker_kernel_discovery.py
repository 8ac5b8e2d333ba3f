"""Kernel discovery by the engine that builds drivers: the script is run by a build on top of the base image."""

import hashlib
import io
import json
import tarfile
import time
from collections.abc import Callable, Mapping
from threading import Event

import docker

from driver_builder.builds.build_limits import BuildLimits
from driver_builder.builds.docker.docker_builder import DockerBuilder
from driver_builder.builds.templates.trust import trusting
from driver_builder.model import defaults
from driver_builder.model.engine_images import DISCOVERY
from driver_builder.model.repositories import Repository
from driver_builder.prebuild.kernel_discovery import DEADLINE_SECONDS, ReleaseLines
from driver_builder.prebuild.kernel_script import KernelScript, script_for
from driver_builder.registry.credentials import Credentials


class DockerKernelDiscovery:
    """Asks with the engine behind ``api``; ``credentials`` by host are for the base image, ``clock`` counts seconds.

    ``network``, ``proxy`` and ``ca`` are those of builds.
    """

    def __init__(
        self,
        api: docker.APIClient,
        *,
        credentials: Mapping[str, Credentials] | None = None,
        network: str = defaults.BUILD_NETWORK,
        proxy: Mapping[str, str] | None = None,
        ca: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = DockerBuilder(api, credentials=credentials, network=network, proxy=proxy, ca=ca, clock=clock)
        self._has_ca = bool(ca)
        self._clock = clock

    def discover(self, repository: Repository, *, cancelled: Event) -> tuple[str, ...]:
        """Build, and read the releases from the log, in order.

        Raises:
            BuildFailed: the repository, or the base image, cannot be reached; or it was cancelled.
            TemporaryError: the engine is unavailable.
            ConfigurationError: such a repository cannot be asked.
        """
        lines = ReleaseLines()
        name = hashlib.sha256(repr(repository).encode()).hexdigest()[:32]
        limits = BuildLimits(DEADLINE_SECONDS, cancelled, self._clock)
        context = build_context(repository, has_ca=self._has_ca)
        self._engine.run(context, name=f"{DISCOVERY}/{name}:latest", log=lines.take, limits=limits)
        return lines.releases()


def dockerfile(repository: Repository, script: KernelScript) -> str:
    """The Dockerfile in which an engine runs the script."""
    place = f"/driverwright/{script.name}"
    command = json.dumps(["/bin/bash", place, *script.arguments])
    return f"FROM {repository.base_image}\nCOPY {script.name} {place}\nRUN {command}\n"


def build_context(repository: Repository, *, has_ca: bool = False) -> bytes:
    """The tar of that Dockerfile and the script; with ``has_ca`` the script trusts further CAs.

    Raises:
        ConfigurationError: as :func:`~driver_builder.prebuild.kernel_script.script_for`.
    """
    script = script_for(repository)
    commands = dockerfile(repository, script)
    commands = trusting(commands) if has_ca else commands
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, text in (("Dockerfile", commands), (script.name, script.text)):
            content = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
