"""One pass: observe, plan, execute, report. Level-based: whatever happened before, it starts from what it sees."""

import logging

from driver_builder.builds import BuildQueue
from driver_builder.execute import Executor
from driver_builder.observe import Observer
from driver_builder.plan import PlanSettings, plan
from driver_builder.report import Reporter
from kube_api.errors import KubeApiError

logger = logging.getLogger(__name__)


class Reconciler:
    """Does passes, one at a time."""

    def __init__(
        self, *, observer: Observer, executor: Executor, reporter: Reporter, builds: BuildQueue, settings: PlanSettings
    ) -> None:
        self._observer = observer
        self._executor = executor
        self._reporter = reporter
        self._builds = builds
        self._settings = settings

    def reconcile(self) -> float | None:
        """Do one pass; gives when to look again though nothing changes (seconds since the epoch).

        Raises:
            KubeApiError: when the cluster could not be read, or something could not be written.
        """
        snapshot = self._observer.observe()
        decided = plan(snapshot, self._settings)
        errors: tuple[KubeApiError, ...] = self._executor.perform(decided.actions)
        errors += self._reporter.report(decided, now=snapshot.now)
        if errors:
            raise errors[0]
        self._builds.forget(snapshot.failed_builds)
        return decided.requeue_at
