"""Which kernels have headers in a package repository, asked from inside the base image.

Place in the flow: the plan requests a kernel discovery, ``discovery_queue`` runs it. A script (``kernel_script``)
refreshes the package lists and prints the releases. The engine that builds drivers runs it in a build
(``docker_kernel_discovery``), or a Job does (``job_kernel_discovery``), so it finds what a build would find, mirrors,
proxies and credentials included. What a repository prints is checked before it is used.
"""

from collections.abc import Iterable

from driver_builder.model.kernels import is_kernel_version

MARK = "driverwright-kernel: "
"""Before each release in what the script prints."""
MAX_RELEASES = 20_000
_MAX_LINE = len(MARK) + 128
"""Characters. A line that is cut is not a release: those have 64 at most."""
DEADLINE_SECONDS = 600.0


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
