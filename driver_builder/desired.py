"""What a driver should look like: for every target that has nodes, the image it should run, or why it should run none.

Pure, and shared by ``observe`` (which asks the registries for exactly these images) and ``plan``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from driver_builder import images, mapping
from driver_builder.build import BuildRequest, Source
from driver_builder.driver_container import DriverContainer
from driver_builder.driver_spec import DriverSpec, KernelMapping
from driver_builder.images import ImageRef
from driver_builder.inventory import Inventory
from driver_builder.kernels import KernelTarget
from driver_builder.rebuild import Rebuilds
from driver_builder.status import Reason, TargetState


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A target and the image its nodes should run; ``request`` builds it, None for a prebuilt image of a mapping."""

    target: KernelTarget
    nodes: tuple[str, ...]
    image: ImageRef
    request: BuildRequest | None


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
    """``digests`` of every known template together with the loader; a build's deadline, for specs that have none."""

    digests: Mapping[str, str]
    deadline_seconds: float = 1800.0


def desired(
    driver: DriverContainer,
    spec: DriverSpec,
    *,
    inventory: Inventory,
    source: Source | str,
    rebuilds: Rebuilds,
    recipes: Recipes,
) -> tuple[Wanted | Unwanted, ...]:
    """Say for each target what it should run; ``source`` is text where it is missing, and says why."""
    return tuple(
        _for_target(_Context(driver, spec, source, rebuilds, recipes), target, nodes)
        for target, nodes in inventory.targets.items()
    )


@dataclass(frozen=True, slots=True)
class _Context:
    driver: DriverContainer
    spec: DriverSpec
    source: Source | str
    rebuilds: Rebuilds
    recipes: Recipes


def _for_target(context: _Context, target: KernelTarget, nodes: tuple[str, ...]) -> Wanted | Unwanted:
    def refuse(state: TargetState, reason: Reason, message: str) -> Unwanted:
        return Unwanted(target=target, nodes=nodes, state=state, reason=reason, message=message)

    rule = mapping.mapping_for(context.spec, target.kernel_version)
    if rule is None:
        return refuse(TargetState.SKIPPED, Reason.NO_KERNEL_MAPPING, "no rule of spec.kernelMappings matches")
    if rule.skip:
        return refuse(TargetState.SKIPPED, Reason.SKIPPED_BY_MAPPING, f"skipped by mapping {rule.pattern.pattern!r}")
    if rule.image is not None:
        return Wanted(target=target, nodes=nodes, image=images.parse_reference(rule.image), request=None)
    if isinstance(context.source, str):
        return refuse(TargetState.PENDING, Reason.SOURCE_MISSING, context.source)
    return _to_build(context, rule, target, nodes) or refuse(
        TargetState.FAILED,
        Reason.UNSUPPORTED_OS,
        f"no template or base image is known for {target.os}: set spec.build.template and spec.build.baseImage "
        f"(templates: {', '.join(sorted(context.recipes.digests))})",
    )


def _to_build(context: _Context, rule: KernelMapping, target: KernelTarget, nodes: tuple[str, ...]) -> Wanted | None:
    spec, source = context.spec, context.source
    template = mapping.template_for(spec, rule, target)
    base_image = mapping.base_image_for(spec, target)
    if template is None or template not in context.recipes.digests or base_image is None or isinstance(source, str):
        return None
    args = {**spec.args, **rule.args}
    key = images.build_key(
        driver=context.driver.key,
        version=spec.version,
        target=target,
        source=source,
        recipe=context.recipes.digests[template],
        base_image=base_image,
        args=args,
        modules=spec.modules,
        rebuild=context.rebuilds.token(target),
    )
    request = BuildRequest(
        key=key,
        driver=context.driver.key,
        version=spec.version,
        target=target,
        template=template,
        base_image=base_image,
        source=source,
        modules=spec.modules,
        args=args,
        rebuild=context.rebuilds.token(target),
        deadline_seconds=spec.deadline_seconds or context.recipes.deadline_seconds,
    )
    tag = images.image_tag(version=spec.version, target=target, key=key)
    return Wanted(target=target, nodes=nodes, image=images.tagged(spec.image, tag), request=request)
