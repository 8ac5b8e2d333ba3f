"""What stands on a Node of one driver: read here, whoever asks. Pure."""

from dataclasses import dataclass

from driver_builder.model.driver_key import DriverKey
from driver_builder.objects import loaded, validated
from driver_builder.objects.driver_keys import DriverKeys, driver_keys
from driver_builder.objects.loaded import Load, Loaded
from driver_builder.objects.stage_labels import Stage
from driver_builder.objects.validated import Validated
from driver_builder.objects.yielding import OUTSIDE, yielding_of
from driver_builder.snapshot.inventory import Node


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A driver's labels, annotations and taint on a node. Each is read when it is asked for: of a fleet few are."""

    node: Node
    driver: DriverKey
    keys: DriverKeys

    @property
    def ready(self) -> str | None:
        """The version that the ready label says."""
        return self.node.labels.get(self.keys.ready)

    @property
    def proven_on(self) -> str | None:
        """Boot id and kernel of the proof."""
        return self.node.annotations.get(self.keys.ready)

    @property
    def wave(self) -> str | None:
        """The DaemonSet that a wave has given the node to."""
        return self.node.labels.get(self.keys.wave)

    @property
    def wants(self) -> str | None:
        """The version that an admin lets the node have."""
        return self.node.labels.get(self.keys.wants)

    @property
    def is_kept_away(self) -> bool:
        """Whether the driver's pods are kept from the node."""
        return self.keys.yields in self.node.labels

    @property
    def is_held_out(self) -> bool:
        """Whether that is because the node was outside the driver's selector."""
        if self.node.labels.get(self.keys.yields) != OUTSIDE:
            return False
        record = yielding_of(self.node.annotations)
        return record is None or self.driver not in record.drivers or record.first.name != OUTSIDE

    @property
    def has_yielded(self) -> bool:
        """Whether that is because the driver yields there."""
        return self.is_kept_away and not self.is_held_out

    @property
    def is_to_yield(self) -> bool:
        """Whether another driver asks this one to leave the node for a while."""
        record = yielding_of(self.node.annotations)
        return record is not None and self.driver in record.drivers

    @property
    def is_recorded(self) -> bool:
        """Whether anything is recorded as loaded, also if that cannot be read."""
        return self.keys.loaded in self.node.annotations

    @property
    def loaded(self) -> Loaded | None:
        """What is recorded as loaded; None where nothing is recorded."""
        return loaded.parse(self.loaded_text)

    @property
    def loaded_text(self) -> str | None:
        """The same as it is written there."""
        return self.node.annotations.get(self.keys.loaded)

    @property
    def loads(self) -> tuple[Load, ...]:
        """All loads that are recorded, of whatever boot."""
        known = self.loaded
        return () if known is None else known.loads

    @property
    def loads_now(self) -> tuple[Load, ...]:
        """Those of the node's boot, and files of earlier ones."""
        known = self.loaded
        return () if known is None else known.on_boot(self.node.boot_id).loads

    @property
    def may_be_loaded(self) -> bool:
        """Whether the driver is or was on the node, by the ready label or by what is recorded."""
        return self.ready is not None or self.is_recorded

    @property
    def has_validation(self) -> bool:
        """Whether anything is recorded of the validation, also if that cannot be read."""
        return self.keys.validated in self.node.annotations

    @property
    def validated(self) -> Validated | None:
        """How the command of the validation ended; None where nothing can be read."""
        return validated.parse(self.node.annotations.get(self.keys.validated))

    @property
    def plugin_validated(self) -> Validated | None:
        """The same of the validation of the plugin."""
        return validated.parse(self.record(Stage.PLGOK))

    @property
    def is_tainted(self) -> bool:
        """Whether the taint of a driver that is not proven is there."""
        return self.node.has_taint(self.keys.taint)

    @property
    def tainted_on(self) -> str | None:
        """The boot for which it was added, also after somebody has removed it."""
        return self.node.annotations.get(self.keys.tainted)

    @property
    def has_stages(self) -> bool:
        """Whether a label of a stage is there, or what is recorded beside it."""
        return any(key in self.node.labels or key in self.node.annotations for key in self.keys.stages.values())

    def has(self, stage: Stage) -> bool:
        """Return whether the label of a stage is there."""
        return self.keys.stages[stage] in self.node.labels

    def record(self, stage: Stage) -> str | None:
        """Return what is recorded beside the label of a stage."""
        return self.node.annotations.get(self.keys.stages[stage])


def record_of(node: Node, driver: DriverKey) -> NodeRecord:
    """Return what stands on a node of a driver."""
    return NodeRecord(node, driver, driver_keys(driver))
