"""One target of a driver: what it should run by the rule of the spec that its kernel falls under. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec, KernelMapping
from driver_builder.desired import mapping
from driver_builder.desired.desired_target import (
    BlockedTarget,
    DesiredTarget,
    PrebuiltTarget,
    SkippedTarget,
    TargetToBuild,
    TemplateVersions,
)
from driver_builder.model import images
from driver_builder.model.build import BuildRequest, OwnTemplate
from driver_builder.model.kernels import KernelTarget
from driver_builder.observed.rebuild import Rebuilds
from driver_builder.observed.snapshot import Certificate, CertificateMissing, SigningCertificate, Source, SourceMissing
from driver_builder.reasons import REASONS, Reason

OWN_TEMPLATE = "own"
"""What a template of the admin's is called where ours have their names."""


@dataclass(frozen=True, slots=True)
class BuildInputs:
    """What all targets of a driver are resolved with.

    ``template`` is the admin's own, None where the spec names none; ``certificates`` are by their Secrets' places.
    """

    driver: DriverContainer
    spec: DriverSpec
    source: Source
    template: OwnTemplate | SourceMissing | None
    rebuilds: Rebuilds
    known_templates: TemplateVersions
    certificates: Mapping[str, Certificate]

    def certificate(self, rule: KernelMapping) -> Certificate | None:
        """What modules of a rule's kernels are signed with, None where they are not."""
        signing = rule.signing or self.spec.signing
        if signing is None or signing.certificate_secret is None:
            return None
        unread = CertificateMissing(message="the signing certificate has not been read yet")
        return self.certificates.get(f"{self.driver.namespace}/{signing.certificate_secret}", unread)


def resolve_target(
    inputs: BuildInputs, target: KernelTarget, nodes: tuple[str, ...], *, selects_os_version: bool
) -> DesiredTarget:
    """Say what the nodes of a target should run."""
    rule = mapping.mapping_for(inputs.spec, target.kernel_version)
    if rule is None:
        why = "no rule of spec.kernelMappings matches"
        return SkippedTarget(target=target, nodes=nodes, reason=Reason.NO_KERNEL_MAPPING, message=why)
    if rule.skip:
        why = f"skipped by mapping {rule.pattern.pattern!r}"
        return SkippedTarget(target=target, nodes=nodes, reason=Reason.SKIPPED_BY_MAPPING, message=why)
    if rule.image is not None:
        return PrebuiltTarget(
            target=target,
            nodes=nodes,
            image=images.parse_reference(rule.image),
            rebuild=inputs.rebuilds.of_driver,
            selects_os_version=selects_os_version,
        )
    request = _request(inputs, rule, target)
    if isinstance(request, _Missing):
        return blocked_target(target, nodes, request.reason, request.message)
    tag = images.image_tag(version=inputs.spec.version, target=target, key=request.key)
    return TargetToBuild(
        target=target,
        nodes=nodes,
        image=inputs.spec.image.tagged(tag),
        request=request,
        rebuild=inputs.rebuilds.of_driver,
        basis=replace(request, rebuild=inputs.rebuilds.token()).key,
        selects_os_version=selects_os_version,
    )


def blocked_target(target: KernelTarget, nodes: tuple[str, ...], reason: Reason, message: str) -> BlockedTarget:
    """Make a target that nothing can be built for, in the state that its reason leads to."""
    return BlockedTarget(target=target, nodes=nodes, state=REASONS[reason].states[0], reason=reason, message=message)


@dataclass(frozen=True, slots=True)
class _Missing:
    """What a build needs and is not there."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Template:
    """What makes the Dockerfile: a template of ours by its name, or the admin's. ``version`` is in the build key."""

    name: str
    version: str
    own: OwnTemplate | None = None


def _template(inputs: BuildInputs, rule: KernelMapping, target: KernelTarget) -> _Template | _Missing:
    own, versions = inputs.template, inputs.known_templates.versions
    if own is not None and rule.template is None:
        if isinstance(own, SourceMissing):
            return _Missing(Reason.SOURCE_MISSING, own.message)
        return _Template(name=OWN_TEMPLATE, version=f"{OWN_TEMPLATE}:{own.digest}", own=own)
    name = mapping.template_for(inputs.spec, rule, target)
    return _Template(name=name, version=versions[name]) if name and name in versions else _unsupported(inputs, target)


def _unsupported(inputs: BuildInputs, target: KernelTarget) -> _Missing:
    known = ", ".join(sorted(inputs.known_templates.versions))
    return _Missing(Reason.UNSUPPORTED_OS, f"no template or base image for {target.os} (templates: {known})")


def _request(inputs: BuildInputs, rule: KernelMapping, target: KernelTarget) -> BuildRequest | _Missing:
    """Put together what is built; the first thing that is missing is said."""
    spec, source = inputs.spec, inputs.source
    if isinstance(source, SourceMissing):
        return _Missing(Reason.SOURCE_MISSING, source.message)
    template = _template(inputs, rule, target)
    if isinstance(template, _Missing) and template.reason is Reason.SOURCE_MISSING:
        return template
    certificate = inputs.certificate(rule)
    if isinstance(certificate, CertificateMissing):
        reason = Reason.INVALID_SIGNING_CERTIFICATE if certificate.is_invalid else Reason.SIGNING_CERTIFICATE_MISSING
        return _Missing(reason, certificate.message)
    base_image = mapping.base_image_for(spec, target)
    if isinstance(template, _Missing) or base_image is None:
        return _unsupported(inputs, target)
    limits = inputs.known_templates
    return BuildRequest(
        driver=inputs.driver.key,
        version=spec.version,
        target=target,
        template=template.name,
        recipe=template.version,
        base_image=base_image,
        source=source,
        modules=spec.modules,
        args={**spec.args, **rule.args},
        rebuild=inputs.rebuilds.token(target),
        deadline_seconds=min(spec.deadline_seconds or limits.deadline_seconds, limits.max_deadline_seconds),
        signing_certificate=certificate.der if isinstance(certificate, SigningCertificate) else None,
        signing=rule.signing or spec.signing,
        own_template=template.own,
        firmware_path=spec.firmware_path or "",
    )
