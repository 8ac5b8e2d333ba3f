"""The rows of ``spec.stages``: what follows on a node once the driver is proven there. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from device_resources.nvidia import FULL_CARD
from device_resources.resource_parser import InvalidResource, parse_resource
from driver_builder.api.environment import environment
from driver_builder.api.nvidia_stage import NVIDIA, NvidiaStage
from driver_builder.api.spec_kinds import AS_GIVEN, Cel, Kind, Row, flag, maybe, needed, table, text, texts
from driver_builder.api.spec_reader import Reader
from driver_builder.api.spec_rules import ACCOUNT, DRA_PLUGIN, EXTENDED_RESOURCE, IMAGE, STAGE_ENV_NAME, TEXT
from driver_builder.api.stage_settings import (
    DevicePluginSettings,
    DraSettings,
    PluginValidationSettings,
    StageSettings,
)
from driver_builder.api.use_stage import EXPORTER, MEMORY, OWN_PORT, use

Json = dict[str, Any]

_OF_IMAGE = ("command", "args", "privileged", "resourceName", "dra")
_OF_USE = ("exporter", "memory")

_DRA_ELSEWHERE = {
    "driverName": "write it to driver",
    "deviceClasses": "they are objects of the cluster: write DeviceClasses yourself (docs/stages.md)",
}
"""What KMM has there, and where it belongs."""
_ELSEWHERE = {
    "validation": "it stays where it was: write spec.validation",
    "monitoring": "write a DaemonSet of your own that selects the label of a stage (docs/stages.md)",
    "featureDiscovery": "write a DaemonSet of your own that selects the label of a stage (docs/stages.md)",
    **{name: f"write stages.devicePlugin.{name}" for name in _OF_USE},
}
"""What may be looked for here, and where it belongs."""


def _check_dra(dra: Reader, _read: object) -> None:
    for name, words in _DRA_ELSEWHERE.items():
        if dra.has(name):
            dra.wrong(f"there is no such field: {words}", name)


_DRA = table(
    DraSettings,
    driver=Row(needed(DRA_PLUGIN), "Name by which it registers and publishes ResourceSlices, such as gpu.nvidia.com."),
    account=Row(
        needed(ACCOUNT),
        "Service account in this namespace by whose token it publishes ResourceSlices. --dra-driver-accounts of "
        "driver-builder has to name it.",
        name="serviceAccountName",
    ),
    env=Row(environment(STAGE_ENV_NAME), "Variables of its environment, beside NODE_NAME, POD_NAMESPACE and POD_UID."),
    checks=[_check_dra],
)


def _resource(parent: Reader, name: str) -> Json | None:
    """Read the description of a resource, which the device agent reads by a table of its own."""
    given = parent.raw(name)
    try:
        if given is not None:
            parse_resource(given)
    except InvalidResource as error:
        for problem in error.problems:
            parent.wrong(problem.message, name, *problem.path)
        return {}
    return given if given is None else dict(given)


def _check_plugin(plugin: Reader, read: Mapping[str, Any]) -> None:
    exporter, kinds = read["exporter"], [kind for kind in ("resource", "nvidia", "image") if plugin.has(kind)]
    if exporter is not None and exporter.get("port") == OWN_PORT:
        plugin.wrong(f"{OWN_PORT} is the port of the agent's own pages: write another one", "exporter", "port")
    if len(kinds) != 1:
        words = "resource or nvidia for our agent, image for a vendor's plugin"
        plugin.wrong(f"exactly one of resource, image, nvidia is needed: {words}")
    if ours := [kind for kind in kinds if kind != "image"]:
        if others := [name for name in _OF_IMAGE if plugin.has(name)]:
            plugin.wrong(f"{ours[0]} excludes {', '.join(others)}, which belong to image: remove them")
    elif plugin.has("dra") and plugin.has("resourceName"):
        words = "dra excludes it, because a DRA driver offers no extended resource itself: remove it"
        plugin.wrong(words, "resourceName")
    elif not plugin.has("dra") and not plugin.has("resourceName"):
        words = "is missing: write the extended resource that the plugin offers, or dra for a driver of ResourceClaims"
        plugin.wrong(words, "resourceName")
    if plugin.has("image") and (others := [name for name in _OF_USE if plugin.has(name)]):
        plugin.wrong(f"image excludes {', '.join(others)}, which belong to resource and nvidia: remove them")


def _device_plugin(
    *,
    resource: Json | None = None,
    nvidia: NvidiaStage | None = None,
    exporter: Json | None = None,
    memory: Json | None = None,
    resource_name: str = "",
    **of_image: Any,
) -> DevicePluginSettings:
    """What comes of ``nvidia`` depends on the cards and the profile."""
    name = resource_name if resource is None else resource.get("name", "")
    return DevicePluginSettings(
        resource_name=name if nvidia is None else FULL_CARD,
        resource=resource or {},
        nvidia=nvidia.config if nvidia is not None else None,
        profiles=nvidia.profiles if nvidia is not None else None,
        mig=nvidia.mig if nvidia is not None else None,
        use=use(exporter, memory),
        **of_image,
    )


_DEVICE_PLUGIN = table(
    _device_plugin,
    resource=Row(
        Kind(_resource, AS_GIVEN),
        "The extended resource that the device agent of driver-builder offers: name, groups of paths of device nodes, "
        "health, environment; in the words of squat/generic-device-plugin (docs/stages.md).",
    ),
    nvidia=Row(
        NVIDIA,
        "The device agent of driver-builder offers NVIDIA's devices, in place of resource: nvidia.com/gpu, and MIG "
        "devices. A second, privileged container has NVIDIA's library. An empty object is enough.",
        more="[NVIDIA's devices](stages.md#nvidias-devices), [MIG layouts](stages.md#mig-layouts), "
        "[profiles of shared GPUs](stages.md#profiles-of-shared-gpus).",
    ),
    exporter=Row(
        EXPORTER,
        "Metrics of the devices' use, with resource or nvidia (docs/gpu-metrics.md). The pods have a network of their "
        "own then. Default is none.",
    ),
    memory=Row(
        MEMORY,
        "Limits of the memory of shared cards, with resource or nvidia (docs/gpu-memory.md). As with perPod, the pods "
        "use the node's process ids. Default is none.",
    ),
    image=Row(text(IMAGE), "Image of a vendor's device plugin, in place of resource."),
    command=Row(texts(TEXT), "Program and first arguments of the vendor's image; its own entry point without it."),
    args=Row(texts(TEXT), "Arguments of the vendor's image."),
    resource_name=Row(
        text(EXTENDED_RESOURCE),
        "The extended resource that the vendor's image offers, such as example.com/widget. Not with dra.",
    ),
    privileged=Row(flag(), "Run the vendor's image privileged; false without it."),
    dra=Row(
        maybe(_DRA),
        "The vendor's image is a driver of dynamic resource allocation, and no device plugin. It needs Kubernetes 1.34 "
        "(docs/stages.md). DeviceClasses are yours.",
        more="[DRA drivers](stages.md#dra-drivers).",
    ),
    checks=[_check_plugin],
    rules=[
        Cel(
            "[has(self.resource), has(self.image), has(self.nvidia)].exists_one(given, given)",
            "exactly one of resource, image, nvidia is required",
        ),
        Cel(
            "has(self.resource) || has(self.nvidia) || has(self.dra) || has(self.resourceName)",
            "image requires resourceName or dra",
        ),
        Cel(
            "!has(self.resource) && !has(self.nvidia) || !(has(self.command) || has(self.args) || "
            "has(self.privileged) || has(self.resourceName) || has(self.dra))",
            "resource and nvidia exclude command, args, privileged, resourceName and dra",
        ),
        Cel("!has(self.dra) || !has(self.resourceName)", "dra excludes resourceName"),
        Cel("!has(self.image) || !(has(self.exporter) || has(self.memory))", "image excludes exporter and memory"),
    ],
)


def _check_validation(validation: Reader, _read: object) -> None:
    if not validation.has_items("command"):
        validation.wrong("name at least the program", "command")


def _check_stages(stages: Reader, read: Mapping[str, Any]) -> None:
    for name, words in _ELSEWHERE.items():
        if stages.has(name):
            stages.wrong(f"there is no such stage: {words}", name)
    plugin = read["device_plugin"]
    if stages.has("pluginValidation") and plugin is None:
        stages.wrong("there is no devicePlugin that it could validate: write one, or remove it", "pluginValidation")
    elif stages.has("pluginValidation") and plugin.dra is not None:
        stages.wrong(
            "devicePlugin.dra excludes it, because its pod is bound to a node, and only the scheduler allocates "
            "devices of a ResourceClaim: remove it, and run a pod of your own with a claim (docs/stages.md)",
            "pluginValidation",
        )


def _stages(
    *, device_plugin: DevicePluginSettings | None = None, plugin_validation: PluginValidationSettings | None = None
) -> StageSettings:
    if plugin_validation is not None and device_plugin is not None and not plugin_validation.resource_name:
        plugin_validation = replace(plugin_validation, resource_name=device_plugin.resource_name)
    return StageSettings(device_plugin=device_plugin, plugin_validation=plugin_validation)


STAGES = table(
    _stages,
    device_plugin=Row(
        maybe(_DEVICE_PLUGIN),
        "A device plugin, on every node where the driver is proven and may be used.",
        more="[Device plugins](stages.md#deviceplugin).",
    ),
    plugin_validation=Row(
        maybe(table(PluginValidationSettings, checks=[_check_validation])),
        "A pod that requests one of the resource and runs a command, once per node and boot. It is skipped where pods "
        "use the resource already.",
    ),
    checks=[_check_stages],
    rules=[
        Cel("!has(self.pluginValidation) || has(self.devicePlugin)", "pluginValidation requires devicePlugin"),
        Cel(
            "!has(self.pluginValidation) || !has(self.devicePlugin) || !has(self.devicePlugin.dra)",
            "devicePlugin.dra excludes pluginValidation",
        ),
    ],
)
