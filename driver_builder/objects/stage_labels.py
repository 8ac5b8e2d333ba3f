"""The labels of a Node that say how far a driver is there, for the pods of the stages that follow. Pure.

They have at most five letters: the rest of a label's 63 characters is for namespace and name. Each is ``true``, or not
there. Beside three of them stands an annotation of the same name: since when nothing may run there, since when the
kubelet has none of the resource, and how the validation of the plugin ended.
"""

from enum import StrEnum

from driver_builder.model.driver_key import DriverKey
from kube_api.names import GROUP

TRUE = "true"


class Stage(StrEnum):
    """The last part of a stage's label."""

    VALID = "valid"
    """The driver is proven, with its validation."""
    RUN = "run"
    """Pods of the stages may run here. It goes first when the driver has to go."""
    PLUG = "plug"
    """The device plugin is ready, and the node has its resource."""
    PLGOK = "plgok"
    """The validation of the plugin succeeded."""


def stage_label(driver: DriverKey, stage: Stage) -> str:
    """Return the label of a stage of a driver, given by ``namespace/name``."""
    return f"{GROUP}/{driver.namespace}.{driver.name}.{stage.value}"
