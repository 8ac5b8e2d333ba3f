"""What probes and scrapers are answered, and when the reconcile loop counts as alive."""

import contextlib
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client import REGISTRY, Metric
from prometheus_client.parser import text_string_to_metric_families

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.api.rollout_status import Phase, Wave
from driver_builder.base import telemetry
from driver_builder.base.errors import BuildFailed
from driver_builder.base.reasons import Reason, TargetState
from driver_builder.base.telemetry import SILENCE_SECONDS, Heartbeat
from driver_builder.builds.build_queue import BuildQueue, BuildStates, QueuedBuild
from driver_builder.cluster.cluster_cache import ClusterCache
from driver_builder.cluster.image_answers import ImageAnswers
from driver_builder.controller.metrics import CacheCollector, StateCollector, estimated_size, fleet_state
from driver_builder.model.image_state import Absent, Present, Unreachable
from driver_builder.model.images import ImageRef
from driver_builder.nodes.changes import StartBuild
from driver_builder.plan.plan import Plan, plan
from driver_builder.snapshot.snapshot import Suspension
from tests.support.driver_builder.factories import (
    KERNEL,
    OTHER_KERNEL,
    SETTINGS,
    driver,
    node,
    ready_snapshot,
    snapshot,
    with_images,
)
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.driver_builder.model_parts import ModelRegistries


class Clock:
    """A clock that the test moves."""

    now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.mark.parametrize(
    ("beats", "silence", "alive"),
    [
        pytest.param(0, 10 * SILENCE_SECONDS, True, id="still waiting for the Lease"),
        pytest.param(1, 0.0, True, id="just now"),
        pytest.param(1, SILENCE_SECONDS, True, id="a long pass"),
        pytest.param(1, SILENCE_SECONDS + 1, False, id="a pass that hangs"),
        pytest.param(2, SILENCE_SECONDS + 1, False, id="a later pass that hangs"),
    ],
)
def test_a_loop_is_alive_as_long_as_it_gives_signs_of_life(beats: int, silence: float, alive: bool) -> None:
    """Only a loop that has begun can be missed."""
    clock = Clock()
    heartbeat = Heartbeat(clock=clock)
    for _ in range(beats):
        clock.now += SILENCE_SECONDS
        heartbeat.beat()
    clock.now += silence
    assert heartbeat.is_alive() is alive


def test_a_loop_that_goes_on_is_alive_again() -> None:
    """A single beat makes a late loop healthy again."""
    clock = Clock()
    heartbeat = Heartbeat(clock=clock)
    heartbeat.beat()
    clock.now += 2 * SILENCE_SECONDS
    assert not heartbeat.is_alive()
    heartbeat.beat()
    assert heartbeat.is_alive()


class Response(NamedTuple):
    """What came back."""

    status: int
    body: str


@pytest.fixture(scope="module")
def ask() -> Iterator[Callable[[str, bool], Response]]:
    """Serve on a free port; ask for a path of a controller that is healthy or not."""
    health = [True]
    server = telemetry.serve(0, healthy=lambda: health[0])

    def get(path: str, healthy: bool) -> Response:
        health[0] = healthy
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}{path}") as response:
                return Response(response.status, response.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return Response(error.code, error.read().decode())

    yield get
    server.shutdown()
    server.server_close()


def test_probes_are_answered_beside_idle_connections() -> None:
    """A port scan, a half-open peer or an idle client keeps no probe waiting, however many they are."""
    server = telemetry.serve(0, healthy=lambda: True)
    with contextlib.ExitStack() as stack:
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        for _ in range(telemetry.MAX_CONNECTIONS + 8):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.server_port)))
        url = f"http://127.0.0.1:{server.server_port}/healthz"
        with urllib.request.urlopen(url, timeout=60) as response:
            assert response.status == 200


@pytest.mark.parametrize(
    ("path", "healthy", "status", "words"),
    [
        pytest.param("/healthz", True, 200, "ok", id="healthy"),
        pytest.param("/healthz", False, 503, "hangs", id="not healthy"),
        pytest.param("/metrics", False, 200, "driver_builder_builds_total", id="metrics all the same"),
        pytest.param("/", True, 404, "try /healthz", id="anything else"),
    ],
)
def test_probes_are_answered(
    ask: Callable[[str, bool], Response], path: str, healthy: bool, status: int, words: str
) -> None:
    """The answer of /healthz follows the loop, metrics are always there."""
    answer = ask(path, healthy)
    assert answer.status == status
    assert words in answer.body


# ---------------------------------------------------------------- metrics

OPERATIONS = Path(__file__).parents[4] / "docs" / "operations.md"

EDU = "driverwright/edu"
SKIPPING = driver(spec_changes={"kernelMappings": [{"literal": KERNEL, "skip": True}]})

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

BUILDING = plan(with_images(snapshot(node(), node("b", OTHER_KERNEL), node("c", OTHER_KERNEL)), Absent()), SETTINGS)
FIRST, SECOND = (action for action in BUILDING.actions if isinstance(action, StartBuild))


def scrape(ask: Callable[[str, bool], Response]) -> Samples:
    """Ask a real server for /metrics and read the answer as Prometheus does."""
    families = text_string_to_metric_families(ask("/metrics", True).body)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    """Return the value of a series, 0 when none exists."""
    return samples.get((f"driver_builder_{name}", frozenset(labels.items())), 0.0)


@pytest.fixture
def collected() -> Iterator[Callable[[StateCollector], None]]:
    """Let collectors be scraped until the test ends."""
    made: list[StateCollector] = []

    def register(collector: StateCollector) -> None:
        REGISTRY.register(collector)
        made.append(collector)

    yield register
    for collector in made:
        REGISTRY.unregister(collector)


def test_builds_are_counted_by_result_and_reason(ask: Callable[[str, bool], Response]) -> None:
    """Each build that ended is one in its counter and in the histogram of its result."""
    before = scrape(ask)
    telemetry.count_build(seconds=42.0, reason="", cancelled=False)
    telemetry.count_build(seconds=7.0, reason="CompileError", cancelled=False)
    telemetry.count_build(seconds=1.0, reason="Cancelled", cancelled=True)
    telemetry.count_build(seconds=3.0, reason="NotApplicable", cancelled=False)
    after = scrape(ask)
    ended = (
        ("Succeeded", "", 42.0),
        ("Failed", "CompileError", 7.0),
        ("Cancelled", "", 1.0),
        ("NotApplicable", "", 3.0),
    )
    for result, reason, seconds in ended:
        series = {"result": result, "reason": reason}
        assert value(after, "builds_total", **series) - value(before, "builds_total", **series) == 1.0
        assert (
            value(after, "build_seconds_count", result=result) - value(before, "build_seconds_count", result=result)
            == 1
        )
        assert value(after, "build_seconds_sum", result=result) - value(before, "build_seconds_sum", result=result) == (
            pytest.approx(seconds)
        )


def test_the_queue_counts_its_builds(ask: Callable[[str, bool], Response]) -> None:
    """One that works and one that fails, from the queue's own threads."""
    before = scrape(ask)
    ended = threading.Semaphore(0)

    def work(action: StartBuild, *_: object) -> str:
        if action is SECOND:
            raise BuildFailed(Reason.HEADERS_MISSING, "no headers")
        return "sha256:0"

    queue = BuildQueue(work, wake=ended.release)
    for action in (FIRST, SECOND):
        queue.submit(action)
    for _ in range(2):
        assert ended.acquire(timeout=60.0)
    queue.stop()
    after = scrape(ask)
    for series in ({"result": "Succeeded", "reason": ""}, {"result": "Failed", "reason": "HeadersMissing"}):
        assert value(after, "builds_total", **series) - value(before, "builds_total", **series) == 1.0


def test_the_version_is_reported(ask: Callable[[str, bool], Response]) -> None:
    """So that a dashboard shows which controller speaks."""
    assert value(scrape(ask), "build_info", version=version("driverwright")) == 1.0


def test_registry_responses_are_counted(ask: Callable[[str, bool], Response]) -> None:
    """Each answer that a registry gave, by what it was."""
    registries, woken = ModelRegistries(), threading.Semaphore(0)
    states = (Absent(), Present(digest="sha256:0"), Unreachable(message="no answer"))
    images = [ImageRef("r.io", "edu", str(number)) for number in range(3)]
    registries.answers = dict(zip(images, states, strict=True))
    answers = ImageAnswers(registries, wake=woken.release)
    before = scrape(ask)
    for image in images:
        answers.inspect("n", RegistrySettings(), image, "amd64")
    assert all(woken.acquire(timeout=60) for _ in images)
    after = scrape(ask)
    assert value(after, "registry_questions", state="Waiting") == 0
    for state in ("Absent", "Present", "Unreachable"):
        assert value(after, "registry_checks_total", state=state) > value(before, "registry_checks_total", state=state)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        pytest.param(BuildStates(), (0, 0.0, 0, 0), id="idle"),
        pytest.param(
            BuildStates(
                running=frozenset(["r", "a", "b"]),
                queued={key: QueuedBuild(action=FIRST, since=since) for key, since in (("a", 900.0), ("b", 990.0))},
            ),
            (2, 100.0, 1, 0),
            id="two wait, one runs",
        ),
        pytest.param(
            BuildStates(suspended={"": Suspension(why="builds are suspended", probe_at=0.0)}),
            (0, 0.0, 0, 1),
            id="suspended",
        ),
    ],
)
def test_the_queue_is_shown_as_it_is(
    states: BuildStates,
    expected: tuple[float, ...],
    ask: Callable[[str, bool], Response],
    collected: Callable[[StateCollector], None],
) -> None:
    """Depth, oldest wait, running builds and the breaker, at the moment of the scrape."""
    collected(StateCollector(lambda: states, clock=lambda: 1000.0))
    samples = scrape(ask)
    names = ("queue_depth", "queue_oldest_wait_seconds", "builds_running", "builds_suspended")
    assert tuple(samples[f"driver_builder_{name}", frozenset()] for name in names) == expected


def test_nodes_without_driver_are_shown_and_gone_series_go(
    ask: Callable[[str, bool], Response], collected: Callable[[StateCollector], None]
) -> None:
    """By driver and kernel; a kernel or driver that is gone leaves no series."""
    collector = StateCollector(BuildStates)
    collected(collector)
    collector.saw(BUILDING)
    samples = scrape(ask)
    for kernel, count in ((KERNEL, 1), (OTHER_KERNEL, 2)):
        assert value(samples, "nodes_without_driver", driver="driverwright/edu", kernel=kernel) == count
    assert value(samples, "kernels_in_use") == 2
    collector.saw(Plan())
    samples = scrape(ask)
    assert not [name for name, _ in samples if name == "driver_builder_nodes_without_driver"]
    assert value(samples, "kernels_in_use") == 0


@pytest.mark.parametrize(
    ("decided", "without", "kernels"),
    [
        pytest.param(
            plan(ready_snapshot(node(), node("b")), SETTINGS), {(EDU, KERNEL): 0}, {KERNEL}, id="all ready"
        ),
        pytest.param(
            plan(snapshot(node("new", None)), SETTINGS), {(EDU, "unknown"): 1}, set(), id="not labelled yet"
        ),
        pytest.param(
            plan(snapshot(drivers=(SKIPPING,)), SETTINGS),
            {}, {KERNEL}, id="skipped by a mapping",
        ),
        pytest.param(
            replace(BUILDING, drivers=(*BUILDING.drivers, replace(BUILDING.drivers[0], driver=driver("other")))),
            {
                (EDU, KERNEL): 1, (EDU, OTHER_KERNEL): 2,
                ("driverwright/other", KERNEL): 1, ("driverwright/other", OTHER_KERNEL): 2,
            },
            {KERNEL, OTHER_KERNEL}, id="two drivers",
        ),
    ],
)  # fmt: skip
def test_a_plan_is_summed_up(decided: Plan, without: dict[tuple[str, ...], int], kernels: set[str]) -> None:
    """Nodes that want a driver and have none proven, and 0 where all have, so that an alert ends."""
    found = fleet_state(decided)
    assert (found.without_driver, found.kernels) == (without, frozenset(kernels))


def test_a_target_fails_also_while_its_build_is_tried_again() -> None:
    """Its state changes with each try: an alert on the state would begin anew each time."""
    (part,) = BUILDING.drivers
    first, second = part.targets
    again = replace(part, targets=(replace(first, failures=2), second))
    found = fleet_state(replace(BUILDING, drivers=(again,)))
    assert found.targets == {(EDU, "Building"): 2}
    assert found.failing == {(EDU,): 1}
    assert fleet_state(BUILDING).failing == {(EDU,): 0}


def test_a_target_whose_image_is_missing_fails() -> None:
    """Of a driver with prebuilt images there are no builds."""
    (part,) = BUILDING.drivers
    first, second = part.targets
    missing = replace(part, targets=(replace(first, state=TargetState.FAILED), second))
    assert fleet_state(replace(BUILDING, drivers=(missing,))).failing == {(EDU,): 1}


def test_a_wave_is_shown_with_its_phase() -> None:
    """And its nodes by state; a driver without a wave has neither."""
    (part,) = BUILDING.drivers
    wave = Wave(phase=Phase.HALTED, started=0.0, nodes=5, updated=2, unavailable=2, failed=1)
    found = fleet_state(replace(BUILDING, drivers=(replace(part, wave=wave),)))
    assert found.phases == {(EDU, "Halted"): 1}
    assert found.waves == {
        (EDU, "Updated"): 2, (EDU, "Waiting"): 1, (EDU, "Unavailable"): 2, (EDU, "Failed"): 1,
    }  # fmt: skip
    assert fleet_state(BUILDING).phases == {}


def test_the_documentation_names_every_metric() -> None:
    """No more and no less, each with its kind."""
    cache = ClusterCache(MemoryClient(), namespaces=("a",))
    ours: list[Metric] = [*StateCollector(BuildStates).collect(), *CacheCollector(cache).collect()]
    ours += [family for family in REGISTRY.collect() if family.name.startswith("driver_builder_")]
    suffix = {"counter": "_total", "info": "_info"}
    made = {family.name + suffix.get(family.type, "") for family in ours}
    told = set(re.findall(r"^\| `(driver_builder_\w+)`", OPERATIONS.read_text(), re.MULTILINE))
    assert told == made


def test_memory_is_estimated_with_what_is_shared_once() -> None:
    """Ten thousand values that share a text cost little more than the values."""
    text = "x" * 10_000
    values = [(text, number) for number in range(1000, 11_000)]
    assert 10_000 * 60 < estimated_size(values) < 10_000 * 400
    assert estimated_size(()) == 0
