"""One image from request to registry: build, verify, push by digest, attach what belongs to it, then move the tag.

Nothing is pushed before it is verified, and nothing has its final tag before it is pushed whole, with its bill of
materials: a controller killed anywhere in here leaves either no image or a complete one.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

from driver_builder.actions import StartBuild
from driver_builder.build import Builder, BuildRequest, BuiltImage, LogSink
from driver_builder.image_archive import ImageArchive, read_image_archive
from driver_builder.provenance import provenance
from driver_builder.referrers import push_referrer
from driver_builder.registries import Registries
from driver_builder.sbom import SPDX_TYPE, sbom
from driver_builder.verify import VerifiedModule, verify

PUSH_PATIENCE = 300.0
"""Seconds that one request of a push waits for a registry that asks for a pause: what was built is worth that."""


def build_and_push(
    action: StartBuild, *, builder: Builder, registries: Registries, log: LogSink, cancelled: Event
) -> str:
    """Carry out a build; gives the digest that was promoted.

    Raises:
        BuildFailed, VerificationFailed, RegistryRefused: final until something changes.
        TemporaryError: engine or registry away.
    """
    request, repository = action.request, action.image.repository
    registry = registries.connect(
        action.namespace,
        action.registry,
        action.image.host,
        repository,
        patience=PUSH_PATIENCE,
        # True once the build is cancelled, which ends the waiting.
        wait=cancelled.wait,
    )
    with TemporaryDirectory(prefix="driver-builder-") as name:
        built, archive, modules = _build_and_verify(request, Path(name), builder, log, cancelled)
        image = archive.with_provenance(provenance(request, built, modules))
        digest = registry.push(repository, image)
        log(f"pushed {action.image.at(digest)}")
        materials = sbom(action.image.at(digest), request, built, image.read_files("/"))
        push_referrer(registry, repository, subject=image.manifest_bytes, artifact_type=SPDX_TYPE, content=materials)
        log(f"attached the bill of materials to {digest}")
        registry.tag(repository, digest, action.image.reference)
        log(f"tagged {action.image}")
    return digest


def build_and_verify(request: BuildRequest, *, builder: Builder, log: LogSink, cancelled: Event) -> None:
    """Prove that an image can be built and fits its kernel, and keep nothing of it.

    Raises:
        BuildFailed, VerificationFailed: final until something changes.
        TemporaryError: engine away.
    """
    with TemporaryDirectory(prefix="driver-builder-") as name:
        _build_and_verify(request, Path(name), builder, log, cancelled)


def _build_and_verify(
    request: BuildRequest, directory: Path, builder: Builder, log: LogSink, cancelled: Event
) -> tuple[BuiltImage, ImageArchive, tuple[VerifiedModule, ...]]:
    built = builder.build(request, directory=directory, log=log, cancelled=cancelled)
    archive = read_image_archive(built.archive, directory / "layers")
    modules = verify(archive, request=request, module_symvers=built.module_symvers)
    log(f"verified {', '.join(module.name for module in modules)} against {request.target.kernel_version}")
    return built, archive, modules
