"""What a builder is given and what it gives back: the one protocol behind which engines and Jobs are alike.

Place in the flow: ``execute`` makes a :class:`BuildRequest` of a planned action, a :class:`Builder` turns it into a
:class:`BuiltImage` on disk, ``verify`` reads that, ``registry`` pushes it. A builder never pushes and never verifies.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Protocol, runtime_checkable

from driver_builder.model.kernels import KernelTarget

LogSink = Callable[[str], None]
"""Receives the build's output, one line per call, without the newline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFiles:
    """A driver source given file by file (a ConfigMap): relative path to content.

    ``known_digest`` stands for files that are not at hand, as in an exported snapshot: enough to plan, not to build.
    """

    files: Mapping[str, bytes]
    known_digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceImage:
    """A driver source that lies in a container image: ``reference`` by digest, ``path`` absolute inside it."""

    reference: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceGit:
    """A driver source in a git repository: ``commit`` is a full hash, ``path`` a folder below the repository's root."""

    url: str
    commit: str
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceArchive:
    """A driver source in a tar archive: ``sha256`` in hex, ``path`` a folder below its root."""

    url: str
    sha256: str
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePackage:
    """A distribution's DKMS package, such as ``v4l2loopback-dkms``; without ``version`` the archive's newest."""

    name: str
    version: str | None = None


Source = SourceFiles | SourceImage | SourceGit | SourceArchive | SourcePackage


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTemplate:
    """A Dockerfile template that an admin wrote, and where: ``place`` is for messages.

    ``known_digest`` stands for a text that is not at hand, as in an exported snapshot: enough to plan, not to build.
    """

    place: str
    text: str
    known_digest: str = ""

    @property
    def digest(self) -> str:
        """What tells this template from every other."""
        return self.known_digest or hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSpec:
    """One kernel module of the driver: its name as in /proc/modules, and the parameters it is loaded with."""

    name: str
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Signing:
    """Names of Secrets: the key and certificate of modules, both or none, and the key of images."""

    key_secret: str | None = None
    certificate_secret: str | None = None
    image_key_secret: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """Everything that goes into one driver image; equal requests have equal ``key``.

    ``template`` names one of ours; ``own_template`` is taken in its place. ``modules`` are in load order. ``args``
    reach the template's make call as ``NAME=value`` words. A ``rebuild`` token, where somebody asked for a rebuild,
    makes the engine fetch headers and compile anew instead of using its cache. With a ``signing_certificate`` (X.509,
    DER or PEM) every module must be signed by its key, or nothing is pushed; ``signing`` says where the keys are.
    ``firmware_path`` is the folder of the build stage with the driver's firmware, empty for a driver without.
    """

    key: str
    driver: str
    version: str
    target: KernelTarget
    template: str
    base_image: str
    source: Source
    modules: tuple[ModuleSpec, ...]
    args: Mapping[str, str] = field(default_factory=dict)
    rebuild: str = ""
    deadline_seconds: float = 1800.0
    signing_certificate: bytes | None = None
    signing: Signing | None = None
    own_template: OwnTemplate | None = None
    firmware_path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltImage:
    """A finished build: ``archive`` is a ``docker save`` tar, the rest describes the kernel it was built against.

    ``module_symvers`` is the text of the target's own Module.symvers (tab-separated: CRC, symbol, owner, export type,
    namespace), ``compiler`` the first line of ``gcc --version`` in the build.
    """

    archive: Path
    module_symvers: str
    compiler: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """What the headers of a kernel say of it, without any driver.

    ``vermagic`` is the version magic of a module that is built with them; the others are as in :class:`BuiltImage`.
    """

    module_symvers: str
    compiler: str
    vermagic: str


class Builder(Protocol):
    """Turns a request into an image on this machine's disk."""

    def build(self, request: BuildRequest, *, directory: Path, log: LogSink, cancelled: Event) -> BuiltImage:
        """Build in ``directory``, which is the caller's to remove.

        Raises:
            BuildFailed: with the class of failure and the last lines of the log.
            TemporaryError: when the engine or cluster that builds is not there.
        """
        ...


@runtime_checkable
class FactsBuilder(Protocol):
    """A builder that can say what a kernel takes before anything is compiled for it; not every one can."""

    def kernel_facts(self, request: BuildRequest, *, log: LogSink, cancelled: Event) -> KernelFacts | None:
        """Read the facts of the request's kernel; None where the template does not tell.

        What is fetched for it is what :meth:`Builder.build` needs as well.

        Raises:
            BuildFailed, TemporaryError: as for a build.
        """
        ...
