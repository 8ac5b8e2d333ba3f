"""What follows on a node once the driver is proven there: ``spec.stages``. Pure."""

from device_resources.nvidia import FULL_CARD
from device_resources.resource_parser import InvalidResource, parse_resource
from driver_builder.api.dra_stage import read_dra
from driver_builder.api.nvidia_stage import read_nvidia
from driver_builder.api.spec_reader import Reader
from driver_builder.api.spec_rules import BASE_IMAGE, EXTENDED_RESOURCE, TEXT
from driver_builder.api.stage_settings import (
    DEADLINE_SECONDS,
    RETRIES,
    DevicePluginSettings,
    PluginValidationSettings,
    StageSettings,
)
from driver_builder.api.use_stage import FIELDS_OF_USE, read_use

MAX_RETRIES = 10
_OF_IMAGE = ("command", "args", "privileged", "resourceName", "dra")

_ELSEWHERE = {
    "validation": "it stays where it was: write spec.validation",
    "monitoring": "write a DaemonSet of your own that selects the label of a stage (docs/stages.md)",
    "featureDiscovery": "write a DaemonSet of your own that selects the label of a stage (docs/stages.md)",
    **{name: f"write stages.devicePlugin.{name}" for name in FIELDS_OF_USE},
}
"""What may be looked for here, and where it belongs."""

_NO_VALIDATION = (
    "devicePlugin.dra excludes it, because its pod is bound to a node, and only the scheduler allocates devices of a "
    "ResourceClaim: remove it, and run a pod of your own with a claim (docs/stages.md)"
)


def read_stages(spec: Reader) -> StageSettings | None:
    """Read ``spec.stages``, None where it is not given."""
    stages = spec.object("stages")
    for name, words in _ELSEWHERE.items():
        if stages.has(name):
            stages.wrong(f"there is no such stage: {words}", name)
    if not spec.has("stages"):
        return None
    plugin = _device_plugin(stages.object("devicePlugin")) if stages.has("devicePlugin") else None
    validation = None
    if stages.has("pluginValidation"):
        if plugin is None:
            stages.wrong("there is no devicePlugin that it could validate: write one, or remove it", "pluginValidation")
        elif plugin.dra is not None:
            stages.wrong(_NO_VALIDATION, "pluginValidation")
        validation = _plugin_validation(stages.object("pluginValidation"), plugin.resource_name if plugin else "")
    return StageSettings(device_plugin=plugin, plugin_validation=validation)


def _device_plugin(plugin: Reader) -> DevicePluginSettings:
    image, command = plugin.text("image", BASE_IMAGE), plugin.words("command", TEXT)
    args, privileged = plugin.words("args", TEXT), plugin.flag("privileged")
    name, resource = plugin.text("resourceName", EXTENDED_RESOURCE), plugin.raw("resource")
    kinds = [kind for kind in ("resource", "nvidia", "image") if plugin.has(kind)]
    nvidia = read_nvidia(plugin)
    use, dra = read_use(plugin), read_dra(plugin)
    if len(kinds) != 1:
        words = "resource or nvidia for our agent, image for a vendor's plugin"
        plugin.wrong(f"exactly one of resource, image, nvidia is needed: {words}")
    if ours := [kind for kind in kinds if kind != "image"]:
        others = [field for field in _OF_IMAGE if plugin.has(field)]
        if others:
            plugin.wrong(f"{ours[0]} excludes {', '.join(others)}, which belong to image: remove them")
        # What comes depends on the cards and the profile.
        name = _name_of(plugin, resource) if ours[0] == "resource" else FULL_CARD
    elif dra is not None and plugin.has("resourceName"):
        plugin.wrong(
            "dra excludes it, because a DRA driver offers no extended resource itself: remove it", "resourceName"
        )
    elif dra is None and not plugin.has("resourceName"):
        words = "is missing: write the extended resource that the plugin offers, or dra for a driver of ResourceClaims"
        plugin.wrong(words, "resourceName")
    if plugin.has("image") and (others := [field for field in FIELDS_OF_USE if plugin.has(field)]):
        plugin.wrong(f"image excludes {', '.join(others)}, which belong to resource and nvidia: remove them")
    return DevicePluginSettings(
        resource_name=name or "",
        resource=dict(resource) if isinstance(resource, dict) else {},
        nvidia=nvidia.config,
        profiles=nvidia.profiles,
        mig=nvidia.mig,
        use=use,
        image=image,
        command=command,
        args=args,
        privileged=privileged,
        dra=dra,
    )


def _name_of(plugin: Reader, resource: object) -> str:
    """Return the name of the resource that is described in place."""
    try:
        return parse_resource(resource).name
    except InvalidResource as error:
        for problem in error.problems:
            plugin.wrong(problem.message, "resource", *problem.path)
        return ""


def _plugin_validation(validation: Reader, resource: str) -> PluginValidationSettings:
    image, command = validation.needed("image", BASE_IMAGE), validation.words("command", TEXT)
    if not validation.items("command"):
        validation.wrong("name at least the program", "command")
    deadline, retries = validation.duration("deadline"), validation.number("retries", low=0, high=MAX_RETRIES)
    return PluginValidationSettings(
        image=image,
        command=command,
        resource_name=validation.text("resourceName", EXTENDED_RESOURCE) or resource,
        deadline_seconds=DEADLINE_SECONDS if deadline is None else deadline,
        retries=RETRIES if retries is None else retries,
    )
