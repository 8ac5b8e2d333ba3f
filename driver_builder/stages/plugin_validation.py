"""Runs the command of ``spec.stages.pluginValidation`` once per node and boot, and records how it ended. Pure.

As with :mod:`driver_builder.validation`, what is known is on the Node and in the pod. It does not run where pods use
the resource already: they prove the plugin as well, and there may be no device left for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.objects import loaded, plugin_validation_pod, validated
from driver_builder.objects.bound_pod import PodKind
from driver_builder.objects.manifests import DRIVER_LABEL
from driver_builder.objects.stage_labels import Stage
from driver_builder.objects.validated import Validated
from driver_builder.observed.evidence import ValidationState
from driver_builder.observed.inventory import Node, by_name
from driver_builder.observed.node_pods import NodePod, NodePods
from driver_builder.observed.snapshot import Snapshot
from driver_builder.observed.validation import Progress, next_of, weigh
from driver_builder.planning.actions import Action, RememberValidated, StartPod, delete_pods
from driver_builder.reasons import Reason
from driver_builder.stages.stage_view import LOOK_SECONDS, StageView

MAX_LOOKED_AT = 20
"""Nodes of one driver whose pods are listed in one reconcile."""
MAX_PODS = 100
"""Such pods of one driver that run at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginValidation:
    """Where it stands on one node; ``starts`` says that its pod is next."""

    state: ValidationState
    why: str = ""
    actions: tuple[Action, ...] = ()
    starts: bool = False
    subject: str = ""
    due_at: float | None = None


def of_node(stages: StageView, node: Node) -> PluginValidation | None:
    """Return what is known of a node, and what comes next; None where nothing is validated."""
    found = _progress(stages, node)
    if found is None:
        return None
    known, pods = (
        validated.parse(node.annotations.get(stages.labels[Stage.PLGOK])),
        stages.validations.get(node.name, ()),
    )
    step = next_of(found, known, pods, stages.now)
    news = (_remember(stages, node, found.record, "its pod ended"),) if step.is_news else ()
    return PluginValidation(
        state=found.state,
        why=found.why,
        actions=(*delete_pods(step.gone), *news),
        starts=step.starts,
        subject=found.record.subject if step.starts else "",
        due_at=step.due_at,
    )


def start(stages: StageView, node: Node, subject: str, users: Mapping[str, NodePods]) -> tuple[tuple[Action, ...], str]:
    """Start the pod of a node, or record that pods use the resource there already; with the words for it.

    Nothing is done before the pods of the node are listed, or cannot be.
    """
    settings = stages.settings
    validation = settings.plugin_validation if settings is not None else None
    if validation is None or node.name not in users:
        return (), ""
    used_by = next((pod for pod in users[node.name].pods if _uses(pod, validation.resource_name)), None)
    if used_by is not None:
        why = f"skipped: {used_by} uses {validation.resource_name}"
        return (_remember(stages, node, Validated(subject=subject, succeeded=True), why),), why
    manifest = plugin_validation_pod.manifest(stages.driver, validation, node=node.name, subject=subject)
    plugin = f"the device plugin of {stages.driver.key}"
    return (StartPod(kind=PodKind.VALIDATION, driver=plugin, manifest=manifest),), ""


def to_look_at(snapshot: Snapshot) -> tuple[str, ...]:
    """Name the nodes whose pods have to be listed, because a plugin is validated there next."""
    found: list[str] = []
    for driver in snapshot.drivers:
        if _is_asked(driver):
            stages = StageView.of(snapshot, driver)
            due = (node.name for node in by_name(snapshot.nodes).values() if _is_next(stages, node))
            found += [name for name, _ in zip(due, range(MAX_LOOKED_AT), strict=False)]
    return tuple(dict.fromkeys(found))


def forget(stages: StageView, node: Node, why: str) -> tuple[Action, ...]:
    """Remove the pods and the record of a node where nothing is validated."""
    actions = stages.delete(node.name)
    if stages.labels[Stage.PLGOK] not in node.annotations:
        return actions
    return (*actions, _remember(stages, node, None, why))


def look_again(stages: StageView) -> float:
    """Return when a node is looked at again whose pods are not listed yet."""
    return stages.now + LOOK_SECONDS


def _is_asked(driver: DriverContainer) -> bool:
    stages = driver.spec.stages if isinstance(driver.spec, DriverSpec) else None
    is_active = not (driver.paused or driver.deleting)
    return is_active and stages is not None and stages.plugin_validation is not None


def _is_next(stages: StageView, node: Node) -> bool:
    if not stages.has_label(node, Stage.PLUG):
        return False
    found = of_node(stages, node)
    return found is not None and found.starts


def _progress(stages: StageView, node: Node) -> Progress | None:
    settings, text = stages.settings, node.annotations.get(loaded.annotation(stages.driver.key))
    if settings is None or settings.plugin_validation is None or text is None:
        return None
    return weigh(
        plugin_validation_pod.subject_of(settings, loaded=text),
        validated.parse(node.annotations.get(stages.labels[Stage.PLGOK])),
        stages.validations.get(node.name, ()),
        retries=settings.plugin_validation.retries,
        now=stages.now,
        reason=Reason.PLUGIN_VALIDATION_FAILED,
    )


def _uses(pod: NodePod, resource: str) -> bool:
    return resource in pod.resources and not pod.has_ended and DRIVER_LABEL not in pod.labels


def _remember(stages: StageView, node: Node, record: Validated | None, why: str) -> RememberValidated:
    return RememberValidated(
        node=node.name,
        driver=stages.driver.key,
        annotation=stages.labels[Stage.PLGOK],
        value=None if record is None else validated.render(record),
        why=why,
    )
