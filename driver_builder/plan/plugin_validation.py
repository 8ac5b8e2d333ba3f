"""Runs the command of ``spec.stages.pluginValidation`` once per node and boot, and records how it ended. Pure.

As with :mod:`driver_builder.plan.validation_step`, what is known is on the Node and in the pod. It does not run where
pods use the resource already: they prove the plugin as well, and there may be no device left for it.
"""

from collections.abc import Mapping

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.base.persistent import Layered
from driver_builder.base.reasons import Reason
from driver_builder.nodes.changes import Change, RunTask
from driver_builder.nodes.settled import Settled
from driver_builder.nodes.validation import CommandRecord, Progress, weigh
from driver_builder.objects.stage_labels import Stage
from driver_builder.objects.validated import Validated
from driver_builder.plan.stage_view import StageView, user_of
from driver_builder.snapshot.inventory import Node, by_name
from driver_builder.snapshot.node_pods import NodePods
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.tasks import validation_pod
from driver_builder.tasks.node_task import Next
from driver_builder.tasks.validation_pod import PLUGIN_VALIDATION

MAX_LOOKED_AT = 20
"""Nodes of one driver whose pods are listed in one reconcile."""


def of_node(stages: StageView, node: Node) -> Progress | None:
    """Return what is known of a node, and what comes next; None where nothing is validated."""
    settings, on = stages.settings, stages.on(node)
    if settings is None or settings.plugin_validation is None or on.loaded_text is None:
        return None
    return weigh(
        validation_pod.plugin_subject_of(settings, loaded=on.loaded_text),
        on.plugin_validated,
        stages.validations.get(node.name, ()),
        retries=settings.plugin_validation.retries,
        now=stages.now,
        reason=Reason.PLUGIN_VALIDATION_FAILED,
    )


def record_on(stages: StageView, node: Node) -> CommandRecord:
    """Return what a Node records of the command."""
    return CommandRecord(stages.on(node), stages.labels[Stage.PLGOK])


def start(stages: StageView, node: Node, subject: str, users: Mapping[str, NodePods]) -> tuple[Change, ...]:
    """Start the pod of a node, or record that pods use the resource there already: they prove the plugin as well.

    Nothing is done before the pods of the node are listed, or cannot be.
    """
    settings = stages.settings
    validation = settings.plugin_validation if settings is not None else None
    if validation is None or node.name not in users:
        return ()
    resources = _resources(stages, node, validation.resource_name)
    free = next((name for name in resources if user_of(users[node.name], (name,)) is None), None)
    if free is None:
        found = ((user_of(users[node.name], (name,)), name) for name in stages.offered(node) or resources)
        why = next((f"skipped: {user} uses {name}" for user, name in found if user is not None), "")
        return (record_on(stages, node).remember(Validated(subject=subject, succeeded=True), why),) if why else ()
    pod = validation_pod.plugin_manifest(stages.driver, validation, node=node.name, subject=subject, resource=free)
    return (RunTask(kind=PLUGIN_VALIDATION, driver=stages.driver.key, manifest=pod),)


def _resources(stages: StageView, node: Node, wanted: str) -> tuple[str, ...]:
    """Return what the pod may request: what is wanted, or where the plugin says what it offers, what there is of that.

    Of several the one that is wanted comes first.
    """
    offered = stages.offered(node)
    there = sorted(node.allocatable.intersection(offered), key=lambda name: (name != wanted, name))
    return tuple(there) if offered else (wanted,)


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
    return record_on(stages, node).forget(stages.validations.get(node.name, ()), why)


def _is_asked(driver: DriverContainer) -> bool:
    stages = driver.spec.stages if isinstance(driver.spec, DriverSpec) else None
    is_active = not (driver.paused or driver.deleting)
    return is_active and stages is not None and stages.asks_for_users
