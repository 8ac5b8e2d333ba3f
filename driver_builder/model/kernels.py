"""What a driver image is built for: one kernel release on one operating system and architecture.

Values only; the node labels these are read from are those of Node Feature Discovery and of Kubernetes itself.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NewType

KernelVersion = NewType("KernelVersion", str)
"""All of ``uname -r``, for example ``6.1.0-55-cloud-amd64``."""

MAX_LENGTH = 64
"""Characters of a kernel release: ``struct utsname`` has room for no more. The other parts are label values, of 63."""

KERNEL_VERSION = re.compile(r"[0-9]+\.[0-9]+[A-Za-z0-9._+~-]*")
OS_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
OS_VERSION = re.compile(r"[A-Za-z0-9._-]*")
ARCHITECTURE = re.compile(r"[a-z0-9]+")


def is_kernel_version(text: str) -> bool:
    """Return whether a text can be a kernel release."""
    return len(text) <= MAX_LENGTH and KERNEL_VERSION.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, order=True)
class KernelTarget:
    """One (kernel, operating system, architecture): what a driver image fits, and how nodes are grouped.

    ``os_id`` and ``os_version`` are ``ID`` and ``VERSION_ID`` of os-release, ``architecture`` is Kubernetes' word
    (``amd64``). A value outside the patterns above never reaches a template or a name.
    """

    kernel_version: KernelVersion
    os_id: str
    os_version: str
    architecture: str

    def __post_init__(self) -> None:
        """Refuse a value that could not be a kernel release, an OS id or an architecture."""
        for value, pattern, what in (
            (self.kernel_version, KERNEL_VERSION, "kernel release"),
            (self.os_id, OS_ID, "operating system id"),
            (self.os_version, OS_VERSION, "operating system version"),
            (self.architecture, ARCHITECTURE, "architecture"),
        ):
            if len(value) > MAX_LENGTH:
                raise ValueError(
                    f"{value[:MAX_LENGTH]!r}... is not a valid {what}: it has more than {MAX_LENGTH} characters"
                )
            if not pattern.fullmatch(value):
                raise ValueError(f"{value!r} is not a valid {what} (expected {pattern.pattern})")

    @property
    def os(self) -> str:
        """``debian:12``, the way people write it."""
        return f"{self.os_id}:{self.os_version}" if self.os_version else self.os_id

    @property
    def id(self) -> str:
        """One word that names the target in status, logs and tables."""
        return f"{self.kernel_version}/{self.os}/{self.architecture}"

    @property
    def group(self) -> tuple[str, str, str]:
        """The target without the version of its operating system: nodes of one group share one target."""
        return self.kernel_version, self.os_id, self.architecture

    @property
    def short_hash(self) -> str:
        """Eight hex digits, for object names that may not be longer."""
        return _short_hash(self.id)

    def __str__(self) -> str:
        return self.id


def parse_target(kernel: str, os: str, architecture: str) -> KernelTarget | None:
    """Read a target from a status or an image's labels; None if it is not one."""
    is_too_long = len(kernel) + len(os) + len(architecture) > 4 * MAX_LENGTH + 1
    return None if is_too_long else _parse_target(kernel, os, architecture)


@lru_cache(maxsize=4096)
def _parse_target(kernel: str, os: str, architecture: str) -> KernelTarget | None:
    os_id, _, os_version = os.partition(":")
    try:
        return KernelTarget(KernelVersion(kernel), os_id, os_version, architecture)
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
