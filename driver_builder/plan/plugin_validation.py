"""Runs the command of ``spec.stages.pluginValidation`` once per node and boot, and records how it ended. Pure.

As with :mod:`driver_builder.plan.validation_step`, what is known is on the Node and in the pod. It does not run where
pods use the resource already: they prove the plugin as well, and there may be no device left for it.
"""

from collections.abc import Mapping

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.base.persistent import Layered
from driver_builder.base.reasons import Reason
from driver_builder.nodes.changes import Change, start_task
from driver_builder.nodes.settled import Settled
from driver_builder.nodes.validation import Progress, Records, weigh
from driver_builder.objects.stage_labels import Stage
from driver_builder.objects.validated import Validated
from driver_builder.plan.stage_view import LOOK_SECONDS, StageView, user_of
from driver_builder.snapshot.inventory import Node, by_name
from driver_builder.snapshot.node_pods import NodePods
from driver_builder.snapshot.node_record import record_of
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.tasks import validation_pod
from driver_builder.tasks.node_task import Next
from driver_builder.tasks.validation_pod import PLUGIN_VALIDATION

MAX_LOOKED_AT = 20
"""Nodes of one driver whose pods are listed in one reconcile."""


def of_node(stages: StageView, node: Node) -> Progress | None:
    """Return what is known of a node, and what comes next; None where nothing is validated."""
    settings, text = stages.settings, record_of(node, stages.driver.key).loaded_text
    if settings is None or settings.plugin_validation is None or text is None:
        return None
    return weigh(
        validation_pod.plugin_subject_of(settings, loaded=text),
        _records(stages).known(node),
        stages.validations.get(node.name, ()),
        retries=settings.plugin_validation.retries,
        now=stages.now,
        reason=Reason.PLUGIN_VALIDATION_FAILED,
    )


def actions_of(stages: StageView, node: Node, found: Progress) -> tuple[Change, ...]:
    """Delete the pods that nothing waits for, and record how the command ended."""
    return _records(stages).go_on(node, found, "its pod ended")


def _records(stages: StageView) -> Records:
    return Records(stages.driver.key, stages.labels[Stage.PLGOK])


def start(stages: StageView, node: Node, subject: str, users: Mapping[str, NodePods]) -> tuple[tuple[Change, ...], str]:
    """Start the pod of a node, or record that pods use the resource there already; with the words for it.

    Nothing is done before the pods of the node are listed, or cannot be.
    """
    settings = stages.settings
    validation = settings.plugin_validation if settings is not None else None
    if validation is None or node.name not in users:
        return (), ""
    resources = _resources(stages, node, validation.resource_name)
    free = next((name for name in resources if user_of(users[node.name], (name,)) is None), None)
    if free is None:
        return _skip(stages, node, subject, users[node.name])
    pod = validation_pod.plugin_manifest(stages.driver, validation, node=node.name, subject=subject, resource=free)
    return (start_task(PLUGIN_VALIDATION, stages.driver.key, pod),), ""


def _resources(stages: StageView, node: Node, wanted: str) -> tuple[str, ...]:
    """Return what the pod may request: what is wanted, or where the plugin says what it offers, what there is of that.

    Of several the one that is wanted comes first.
    """
    offered = stages.offered(node)
    there = sorted(node.allocatable.intersection(offered), key=lambda name: (name != wanted, name))
    return tuple(there) if offered else (wanted,)


def _skip(stages: StageView, node: Node, subject: str, found: NodePods) -> tuple[tuple[Change, ...], str]:
    """Record that pods use all that there is: they prove the plugin as well."""
    validation = stages.settings.plugin_validation if stages.settings is not None else None
    names = stages.offered(node) or ((validation.resource_name,) if validation is not None else ())
    used = next((name for name in names if user_of(found, (name,)) is not None), None)
    if used is None:
        return (), ""
    why = f"skipped: {user_of(found, (used,))} uses {used}"
    return (_records(stages).remember(node, Validated(subject=subject, succeeded=True), why),), why


class NextNodes:
    """Names the nodes whose pods have to be listed.

    A plugin is validated there next, or stays there only if its resources are in use.

    It remembers where none is: to ask again costs what changed.
    """

    def __init__(self) -> None:
        self._settled: dict[str, Settled] = {}

    def of(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the names, at most so many of each driver."""
        before, self._settled = self._settled, {}
        found: dict[str, None] = {}
        for driver in filter(_is_asked, snapshot.drivers):
            settled = self._settled[driver.key] = before.get(driver.key) or Settled()
            found |= dict.fromkeys(_next_of(StageView.of(snapshot, driver), by_name(snapshot.nodes), settled))
        return tuple(found)


def _next_of(stages: StageView, nodes: Layered[Node], settled: Settled) -> list[str]:
    names = sorted(settled.begin((stages.settings, stages.is_answering), nodes, stages.pods, stages.validations))
    at_plugin = {name: nodes[name] for name in names if stages.has_label(nodes[name], Stage.PLUG)}
    asked = {name for name, node in at_plugin.items() if stages.asks_for_users(node)}
    found = {name: item for name, node in at_plugin.items() if (item := of_node(stages, node)) is not None}
    waits = asked | {name for name, item in found.items() if item.step.next is Next.START or item.step.at}
    settled.end(names, set(names) - waits, ())
    starts = {name for name, item in found.items() if item.step.next is Next.START}
    # Validations first: they come to an end, while pods may use what cannot be given for days.
    return [*sorted(starts), *sorted(asked - starts)][:MAX_LOOKED_AT]


def forget(stages: StageView, node: Node, why: str) -> tuple[Change, ...]:
    """Remove the pods and the record of a node where nothing is validated."""
    return _records(stages).forget(node, stages.validations.get(node.name, ()), why)


def look_again(stages: StageView) -> float:
    """Return when a node is looked at again whose pods are not listed yet."""
    return stages.now + LOOK_SECONDS


def _is_asked(driver: DriverContainer) -> bool:
    stages = driver.spec.stages if isinstance(driver.spec, DriverSpec) else None
    is_active = not (driver.paused or driver.deleting)
    return is_active and stages is not None and stages.asks_for_users
