"""Whether a driver may use what its spec names, by the settings of the controller. Pure.

Place in the flow: ``resolve_target`` blocks a target that may not, before any registry is asked and anything is built;
what its nodes run stays. ``lint`` reports the same before a driver is applied.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.mapping_settings import KernelMapping
from driver_builder.api.spec_reader import Path, dotted, shown
from driver_builder.model import images, permissions, quantities
from driver_builder.model.build import MIRROR_ARG, TOOLS_IMAGE, Signing, SourceArchive, SourceGit, SourceImage
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.permissions import Permissions
from driver_builder.model.setting import Setting
from driver_builder.model.userspace import UserspaceArchive
from kube_api.text import first_few

NO_SECRETS: Mapping[str, str] = MappingProxyType({})

TEMPLATES_WITH_TOOLS = frozenset({"amazon", "fedora", "rhel", "sles"})
"""Templates of ours that start another image beside the base image, for tools that this one does not have."""

_SHOWN = 3
_BASE_IMAGE: Path = ("spec", "build", "baseImage")
_TEMPLATE: Path = ("spec", "build", "template")
_SECRET_FIELDS = (
    ("key_secret", "keySecretRef"),
    ("certificate_secret", "certificateSecretRef"),
    ("image_key_secret", "imageKeySecretRef"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A field of a spec whose value a setting does not allow."""

    path: Path
    value: str
    setting: Setting

    @property
    def message(self) -> str:
        """What is wrong with the field."""
        return f"{self.value} is not allowed by {self.setting.flag} of driver-builder"

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.message}"


def of_target(
    spec: DriverSpec,
    rule: KernelMapping,
    allowed: Permissions,
    *,
    base_image: str | None,
    template: str | None = None,
    secrets: Mapping[str, str] = NO_SECRETS,
) -> tuple[Refusal, ...]:
    """Return why the nodes of a mapping may not have the driver; ``base_image`` is what it would be built in.

    ``template`` is the one of ours that it would be built by, None for a custom one.
    """
    of_nodes = (*_selector(spec, allowed), *of_validation(spec, allowed), *of_stages(spec, allowed))
    if rule.image is not None:
        return (*of_nodes, *_prebuilt(spec, rule, allowed))
    of_images = (*_base_image(base_image, allowed), *_tools_image(spec, _TEMPLATE, template, allowed))
    return (*of_nodes, *_build(spec, allowed, secrets), *of_images, *_mirror(spec, rule, allowed))


def words(refusals: tuple[Refusal, ...]) -> str:
    """Return the message of a target: the first refusals, and how many more there are."""
    return first_few(refusals, _SHOWN, separator="; ")


def of_spec(spec: DriverSpec, allowed: Permissions, secrets: Mapping[str, str] = NO_SECRETS) -> tuple[Refusal, ...]:
    """Return everything in a spec that is not allowed, for any kernel."""
    of_rules = (
        refusal
        for rule in spec.kernel_mappings or (None,)
        for refusal in (_rule(spec, rule, allowed) if rule is None or not rule.skip else ())
    )
    of_build = (*_build(spec, allowed, secrets), *_base_image(spec.build.base_image, allowed))
    of_nodes = (*_selector(spec, allowed), *of_validation(spec, allowed), *of_stages(spec, allowed))
    return tuple(dict.fromkeys((*of_nodes, *of_build, *of_rules)))


def refuses_selector(spec: DriverSpec, allowed: Permissions) -> bool:
    """Return whether a driver may not select the nodes that it selects: where it should be is not known."""
    return next(_selector(spec, allowed), None) is not None


def of_validation(spec: DriverSpec, allowed: Permissions) -> tuple[Refusal, ...]:
    """Return why the image of a validation may not run on nodes."""
    image = spec.validation.image
    if image is None or permissions.allows_image(allowed.base_images, image):
        return ()
    path = ("spec", "validation", "image")
    return (Refusal(path=path, value=shown(image), setting=permissions.BASE_IMAGES),)


def of_stages(spec: DriverSpec, allowed: Permissions) -> tuple[Refusal, ...]:
    """Return why the images of stages may not run on nodes."""
    stages = spec.stages
    if stages is None:
        return ()
    plugin, validation = stages.device_plugin, stages.plugin_validation
    named = (
        ("devicePlugin", plugin.image if plugin is not None else None),
        ("pluginValidation", validation.image if validation is not None else None),
    )
    return tuple(
        Refusal(path=("spec", "stages", name, "image"), value=shown(image), setting=permissions.BASE_IMAGES)
        for name, image in named
        if image is not None and not permissions.allows_image(allowed.base_images, image)
    )


def of_base_image(image: str, allowed: Permissions) -> Refusal | None:
    """Return why no container of a base image may run, None if it may."""
    return next(_base_image(image, allowed), None)


def protected_secrets(
    key: DriverKey,
    spec: DriverSpec,
    drivers: Callable[[], Iterable[tuple[DriverKey, DriverSpec]]],
    allowed: Permissions,
) -> Mapping[str, str]:
    """Return the Secrets that no build of a driver's namespace may mount, with a field that names each.

    ``drivers`` are all drivers by their keys. They are not looked at for a driver whose builds mount nothing.
    """
    has_any = spec.build.secrets or (spec.build.proxy is not None and spec.build.proxy.secret is not None)
    if not allowed.protected_secrets or not has_any:
        return NO_SECRETS
    specs = {name: item for name, item in drivers() if name.namespace == key.namespace}
    return {secret: field for name in sorted(specs) for secret, field in _named(name, specs[name])}


def specs_of(drivers: Iterable[DriverContainer]) -> Iterator[tuple[DriverKey, DriverSpec]]:
    """Return the drivers with a valid spec."""
    return ((item.key, item.spec) for item in drivers if isinstance(item.spec, DriverSpec))


def _named(key: str, spec: DriverSpec) -> Iterator[tuple[str, str]]:
    if spec.registry.secret is not None:
        yield spec.registry.secret, f"spec.registry.secretRef of {key}"
    places = [("spec.signing", spec.signing)]
    places += [(f"{dotted(_path(spec, rule))}.signing", rule.signing) for rule in spec.kernel_mappings]
    for place, signing in places:
        for attribute, field in _SECRET_FIELDS:
            name = getattr(signing, attribute) if isinstance(signing, Signing) else None
            if name is not None:
                yield name, f"{place}.{field} of {key}"


def _selector(spec: DriverSpec, allowed: Permissions) -> Iterator[Refusal]:
    if not permissions.allows_selector(allowed.node_labels, spec.node_selector):
        words = ",".join(f"{key}={value}" for key, value in sorted(spec.node_selector.items()))
        value = shown(words) if words else "every node"
        yield Refusal(path=("spec", "nodeSelector"), value=value, setting=permissions.NODE_LABELS)


def _build(spec: DriverSpec, allowed: Permissions, secrets: Mapping[str, str]) -> Iterator[Refusal]:
    image = spec.image
    if not permissions.allows_repository(allowed.registries, image.host, image.repository):
        yield Refusal(path=("spec", "image"), value=shown(str(image)), setting=permissions.REGISTRIES)
    if spec.build.template_config_map is not None and not allowed.custom_templates:
        value = f"ConfigMap {spec.build.template_config_map.name}"
        yield Refusal(path=("spec", "build", "templateConfigMap"), value=value, setting=permissions.CUSTOM_TEMPLATES)
    yield from _source(spec, allowed)
    yield from _userspace(spec, allowed)
    yield from _resources(spec, allowed)
    yield from _proxy(spec, allowed, secrets)
    for number, name in enumerate(spec.build.secrets):
        if name in secrets:
            value = f"Secret {name}, which is {secrets[name]},"
            path = ("spec", "build", "secrets", number)
            yield Refusal(path=path, value=value, setting=permissions.PROTECTED_SECRETS)


def _source(spec: DriverSpec, allowed: Permissions) -> Iterator[Refusal]:
    match spec.source:
        case SourceGit(url=url) if not permissions.allows_url(allowed.source_hosts, url):
            yield Refusal(path=("spec", "source", "git", "url"), value=shown(url), setting=permissions.SOURCE_HOSTS)
        case SourceArchive(url=url) if not permissions.allows_url(allowed.source_hosts, url):
            path = ("spec", "source", "archive", "url")
            yield Refusal(path=path, value=shown(url), setting=permissions.SOURCE_HOSTS)
        case SourceImage(reference=image) if not permissions.allows_image(allowed.base_images, image):
            path = ("spec", "source", "image", "reference")
            yield Refusal(path=path, value=shown(image), setting=permissions.BASE_IMAGES)
        case _:
            return


def _userspace(spec: DriverSpec, allowed: Permissions) -> Iterator[Refusal]:
    content = spec.userspace.build.content if spec.userspace else None
    if isinstance(content, UserspaceArchive) and not permissions.allows_url(allowed.source_hosts, content.url):
        path = ("spec", "userspace", "archive", "url")
        yield Refusal(path=path, value=shown(content.url), setting=permissions.SOURCE_HOSTS)


def _proxy(spec: DriverSpec, allowed: Permissions, secrets: Mapping[str, str]) -> Iterator[Refusal]:
    """Judge a proxy: it answers for every host."""
    proxy, path = spec.build.proxy, ("spec", "build", "proxy")
    if proxy is None:
        return
    for field, url in (("httpProxy", proxy.http), ("httpsProxy", proxy.https)):
        if url and not permissions.allows_url(allowed.source_hosts, url):
            yield Refusal(path=(*path, field), value=shown(url), setting=permissions.SOURCE_HOSTS)
    if proxy.secret is not None and proxy.secret in secrets:
        value = f"Secret {proxy.secret}, which is {secrets[proxy.secret]},"
        yield Refusal(path=(*path, "secretRef"), value=value, setting=permissions.PROTECTED_SECRETS)


def _rule(spec: DriverSpec, rule: KernelMapping | None, allowed: Permissions) -> Iterator[Refusal]:
    """Judge a mapping for any kernel, None where a spec has no mappings."""
    if rule is not None and rule.image is not None:
        yield from _prebuilt(spec, rule, allowed)
        return
    yield from _mirror(spec, rule, allowed)
    if rule is not None and rule.template is not None:
        yield from _tools_image(spec, (*_path(spec, rule), "template"), rule.template, allowed)
    elif spec.build.template_config_map is None:
        yield from _tools_image(spec, _TEMPLATE, spec.build.template, allowed)


def _mirror(spec: DriverSpec, rule: KernelMapping | None, allowed: Permissions) -> Iterator[Refusal]:
    """Judge the archive of headers that is used: a mapping's own is in place of the build's."""
    path: Path = ("spec", "build")
    args = spec.build.args
    if rule is not None and MIRROR_ARG in rule.args:
        path, args = _path(spec, rule), rule.args
    url = args.get(MIRROR_ARG)
    if url and not permissions.allows_url(allowed.source_hosts, url):
        yield Refusal(path=(*path, "args", MIRROR_ARG), value=shown(url), setting=permissions.SOURCE_HOSTS)


def _resources(spec: DriverSpec, allowed: Permissions) -> Iterator[Refusal]:
    if allowed.max_resources is None:
        return
    for part, wanted in spec.build.resources.items():
        for name, quantity in wanted.items():
            most = allowed.max_resources.get(name)
            if most is None or quantities.amount(quantity) > quantities.amount(most):
                path = ("spec", "build", "resources", part, name)
                yield Refusal(path=path, value=str(quantity), setting=permissions.MAX_RESOURCES)


def _base_image(image: str | None, allowed: Permissions) -> Iterator[Refusal]:
    if image is not None and not permissions.allows_image(allowed.base_images, image):
        yield Refusal(path=_BASE_IMAGE, value=shown(image), setting=permissions.BASE_IMAGES)


def _tools_image(spec: DriverSpec, path: Path, template: str | None, allowed: Permissions) -> Iterator[Refusal]:
    image = spec.build.tools_image or TOOLS_IMAGE
    if template in TEMPLATES_WITH_TOOLS and not permissions.allows_image(allowed.base_images, image):
        path = ("spec", "build", "toolsImage") if spec.build.tools_image else path
        value = f"{shown(image)}, which template {template} starts for its tools,"
        yield Refusal(path=path, value=value, setting=permissions.BASE_IMAGES)


def _prebuilt(spec: DriverSpec, rule: KernelMapping, allowed: Permissions) -> Iterator[Refusal]:
    if rule.image is None:
        return
    image = images.parse_reference(rule.image)
    if not permissions.allows_repository(allowed.prebuilt_images, image.host, image.repository):
        path = (*_path(spec, rule), "image")
        yield Refusal(path=path, value=shown(rule.image), setting=permissions.PREBUILT_IMAGES)


def _path(spec: DriverSpec, rule: KernelMapping) -> Path:
    """Return the place of a mapping; the mapping of a spec without any has none of its own fields."""
    number = next((index for index, item in enumerate(spec.kernel_mappings) if item is rule), 0)
    return ("spec", "kernelMappings", number)
