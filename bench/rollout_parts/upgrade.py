"""``python -m bench.rollout_parts.upgrade NODES BUDGET PART [--profile]``: one upgrade of a fleet.

The controller's own code, from its watches to its statuses, beside an API server in memory and a played cluster. Time
is simulated: what the controller computes takes as long as its CPU, each of its requests a few milliseconds, and it
waits for the rest of a burst as ``run`` does. PART is how many nodes are measured in the wave, after as many as may be
without the driver at once; 0 measures the upgrade from begin to end. Prints one JSON object; with ``--profile`` the
most expensive functions, too.
"""

import cProfile
import gc
import json
import logging
import math
import pstats
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from bench.rollout_parts.api_server import ApiServer
from bench.rollout_parts.cluster import Cluster
from bench.scale_parts.cells import Cell
from bench.scale_parts.fleet import RESOURCES, Fleet, Making, path_of
from bench.scale_parts.in_process import Images
from driver_builder.api.rollout_settings import Share
from driver_builder.cluster.cluster_cache import ClusterCache
from driver_builder.cluster.kept_writes import KeptWrites
from driver_builder.cluster.observe import Observer
from driver_builder.controller.controller import SETTLE_SECONDS
from driver_builder.controller.execute import Executor
from driver_builder.controller.read_images import ImageReader
from driver_builder.controller.reconcile import Reconciler
from driver_builder.controller.report import Reporter
from driver_builder.plan.plan import Plan
from kube_api.client import Client
from kube_api.resources import DRIVER_CONTAINERS
from tests.support.driver_builder.factories import NAMESPACE, SETTINGS
from tests.support.driver_builder.model_parts import ModelBuilds

Json = dict[str, Any]

BEGAN = 1_700_000_000.0
TOP = 30

Value = TypeVar("Value")


MAX_STEPS = 200
"""So many things happen for each node at most."""


class Case(NamedTuple):
    """An upgrade: ``budget`` is ``maxUnavailable``, a number or a percentage.

    ``part`` nodes are measured in the wave, all from begin to end where it is 0. A node needs ``node_seconds`` from its
    label to its proof, more or less by ``spread`` of that. A request of the controller takes ``request_seconds``.
    """

    nodes: int
    budget: str
    part: int = 0
    kernels: int = 5
    node_seconds: float = 30.0
    spread: float = 0.2
    request_seconds: float = 0.005

    @property
    def max_unavailable(self) -> int:
        """How many nodes may be without the driver."""
        number = int(self.budget.removesuffix("%"))
        return Share(number, self.budget.endswith("%")).of(self.nodes)

    @property
    def ideal_seconds(self) -> float:
        """How long the measured nodes take if each wave follows the other at once."""
        return math.ceil((self.part or self.nodes) / self.max_unavailable) * self.node_seconds

    def spec(self, version: str) -> Json:
        """Write the driver of this case in a version."""
        budget = self.budget if self.budget.endswith("%") else int(self.budget)
        return {"version": version, "buildArgs": {"RELEASE": version}, "rollout": {"maxUnavailable": budget}}


class Upgrade:
    """A fleet at rest, its controller, and an upgrade."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.server = ApiServer()
        self.cluster = Cluster(self.server, node_seconds=case.node_seconds, spread=case.spread, now=BEGAN)
        self.plans: list[Plan] = []
        self.cpu = 0.0
        self.reconciles = 0
        self.ended: float | None = None
        """When the controller knew that every node has what is wanted."""
        self._due: float | None = None
        self._profiler: cProfile.Profile | None = None
        fleet = Fleet(Cell(case.nodes, case.kernels, 1), Making(spec=lambda _number: case.spec("1.0.0")))
        for resource in RESOURCES:
            path = path_of(resource)
            self.server.load(path, (self.cluster.learn(path, obj) for obj in fleet.objects(resource)))
        # What is built for the next version is there already.
        making = Making(spec=lambda _number: case.spec("2.0.0"))
        small = Fleet(Cell(case.kernels, case.kernels, 1), making, fleet.registries)
        (self._next,) = small.objects(DRIVER_CONTAINERS)
        built = Images({str(image): labels for image, labels in fleet.registries.images.items()})
        self._connect(built)

    def _connect(self, built: Images) -> None:
        """Put a controller together as ``run`` does."""
        client, builds = Client(self.server), ModelBuilds()
        self.cache = ClusterCache(client, namespaces=(NAMESPACE,), clock=lambda: self.cluster.now)
        writes = KeptWrites(client, self.cache)
        self._reconciler = Reconciler(
            observer=Observer(client, cache=self.cache, builds=builds, clock=lambda: self.cluster.now),
            # Time stands still for what is asked again after a while.
            images=ImageReader(built, SETTINGS.template_versions, news=lambda: 0, clock=lambda: 0.0),
            executor=Executor(writes, builds),
            reporter=Reporter(writes),
            builds=builds,
            settings=SETTINGS,
            planned=self._planned,
            changes=lambda: writes.changes,
            again=self._wake,
        )

    def run(self) -> Json:
        """Bring the controller to rest beside the fleet, then upgrade it, and measure that."""
        for follower in self.cache.followers:
            follower.repair()
        self._reconcile()
        assert self.plans[-1].actions == (), self.plans[-1].actions
        gc.collect()
        gc.freeze()
        self._due = None
        self._count_anew()
        path, began, first = path_of(DRIVER_CONTAINERS), self.cluster.now, 0
        known = self.server.get(path, self._next["metadata"]["name"])
        known["metadata"]["generation"] += 1
        self.server.put(path, {**known, "spec": self._next["spec"]})
        self._hear()
        proven = self.cluster.proven
        if self.case.part:
            self._until(lambda: len(proven) >= self.case.max_unavailable)
            began, first = self.cluster.now, len(proven)
            self._count_anew()
            self._until(lambda: len(proven) >= first + self.case.part)
            self.ended = self.cluster.now
        else:
            self._until(lambda: False)
            assert len(proven) == self.case.nodes, f"{len(proven)} nodes are proven"
        assert self.ended is not None
        return self._figures(len(proven) - first, self.ended - began)

    def measure(self, profiler: cProfile.Profile | None) -> Json:
        """Upgrade with a profiler, which sees what the controller does alone."""
        self._profiler = profiler
        return self.run()

    def _until(self, is_done: Callable[[], bool]) -> None:
        for _ in range(MAX_STEPS * self.case.nodes):
            if is_done() or not self._step():
                return
        raise AssertionError(f"still moving: {[str(action) for action in self.plans[-1].actions[:5]]}")

    def _count_anew(self) -> None:
        self.server.requests.clear()
        self.cpu, self.reconciles = 0.0, 0
        if self._profiler is not None:
            self._profiler.clear()

    def _step(self) -> bool:
        """Let the next thing happen, or the controller reconcile; returns whether something was left to happen."""
        at = self.cluster.next_at
        if self._due is not None and (at is None or self._due <= at):
            self.cluster.now = max(self.cluster.now, self._due)
            self._due = None
            self._hear(is_due=True)
            self._reconcile()
            return True
        if at is None:
            return False
        self.cluster.step()
        # While a reconcile is due, what watches say can wait for it.
        if self._due is None or self._due > self.cluster.now + SETTLE_SECONDS:
            self._hear()
        return True

    def _hear(self, *, is_due: bool = False) -> None:
        """Let the watches say what happened; news ask for a reconcile, but for those that one is about to see."""
        changed: Callable[[], None] = (lambda: None) if is_due else self._wake
        for follower in self.cache.followers:
            if follower.source.path in self.server.news or not follower.is_trusted:
                self._spend(partial(follower.watch, changed, lambda: False))

    def _wake(self) -> None:
        at = self.cluster.now + SETTLE_SECONDS
        self._due = at if self._due is None else min(self._due, at)

    def _reconcile(self) -> None:
        self.reconciles += 1
        self.plans.clear()
        before, requests = self.cpu, self.server.requests.total()
        asked = self._spend(self._reconciler.reconcile)
        self.cluster.now += self.cpu - before
        self.cluster.now += (self.server.requests.total() - requests) * self.case.request_seconds
        if self._due is not None:
            self._due = self.cluster.now + SETTLE_SECONDS
        elif asked is not None:
            self._due = max(asked, self.cluster.now) + SETTLE_SECONDS

    def _planned(self, decided: Plan) -> None:
        self.plans.append(decided)
        (part,) = decided.drivers
        if part.wave is None and len(self.cluster.proven) == self.case.nodes and self.ended is None:
            self.ended = self.cluster.now

    def _spend(self, work: Callable[[], Value]) -> Value:
        """Count the CPU of the controller, without that of the API server."""
        began, others = time.process_time(), self.server.cpu
        answer = work() if self._profiler is None else self._profiler.runcall(work)
        self.cpu += time.process_time() - began - (self.server.cpu - others)
        return answer

    def _figures(self, nodes: int, seconds: float) -> Json:
        ideal = self.case.ideal_seconds
        writes = self.server.writes()
        return {
            "upgraded": nodes,
            "max unavailable": self.case.max_unavailable,
            "ideal seconds": ideal,
            "seconds": seconds,
            "time ratio": seconds / ideal,
            "cpu": self.cpu * 1000 / nodes,
            "cpu of a reconcile": self.cpu * 1000 / self.reconciles,
            "reconciles": self.reconciles / nodes,
            "writes": writes.total() / nodes,
            "by kind": {name: number / nodes for name, number in sorted(writes.items())},
        }


def main() -> None:
    """Upgrade, and print what it cost."""
    logging.disable(logging.WARNING)
    upgrade = Upgrade(Case(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
    profiler = cProfile.Profile() if "--profile" in sys.argv[4:] else None
    print(json.dumps(upgrade.measure(profiler)))
    if profiler is not None:
        pstats.Stats(profiler, stream=sys.stderr).strip_dirs().sort_stats("tottime").print_stats(TOP)


if __name__ == "__main__":
    main()
