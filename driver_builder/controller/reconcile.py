"""One reconcile: observe, resolve, ask registries, plan, execute, report.

Level-based: whatever happened before, it starts from what it sees.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from driver_builder.builds.build_queue import BuildQueue
from driver_builder.cluster.observe import Observer
from driver_builder.controller.execute import Executor, FailedChange
from driver_builder.controller.read_images import ImageReader
from driver_builder.controller.report import Reporter
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.plan.plan import Plan, plan
from driver_builder.plan.plan_memory import PlanMemory
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets.resolve import Resolved
from kube_api.errors import KubeApiError, Unreachable


class Reconciler:
    """Reconciles, one at a time.

    ``needed`` is given what was seen, and what each driver should run, at the end of each reconcile.
    ``changes`` counts our writes that changed what a reconcile reads: no watch brings them as news. After such
    writes ``again`` asks for another reconcile at once, also where something else failed.
    """

    def __init__(
        self,
        *,
        observer: Observer,
        images: ImageReader,
        executor: Executor,
        reporter: Reporter,
        builds: BuildQueue,
        settings: PlanSettings,
        planned: Callable[[Plan], None] = lambda _plan: None,
        needed: Callable[[Snapshot, Mapping[str, Resolved]], None] = lambda _snapshot, _resolved: None,
        is_stopping: Callable[[], bool] = lambda: False,
        changes: Callable[[], int] = lambda: 0,
        again: Callable[[], None] = lambda: None,
    ) -> None:
        self._observer = observer
        self._images = images
        self._executor = executor
        self._reporter = reporter
        self._builds = builds
        self._settings = settings
        self._planned = planned
        self._needed = needed
        self._is_stopping = is_stopping
        self._changes = changes
        self._again = again
        self._memory = PlanMemory()

    def reconcile(self) -> float | None:
        """Reconcile once; returns when to do it again although nothing changes (seconds since the epoch).

        Raises:
            KubeApiError: when the cluster could not be read, or something could not be written for now. What was
                refused for good is in the driver's status, and is tried again only when there is another reason to.
        """
        seen = self._observer.observe()
        resolved = self._images.resolve(seen)
        snapshot = self._images.read(seen, resolved)
        snapshot, decided = decide(self._observer, snapshot, self._settings, resolved, self._memory)
        self._planned(decided)
        decided, unwritten = self._reporter.acknowledged(decided)
        owners, before = owners_of(decided), self._changes()
        failed = self._executor.perform(decided.actions, lambda action: owners.get(id(action), ""))
        if self._changes() != before:
            self._again()
        # The status of a driver whose action got no answer would wait as long.
        skipped = {item.owner for item in failed if isinstance(item.error, Unreachable)}
        skipped.update(unwritten)
        if self._is_stopping():
            return None
        # Also without new builds: while they are suspended, one is tried now and then.
        self._builds.dispatch()
        reported = replace(decided, drivers=tuple(part for part in decided.drivers if part.driver.key not in skipped))
        unwritten |= self._reporter.report(reported, refusals=refusals(failed), now=snapshot.now)
        for part in reported.drivers:
            if part.driver.key not in unwritten:
                self._builds.forget(part.failures)
        known = {driver.key for driver in snapshot.drivers}
        # Which drivers a namespace has that may not be read is not known.
        self._builds.forget_drivers(lambda key: key not in known and key.namespace not in snapshot.forbidden)
        self._needed(snapshot, resolved)
        for error in (*(item.error for item in failed), *unwritten.values()):
            if isinstance(error, KubeApiError) and error.is_temporary and not self._is_stopping():
                raise error
        return decided.requeue_at


def decide(
    observer: Observer,
    snapshot: Snapshot,
    settings: PlanSettings,
    resolved: Mapping[str, Resolved],
    memory: PlanMemory,
) -> tuple[Snapshot, Plan]:
    """Plan, and once more where the pods of nodes that are drained next let others go first; with what was seen."""
    decided = plan(snapshot, settings, resolved, memory)
    informed = observer.look_ahead(snapshot, decided.drains) if decided.drains else snapshot
    return informed, (decided if informed is snapshot else plan(informed, settings, resolved, memory))


def owners_of(decided: Plan) -> dict[int, str]:
    """Map each change, by its ``id``, to the key of its driver: some hold whole manifests, which have no hash."""
    return {id(action): part.driver.key for part in decided.drivers for action in part.actions}


def refusals(failed: Iterable[FailedChange]) -> dict[str, str]:
    """Return for each driver which of its changes was refused for good, and how many more were: of a fleet, thousands.

    The cancelling of a build that no driver needs any more has no owner.
    """
    refused: dict[str, list[FailedChange]] = {}
    for item in failed:
        if item.owner and not item.error.is_temporary:
            refused.setdefault(item.owner, []).append(item)
    return {
        driver: f"{items[0]} (and {len(items) - 1} more)" if len(items) > 1 else str(items[0])
        for driver, items in refused.items()
    }
