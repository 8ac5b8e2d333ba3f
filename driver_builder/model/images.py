"""How images are named and labelled: references, repositories, tags that end with the build key. Pure."""

import re
from dataclasses import dataclass

from driver_builder.model.kernels import KernelTarget

LABEL_PREFIX = "io.driverwright"
KEY_LABEL = f"{LABEL_PREFIX}.build-key"
DRIVER_LABEL = f"{LABEL_PREFIX}.driver"
KERNEL_LABEL = f"{LABEL_PREFIX}.kernel"
OS_LABEL = f"{LABEL_PREFIX}.os"
ARCHITECTURE_LABEL = f"{LABEL_PREFIX}.architecture"
TARGET_LABELS = (DRIVER_LABEL, KERNEL_LABEL, OS_LABEL, ARCHITECTURE_LABEL)
"""Together they say what an image was built for."""
COMPILER_LABEL = f"{LABEL_PREFIX}.compiler"
SYMVERS_LABEL = f"{LABEL_PREFIX}.module-symvers"
MODULES_LABEL = f"{LABEL_PREFIX}.modules"
NEEDED_LABEL = f"{LABEL_PREFIX}.needed-modules"
"""The modules in an image that the named ones need, where it has any."""
FIRMWARE_LABEL = f"{LABEL_PREFIX}.firmware"
"""The digest of the firmware in an image, where it has any."""
USERSPACE_LABEL = f"{LABEL_PREFIX}.userspace"
"""The digest of the user space in an image, where it has any."""
SIGNER_LABEL = f"{LABEL_PREFIX}.module-signer"
BUILD_IMAGE_LABEL = f"{LABEL_PREFIX}.build-image"
TOOLCHAIN_LABEL = f"{LABEL_PREFIX}.toolchain"
"""The key of a toolchain: only that image has it."""
VERSION_LABEL = "org.opencontainers.image.version"

REPOSITORY = r"(?P<host>[A-Za-z0-9.-]+(?::[0-9]+)?)/(?P<repository>[a-z0-9]+(?:(?:[./]|__?|-+)[a-z0-9]+)*)"
_REFERENCE = re.compile(
    rf"{REPOSITORY}"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})|@(?P<digest>sha256:[0-9a-f]{64}))"
)
"""Source: the grammar of the distribution specification; what passes can stand in a URL and in a manifest."""
COMPONENT = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
"""What stands between the slashes of a repository."""
DOCKER_HUB = "docker.io"
DOCKER_HUB_REGISTRY = "registry-1.docker.io"
DOCKER_HUB_HOSTS = frozenset({DOCKER_HUB, "index.docker.io", DOCKER_HUB_REGISTRY})
_NO_TAG_CHARACTER = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True, slots=True, order=True)
class ImageRef:
    """One image in one registry: ``reference`` is a tag or a ``sha256:`` digest."""

    host: str
    repository: str
    reference: str

    def __str__(self) -> str:
        joint = "@" if self.reference.startswith("sha256:") else ":"
        return f"{self.host}/{self.repository}{joint}{self.reference}"

    def at(self, digest: str) -> "ImageRef":
        """Name the same image by digest."""
        return ImageRef(self.host, self.repository, digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRepository:
    """``host/repository`` without a tag."""

    host: str
    repository: str

    def __str__(self) -> str:
        return f"{self.host}/{self.repository}"

    def tagged(self, tag: str) -> ImageRef:
        """Name the image of a tag."""
        return ImageRef(self.host, self.repository, tag)


def image_tag(*, version: str, target: KernelTarget, key: str) -> str:
    """Make a tag that people can read and that is unique by its key, at most 128 characters."""
    words = f"{version}-{target.kernel_version}-{target.os_id}{target.os_version}-{target.architecture}"
    return f"{_NO_TAG_CHARACTER.sub('_', words)[:107]}-{key}"


def parse_reference(text: str) -> ImageRef:
    """Read ``host/repository:tag`` or ``host/repository@sha256:...`` (a prebuilt image of a mapping).

    Raises:
        ValueError: when host, repository or reference is missing.
    """
    match = _REFERENCE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an image reference: write host/repository:tag or host/repository@sha256:...")
    return ImageRef(match["host"], match["repository"], match["digest"] or match["tag"])


def is_registry(first: str) -> bool:
    """Return whether the part of an image's name before the first slash is a host.

    Nodes and engines take a word without dot, port and capitals for a part of a name of Docker Hub.
    """
    return not set(first).isdisjoint(".:") or first == "localhost" or first != first.lower()


def wrong_registry(name: str) -> str:
    """Return what is wrong with the registry of an image's name; empty if nothing is."""
    if is_registry(name.partition("/")[0]):
        return ""
    return (
        "names no registry, and nodes would pull it from Docker Hub: write the registry's host with a dot or a port, "
        f"or {DOCKER_HUB}/{name} for that one"
    )


def parse_full_reference(text: str) -> ImageRef:
    """Read an image as a person writes it: one that is to mean the same here and on a node.

    Raises:
        ValueError: as :func:`parse_reference`, and when it names no registry.
    """
    reference = parse_reference(text)
    if words := wrong_registry(text):
        raise ValueError(f"{text!r} {words}")
    return reference
