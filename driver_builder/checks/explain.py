"""Why one node has, or has not, one driver: the first check that fails, and what to do next. Pure.

What an admin asks first when a pod that selects a ready label stays Pending. Each check needs the one before, so it
ends at the first that fails. An unreachable registry does not end it, because a node may work without one. ``plan``
is asked what it would do, so that both always agree.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.status import Trouble
from driver_builder.base.boundary import contained
from driver_builder.base.check_result import CheckResult, Status, unknown
from driver_builder.base.reasons import Reason, with_remedy
from driver_builder.checks import explain_driver, explain_image, explain_node, explain_stages
from driver_builder.checks.explanation import CHECKS, Context, Explanation
from driver_builder.model.kernels import KernelTarget
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.plan.plan import plan
from driver_builder.prebuild import newest_kernel
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.share import drivers_before
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets.conflicts import Conflict, conflicts
from driver_builder.targets.desired_target import ImageTarget
from driver_builder.targets.resolve import resolve, stock_of
from driver_builder.targets.resource_conflicts import Kept, resource_conflicts


def explain(snapshot: Snapshot, node: Node, driver: DriverContainer, settings: PlanSettings) -> Explanation:
    """Check everything from the driver's spec to the node's ready label; a bug is a problem of this driver."""
    return contained(
        "driver",
        driver.key,
        lambda: _walk(snapshot, node, driver, settings),
        lambda error: _in_trouble(snapshot, node, driver, Trouble(reason=Reason.INTERNAL_ERROR, message=str(error))),
    )


def _walk(snapshot: Snapshot, node: Node, driver: DriverContainer, settings: PlanSettings) -> Explanation:
    steps = [explain_driver.driver_check(driver)]
    spec = driver.spec
    if not steps[0].is_ok or not isinstance(spec, DriverSpec):
        return _explanation(node, driver, steps)
    steps = [*steps, explain_image.selector_check(spec, node)]
    if not steps[1].is_ok:
        return _explanation(node, driver, steps)
    steps.append(explain_image.kernel_check(node))
    target = _target(snapshot, node, driver, spec)
    if target is None:
        return _explanation(node, driver, steps, selected=True)
    # For this driver and those it depends on, as if it were not paused: what a pause stops is added below.
    parts = plan(
        replace(snapshot, drivers=(replace(driver, paused=False), *drivers_before(snapshot, driver))), settings
    ).drivers
    decided = next(part for part in parts if part.driver.key == driver.key)
    if decided.trouble is not None:
        return _in_trouble(snapshot, node, driver, decided.trouble)
    context = Context(
        snapshot=snapshot,
        settings=settings,
        node=node,
        driver=driver,
        spec=spec,
        target=target,
        decided=decided,
        conflict=_conflict(snapshot, settings, driver, target, spec),
        resource_kept=_resource_kept(snapshot, settings, driver),
    )
    steps += _to_the_first_that_breaks(_checks(context))
    if any(step.status is Status.WAITING for step in steps):
        trouble = explain_driver.trouble_of(driver)
        if driver.paused:
            steps = [explain_driver.paused_check(driver), *steps[1:-1]]
        elif trouble is not None:
            steps = [explain_driver.trouble_check(driver, trouble), *steps[1:-1]]
    walked = _explanation(node, driver, steps, selected=True, serving=explain_node.serving(snapshot, node, driver))
    return replace(walked, coming=_coming(context))


def _in_trouble(snapshot: Snapshot, node: Node, driver: DriverContainer, trouble: Trouble) -> Explanation:
    """Report that nothing can be decided for a driver, and what works on the node meanwhile."""
    serving = contained("driver", driver.key, lambda: explain_node.serving(snapshot, node, driver), lambda _error: "")
    steps = [explain_driver.trouble_check(driver, trouble)]
    if isinstance(driver.spec, DriverSpec):
        steps.append(explain_image.selector_check(driver.spec, node))
    return _explanation(node, driver, steps, selected=steps[-1].is_ok, serving=serving)


def _conflict(
    snapshot: Snapshot, settings: PlanSettings, driver: DriverContainer, target: KernelTarget, spec: DriverSpec
) -> Conflict | None:
    """Return which other driver keeps this one from the target, as ``plan`` does for all drivers together."""
    nodes = stock_of(snapshot, driver, spec).targets.get(target, ())
    found = conflicts(snapshot, settings.template_versions.permissions).get(driver.key, ())
    return next((conflict for conflict in found if not set(nodes).isdisjoint(conflict.nodes)), None)


def _resource_kept(snapshot: Snapshot, settings: PlanSettings, driver: DriverContainer) -> Kept:
    """Return where another driver keeps the resource of this one, as ``plan`` does for all drivers together."""
    allowed, has_agent = settings.template_versions.permissions, bool(settings.device_agent_image)
    return resource_conflicts(snapshot, allowed, has_agent=has_agent).get(driver.key, {})


def _target(snapshot: Snapshot, node: Node, driver: DriverContainer, spec: DriverSpec) -> KernelTarget | None:
    """Return the target that serves the node; None if its own labels name none."""
    stock = stock_of(snapshot, driver, spec).targets
    return next((target for target, nodes in stock.items() if node.name in nodes), None)


def _coming(context: Context) -> str:
    """Return the state of the driver for the kernel that the node can move to."""
    for entry in context.decided.ahead or ():
        if entry.pool[:2] == (context.target.os, context.target.architecture) and newest_kernel.is_newer(
            context.target, entry.target.kernel
        ):
            said = with_remedy(entry.target.reason, entry.target.message)
            return f"{entry.target.kernel}: {entry.target.state}, {entry.target.reason}: {said}"
    return ""


def _checks(context: Context) -> Iterator[CheckResult]:
    yield explain_image.mapping_check(context.spec, context.target)
    items = resolve(context.snapshot, context.driver, context.spec, context.settings.template_versions).targets
    item = next(item for item in items if item.target == context.target)
    yield explain_image.image_check(item)
    if not isinstance(item, ImageTarget):
        return
    yield explain_image.build_check(context, item)
    yield explain_node.rollout_check(context)
    yield explain_node.pull_check(context)
    if context.pod is not None:
        yield explain_node.load_check(context, context.pod)
        yield explain_node.label_check(context, context.pod)
        yield from explain_stages.stage_checks(context)


def _to_the_first_that_breaks(checks: Iterator[CheckResult]) -> list[CheckResult]:
    taken: list[CheckResult] = []
    for step in checks:
        taken.append(step)
        if step.status in (Status.FAILED, Status.WAITING):
            break
    return taken


def _explanation(
    node: Node, driver: DriverContainer, steps: Iterable[CheckResult], *, selected: bool = False, serving: str = ""
) -> Explanation:
    done = {step.check: step for step in steps}
    stages = driver.spec.stages if isinstance(driver.spec, DriverSpec) else None
    names = (*CHECKS, *explain_stages.names_of(stages))
    walked = tuple(done.get(name, unknown(name, "not checked: it needs the one before")) for name in names)
    return Explanation(node=node.name, driver=driver.key, selected=selected, serving=serving, steps=walked)
