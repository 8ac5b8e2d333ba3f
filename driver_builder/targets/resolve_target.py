"""One target of a driver: what it should run by the kernel mapping that applies. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec, RegistrySettings
from driver_builder.api.mapping_settings import KernelMapping, compiled
from driver_builder.api.rebuild_status import Rebuilds
from driver_builder.api.status import Trouble
from driver_builder.base.reasons import REASONS, Reason
from driver_builder.model import images
from driver_builder.model.build import BuildRequest, OwnTemplate
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.kernels import KernelTarget, KernelVersion
from driver_builder.snapshot.snapshot import Certificate, CertificateMissing, SigningCertificate, Source, SourceMissing
from driver_builder.targets import permissions
from driver_builder.targets.desired_target import (
    BlockedTarget,
    DesiredTarget,
    Exporter,
    PrebuiltTarget,
    SkippedTarget,
    TargetToBuild,
    TemplateVersions,
)

ANY_KERNEL = KernelMapping(pattern=compiled(".*"), args={})
"""What a spec without mappings means."""

TEMPLATES = {
    "almalinux": "rhel",
    "amzn": "amazon",
    "centos": "rhel",
    "debian": "debian",
    "fedora": "fedora",
    "flatcar": "flatcar",
    "ol": "rhel",
    "opensuse-leap": "sles",
    "opensuse-tumbleweed": "sles",
    "rhel": "rhel",
    "rocky": "rhel",
    "sles": "sles",
    "ubuntu": "ubuntu",
}
"""os-release ID to template, for specs that name none."""

BASE_IMAGES = {
    "almalinux": "almalinux:{major}",
    "amzn": "amazonlinux:{version}",
    "centos": "quay.io/centos/centos:stream{major}",
    "debian": "debian:{codename}-slim",
    "fedora": "fedora:{version}",
    "flatcar": "debian:trixie-slim",
    "ol": "oraclelinux:{major}",
    "opensuse-leap": "opensuse/leap:{version}",
    "opensuse-tumbleweed": "opensuse/tumbleweed:latest",
    "rhel": "registry.access.redhat.com/ubi{major}/ubi:{version}",
    "rocky": "rockylinux/rockylinux:{major}",
    "sles": "registry.suse.com/bci/bci-base:{version}",
    "ubuntu": "ubuntu:{version}",
}
"""os-release ID to the image a driver is built in, for specs that name none.

Where a distribution's images are named by major release, the newest minor one is taken: its compiler builds for all
kernels of that release. Flatcar's build tools run on a C library that is as new as its own.
"""

_CODENAMES = {"12": "bookworm", "13": "trixie"}
"""Debian's images are those of its codenames."""
_VERSION = re.compile(r"(?P<major>[0-9]+)(?:\.[0-9]+)*")
_OLDEST = {"almalinux": 8, "centos": 8, "ol": 8, "rhel": 8, "rocky": 8}
"""Major releases that the templates support; older ones have other package managers."""

OWN_TEMPLATE = "own"
"""What a custom template is called where ours have their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """A driver that another one depends on, and what its targets should run, by kernel, system and architecture."""

    driver: DriverKey
    registry: RegistrySettings
    targets: Mapping[tuple[str, str, str], DesiredTarget]


@dataclass(frozen=True, slots=True)
class BuildInputs:
    """Inputs of all targets of a driver.

    ``template`` is a custom one, None if the spec names none; ``certificates`` are by the names of their Secrets.
    """

    driver: DriverContainer
    spec: DriverSpec
    source: Source
    template: OwnTemplate | SourceMissing | None
    rebuilds: Rebuilds
    known_templates: TemplateVersions
    certificates: Mapping[str, Certificate]
    protected_secrets: Mapping[str, str] = field(default_factory=dict)
    """Secrets that no build may mount, with the field that names each."""
    obstacle: Trouble | None = None
    """Why the drivers that this one depends on cannot be followed."""
    first: tuple[First, ...] = ()
    """The drivers that this one depends on."""

    def certificate(self, rule: KernelMapping) -> Certificate | None:
        """What modules of a rule's kernels are signed with, None where they are not."""
        signing = rule.signing or self.spec.signing
        if signing is None or signing.certificate_secret is None:
            return None
        unread = CertificateMissing(message="the signing certificate has not been read yet")
        return self.certificates.get(f"{self.driver.namespace}/{signing.certificate_secret}", unread)


def resolve_target(  # noqa: PLR0911  # one for each state
    inputs: BuildInputs, target: KernelTarget, nodes: tuple[str, ...], *, selects_os_version: bool
) -> DesiredTarget:
    """Return what the nodes of a target should run."""
    rule = mapping_for(inputs.spec, target.kernel_version)
    if rule is None:
        why = "no rule of spec.kernelMappings matches"
        return SkippedTarget(target=target, nodes=nodes, reason=Reason.NO_KERNEL_MAPPING, message=why)
    if rule.skip:
        why = f"skipped by mapping {rule.pattern.pattern!r}"
        return SkippedTarget(target=target, nodes=nodes, reason=Reason.SKIPPED_BY_MAPPING, message=why)
    if refusals := _refusals(inputs, rule, target):
        return blocked_target(target, nodes, Reason.NOT_ALLOWED, permissions.words(refusals))
    if inputs.obstacle is not None:
        return blocked_target(target, nodes, inputs.obstacle.reason, inputs.obstacle.message)
    if rule.image is not None:
        return PrebuiltTarget(
            target=target,
            nodes=nodes,
            image=images.parse_reference(rule.image),
            rebuild=inputs.rebuilds.of_driver,
            selects_os_version=selects_os_version,
            vendor=rule.vendor,
        )
    exporters = _exporters(inputs, target)
    if isinstance(exporters, Trouble):
        return blocked_target(target, nodes, exporters.reason, exporters.message)
    request = _request(inputs, rule, target, exporters)
    if isinstance(request, Trouble):
        return blocked_target(target, nodes, request.reason, request.message)
    common = inputs.rebuilds.token()
    tag = images.image_tag(version=inputs.spec.version, target=target, key=request.key)
    return TargetToBuild(
        target=target,
        nodes=nodes,
        image=inputs.spec.image.tagged(tag),
        request=request,
        rebuild=inputs.rebuilds.of_driver,
        basis=request.key if request.rebuild == common else replace(request, rebuild=common).key,
        selects_os_version=selects_os_version,
        exporters=exporters,
    )


def _refusals(inputs: BuildInputs, rule: KernelMapping, target: KernelTarget) -> tuple[permissions.Refusal, ...]:
    return permissions.of_target(
        inputs.spec,
        rule,
        inputs.known_templates.permissions,
        base_image=base_image_for(inputs.spec, target),
        template=shipped_template_for(inputs.spec, rule, target),
        secrets=inputs.protected_secrets,
    )


def blocked_target(target: KernelTarget, nodes: tuple[str, ...], reason: Reason, message: str) -> BlockedTarget:
    """Make a target that cannot be built, in the state that belongs to its reason."""
    return BlockedTarget(target=target, nodes=nodes, state=REASONS[reason].states[0], reason=reason, message=message)


def _exporters(inputs: BuildInputs, target: KernelTarget) -> tuple[Exporter, ...] | Trouble:
    """Return the images whose symbols a build may use, or why there is none."""
    found = []
    for first in inputs.first:
        item = first.targets.get(target.group)
        match item:
            case PrebuiltTarget() if item.vendor.is_for_many_kernels:
                # Where its modules are, and so what they export, is known to that image alone.
                continue
            case TargetToBuild() | PrebuiltTarget():
                found.append(Exporter(driver=first.driver, image=item.image, key=item.key, registry=first.registry))
            case SkippedTarget() | BlockedTarget():
                return _waits(f"driver {first.driver} has no image for {target.kernel_version}: {item.message}")
            case None:
                return _waits(f"driver {first.driver} selects no node of kernel {target.kernel_version}")
            case _ as never:
                assert_never(never)
    return tuple(found)


def _waits(message: str) -> Trouble:
    return Trouble(reason=Reason.WAITING_FOR_DEPENDENCY, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Template:
    """What makes the Dockerfile: one of our templates by its name, or a custom one. ``version`` is in the build key."""

    name: str
    version: str
    own: OwnTemplate | None = None


def _template(inputs: BuildInputs, rule: KernelMapping, target: KernelTarget) -> _Template | Trouble:
    own, versions = inputs.template, inputs.known_templates.versions
    if own is not None and rule.template is None:
        if isinstance(own, SourceMissing):
            return Trouble(reason=Reason.SOURCE_MISSING, message=own.message)
        return _Template(name=OWN_TEMPLATE, version=f"{OWN_TEMPLATE}:{own.digest}", own=own)
    name = template_for(inputs.spec, rule, target)
    return _Template(name=name, version=versions[name]) if name and name in versions else _unsupported(inputs, target)


def _unsupported(inputs: BuildInputs, target: KernelTarget) -> Trouble:
    known = ", ".join(sorted(inputs.known_templates.versions))
    words = f"no template or base image for {target.os} (templates: {known})"
    return Trouble(reason=Reason.UNSUPPORTED_OS, message=words)


def _request(
    inputs: BuildInputs, rule: KernelMapping, target: KernelTarget, exporters: tuple[Exporter, ...]
) -> BuildRequest | Trouble:
    """Put the build request together; returns the first missing input instead, if there is one."""
    spec, source = inputs.spec, inputs.source
    if isinstance(source, SourceMissing):
        return Trouble(reason=Reason.SOURCE_MISSING, message=source.message)
    template = _template(inputs, rule, target)
    if isinstance(template, Trouble) and template.reason is Reason.SOURCE_MISSING:
        return template
    certificate = inputs.certificate(rule)
    if isinstance(certificate, CertificateMissing):
        reason = Reason.INVALID_SIGNING_CERTIFICATE if certificate.is_invalid else Reason.SIGNING_CERTIFICATE_MISSING
        return Trouble(reason=reason, message=certificate.message)
    base_image = base_image_for(spec, target)
    if isinstance(template, Trouble) or base_image is None:
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
        modules=spec.module.load_order,
        args={**spec.build.args, **rule.args},
        rebuild=inputs.rebuilds.token(target),
        deadline_seconds=min(spec.build.deadline_seconds or limits.deadline_seconds, limits.max_deadline_seconds),
        signing_certificate=certificate.der if isinstance(certificate, SigningCertificate) else None,
        signing=rule.signing or spec.signing,
        own_template=template.own,
        firmware_path=spec.module.firmware_path or "",
        userspace=spec.userspace.build if spec.userspace else None,
        tools_image=_tools_image(spec, template),
        depends=tuple((item.driver, item.key or str(item.image)) for item in exporters),
        **spec.build.parts(target.os_id),
    )


def _tools_image(spec: DriverSpec, template: _Template) -> str:
    """Return the image of the tools that a spec names; empty where the template has none, so that no key has it."""
    has_tools = template.own is not None or template.name in permissions.TEMPLATES_WITH_TOOLS
    return spec.build.tools_image or "" if has_tools else ""


def mapping_for(spec: DriverSpec, kernel_version: KernelVersion) -> KernelMapping | None:
    """Return the first mapping that matches the whole kernel release; without mappings every kernel is wanted."""
    for mapping in spec.kernel_mappings or (ANY_KERNEL,):
        if mapping.pattern.fullmatch(kernel_version):
            return mapping
    return None


def template_for(spec: DriverSpec, mapping: KernelMapping, target: KernelTarget) -> str | None:
    """Return the name of the template: the mapping's, else the build's, else the distribution's."""
    return mapping.template or spec.build.template or TEMPLATES.get(target.os_id)


def shipped_template_for(spec: DriverSpec, mapping: KernelMapping, target: KernelTarget) -> str | None:
    """Return the name of the template of ours that builds, None where a custom one does."""
    is_own = spec.build.template_config_map is not None and mapping.template is None
    return None if is_own else template_for(spec, mapping, target)


def base_image_for(spec: DriverSpec, target: KernelTarget) -> str | None:
    """Return the image a driver is built in: the build's, else the distribution's, None if none is known."""
    return spec.build.base_image or _own_base_image(target.os_id, target.os_version)


def _own_base_image(os_id: str, os_version: str) -> str | None:
    rule, version = BASE_IMAGES.get(os_id), _VERSION.fullmatch(os_version)
    if rule is None or version is None or int(version["major"]) < _OLDEST.get(os_id, 0):
        return None
    codename = _CODENAMES.get(version["major"])
    if "{codename}" in rule and codename is None:
        return None
    return rule.format(version=os_version, major=version["major"], codename=codename)
