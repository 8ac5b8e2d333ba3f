"""The user space of a driver: what is built into its image besides modules, and must be of their version. Pure.

Place in the flow: ``api`` reads it, the build key covers it, ``templates`` builds it, ``verify_userspace`` compares its
version with that of the modules (docs/decisions/0123-user-space.md).
"""

import hashlib
import json
import re
from dataclasses import dataclass

RECIPE = 1
"""The version of ``dockerfiles/driver/parts/userspace*.j2``, as those of templates are."""
FOLDER = "/userspace"
"""Where an image has it."""
HOST_FOLDER = "/run/driverwright"
NVIDIA_FOLDER = "/run/nvidia"
NVIDIA_PATH = f"{NVIDIA_FOLDER}/driver"
"""Where other programs look for the user space of NVIDIA's driver."""
FIRMWARE_FOLDER = "/var/lib/firmware"
"""Where firmware goes on nodes whose ``/lib/firmware`` is read-only: the kernel's search path names it."""
DEFAULT_SIZE = 512 << 20
MAX_SIZE = 4 << 30
"""As much as is read of an image."""

_PACKAGE_VERSION = re.compile(r"(?:[0-9]+:)?(?P<upstream>.+?)(?:-[^-]*)?")
_LIBRARY = re.compile(r".+\.so\.(?P<version>[0-9].*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserspaceArchive:
    """A tar archive: ``sha256`` in hex, ``path`` a folder below its root."""

    url: str
    sha256: str
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserspacePackages:
    """Packages of the base image's distribution: names and versions. What they depend on does not come with them."""

    pins: tuple[tuple[str, str], ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The packages as apt takes them: ``name=version``."""
        return tuple(f"{name}={version}" for name, version in self.pins)

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions without epoch and revision, each once."""
        return tuple(dict.fromkeys(upstream_version(version) for _, version in self.pins))


@dataclass(frozen=True, slots=True, kw_only=True)
class Userspace:
    """What a build puts into the image. ``version_file`` is a path in it; empty for the version of the packages."""

    content: UserspaceArchive | UserspacePackages
    version_file: str = ""
    size_limit: int = DEFAULT_SIZE

    @property
    def digest(self) -> str:
        """The digest of all that the build is pinned to, and of what it is verified by."""
        if isinstance(self.content, UserspaceArchive):
            pin = ["archive", self.content.sha256, self.content.path]
        else:
            pin = ["packages", *self.content.words]
        parts = [RECIPE, pin, self.version_file, self.size_limit]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @property
    def words(self) -> str:
        """What it is made of, in one line."""
        if isinstance(self.content, UserspaceArchive):
            return f"archive sha256:{self.content.sha256} {self.content.path}".rstrip()
        return f"packages {' '.join(self.content.words)}"


def upstream_version(version: str) -> str:
    """Return a package's version without epoch and revision: 535.183.01 of 1:535.183.01-1~deb12u1."""
    match = _PACKAGE_VERSION.fullmatch(version)
    return match["upstream"] if match else version


def version_in_name(path: str) -> str:
    """Return the version in the name of a shared library, empty without one: 1.2.3 of lib/libedu.so.1.2.3."""
    match = _LIBRARY.fullmatch(path.rpartition("/")[2])
    return match["version"] if match else ""
