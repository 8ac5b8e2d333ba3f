"""One image from request to registry: make and verify it, push it by digest, attach its documents, move the tag.

Nothing is pushed before it is verified, and the final tag is set only when everything is pushed, with bill of
materials and signature: a controller killed at any point leaves either no image or a complete one.

Modules are signed here, between the builder and the verification: the private key never leaves this process.
"""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

from cryptography.hazmat.primitives.asymmetric import ec

from driver_builder.archives.image_archive import ImageArchive, read_image_archive
from driver_builder.base.errors import BuildFailed, ConfigurationError, DriverBuilderError, InvalidModule
from driver_builder.base.reasons import Reason
from driver_builder.builds.pipeline.exported_symbols import with_symbols
from driver_builder.builds.pipeline.image_contents import Kind, image_contents
from driver_builder.builds.pipeline.provenance import provenance
from driver_builder.builds.pipeline.sbom import sbom
from driver_builder.builds.pipeline.spdx import SPDX_TYPE
from driver_builder.builds.pipeline.tagged_image import TaggedImage
from driver_builder.builds.pipeline.toolchain_image import made_from_toolchain
from driver_builder.builds.pipeline.verified_image import VerifiedImage
from driver_builder.builds.signing_secrets import SigningSecrets
from driver_builder.model.build import Builder, LogSink
from driver_builder.modules.module_signer import ModuleSigner, sign_modules
from driver_builder.modules.verify import verify
from driver_builder.nodes.changes import StartBuild
from driver_builder.registry.image_signature import push_signature
from driver_builder.registry.image_store import ImageStore, push_image
from driver_builder.registry.referrers import push_referrer
from driver_builder.registry.registry_access import PUSH_PATIENCE, Registries
from kube_api.errors import KubeApiError


def build_and_push(
    action: StartBuild,
    *,
    builder: Builder,
    registries: Registries,
    secrets: SigningSecrets | None = None,
    log: LogSink,
    cancelled: Event,
    pushed: Callable[[str], None] = lambda _digest: None,
    use_toolchain: bool = False,
) -> str:
    """Run a build; returns the digest that was promoted.

    ``secrets`` reads the signing keys; a driver without signing needs none. ``pushed`` is given the digest of an image
    that this build pushed, before a tag names it. With ``use_toolchain`` it begins with the kernel's toolchain, if the
    registry has one.

    Raises:
        BuildFailed, VerificationFailed, RegistryRefused: final until something changes.
        TemporaryError: engine or registry unavailable.
    """
    request, repository = action.request, action.image.repository
    registry = registries.store(
        action.namespace,
        action.registry,
        action.image.host,
        repository,
        patience=PUSH_PATIENCE,
        # True once the build is cancelled, which ends the wait.
        wait=cancelled.wait,
    )
    # Before the build: a build that cannot be signed is not started.
    image_key = _known(secrets, action).image_key(action.namespace, request) if request.signing else None
    tagged = TaggedImage(action, registry, image_key.public_key() if image_key else None)
    # The build may have waited long for its turn.
    if (digest := tagged.digest()) is not None:
        log(f"{action.image} exists already: {digest}")
        # The tag may be ours, of an earlier try or an earlier controller: the digest of this build is ours.
        registries.remember_push(action.image, digest)
        return digest
    with TemporaryDirectory(prefix="driver-builder-") as name:
        action = with_symbols(action, registries, Path(name), wait=cancelled.wait, log=log)

        def make(builder: Builder) -> VerifiedImage:
            return _build_and_verify(
                action, builder=builder, secrets=secrets, directory=Path(name), log=log, cancelled=cancelled
            )

        made = (
            made_from_toolchain(action, builder, make, registry=registry, trusted=tagged.trusted, log=log)
            if use_toolchain
            else make(builder)
        )
        promoted = _promote(action, made, registry=registry, image_key=image_key, log=log)
        pushed(promoted)
        # A tag is moved only if it does not exist: another builder has built the same.
        if (digest := tagged.digest()) is not None and digest != promoted:
            log(f"{action.image} was pushed by another client meanwhile: using {digest}")
            registries.remember_push(action.image, digest)
            return digest
        # First: a tag that was moved although the response was lost is ours as well.
        registries.remember_push(action.image, promoted)
        registry.tag(repository, promoted, action.image.reference)
        log(f"tagged {action.image}")
        return promoted


def build_and_verify(
    action: StartBuild,
    *,
    builder: Builder,
    registries: Registries,
    secrets: SigningSecrets | None = None,
    log: LogSink,
    cancelled: Event,
    use_toolchain: bool = False,
) -> None:
    """Prove that an image can be built and fits its kernel; nothing of it is kept.

    Raises:
        BuildFailed, VerificationFailed: final until something changes.
        TemporaryError: engine unavailable.
    """
    with TemporaryDirectory(prefix="driver-builder-") as name:
        action = with_symbols(action, registries, Path(name), wait=cancelled.wait, log=log)

        def make(builder: Builder) -> VerifiedImage:
            return _build_and_verify(
                action, builder=builder, secrets=secrets, directory=Path(name), log=log, cancelled=cancelled
            )

        if not use_toolchain:
            make(builder)
            return
        image = action.image
        try:
            registry = registries.store(action.namespace, action.registry, image.host, image.repository)
            image_key = secrets.image_key(action.namespace, action.request) if secrets is not None else None
        except (DriverBuilderError, KubeApiError) as error:
            # Nothing is pushed: neither password nor key is needed to prove that a driver can be built.
            log(f"toolchains are not used: {error}; installing compiler and headers")
            make(builder)
            return
        trusted = image_key.public_key() if image_key else None
        made_from_toolchain(action, builder, make, registry=registry, trusted=trusted, log=log)


def _promote(
    action: StartBuild,
    made: VerifiedImage,
    *,
    registry: ImageStore,
    image_key: ec.EllipticCurvePrivateKey | None,
    log: LogSink,
) -> str:
    """Push an image with all its documents, ready to be tagged; returns its digest."""
    repository = action.image.repository
    contents = image_contents(made.image)
    firmware, userspace = (
        {found.path: found.sha256 for found in contents if found.kind is kind}
        for kind in (Kind.FIRMWARE, Kind.USERSPACE)
    )
    image = made.image.with_provenance(provenance(action.request, made, firmware=firmware, userspace=userspace))
    digest = push_image(registry, repository, image)
    promoted = action.image.at(digest)
    log(f"pushed {promoted}")
    materials = sbom(promoted, action.request, made, contents)
    push_referrer(registry, repository, subject=image.manifest_bytes, artifact_type=SPDX_TYPE, content=materials)
    log(f"attached the bill of materials to {digest}")
    if image_key is not None:
        push_signature(registry, promoted, image_key)
        log(f"signed {digest}")
    return digest


def _build_and_verify(
    action: StartBuild,
    *,
    builder: Builder,
    secrets: SigningSecrets | None,
    directory: Path,
    log: LogSink,
    cancelled: Event,
) -> VerifiedImage:
    request = action.request
    signer = _known(secrets, action).module_signer(action.namespace, request) if request.signing else None
    built = builder.build(request, directory=directory, log=log, cancelled=cancelled)
    image = read_image_archive(built.archive, directory / "layers")
    if signer is not None:
        image = _signed(image, signer, action, directory / "signed", log)
    modules = verify(image, request=request, module_symvers=built.module_symvers)
    log(f"verified {', '.join(module.name for module in modules)} against {request.target.kernel_version}")
    return VerifiedImage(image=image, module_symvers=built.module_symvers, compiler=built.compiler, modules=modules)


def _signed(
    image: ImageArchive, signer: ModuleSigner, action: StartBuild, directory: Path, log: LogSink
) -> ImageArchive:
    signed: list[str] = []
    folder = f"/lib/modules/{action.request.target.kernel_version}"
    try:
        made = sign_modules(image, signer, folder=folder, directory=directory, signed=signed.append)
    except (ConfigurationError, InvalidModule) as error:
        raise BuildFailed(Reason.SIGNING_FAILED, str(error)) from error
    log(f"signed {len(signed)} modules as {signer.certificate.subject.rfc4514_string()}")
    return made


def _known(secrets: SigningSecrets | None, action: StartBuild) -> SigningSecrets:
    if secrets is None:
        raise BuildFailed(
            Reason.SIGNING_FAILED, f"{action.request.driver} must be signed, but this command cannot read Secrets"
        )
    return secrets
