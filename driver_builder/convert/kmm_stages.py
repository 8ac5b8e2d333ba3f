"""The device plugin, or the DRA driver, of a Module, as a stage of a DriverContainer. Pure.

Place in the flow: ``kmm`` calls it. KMM runs any pod as a plugin, privileged; a stage has an image, a command, and the
name of the resource, which a Module does not say, or of the DRA driver, which it does.
"""

from collections.abc import Iterable
from typing import Any

from driver_builder.api.spec_reader import Reader
from driver_builder.api.spec_rules import DRA_DRIVER, MAX_ITEMS, OBJECT_NAME, STAGE_ENV_NAME, STAGE_VARIABLES, TEXT
from driver_builder.convert.remarks import Remarks, is_given
from driver_builder.objects import dra_plugin

Json = dict[str, Any]

_DAEMON_SET = (
    "a plugin that needs this does not fit spec.stages.devicePlugin: deploy it as a DaemonSet of your own that selects "
    "the labels of the stages (docs/stages.md)"
)
_OF_A_PLUGIN = ("initContainer", "volumes")
_OF_ITS_CONTAINER = ("volumeMounts",)
_OF_A_DEVICE_PLUGIN = (*_OF_A_PLUGIN, "serviceAccountName")
_OF_ITS_OWN_CONTAINER = ("env", *_OF_ITS_CONTAINER)
_DROPPED_OF_A_PLUGIN = {"automountServiceAccountToken": "pods of a stage have no token"}
_DROPPED_OF_DRA = {"automountServiceAccountToken": "the pods have the token of their account"}
_DROPPED_OF_ITS_CONTAINER = {
    "imagePullPolicy": "the pods have the default policy",
    "resources": "the pods of a stage have their own requests",
}
_SET_BY_KMM = {
    "CDI_ROOT": dra_plugin.FOLDERS["cdi"],
    "KUBELET_REGISTRAR_DIRECTORY_PATH": dra_plugin.FOLDERS["registry"],
    "KUBELET_PLUGINS_DIRECTORY_PATH": dra_plugin.FOLDERS["plugins"],
}
"""What a DRA driver may read of its environment because KMM sets it; beside these it sets what a stage has as well."""
_PROBE = "HEALTHCHECK_PORT"


def stages_of(module: Reader, resource: str | None, remarks: Remarks) -> Json | None:
    """Return the stages of a Module, None without a plugin; without a fitting one, nodes get the labels of stages."""
    if module.raw("devicePlugin"):
        return _device_plugin(module.object("devicePlugin"), resource, remarks)
    return _dra(module.object("dra"), remarks) if module.raw("dra") else None


def _device_plugin(plugin: Reader, resource: str | None, remarks: Remarks) -> Json:
    container = plugin.object("container")
    made = _container(container)
    remarks.dropped(plugin, _DROPPED_OF_A_PLUGIN)
    if _is_foreign(plugin, _OF_A_DEVICE_PLUGIN, container, _OF_ITS_OWN_CONTAINER, remarks):
        return {}
    if resource is None:
        remarks.error(
            plugin.path, "the resource that it offers is not in a Module: name it with --resource NAME=RESOURCE"
        )
        return {}
    return {"devicePlugin": {**made, "resourceName": resource}}


def _dra(dra: Reader, remarks: Remarks) -> Json:
    container = dra.object("container")
    made, env = _container(container), _env(container, remarks)
    driver, account = dra.needed("driverName", DRA_DRIVER), dra.text("serviceAccountName", OBJECT_NAME) or "default"
    remarks.dropped(dra, _DROPPED_OF_DRA)
    if is_given(dra.raw("deviceClasses")):
        words = "DeviceClasses are not made: apply them yourself, as KMM deletes its own with the Module"
        remarks.error(dra.path, words, "deviceClasses")
    if _is_foreign(dra, _OF_A_PLUGIN, container, _OF_ITS_CONTAINER, remarks):
        return {}
    remarks.warning(dra.path, f"{account} has to be one of --dra-driver-accounts of driver-builder (NAMESPACE/NAME)",
                    "serviceAccountName")  # fmt: skip
    if not any(item["name"] == _PROBE for item in env):
        words = f"{_PROBE}, which KMM sets, is left out, since pods of a stage have no probe of a vendor's"
        remarks.warning(container.path, words)
    return {"devicePlugin": {**made, "dra": {"driver": driver, "serviceAccountName": account, "env": env}}}


def _container(container: Reader) -> Json:
    image, command = container.text("image", TEXT), list(container.words("command", TEXT))
    return {"image": image, "command": command, "args": list(container.words("args", TEXT)), "privileged": True}


def _env(container: Reader, remarks: Remarks) -> list[Json]:
    """Return the variables with a value, after those that KMM sets besides; the given ones win."""
    given: dict[str, str] = {}
    for item in container.objects("env"):
        value, source = item.text("value", TEXT) or "", item.raw("valueFrom")
        if (ours := item.raw("name")) in STAGE_VARIABLES:
            remarks.warning(item.path, f"{ours} is set by driver-builder")
        elif is_given(source):
            remarks.error(item.path, "is not supported: write a value to stages.devicePlugin.dra.env, or set it in the "
                          "image", "valueFrom")  # fmt: skip
        elif name := item.needed("name", STAGE_ENV_NAME):
            given[name] = value
    every = {**_SET_BY_KMM, **given}
    if len(every) > MAX_ITEMS:
        words = f"there are {len(every)} with those that KMM sets: leave variables out until there are {MAX_ITEMS}"
        remarks.error(container.path, words, "env")
    return [{"name": name, **({"value": value} if value else {})} for name, value in every.items()]


def _is_foreign(
    plugin: Reader, fields: Iterable[str], container: Reader, of_container: Iterable[str], remarks: Remarks
) -> bool:
    """Return whether something is given that a stage has not, and name it; what is dropped is named as well."""
    remarks.dropped(container, _DROPPED_OF_ITS_CONTAINER)
    foreign = [(reader, name) for reader, names in ((plugin, fields), (container, of_container))
               for name in names if is_given(reader.raw(name))]  # fmt: skip
    for reader, name in foreign:
        remarks.error(reader.path, _DAEMON_SET, name)
    return bool(foreign)
