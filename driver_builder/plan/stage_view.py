"""What is known of the stages of one driver: its plugin and their pods by node, and whether a driver may leave. Pure.

The label ``run`` goes before a driver does, in a patch that also records since when. While pods of a stage are on the
node after that, the driver stays, for at most :data:`LEAVE_SECONDS`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.stage_settings import StageSettings
from driver_builder.base.memo import remembers_last
from driver_builder.model import resource_claim
from driver_builder.nodes.changes import Change, delete_tasks, patch_node
from driver_builder.objects import gpu_profiles, plugin
from driver_builder.objects.driver_keys import driver_keys
from driver_builder.objects.manifests import DRIVER_LABEL
from driver_builder.objects.plugin import PluginPod, PluginSet
from driver_builder.objects.stage_labels import Stage
from driver_builder.snapshot.by_driver import of_driver, tasks_of
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.node_pods import NodePod, NodePods
from driver_builder.snapshot.node_record import NodeRecord, record_of
from driver_builder.snapshot.resource_slices import NodeSlice, SlicesUnread
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets.resource_conflicts import Kept
from driver_builder.tasks.node_task import NodeTask
from driver_builder.tasks.validation_pod import PLUGIN_VALIDATION
from kube_api.timestamps import LATEST

LEAVE_SECONDS = 120.0
"""So long a driver waits for the pods of its stages to leave a node."""
LOOK_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StageView:
    """The stages of one driver; ``settings`` are None where the spec has none, or is invalid."""

    driver: DriverContainer
    settings: StageSettings | None
    now: float
    plugin_set: PluginSet | None = None
    pods: Mapping[str, tuple[PluginPod, ...]] = field(default_factory=dict)
    """By node, those of the plugin."""
    validations: Mapping[str, tuple[NodeTask, ...]] = field(default_factory=dict)
    """By node, those that validate the plugin."""
    kept: Kept = field(default_factory=dict)
    """By node, the driver that keeps the resource which this one offers as well."""
    node_pods: Mapping[str, NodePods] = field(default_factory=dict)
    """All pods of some nodes."""
    is_answering: bool = False
    """Whether the plugin reports on its nodes what it offers: by a token."""
    slices: Mapping[str, tuple[NodeSlice, ...]] = field(default_factory=dict)
    """By node, those of the DRA driver that is the plugin."""
    slices_unread: SlicesUnread | None = None
    """Why these are not known."""

    @classmethod
    def of(cls, snapshot: Snapshot, driver: DriverContainer, kept: Kept = MappingProxyType({})) -> "StageView":
        """Take from a snapshot what concerns the stages of a driver; of all drivers together who keeps its resource."""
        plugin_set, dra_driver = next(iter(of_driver(snapshot.plugin_sets, driver.key)), None), driver.dra_driver
        return cls(
            driver=driver,
            settings=driver.spec.stages if isinstance(driver.spec, DriverSpec) else None,
            now=snapshot.now,
            plugin_set=plugin_set,
            pods=_by_node(of_driver(snapshot.plugin_pods, driver.key)),
            validations=_by_node(tasks_of(snapshot.tasks, driver.key, PLUGIN_VALIDATION)),
            kept=kept,
            node_pods=snapshot.resource_users,
            is_answering=plugin_set is not None and gpu_profiles.is_answering(plugin.pod_of(plugin_set)),
            slices=_by_node(snapshot.node_slices.get(dra_driver, ())) if dra_driver else {},
            slices_unread=snapshot.slices_unread if dra_driver else None,
        )

    @property
    def labels(self) -> Mapping[Stage, str]:
        """The labels of the stages."""
        return driver_keys(self.driver.key).stages

    def on(self, node: Node) -> NodeRecord:
        """Return what stands on a node of the driver."""
        return record_of(node, self.driver.key)

    def has_label(self, node: Node, stage: Stage) -> bool:
        """Return whether a node has the label of a stage."""
        return self.on(node).has(stage)

    def offered(self, node: Node) -> tuple[str, ...]:
        """Return the resources that the plugin says a node offers, or that are still in use; none if it says nothing.

        Only those count that are the plugin's to offer: a node writes them. Where its pod has no token, also no longer
        or not yet, what is on the node is of another time.
        """
        settings = self.settings.device_plugin if self.settings is not None else None
        is_old = not self.is_answering or not all(pod.has_token for pod in self.pods.get(node.name, ()))
        if settings is None or is_old:
            return ()
        return tuple(name for name in node.offered if resource_claim.covers(settings.claim, name))

    def asks_for_users(self, node: Node) -> bool:
        """Return whether a plugin stays on a node only if pods use it: none of what it offers can be given."""
        offered = self.offered(node) if self.has_label(node, Stage.PLUG) else ()
        return bool(offered) and node.allocatable.isdisjoint(offered)

    def may_be_used(self, node: Node) -> bool:
        """Return whether pods have something of what a node offers, or may have: they are not listed yet."""
        found = self.node_pods.get(node.name)
        return found is None or user_of(found, self.offered(node)) is not None

    def has_traces(self, node: Node) -> bool:
        """Return whether a node has a label or a record of a stage."""
        return self.on(node).has_stages

    def users(self, node: str) -> list[str]:
        """Name the pods of stages that are on a node and have not ended."""
        plugins = [f"pod {pod.namespace}/{pod.name}" for pod in self.pods.get(node, ())]
        running = (pod for pod in self.validations.get(node, ()) if not pod.has_ended)
        return plugins + [f"pod {pod.namespace}/{pod.name}" for pod in running]

    def has_left(self, node: Node) -> bool:
        """Return whether the stages have left a node, or did not do so in time: then its driver may go."""
        if self.has_label(node, Stage.RUN):
            return False
        return not self.users(node.name) or self.is_late(node)

    def is_late(self, node: Node) -> bool:
        """Return whether the time is over in which the stages should have left a node."""
        since = read_time(self.on(node).record(Stage.RUN))
        # A time that has not come yet is of another clock.
        return since is not None and not since <= self.now < since + LEAVE_SECONDS

    def staying(self, nodes: Iterable[Node]) -> dict[str, str]:
        """Return the nodes that stages have still to leave, with the words for it."""
        return {node.name: self.words(node) for node in nodes if not self.has_left(node)}

    def words(self, node: Node) -> str:
        """Say what is left on a node."""
        users = self.users(node.name)
        return f"its device plugin has to leave first: {', '.join(users)}" if users else "its device plugin leaves"

    def take_run(self, node: Node, why: str) -> tuple[Change, ...]:
        """Let the pods of the stages leave a node; since when is recorded with it. Only ``valid`` stays true."""
        on, run = self.on(node), self.labels[Stage.RUN]
        later = (self.labels[stage] for stage in (Stage.PLUG, Stage.PLGOK) if on.has(stage))
        taken = [patch_node(on, why, labels={label: None}) for label in later]
        is_begun = read_time(on.record(Stage.RUN)) is not None
        if on.has(Stage.RUN) or (not is_begun and self.users(node.name)):
            taken.insert(0, patch_node(on, why, labels={run: None}, annotations={run: str(int(self.now))}))
        return (*taken, *self.delete(node.name))

    def delete(self, node: str) -> tuple[Change, ...]:
        """Delete the pods that validate the plugin on a node."""
        return delete_tasks(self.validations.get(node, ()))


def user_of(found: NodePods, resources: Iterable[str]) -> NodePod | None:
    """Return a pod of others that uses one of the resources."""
    wanted = frozenset(resources)
    pods = (pod for pod in found.pods if not pod.has_ended and DRIVER_LABEL not in pod.labels)
    return next((pod for pod in pods if not wanted.isdisjoint(pod.resources)), None)


_OnNode = TypeVar("_OnNode", PluginPod, NodeTask, NodeSlice)


@remembers_last(8)
def _by_node(items: Sequence[_OnNode]) -> dict[str, tuple[_OnNode, ...]]:
    found: dict[str, list[_OnNode]] = {}
    for item in items:
        found.setdefault(item.node, []).append(item)
    return {node: tuple(group) for node, group in found.items()}


def read_time(text: str | None) -> float | None:
    """Read a time in whole seconds; one that cannot be read is long ago."""
    if text is None:
        return None
    seconds = int(text) if text.isascii() and text.isdecimal() and len(text) < len(str(LATEST)) + 1 else 0
    return float(min(seconds, LATEST))
