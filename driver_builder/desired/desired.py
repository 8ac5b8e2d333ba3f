"""What a driver should look like: for every target that has nodes, the image it should run, or why it should run none.

Pure, and shared by ``observe`` (which asks the registries for exactly these images) and ``plan``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec, KernelMapping
from driver_builder.desired import mapping
from driver_builder.model import images
from driver_builder.model.build import BuildRequest, OwnTemplate, Source
from driver_builder.model.images import ImageRef
from driver_builder.model.kernels import KernelTarget
from driver_builder.observed.inventory import Inventory
from driver_builder.observed.rebuild import Rebuilds
from driver_builder.observed.snapshot import Certificate, CertificateMissing, SigningCertificate
from driver_builder.reasons import REASONS, Reason, TargetState

OWN_TEMPLATE = "own"
"""What a template of the admin's is called where ours have their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A target and the image its nodes should run; ``request`` builds it, None for a prebuilt image of a mapping.

    ``rebuild`` is the token of a rebuild that was asked for on the DriverContainer, and so for all its nodes.
    ``basis`` is the build key without the rebuilds that single nodes asked for, empty for a prebuilt image.
    ``selects_os_version`` says that its nodes are told from others of their kernel by their version.
    """

    target: KernelTarget
    nodes: tuple[str, ...]
    image: ImageRef
    request: BuildRequest | None
    rebuild: str = ""
    basis: str = ""
    selects_os_version: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwanted:
    """A target that gets no image, and why."""

    target: KernelTarget
    nodes: tuple[str, ...]
    state: TargetState
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipes:
    """``versions`` of the recipe of every known template, by name.

    ``deadline_seconds`` is a build's deadline, for specs that have none; ``max_deadline_seconds`` is the longest that a
    spec may ask for.
    """

    versions: Mapping[str, str]
    deadline_seconds: float = 1800.0
    max_deadline_seconds: float = 14400.0


def desired(
    driver: DriverContainer,
    spec: DriverSpec,
    *,
    inventory: Inventory,
    source: Source | str,
    rebuilds: Rebuilds,
    recipes: Recipes,
    template: OwnTemplate | str | None = None,
    certificates: Mapping[str, Certificate] = MappingProxyType({}),
) -> tuple[Wanted | Unwanted, ...]:
    """Say for each target what it should run; ``source`` and ``template`` are text where they are missing: it says why.

    ``template`` is the admin's own, None where the spec names none; ``certificates`` are by their Secrets' places.
    """
    context = _Context(driver, spec, source, template, rebuilds, recipes, certificates)
    items = (_for_target(context, target, nodes) for target, nodes in inventory.targets.items())
    return tuple(
        replace(item, selects_os_version=True)
        if isinstance(item, Wanted) and item.target in inventory.divided
        else item
        for item in items
    )


@dataclass(frozen=True, slots=True)
class _Context:
    driver: DriverContainer
    spec: DriverSpec
    source: Source | str
    template: OwnTemplate | str | None
    rebuilds: Rebuilds
    recipes: Recipes
    certificates: Mapping[str, Certificate]

    def certificate(self, rule: KernelMapping) -> Certificate | None:
        """What modules of a rule's kernels are signed with, None where they are not."""
        signing = rule.signing or self.spec.signing
        if signing is None or signing.certificate_secret is None:
            return None
        unread = CertificateMissing(message="the signing certificate has not been read yet")
        return self.certificates.get(f"{self.driver.namespace}/{signing.certificate_secret}", unread)


def _for_target(context: _Context, target: KernelTarget, nodes: tuple[str, ...]) -> Wanted | Unwanted:
    def refuse(reason: Reason, message: str) -> Unwanted:
        return Unwanted(target=target, nodes=nodes, state=REASONS[reason].states[0], reason=reason, message=message)

    rule = mapping.mapping_for(context.spec, target.kernel_version)
    if rule is None:
        return refuse(Reason.NO_KERNEL_MAPPING, "no rule of spec.kernelMappings matches")
    if rule.skip:
        return refuse(Reason.SKIPPED_BY_MAPPING, f"skipped by mapping {rule.pattern.pattern!r}")
    if rule.image is not None:
        image = images.parse_reference(rule.image)
        return Wanted(target=target, nodes=nodes, image=image, request=None, rebuild=context.rebuilds.of_driver)
    if (missing := _missing(context, rule)) is not None:
        return refuse(*missing)
    return _to_build(context, rule, target, nodes) or refuse(
        Reason.UNSUPPORTED_OS,
        f"no template or base image for {target.os} (templates: {', '.join(sorted(context.recipes.versions))})",
    )


def _missing(context: _Context, rule: KernelMapping) -> tuple[Reason, str] | None:
    """Say what a build needs and the cluster does not have."""
    if isinstance(context.source, str):
        return Reason.SOURCE_MISSING, context.source
    if isinstance(context.template, str) and rule.template is None:
        return Reason.SOURCE_MISSING, context.template
    certificate = context.certificate(rule)
    if isinstance(certificate, CertificateMissing):
        reason = Reason.INVALID_SIGNING_CERTIFICATE if certificate.is_invalid else Reason.SIGNING_CERTIFICATE_MISSING
        return reason, certificate.message
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recipe:
    """What makes the Dockerfile: a template of ours by its name, or the admin's. ``version`` is in the build key."""

    name: str
    version: str
    own: OwnTemplate | None = None


def _recipe(context: _Context, rule: KernelMapping, target: KernelTarget) -> _Recipe | None:
    own, recipes = context.template, context.recipes
    if isinstance(own, OwnTemplate) and rule.template is None:
        return _Recipe(name=OWN_TEMPLATE, version=f"{OWN_TEMPLATE}:{own.digest}", own=own)
    name = mapping.template_for(context.spec, rule, target)
    return _Recipe(name=name, version=recipes.versions[name]) if name and name in recipes.versions else None


def _to_build(context: _Context, rule: KernelMapping, target: KernelTarget, nodes: tuple[str, ...]) -> Wanted | None:
    spec, source = context.spec, context.source
    recipe = _recipe(context, rule, target)
    base_image = mapping.base_image_for(spec, target)
    if recipe is None or base_image is None or isinstance(source, str):
        return None
    certificate = context.certificate(rule)
    request = BuildRequest(
        driver=context.driver.key,
        version=spec.version,
        target=target,
        template=recipe.name,
        recipe=recipe.version,
        base_image=base_image,
        source=source,
        modules=spec.modules,
        args={**spec.args, **rule.args},
        rebuild=context.rebuilds.token(target),
        deadline_seconds=min(
            spec.deadline_seconds or context.recipes.deadline_seconds, context.recipes.max_deadline_seconds
        ),
        signing_certificate=certificate.der if isinstance(certificate, SigningCertificate) else None,
        signing=rule.signing or spec.signing,
        own_template=recipe.own,
        firmware_path=spec.firmware_path or "",
    )
    return Wanted(
        target=target,
        nodes=nodes,
        image=spec.image.tagged(images.image_tag(version=spec.version, target=target, key=request.key)),
        request=request,
        rebuild=context.rebuilds.of_driver,
        basis=replace(request, rebuild=context.rebuilds.token()).key,
    )
