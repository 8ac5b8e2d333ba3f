"""What is known of a target's failed builds, and when the next one is started. Pure."""

from dataclasses import replace

from driver_builder.api.status import TargetStatus
from driver_builder.base.reasons import Reason, TargetState
from driver_builder.base.retry import Retry, chance_of
from driver_builder.nodes.plan_view import DriverView, PlanSettings
from driver_builder.snapshot.snapshot import FailedBuild


def with_failures(view: DriverView, key: str, status: TargetStatus) -> tuple[TargetStatus, float | None]:
    """Add what is known of failed tries of this key; returns when to try again, None if none failed."""
    before = view.before.get(status.target)
    known = before if before is not None and before.key == key else None
    failures = known.failures if known else 0
    last = known.last_failure if known else None
    # A time in the future was read from a wrong clock.
    is_wrong = last is not None and last > view.snapshot.now
    if is_wrong:
        last = float(int(view.snapshot.now))
    reason, message = (known.reason, known.message) if known else ("", "")
    if known is not None and known.state is TargetState.BLOCKED and known.reason != Reason.BUILDS_SUSPENDED:
        # What prevented the question is not why the build failed.
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
    """Return when a target's failed build is tried again, according to its status; None if none failed."""
    if not status.failures or status.last_failure is None:
        return None
    return status.last_failure + retry_delay(status.key, status.failures, settings)


def retry_delay(key: str, failures: int, settings: PlanSettings) -> float:
    """Seconds to wait after the n-th failure of a key: doubling, with up to a quarter more so that keys spread out."""
    retry = Retry(settings.retry_min_seconds, settings.retry_max_seconds)
    return retry.with_jitter(failures, chance_of(key))
