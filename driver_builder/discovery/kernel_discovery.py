"""Which kernels a build could be given headers of: asked of the package repository, from inside the base image.

Place in the flow: the plan asks for a look-up, ``look_up_queue`` runs it. A Dockerfile whose one command refreshes the
package lists and prints the releases is built by the same engine as drivers are, so that what is told is what a build
would find, mirrors, proxies and credentials included. What a repository prints is checked before anybody uses it.
"""

import hashlib
import io
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping
from threading import Event
from typing import Protocol

import docker
import jinja2

from driver_builder.api.spec_rules import BASE_IMAGE
from driver_builder.builds.build_limits import BuildLimits
from driver_builder.builds.docker.docker_builder import DockerBuilder
from driver_builder.errors import ConfigurationError
from driver_builder.model.engine_images import LOOK_UP, is_reserved
from driver_builder.model.kernels import is_kernel_version
from driver_builder.model.repositories import Repository
from driver_builder.registry.credentials import Credentials
from driver_builder.templates.templates import SUFFIX, shipped

MARK = "driverwright-kernel: "
"""Before each release in what a look-up prints."""
MAX_RELEASES = 20_000
_MAX_LINE = len(MARK) + 128
"""Characters. One that is cut is no release: those have 64 at most."""
DEADLINE_SECONDS = 600.0

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.DictLoader({}),
    undefined=jinja2.StrictUndefined,
    autoescape=False,  # noqa: S701  # a Dockerfile is no HTML; the one value is checked before it is rendered
    keep_trailing_newline=True,
)


class KernelLookup(Protocol):
    """Asks one repository."""

    def look_up(self, repository: Repository, *, cancelled: Event) -> tuple[str, ...]:
        """Give the kernel releases that it has headers of, in order.

        Raises:
            BuildFailed: the repository, or the base image, cannot be reached; or the look-up was cancelled.
            TemporaryError: when the engine or cluster that asks is not there.
            ConfigurationError: when nobody knows how to ask such a repository.
        """


class DockerKernelLookup:
    """Asks with the engine behind ``api``; ``credentials`` by host are for the base image, ``clock`` counts seconds."""

    def __init__(
        self,
        api: docker.APIClient,
        *,
        credentials: Mapping[str, Credentials] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = DockerBuilder(api, credentials=credentials, clock=clock)
        self._clock = clock

    def look_up(self, repository: Repository, *, cancelled: Event) -> tuple[str, ...]:
        """Build and read the log; see :class:`KernelLookup`."""
        lines = ReleaseLines()
        name = hashlib.sha256(repr(repository).encode()).hexdigest()[:32]
        limits = BuildLimits(DEADLINE_SECONDS, cancelled, self._clock)
        self._engine.run(_context(repository), name=f"{LOOK_UP}/{name}:latest", log=lines.take, limits=limits)
        return lines.releases()


class ReleaseLines:
    """Takes the lines that a look-up prints, and keeps those that name a release, within bounds."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def take(self, line: str) -> None:
        """Take in a line."""
        if line.startswith(MARK) and len(self._lines) < MAX_RELEASES:
            self._lines.append(line[:_MAX_LINE])

    def releases(self) -> tuple[str, ...]:
        """The releases, in order."""
        return parse_releases(self._lines)


def parse_releases(lines: Iterable[str]) -> tuple[str, ...]:
    """Read the releases out of what a look-up printed; words that are no kernel releases are left out."""
    words = {line.removeprefix(MARK) for line in lines if line.startswith(MARK)}
    return tuple(sorted(word for word in words if is_kernel_version(word))[:MAX_RELEASES])


def render(repository: Repository) -> str:
    """The Dockerfile that asks a repository.

    Raises:
        ConfigurationError: when there is no such template, or the base image's name cannot stand in a Dockerfile.
    """
    if not BASE_IMAGE.pattern.fullmatch(repository.base_image) or is_reserved(repository.base_image):
        raise ConfigurationError(f"base image {repository.base_image!r} {BASE_IMAGE.words}")
    places = [folder / f"{repository.template}{SUFFIX}" for folder in shipped("lookup")]
    template = next((place for place in places if place.is_file()), None)
    if template is None:
        words = " or ".join(str(place) for place in places)
        raise ConfigurationError(f"nobody knows how to ask for kernels of {repository.template!r}: no {words}")
    return _ENVIRONMENT.from_string(template.read_text()).render(base_image=repository.base_image)


def _context(repository: Repository) -> bytes:
    content = render(repository).encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo("Dockerfile")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
