"""The toolchain of a kernel in a registry: built from where it is usable, and pushed where there is none.

Place in the flow: ``pipeline`` makes each image by :func:`made_from_toolchain`; once the image has its tag,
:func:`keep_toolchain` pushes what is missing. Neither can make a driver's build fail: what prevents the one is logged,
and the driver is built by the package manager; what prevents the other is reported by its caller.

A toolchain is believed as far as a driver image of that repository is: by the label with its key, by its digest from
then on, and with an image key by its signature. The module that is built with it is verified as any other. Where
modules are signed and images are not, there is none: whoever may push to the repository would have our key sign what
their compiler made.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

from cryptography.hazmat.primitives.asymmetric import ec

from driver_builder.archives.image_archive import ImageArchive, read_image_archive
from driver_builder.base import telemetry
from driver_builder.base.errors import (
    BuildFailed,
    DriverBuilderError,
    RegistryUnavailable,
    VerificationFailed,
)
from driver_builder.base.reasons import Reason
from driver_builder.base.telemetry import ToolchainUse
from driver_builder.builds.kernel_metadata import COMPILER, MAX_LINE, VERMAGIC, first_line
from driver_builder.builds.pipeline.verified_image import VerifiedImage
from driver_builder.builds.signing_secrets import SigningSecrets
from driver_builder.builds.templates.templates import FACTS_FOLDER
from driver_builder.model import images
from driver_builder.model.build import Builder, BuildRequest, LogSink, ToolchainBuilder
from driver_builder.model.image_state import Absent, NotAsked, Present
from driver_builder.model.images import ImageRef
from driver_builder.model.toolchain import toolchain_image, toolchain_key, toolchain_labels
from driver_builder.modules import vermagic
from driver_builder.nodes.changes import StartBuild
from driver_builder.registry.image_signature import has_signature, push_signature
from driver_builder.registry.image_store import ImageStore, push_image
from driver_builder.registry.registry_access import PUSH_PATIENCE, Registries

Make = Callable[[Builder], VerifiedImage]
"""Makes an image with a builder."""

_OF_TOOLCHAIN = frozenset(
    {
        Reason.BASE_IMAGE_MISSING,
        Reason.BUILD_ERROR,
        Reason.COMPILER_MISMATCH,
        Reason.DISK_FULL,
        Reason.HEADERS_MISSING,
        Reason.REPOSITORY_UNAVAILABLE,
        Reason.TEMPLATE_INVALID,
    }
)
"""Why a build may fail that would succeed without its toolchain: it cannot be pulled, has no room, or is not what it
says it is."""
_OF_PACKAGES = frozenset({Reason.BASE_IMAGE_MISSING, Reason.HEADERS_MISSING, Reason.REPOSITORY_UNAVAILABLE})
"""Why a build may fail that would succeed with a toolchain."""


@dataclass(frozen=True, slots=True)
class _Unusable:
    """Why a toolchain is not used; ``is_other``: the tag names something else, which may be replaced."""

    why: str
    is_other: bool = False


def made_from_toolchain(
    action: StartBuild,
    builder: Builder,
    make: Make,
    *,
    registry: ImageStore,
    trusted: ec.EllipticCurvePublicKey | None,
    log: LogSink,
) -> VerifiedImage:
    """Make an image with the kernel's toolchain, or without it where there is none or it does not serve.

    Raises:
        DriverBuilderError: as ``make``. A failure with the toolchain is not replaced by one that only says that there
            are no packages.
    """
    reference = _reference(action, trusted)
    if reference is None or not isinstance(builder, ToolchainBuilder):
        return make(builder)
    found = _found(action.request, reference, registry, trusted)
    if not isinstance(found, ImageRef):
        telemetry.count_toolchain(ToolchainUse.UNUSABLE if found else ToolchainUse.ABSENT)
        if found:
            log(f"toolchain {reference} is not used: {found.why}; installing compiler and headers")
        return make(builder)
    log(f"building from toolchain {found}")
    try:
        made = make(builder.from_toolchain(found))
    except (BuildFailed, VerificationFailed) as error:
        if isinstance(error, BuildFailed) and error.reason not in _OF_TOOLCHAIN:
            raise
        telemetry.count_toolchain(ToolchainUse.UNUSABLE)
        log(f"toolchain {found} is not used: {error}; installing compiler and headers")
        return _made_without(builder, make, error)
    telemetry.count_toolchain(ToolchainUse.USED)
    return made


def _made_without(builder: Builder, make: Make, before: BuildFailed | VerificationFailed) -> VerifiedImage:
    try:
        return make(builder)
    except BuildFailed as error:
        if error.reason in _OF_PACKAGES and before.reason not in _OF_PACKAGES:
            # The archive has no headers any more, which is why there are toolchains: the first failure says more.
            raise before from error
        raise


def keep_toolchain(
    action: StartBuild,
    *,
    builder: Builder,
    registries: Registries,
    secrets: SigningSecrets | None = None,
    log: LogSink,
    cancelled: Event,
    pushed: Callable[[StartBuild, str], None] = lambda _action, _digest: None,
) -> None:
    """Push the toolchain of an action's kernel to the driver's repository, unless it is there.

    ``pushed`` is given the action with the toolchain as its image, and the digest, before the tag names it.

    Raises:
        BuildFailed, VerificationFailed, RegistryRefused: it cannot be made, or the registry does not take it.
        TemporaryError: engine, cluster or registry unavailable.
    """
    request = action.request
    key = secrets.image_key(action.namespace, request) if secrets is not None and request.signing else None
    trusted = key.public_key() if key else None
    reference = _reference(action, trusted)
    if reference is None or not isinstance(builder, ToolchainBuilder):
        return
    registry = registries.store(
        action.namespace,
        action.registry,
        reference.host,
        reference.repository,
        patience=PUSH_PATIENCE,
        wait=cancelled.wait,
    )
    found = _found(request, reference, registry, trusted)
    if isinstance(found, ImageRef):
        return
    if found is not None and not found.is_other:
        raise RegistryUnavailable(found.why)
    with TemporaryDirectory(prefix="driver-builder-") as name:
        archive = builder.toolchain(request, directory=Path(name), log=log, cancelled=cancelled)
        if archive is None:
            return
        image = _checked(read_image_archive(archive, Path(name) / "layers"), request)
        archive.unlink()

        def check() -> None:
            if cancelled.is_set():
                raise BuildFailed(Reason.CANCELLED, f"the push of {reference} was cancelled")

        digest = push_image(registry, reference.repository, image, check=check)
        if key is not None:
            push_signature(registry, reference.at(digest), key)
        # The one who cancels may have left the registry to another controller.
        check()
        pushed(replace(action, image=reference), digest)
        registry.tag(reference.repository, digest, reference.reference)
    telemetry.count_toolchain(ToolchainUse.PUSHED)
    log(f"pushed toolchain {reference}: {digest}")


def _reference(action: StartBuild, trusted: ec.EllipticCurvePublicKey | None) -> ImageRef | None:
    """Return the toolchain of a build by its tag; None if it has none, or our key would sign what a stranger's made."""
    signing = action.request.signing
    if trusted is None and signing is not None and signing.key_secret is not None:
        return None
    return toolchain_image(action.request, action.image)


def _found(
    request: BuildRequest, reference: ImageRef, registry: ImageStore, trusted: ec.EllipticCurvePublicKey | None
) -> ImageRef | _Unusable | None:
    """Return the toolchain by its digest, why it is not used, or None where the registry has none."""
    state = registry.inspect(reference.repository, reference.reference)
    if isinstance(state, Absent):
        return None
    if not isinstance(state, Present):
        return _Unusable("the registry was not asked" if isinstance(state, NotAsked) else state.message)
    image = reference.at(state.digest)
    key = toolchain_key(request)
    if state.labels.get(images.TOOLCHAIN_LABEL) != key:
        return _Unusable(f"{state.digest} does not have the label {images.TOOLCHAIN_LABEL}={key}", is_other=True)
    try:
        if trusted is not None and not has_signature(registry, image, trusted):
            return _Unusable(f"{state.digest} is not signed with our key", is_other=True)
    except DriverBuilderError as error:
        return _Unusable(str(error))
    return image


def _checked(image: ImageArchive, request: BuildRequest) -> ImageArchive:
    """Return a toolchain with its labels.

    Raises:
        VerificationFailed: a module that was built with it is not for the kernel.
    """
    facts = {
        file.path.rpartition("/")[2]: first_line(file.read(MAX_LINE).decode(errors="replace"))
        for file in image.files(FACTS_FOLDER)
        if file.path in (f"{FACTS_FOLDER}/{VERMAGIC}", f"{FACTS_FOLDER}/{COMPILER}")
    }
    release, kernel = vermagic.release_of(facts.get(VERMAGIC, "")), request.target.kernel_version
    if release != kernel:
        words = f"a module that is built with the toolchain has the version magic of {release or 'no kernel'}"
        raise VerificationFailed(Reason.WRONG_VERMAGIC, f"{words}, not of {kernel}")
    labels = toolchain_labels(request) | {images.COMPILER_LABEL: facts.get(COMPILER, "")}
    return image.with_provenance(labels)
