"""Metrics of the current state: the queue as it is now, the drivers as the last reconcile saw them.

Place in the flow: the reconciler reports each plan to a :class:`StateCollector`; a scrape reads it. Every scrape is
made anew, so a driver or kernel that is gone leaves no series behind. Events are counted in ``telemetry``.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from driver_builder.api.rollout_status import Wave
from driver_builder.api.status import TargetStatus
from driver_builder.base.reasons import WITHOUT_DRIVER, TargetState
from driver_builder.builds.build_queue import BuildStates
from driver_builder.cluster.cluster_cache import ClusterCache
from driver_builder.plan.plan import Plan

Counts = dict[tuple[str, ...], int]
"""What is counted, by the values of a metric's labels."""

_SAMPLE = 50
UNKNOWN_KERNEL = "unknown"
"""Kernel of selected nodes whose labels name none yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetState:
    """``without_driver`` counts nodes by driver and kernel, 0 where all are ready; ``kernels`` are those of nodes.

    ``targets`` counts targets by driver and state, ``failing`` by driver those whose last build failed, also while it
    is tried again. ``ahead`` counts, by driver and state, the newest kernels of pools of which some node runs an older
    one. ``waves`` counts the nodes of waves by driver and state, and ``phases`` the waves by driver and phase.
    """

    without_driver: Counts = field(default_factory=dict)
    kernels: frozenset[str] = frozenset()
    targets: Counts = field(default_factory=dict)
    failing: Counts = field(default_factory=dict)
    ahead: Counts = field(default_factory=dict)
    waves: Counts = field(default_factory=dict)
    phases: Counts = field(default_factory=dict)


def fleet_state(plan: Plan) -> FleetState:
    """Sum a plan up; kernels that a driver skips, or that are not applicable, need no driver."""
    counts: Counts = {}
    for part in plan.drivers:
        for target in part.targets:
            if target.state not in WITHOUT_DRIVER:
                place = (part.driver.key, target.kernel)
                counts[place] = counts.get(place, 0) + target.nodes - target.ready_nodes
        if part.unknown:
            counts[part.driver.key, UNKNOWN_KERNEL] = len(part.unknown)
    kernels = frozenset(str(target.kernel) for part in plan.drivers for target in part.targets)
    targets: Counter[tuple[str, ...]] = Counter(
        (part.driver.key, target.state.value) for part in plan.drivers for target in part.targets
    )
    failing: Counts = {(part.driver.key,): sum(map(_is_failing, part.targets)) for part in plan.drivers}
    ahead: Counter[tuple[str, ...]] = Counter(
        (part.driver.key, entry.target.state.value)
        for part in plan.drivers
        for entry in part.ahead or ()
        if entry.target.nodes
    )
    waves = {part.driver.key: part.wave for part in plan.drivers if part.wave is not None}
    return FleetState(
        without_driver=counts,
        kernels=kernels,
        targets=dict(targets),
        failing=failing,
        ahead=dict(ahead),
        waves={(key, state): count for key, wave in waves.items() for state, count in _nodes_of(wave).items()},
        phases={(key, wave.phase.value): 1 for key, wave in waves.items()},
    )


def _is_failing(target: TargetStatus) -> bool:
    return target.failures > 0 or target.state is TargetState.FAILED


def _nodes_of(wave: Wave) -> dict[str, int]:
    return {
        "Updated": wave.updated,
        "Waiting": max(0, wave.nodes - wave.updated - wave.unavailable),
        "Unavailable": wave.unavailable,
        "Failed": wave.failed,
    }


class CacheCollector(Collector):
    """Gives a scrape what is known of the cluster, by resource and namespace."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Make the metrics of this moment."""
        labels = ["resource", "namespace"]
        objects = GaugeMetricFamily("driver_builder_cache_objects", "Objects in the cache", labels=labels)
        size = GaugeMetricFamily(
            "driver_builder_cache_bytes", "Memory of the objects in the cache, estimated from a sample", labels=labels
        )
        age = GaugeMetricFamily(
            "driver_builder_cache_age_seconds", "Time since the last event or bookmark of the watch", labels=labels
        )
        for follower in (*self._cache.followers, *self._cache.slices.followers):
            place = (follower.source.resource.plural, follower.source.namespace or "")
            values = follower.collection.values()
            objects.add_metric(place, len(values))
            size.add_metric(place, estimated_size(values))
            if (seconds := follower.age) is not None:
                age.add_metric(place, seconds)
        yield from (objects, size, age)


def estimated_size(values: Sequence[object]) -> int:
    """Estimate the bytes of values, where several share a part that part once: of 50 of them, spread over all."""
    if not values:
        return 0
    sample = values[:: max(1, len(values) // _SAMPLE)]
    return _size(sample, set()) * len(values) // len(sample)


def _size(value: object, seen: set[int]) -> int:
    if id(value) in seen or value is None:
        return 0
    seen.add(id(value))
    size = sys.getsizeof(value)
    if isinstance(value, Mapping):
        return size + sum(_size(part, seen) for item in value.items() for part in item)
    if isinstance(value, tuple | list | set | frozenset):
        return size + sum(_size(part, seen) for part in value)
    if is_dataclass(value):
        return size + sum(_size(getattr(value, item.name, None), seen) for item in fields(value))
    return size


class StateCollector(Collector):
    """Returns the queue's and the fleet's state for a scrape; ``clock`` counts seconds since the epoch."""

    def __init__(self, states: Callable[[], BuildStates], *, clock: Callable[[], float] = time.time) -> None:
        self._states = states
        self._clock = clock
        self._plan = Plan()

    def saw(self, plan: Plan) -> None:
        """Record a reconcile; it is summed up when it is scraped."""
        self._plan = Plan(drivers=tuple(replace(part, actions=()) for part in plan.drivers))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Make the current metrics."""
        states, fleet = self._states(), fleet_state(self._plan)
        waits = [self._clock() - build.since for build in states.queued.values()]
        yield _gauge("queue_depth", "Queued builds", len(waits))
        yield _gauge(
            "queue_oldest_wait_seconds", "Time that the oldest queued build has waited", max(waits, default=0.0)
        )
        yield _gauge("builds_running", "Running builds", len(states.running) - len(waits))
        yield _gauge(
            "builds_suspended", "Open circuit breakers, of one driver or of all drivers",
            len(states.suspended),
        )  # fmt: skip
        yield _gauge("kernels_in_use", "Kernel releases of the selected nodes", len(fleet.kernels))
        yield _by(
            "nodes_without_driver",
            "Selected nodes on which the driver is not ready, by driver (namespace/name) and kernel release",
            ("driver", "kernel"), fleet.without_driver,
        )  # fmt: skip
        yield _by("targets", "Targets of a driver, by state", ("driver", "state"), fleet.targets)
        yield _by(
            "targets_failing", "Targets of a driver whose last build failed, also while it is tried again",
            ("driver",), fleet.failing,
        )  # fmt: skip
        yield _by(
            "kernels_ahead",
            "Newest kernels that some node does not run yet, by driver that follows the repository and state there",
            ("driver", "state"), fleet.ahead,
        )  # fmt: skip
        yield _by(
            "rollout_nodes",
            "Nodes of the wave that is under way, by driver and state there; failed ones are unavailable as well",
            ("driver", "state"), fleet.waves,
        )  # fmt: skip
        yield _by(
            "rollout_phase", "1 for the phase of the wave that is under way, by driver", ("driver", "phase"),
            fleet.phases,
        )  # fmt: skip


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"driver_builder_{name}", text, value=value)


def _by(name: str, text: str, labels: Sequence[str], counts: Counts) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"driver_builder_{name}", text, labels=labels)
    for values, count in sorted(counts.items()):
        family.add_metric(values, count)
    return family
