"""An image that the registry proved to be absent: build it, wait for it, or wait for the next try. Pure."""

from dataclasses import replace

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.desired.desired_target import ImageTarget, PrebuiltTarget
from driver_builder.model.build import BuildRequest
from driver_builder.observed.snapshot import FailedBuild
from driver_builder.planning.actions import ReuseCandidate, StartBuild
from driver_builder.planning.plan_view import DriverView, PlanSettings, TargetPart
from driver_builder.reasons import Reason, TargetState
from driver_builder.status.status import TargetStatus


def build(
    view: DriverView, spec: DriverSpec, item: ImageTarget, part: TargetPart, *, may_start: bool = True
) -> TargetPart:
    """The registry proved that the image does not exist: build it, wait for it, or wait for the next try.

    ``may_start`` is false where that proof is old: the registry is being asked, and its answer wakes the next pass.
    """
    if isinstance(item, PrebuiltTarget):
        status = replace(
            part.status,
            state=TargetState.FAILED,
            reason=Reason.IMAGE_MISSING,
            message=f"{item.image} does not exist",
        )
        return replace(part, status=status)
    key, seen = item.request.key, view.snapshot
    if (verdict := _not_applicable(view, key, part)) is not None:
        return verdict
    status, retry_at = _with_failures(view, key, part.status)
    is_known, is_queued = key in seen.running_builds, key in seen.queued_builds
    if not is_known or (is_queued and seen.queued_builds[key] != len(item.nodes)):
        if not is_known and retry_at is not None and seen.now < retry_at:
            return replace(part, status=status, requeue_at=retry_at)
        reuse = view.reusable.candidates(item) if spec.reuse else ()
        build = start_build(view.driver, spec, item, item.request, waiting=len(item.nodes), reuse=reuse)
        part = replace(part, actions=(build,) if may_start else ())
        if may_start and item.target.short_hash in view.daemon_sets:
            # The registry proved that it lost what was rolled out: what is built now is the next pin.
            status = replace(status, digest="")
    if (suspension := view.suspension) is not None and (is_queued or not is_known):
        part = replace(part, status=status).blocked(Reason.BUILDS_SUSPENDED, suspension.why)
        # A probe that is due is started by this very pass, or the one before it still runs and tells when it ends.
        return replace(part, requeue_at=suspension.probe_at if suspension.probe_at > seen.now else None)
    message = _building_words(view, item, status)
    status = replace(status, state=TargetState.BUILDING, reason=Reason.KERNEL_MISMATCH, message=message)
    return replace(part, status=status)


def blocked(view: DriverView, item: ImageTarget, part: TargetPart, reason: Reason, message: str) -> TargetPart:
    """Say why the registry does not tell whether the image exists, and keep what is known of its builds.

    A verdict that the driver is not for the kernel stands, and a build that failed just now is said first.
    """
    key = item.key
    if not key:
        return part.blocked(reason, message)
    if (verdict := _not_applicable(view, key, part)) is not None:
        return verdict
    status, _ = _with_failures(view, key, part.status)
    known = replace(part, status=status)
    return known if key in view.snapshot.failed_builds else known.blocked(reason, message)


def _not_applicable(view: DriverView, key: str, part: TargetPart) -> TargetPart | None:
    words = _refusal_of_driver(view, key, part.status.target)
    if words is None:
        return None
    status = replace(
        part.status, key=key, state=TargetState.NOT_APPLICABLE, reason=Reason.NOT_APPLICABLE, message=words
    )
    return replace(part, status=status)


def _refusal_of_driver(view: DriverView, key: str, target: str) -> str | None:
    """Give the driver's own word, from a build of this very key, that it is not for the kernel; it is not asked again.

    Another key may be another version, so that is built.
    """
    fresh = view.snapshot.failed_builds.get(key)
    if fresh is not None:
        return fresh.message if fresh.reason == Reason.NOT_APPLICABLE else None
    before = view.before.get(target)
    is_known = before is not None and before.key == key and before.state is TargetState.NOT_APPLICABLE
    return before.message if before is not None and is_known else None


def _building_words(view: DriverView, item: ImageTarget, status: TargetStatus) -> str:
    words = f"building for {item.target.kernel_version}"
    if not status.failures:
        return words
    before = view.before.get(status.target)
    if before is not None and before.state is TargetState.BUILDING and before.failures == status.failures:
        # The same try, said before: quoting it would grow the message with every pass.
        return before.message
    if before is not None and before.state is TargetState.BLOCKED:
        return f"{words} (try {status.failures + 1})"
    return f"{words} (try {status.failures + 1}; last failure: {status.message})"


def _with_failures(view: DriverView, key: str, status: TargetStatus) -> tuple[TargetStatus, float | None]:
    """Carry over what is known of failed tries of this very key; gives when to try again, None when none failed."""
    before = view.before.get(status.target)
    known = before if before is not None and before.key == key else None
    failures = known.failures if known else 0
    last = known.last_failure if known else None
    # A moment that is yet to come was read from a wrong clock.
    is_wrong = last is not None and last > view.snapshot.now
    if is_wrong:
        last = float(int(view.snapshot.now))
    reason, message = (known.reason, known.message) if known else ("", "")
    if known is not None and known.state is TargetState.BLOCKED and known.reason != Reason.BUILDS_SUSPENDED:
        # What stood in the way of asking is not why the build failed.
        reason, message = Reason.BUILD_ERROR, f"{failures} builds failed; the log of the last one has the cause"
    fresh: FailedBuild | None = view.snapshot.failed_builds.get(key)
    if fresh is not None and (new := fresh.count_since(None if is_wrong else last)):
        failures, last, reason, message = failures + new, float(int(fresh.at)), fresh.reason, fresh.message
    if not failures or last is None:
        return replace(status, key=key), None
    status = replace(
        status, key=key, state=TargetState.FAILED, reason=reason, message=message, failures=failures, last_failure=last
    )
    return status, next_try(status, view.settings)


def next_try(status: TargetStatus, settings: PlanSettings) -> float | None:
    """Say when a target's failed build is tried again, by what its status tells; None where none failed."""
    if not status.failures or status.last_failure is None:
        return None
    return status.last_failure + retry_delay(status.key, status.failures, settings)


def retry_delay(key: str, failures: int, settings: PlanSettings) -> float:
    """Seconds to wait after the n-th failure of a key: doubling, with up to a quarter more so that keys spread out."""
    delay = min(settings.retry_max_seconds, settings.retry_min_seconds * 2.0 ** min(failures - 1, 30))
    return delay * (1.0 + int(key[:4], 16) / 0xFFFF / 4)


def start_build(
    driver: DriverContainer,
    spec: DriverSpec,
    item: ImageTarget,
    request: BuildRequest,
    *,
    waiting: int = 0,
    reuse: tuple[ReuseCandidate, ...] = (),
) -> StartBuild:
    """Make the action that builds an image, as the spec wants it built; ``waiting`` is how many nodes wait for it."""
    return StartBuild(
        namespace=driver.namespace,
        request=request,
        image=item.image,
        registry=spec.registry,
        waiting=waiting,
        reuse=reuse,
        builder=spec.builder,
        build_secrets=spec.build_secrets,
        resources=spec.build_resources,
        tolerations=spec.tolerations,
        owner=driver.uid,
    )
