"""Inputs and outputs of a builder: the one protocol for engines and Jobs.

Place in the flow: ``execute`` makes a :class:`BuildRequest` of a planned action, a :class:`Builder` turns it into a
:class:`BuiltImage` on disk, ``verify`` reads that, ``registry`` pushes it. A builder never pushes and never verifies.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import Protocol, assert_never, runtime_checkable

from driver_builder.model import defaults
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.images import ImageRef
from driver_builder.model.kernels import KernelTarget
from driver_builder.model.userspace import Userspace

LogSink = Callable[[str], None]
"""Receives the build's output, one line per call, without the newline."""
Parts = Mapping[str, object]
"""What a digest is made of, by name, as JSON."""

MIRROR_ARG = "HEADERS_MIRROR"
"""The one argument that is not for make: the address of a package repository that a template also uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFiles:
    """A driver source given file by file (a ConfigMap): relative path to content.

    ``known_digest`` replaces files that are missing, as in an exported snapshot: enough to plan, not to build.
    """

    files: Mapping[str, bytes]
    known_digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceImage:
    """A driver source in a container image: ``reference`` by digest, ``path`` absolute inside it."""

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


def source_digest(source: Source) -> str:
    """Return the digest of a source: of every path and content, or of its pin.

    The place it is fetched from is not part of it: a commit and a checksum define the content. A package without
    a version is the newest of its archive at build time, and is not built again when a newer one appears.
    """
    match source:
        case SourceFiles():
            return source.known_digest or _files_digest(source.files)
        case SourceImage():
            return f"{source.reference}:{source.path}"
        case SourceGit():
            return f"git:{source.commit}:{source.path}"
        case SourceArchive():
            return f"archive:{source.sha256}:{source.path}"
        case SourcePackage():
            return f"package:{source.name}:{source.version or ''}"
        case _ as never:
            assert_never(never)


def _files_digest(files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for path in sorted(files):
        content = files[path]
        digest.update(f"{len(path)}:{path}:{len(content)}:".encode() + content)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTemplate:
    """A custom Dockerfile template, and where it is: ``place`` is for messages.

    ``known_digest`` replaces a text that is missing, as in an exported snapshot: enough to plan, not to build.
    """

    place: str
    text: str
    known_digest: str = ""

    @property
    def digest(self) -> str:
        """The digest that identifies this template."""
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


TOOLS_IMAGE = "debian:bookworm-slim"
"""What templates of other distributions take their tools from, where a spec names no other image."""


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """Everything that goes into one driver image, and with it the image's ``key``.

    ``template`` names one of ours, ``own_template`` replaces it; ``recipe`` is the version of either.
    ``modules`` are in load order. ``args`` are passed to the template's make call as ``NAME=value``. A ``rebuild``
    token, if a rebuild was requested, makes the engine fetch headers and compile again instead of using its cache. With
    a ``signing_certificate`` (X.509, DER or PEM) every module must be signed by its key, or nothing is pushed;
    ``signing`` says where the keys are. ``firmware_path`` is the folder of the build stage with the driver's firmware,
    empty for a driver without. ``depends`` are the drivers whose symbols the modules may use, each with what identifies
    its image; ``extra_symvers`` has these symbols in the form of Module.symvers, once those images are read.
    ``userspace`` is what the image has besides modules, None for nothing. ``packages`` are those of the base image's
    distribution that the build needs besides the template's own. ``tools_image`` is the Debian image from which
    templates of other distributions have their tools, empty for ours.
    """

    driver: DriverKey
    version: str
    target: KernelTarget
    template: str
    recipe: str
    base_image: str
    source: Source
    modules: tuple[ModuleSpec, ...]
    args: Mapping[str, str] = field(default_factory=dict)
    rebuild: str = ""
    deadline_seconds: float = defaults.BUILD_DEADLINE_SECONDS
    signing_certificate: bytes | None = None
    signing: Signing | None = None
    own_template: OwnTemplate | None = None
    firmware_path: str = ""
    depends: tuple[tuple[str, str], ...] = ()
    extra_symvers: str = ""
    userspace: Userspace | None = None
    packages: tuple[str, ...] = ()
    tools_image: str = ""

    @cached_property
    def key(self) -> str:
        """The build key: a digest of what goes into the image, 20 hex digits.

        The same image has the same key, so it is built once for the whole fleet, by whichever controller holds the
        Lease. Deadline and keys are no part of it: they change nothing in the image. Neither is the digest of the
        target's Module.symvers, which is known only with the headers; it is recorded in the image
        (``docs/decisions/0003-build-key.md``).
        """
        return hashlib.sha256(json.dumps(self.key_parts, sort_keys=True).encode()).hexdigest()[:20]

    @property
    def key_parts(self) -> Parts:
        """What the build key is a digest of, by name."""
        return {
            **self.toolchain_parts,
            **self._driver_parts,
            "driver": self.driver,
            "version": self.version,
            "source": source_digest(self.source),
            **_given("userspace", self.userspace and self.userspace.digest),
            **_given("dependsOn", [list(pair) for pair in self.depends]),
            **_given("certificate", self.signing_certificate and hashlib.sha256(self.signing_certificate).hexdigest()),
        }

    @property
    def config_parts(self) -> Parts:
        """How the driver is built and loaded, whatever its source and kernel: what the label ``config`` digests."""
        return {
            **self._driver_parts,
            "template": self.own_template.digest if self.own_template else self.template,
            **_given("userspace", self.userspace and self.userspace.words),
        }

    @property
    def toolchain_parts(self) -> Parts:
        """What the stage ``headers`` is made of: nothing of the driver."""
        return {
            "target": self.target.id,
            "recipe": self.recipe,
            "baseImage": self.base_image,
            "rebuild": self.rebuild,
            **_given("toolsImage", self.tools_image),
        }

    @property
    def _driver_parts(self) -> Parts:
        return {
            "args": dict(self.args),
            "modules": [[module.name, *module.parameters] for module in self.modules],
            **_given("firmware", self.firmware_path),
            **_given("packages", list(self.packages)),
        }


def _given(name: str, value: object) -> Parts:
    """Return a part that only some drivers have: without it, a new field would change the keys of all images."""
    return {name: value} if value else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltImage:
    """A finished build: ``archive`` is a ``docker save`` tar, the rest describes the kernel it was built against.

    ``module_symvers`` is the text of the target's own Module.symvers (tab-separated: CRC, symbol, owner, export type,
    namespace), ``compiler`` the first line of ``gcc --version`` in the build.
    """

    archive: Path
    module_symvers: str
    compiler: str


class Builder(Protocol):
    """Turns a request into an image on this machine's disk."""

    def build(self, request: BuildRequest, *, directory: Path, log: LogSink, cancelled: Event) -> BuiltImage:
        """Build in ``directory``, which the caller removes.

        Raises:
            BuildFailed: with the class of failure and the last lines of the log.
            TemporaryError: the engine or cluster that builds is unavailable.
        """
        ...


@runtime_checkable
class ToolchainBuilder(Protocol):
    """A builder that can build from a toolchain, and make one (:mod:`driver_builder.model.toolchain`)."""

    def from_toolchain(self, image: ImageRef) -> Builder:
        """Return the same builder, whose builds begin with a toolchain, which is named by its digest."""
        ...

    def toolchain(self, request: BuildRequest, *, directory: Path, log: LogSink, cancelled: Event) -> Path | None:
        """Build the toolchain of a request, and save it below ``directory`` as a tar that ``read_image_archive`` reads.

        It has nothing of a driver, and no command of a driver ran beside it. None if the template has no such stage.

        Raises:
            BuildFailed, TemporaryError: as :meth:`Builder.build`.
        """
        ...
