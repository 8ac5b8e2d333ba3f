"""The device plugin of a Module, as a stage of a DriverContainer. Pure.

Place in the flow: ``kmm`` calls it. KMM runs any pod as a plugin, privileged; a stage has an image, a command, and the
name of the resource, which a Module does not say.
"""

from typing import Any

from driver_builder.api.spec_reader import Reader
from driver_builder.api.spec_rules import TEXT
from driver_builder.convert.remarks import Remarks, is_given

Json = dict[str, Any]

_DAEMON_SET = (
    "a plugin that needs this does not fit spec.stages.devicePlugin: deploy it as a DaemonSet of your own that selects "
    "the labels of the stages (docs/stages.md)"
)
_OF_A_PLUGIN = ("initContainer", "volumes", "serviceAccountName")
_OF_ITS_CONTAINER = ("env", "volumeMounts")
_DROPPED_OF_A_PLUGIN = {"automountServiceAccountToken": "pods of a stage have no token"}
_DROPPED_OF_ITS_CONTAINER = {
    "imagePullPolicy": "the pods have the default policy",
    "resources": "the pods of a stage have their own requests",
}


def stages_of(module: Reader, resource: str | None, remarks: Remarks) -> Json | None:
    """Return the stages of a Module, None without a plugin; without a fitting one, nodes get the labels of stages."""
    if not module.raw("devicePlugin"):
        return None
    plugin = module.object("devicePlugin")
    container = plugin.object("container")
    image, command = container.text("image", TEXT), list(container.words("command", TEXT))
    args = list(container.words("args", TEXT))
    foreign = [(fields, name) for fields, names in ((plugin, _OF_A_PLUGIN), (container, _OF_ITS_CONTAINER))
               for name in names if is_given(fields.raw(name))]  # fmt: skip
    for fields, name in foreign:
        remarks.error(fields.path, _DAEMON_SET, name)
    remarks.dropped(plugin, _DROPPED_OF_A_PLUGIN)
    remarks.dropped(container, _DROPPED_OF_ITS_CONTAINER)
    if foreign:
        return {}
    if resource is None:
        remarks.error(
            plugin.path, "the resource that it offers is not in a Module: name it with --resource NAME=RESOURCE"
        )
        return {}
    return {"devicePlugin": {"image": image, "command": command, "args": args, "resourceName": resource,
                             "privileged": True}}  # fmt: skip
