"""The image of one kernel made of another kernel's image, without a build.

Place in the flow: ``pipeline`` tries it before it builds; ``reuse`` decides, ``verify`` checks the result like any
other image. If anything prevents it, that is logged and the driver is built.

The loader refuses a node whose release is not the one in ``/driver/kernel``, and it finds modules below
``/lib/modules/<release>`` only. So the image is the other one with a small layer on top: ``/driver/kernel``, and
``/lib/modules/<release>`` as a link to the other kernel's folder. All other layers are the same, and are neither pushed
nor pulled again.
"""

import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Event

from cryptography.hazmat.primitives.asymmetric import ec

from driver_builder.archives.image_archive import ImageArchive
from driver_builder.archives.image_layers import small_layer
from driver_builder.base.errors import InvalidModule, RegistryRefused, RegistryUnavailable, VerificationFailed
from driver_builder.builds.pipeline.verified_image import VerifiedImage
from driver_builder.model import images
from driver_builder.model.build import Builder, BuildRequest, FactsBuilder, KernelFacts, LogSink
from driver_builder.model.image_state import Present
from driver_builder.model.images import Reused
from driver_builder.modules import vermagic
from driver_builder.modules.image_modules import read_modules
from driver_builder.modules.reuse import NotReusable, Origin, reusable
from driver_builder.modules.verify import verify
from driver_builder.nodes.actions import ReuseCandidate, StartBuild
from driver_builder.registry.image_download import download
from driver_builder.registry.image_signature import has_signature
from driver_builder.registry.image_store import ImageStore

MODULES_FOLDER = "/lib/modules"
KERNEL_FILE = "/driver/kernel"


def reused_image(
    action: StartBuild,
    *,
    builder: Builder,
    registry: ImageStore,
    directory: Path,
    trusted: ec.EllipticCurvePublicKey | None,
    log: LogSink,
    cancelled: Event,
) -> VerifiedImage | None:
    """Make the image of an action from a candidate's, verified; None if it has to be built.

    With a ``trusted`` key only images signed with it are candidates: the new one will be signed, and contains the old
    one's modules.

    Raises:
        BuildFailed, TemporaryError: when the builder cannot get the kernel's headers, without which it cannot build.
    """
    target = _Target(builder=builder, request=action.request, log=log, cancelled=cancelled)
    for number, candidate in enumerate(action.reuse):
        try:
            if (found := _present(candidate, action, registry)) is None:
                continue
            if trusted is not None and not has_signature(registry, candidate.image.at(found.digest), trusted):
                log(f"cannot reuse the modules of {candidate.kernel}: their image is not signed with our key")
                continue
            if (facts := target.facts) is None:
                return None
            image = download(registry, candidate.image.repository, found.digest, directory / f"candidate-{number}")
            made = _made(image, found, action.request, facts, directory / f"reused-{number}.tar.gz")
        except (RegistryUnavailable, RegistryRefused, VerificationFailed, InvalidModule) as error:
            log(f"cannot reuse the modules of {candidate.kernel}: {error}")
            continue
        if isinstance(made, VerifiedImage):
            return made
        log(f"cannot reuse the modules of {candidate.kernel}: {made.message}")
    return None


@dataclass(frozen=True)
class _Target:
    """The kernel to make an image for; its metadata is read when there is something to compare it with."""

    builder: Builder
    request: BuildRequest
    log: LogSink
    cancelled: Event

    @cached_property
    def facts(self) -> KernelFacts | None:
        if not isinstance(self.builder, FactsBuilder):
            return None
        facts = self.builder.kernel_facts(self.request, log=self.log, cancelled=self.cancelled)
        kernel = self.request.target.kernel_version
        if facts is None or vermagic.release_of(facts.vermagic) != kernel:
            self.log(f"cannot reuse modules: the template does not report the version magic of {kernel}")
            return None
        return facts


def _present(candidate: ReuseCandidate, action: StartBuild, registry: ImageStore) -> Present | None:
    """The registry's answer about a candidate that exists and is what the plan expects."""
    found = registry.inspect(
        candidate.image.repository, candidate.image.reference, architecture=action.request.target.architecture
    )
    is_it = isinstance(found, Present) and found.labels.get(images.KEY_LABEL) == candidate.key
    return found if is_it and isinstance(found, Present) else None


def _made(
    image: ImageArchive, found: Present, request: BuildRequest, facts: KernelFacts, path: Path
) -> VerifiedImage | NotReusable:
    modules = list(read_modules(image, MODULES_FOLDER).modules.values())
    kernel = request.target.kernel_version
    answer = reusable(modules, facts.module_symvers, kernel=kernel, magic=facts.vermagic)
    if isinstance(answer, NotReusable):
        return answer
    origin = Origin(kernel=modules[0].kernel_version, magic=facts.vermagic)
    layer = small_layer(_entries(kernel, origin.kernel), path)
    composed = _without_labels(image).with_layers([*image.layers, layer])
    verified = verify(composed, request=request, module_symvers=facts.module_symvers, origin=origin)
    return VerifiedImage(
        image=composed,
        module_symvers=facts.module_symvers,
        compiler=found.labels.get(images.COMPILER_LABEL, ""),
        modules=verified,
        reused=Reused(kernel=origin.kernel, digest=found.digest, compared=answer.compared),
    )


def _entries(kernel: str, built_for: str) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """The small layer. It has its folders because an engine may create missing ones with other permissions."""
    for folder in ("driver", "lib", "lib/modules"):
        yield _entry(folder, tarfile.DIRTYPE, 0o755), b""
    yield _entry(KERNEL_FILE.lstrip("/"), tarfile.REGTYPE, 0o644), f"{kernel}\n".encode()
    if kernel != built_for:
        link = _entry(f"{MODULES_FOLDER}/{kernel}".lstrip("/"), tarfile.SYMTYPE, 0o777)
        link.linkname = built_for
        yield link, b""


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode = kind, mode
    return info


def _without_labels(image: ImageArchive) -> ImageArchive:
    """The image without the labels of its own kernel."""
    run: Mapping[str, object] = image.config.get("config", {})
    config = {**image.config, "config": {name: value for name, value in run.items() if name != "Labels"}}
    return ImageArchive(config=config, layers=image.layers)
