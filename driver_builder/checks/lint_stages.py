"""What goes wrong with a plugin of ``spec.stages``, for all that the spec is valid. Pure.

Place in the flow: ``lint`` calls it.
"""

from collections.abc import Iterator

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.spec_reader import Path
from driver_builder.model.userspace import NVIDIA_PATH
from kube_api.text import first_few

_NODES = "/dev/nvidia"
_SHOWN = 3


def without_devices(spec: DriverSpec) -> Iterator[tuple[Path, str]]:
    """Return which fields have to be others, and why."""
    if spec.device_plugin is None or spec.device_plugin.nvidia is None:
        return
    if early := [path for path in spec.validation.device_nodes if path.startswith(_NODES)]:
        words = f"stages.devicePlugin.nvidia makes {first_few(early, _SHOWN)} after the validation that waits for them"
        yield ("spec", "validation", "deviceNodes"), f"{words}: remove them, and use stages.pluginValidation"
    if spec.userspace is not None and spec.userspace.host_path is None:
        words = f"stages.devicePlugin.nvidia looks for the driver's library below {NVIDIA_PATH}"
        yield ("spec", "userspace", "hostPath"), f"{words}: set it to that, or no device is found"


def without_drain(spec: DriverSpec) -> Iterator[tuple[Path, str]]:
    """Return which field a DRA driver lacks: where it leaves a node, no pod with a claim ends."""
    dra = spec.device_plugin.dra if spec.device_plugin is not None else None
    if dra is not None and spec.rollout.drain is None:
        words = "is not set, and without the DRA driver the kubelet ends no pod with a ResourceClaim"
        yield ("spec", "rollout", "drain"), f"{words}: write draDrivers: [{dra.driver}], so that these leave first"
