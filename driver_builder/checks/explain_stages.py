"""The checks from a ready node to the last stage of ``spec.stages``: run, plugin, its validation. Pure."""

from collections.abc import Iterator

from driver_builder.api.stage_settings import StageSettings
from driver_builder.base.check_result import CheckResult, failed, ok, waiting
from driver_builder.base.reasons import Reason, remedy_of
from driver_builder.checks.explain_driver import controller_hint
from driver_builder.checks.explanation import Context
from driver_builder.objects import plugin
from driver_builder.objects.stage_labels import Stage
from driver_builder.plan import node_stages
from driver_builder.plan.node_stages import NodeStages, Standing
from driver_builder.plan.stage_view import StageView
from driver_builder.tasks.validation_pod import PLUGIN_VALIDATION

_OF_NO_POD = (Reason.RESOURCE_CONFLICT, Reason.DRA_NOT_SERVED, Reason.RESOURCE_SLICES_NOT_READ)
"""What is wrong with a plugin whatever its pod does."""


def stage_checks(context: Context) -> Iterator[CheckResult]:
    """Check each stage of a driver, whose ready label is on the node."""
    stages = StageView.of(context.snapshot, context.driver, context.resource_kept)
    if stages.settings is None:
        return
    found = node_stages.of_node(stages, context.node, Standing(is_valid=True, works=True))
    yield _run(context, stages, found)
    if stages.settings.device_plugin is not None:
        yield _plugin(context, stages, found)
    if stages.settings.plugin_validation is not None:
        yield _validation(context, stages, found)


def names_of(settings: StageSettings | None) -> tuple[str, ...]:
    """Name the checks of these stages."""
    if settings is None:
        return ()
    plugin_checks = ("plugin",) if settings.device_plugin is not None else ()
    return ("run", *plugin_checks, *(("plgok",) if settings.plugin_validation is not None else ()))


def _run(context: Context, stages: StageView, found: NodeStages) -> CheckResult:
    node = context.node
    if found.reason is Reason.RESOURCE_CONFLICT and not found.labels[Stage.RUN]:
        return failed("run", found.why, remedy_of(found.reason))
    if stages.has_label(node, Stage.RUN):
        return ok("run", f"the node has {stages.labels[Stage.RUN]}: pods of the stages may run there")
    words = f"the node has no {stages.labels[Stage.RUN]}"
    if stages.users(node.name):
        return waiting("run", f"{words}, and {stages.words(node)}", "Wait: the driver is about to be replaced there")
    return waiting("run", words, controller_hint(context.driver))


def _plugin(context: Context, stages: StageView, found: NodeStages) -> CheckResult:
    node, driver = context.node, context.driver
    if stages.has_label(node, Stage.PLUG) and found.reason in (None, Reason.PLUGIN_VALIDATION_FAILED):
        has = "a ResourceSlice has its devices" if driver.dra_driver else "the kubelet has its resource"
        return ok("plugin", f"its device plugin is ready, and {has}: {stages.labels[Stage.PLUG]}")
    if found.reason in _OF_NO_POD:
        return failed("plugin", found.why, remedy_of(found.reason))
    trouble = context.decided.stages
    if stages.plugin_set is None and trouble is not None:
        return failed("plugin", f"there is no DaemonSet: {trouble.message}", remedy_of(trouble.reason))
    pod = next(iter(stages.pods.get(node.name, ())), None)
    if pod is None:
        step = f"kubectl -n {driver.namespace} describe daemonset {plugin.name_of(driver)}"
        return waiting("plugin", "no pod of its device plugin is on the node yet", step)
    step = f"kubectl -n {pod.namespace} describe pod {pod.name}; kubectl -n {pod.namespace} logs {pod.name}"
    if found.reason in (Reason.DEVICE_PLUGIN_FAILED, Reason.RESOURCE_MISSING):
        return failed("plugin", f"pod {pod.name}: {found.why}", f"{remedy_of(found.reason)}: {step}")
    return waiting("plugin", f"pod {pod.name}: {found.why or 'the label is not written yet'}", step)


def _validation(context: Context, stages: StageView, found: NodeStages) -> CheckResult:
    node, driver = context.node, context.driver
    if stages.has_label(node, Stage.PLGOK) and found.labels[Stage.PLGOK]:
        return ok("plgok", f"its validation succeeded: {stages.labels[Stage.PLGOK]}")
    name = PLUGIN_VALIDATION.name_of(driver.key, node.name)
    if found.reason is Reason.PLUGIN_VALIDATION_FAILED:
        again = f"kubectl -n {driver.namespace} delete pod {name}; "
        again += f"kubectl annotate node {node.name} {stages.labels[Stage.PLGOK]}-"
        logs = f"kubectl -n {driver.namespace} logs {name}"
        return failed("plgok", found.why, f"{logs}; once its cause is gone, run it again: {again}")
    step = f"kubectl -n {driver.namespace} describe pod {name}" if node.name in stages.validations else "Wait"
    return waiting("plgok", found.why or "the label is not written yet", step)
