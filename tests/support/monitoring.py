"""The metrics of the three programs in trouble of every kind, by their own code, and what asks for them.

The dashboard's queries and the alerts are looked up in what this makes: a metric that no program has is not here.
"""

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import REGISTRY, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import device_agent.telemetry
import nfd_worker.telemetry
from device_agent.metrics import Counts, ResourceCounts, render
from device_agent.profiles.verdict import Verdict
from driver_builder.api.prebuild_status import AheadStatus
from driver_builder.api.rollout_status import Phase, Wave
from driver_builder.base import telemetry
from driver_builder.base.boundary import contained
from driver_builder.base.reasons import TargetState
from driver_builder.base.telemetry import ToolchainUse
from driver_builder.builds.build_queue import BuildStates, QueuedBuild
from driver_builder.cluster.cluster_cache import ClusterCache
from driver_builder.controller import jobs
from driver_builder.controller.metrics import CacheCollector, StateCollector
from driver_builder.model.image_state import Absent
from driver_builder.nodes.changes import StartBuild
from driver_builder.plan.plan import Plan, plan
from driver_builder.snapshot.snapshot import Suspension
from feature_rules.model import RuleProblem
from kube_api.pages import Page, Pages
from nfd_worker.config.config import Settings
from nfd_worker.cycle import run_cycle
from nfd_worker.labels.node_content import Refusal
from nfd_worker.metrics import Metrics
from nfd_worker.publish.wire import PublishAnswer
from nfd_worker.watch.wakeups import wait
from testbed.ports import free_ports
from tests.support.driver_builder.factories import (
    NAMESPACE,
    NOW,
    OTHER_KERNEL,
    SETTINGS,
    node,
    snapshot,
    with_images,
)
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.nfd_worker.trees import recorded
from tests.support.yaml_files import read_yaml

CHART = Path(__file__).parents[2] / "deploy" / "chart" / "driverwright"
ALERTS = CHART / "alerts" / "driverwright.yaml"
DASHBOARD = CHART / "dashboards" / "driverwright.json"
DEVICE_ALERTS, DEVICE_DASHBOARD = CHART / "alerts" / "devices.yaml", CHART / "dashboards" / "devices.json"
"""On the devices of pods, by the exporters of device agents."""

Json = dict[str, Any]


def dashboard(file: Path = DASHBOARD) -> Json:
    """Read a dashboard."""
    read: Json = json.loads(file.read_text())
    return read


def panels(file: Path = DASHBOARD) -> list[Json]:
    """Return the panels of a dashboard, without the rows that head them."""
    return [panel for panel in dashboard(file)["panels"] if panel["type"] != "row"]


@cache
def queries() -> dict[str, str]:
    """Return the queries of all panels and variables, as Grafana would send them for all drivers."""
    found = {f"{panel['title']} {item['refId']}": item["expr"] for panel in panels() for item in panel["targets"]}
    return {
        name: expr.replace("$driver", ".*").replace("$__rate_interval", "4m").replace("[1h]", "[4m]")
        for name, expr in found.items()
    }


def rules(file: Path) -> list[Json]:
    """Return all rules of a file."""
    return [rule for group in read_yaml(file.read_text())["groups"] for rule in group["rules"]]


def alerts() -> list[Json]:
    """Return all alerts on the programs."""
    return rules(ALERTS)


def metric_names(expr: str) -> set[str]:
    """Return the metrics that an expression of PromQL asks for."""
    return set(re.findall(r"\b(?:driver_builder|nfd_worker|device_agent)_\w+", expr))


class Trouble:
    """A fleet where nothing is as it should be. ``happen`` lets each counter go up."""

    def __init__(self) -> None:
        self._worker = Metrics("node-1")
        report = run_cycle(recorded("arm64-cloud"), Settings(), {})
        self._report = report._replace(
            failed={"pci": "no"},
            problems=(RuleProblem("r", "", "bad"),),
            refusals=(Refusal("rule a/b", "label", "k", "v", "invalid-key", "because"),),
        )
        building, parts = _plan()
        states = BuildStates(
            running=frozenset({"a", "b"}),
            queued={"a": QueuedBuild(action=building, since=time.time() - 4000)},
            suspended={"": Suspension(why="builds are suspended", probe_at=0.0)},
        )
        cluster = ClusterCache(MemoryClient(), namespaces=(NAMESPACE,))
        cluster.repair()
        fleet = StateCollector(lambda: states)
        fleet.saw(parts)
        self.collectors = (fleet, CacheCollector(cluster))
        self._happened = 0

    def happen(self) -> None:
        """Let one more of everything happen."""
        self._happened += 1
        telemetry.count_build(seconds=30.0, reason="", cancelled=False)
        telemetry.count_build(seconds=7.0, reason="CompileError", cancelled=False)
        for use in ToolchainUse:
            telemetry.count_toolchain(use)
        for state in ("Present", "Unreachable"):
            telemetry.REGISTRY_CHECKS.labels(state).inc()
        for result in ("Succeeded", "Failed"):
            telemetry.RECONCILE_SECONDS.labels(result).observe(0.2)
        telemetry.THREAD_RESTARTS.labels("lease").inc()
        jobs.pause_all()
        with suppress(ValueError), jobs.measured("image-record"):
            _raise()
        contained("driver", "a/b", _raise, lambda _error: None)
        self._worker.saw_cycle(self._report, ["interval"])
        self._worker.saw_answer(PublishAnswer(), 100, time.time())
        self._worker.saw_answer(PublishAnswer("no", "Forbidden"), 20, time.time())
        for answer in (PublishAnswer(), PublishAnswer(lost=("x",)), PublishAnswer("no", "Unreachable")):
            self._worker.saw_check(answer, time.time())

    def texts(self) -> dict[str, str]:
        """Return what each program would answer."""
        often = self._happened
        one = ResourceCounts(
            "example.com/card", False, {"healthy": 1, "unhealthy": 1}, {"success": often}, {"success": often},
            {"failure": often}, often,
        )  # fmt: skip
        refused = Verdict(has_failed=True, waiting=1)
        return {
            "driver-builder": generate_latest(REGISTRY).decode(),
            "nfd-worker": self._worker.render(is_published=False),
            "device-agent": render(
                Counts((one,), config_is_current=False, reloads={"failure": often}, profile=refused, mig_waits=True)
            ),
        }


def _raise() -> None:
    raise ValueError("as if there were a bug")


def _plan() -> tuple[StartBuild, Plan]:
    """Plan for two kernels: of one the build failed and runs again, the other is blocked; a wave has halted."""
    decided = plan(with_images(snapshot(node(), node("b", OTHER_KERNEL)), Absent()), SETTINGS)
    (part,), first = decided.drivers, next(item for item in decided.actions if isinstance(item, StartBuild))
    failed, blocked = part.targets
    part = replace(
        part,
        targets=(replace(failed, failures=1), replace(blocked, state=TargetState.BLOCKED)),
        wave=Wave(phase=Phase.HALTED, started=NOW, nodes=3, updated=1, unavailable=1, failed=1),
        ahead=(AheadStatus(stream="6.1", base_image="debian", target=replace(failed, state=TargetState.FAILED)),),
    )
    return first, replace(decided, drivers=(part,))


@contextmanager
def trouble() -> Iterator[Trouble]:
    """Make the metrics of a fleet in trouble part of this process's while the block runs."""
    made = Trouble()
    with ExitStack() as stack:
        for collector in made.collectors:
            REGISTRY.register(collector)
            stack.callback(REGISTRY.unregister, collector)
        made.happen()
        yield made


@contextmanager
def served(what: Trouble) -> Iterator[dict[str, int]]:
    """Let each program's own server answer on a port of its own, which is returned."""
    ports = dict(zip(("nfd-worker", "device-agent"), free_ports(2), strict=True))
    stop = threading.Event()

    def pages(program: str) -> Pages:
        return {"/healthz": lambda: Page("ok\n"), "/metrics": lambda: Page(what.texts()[program])}

    def work_as_worker() -> None:
        endpoint = nfd_worker.telemetry.Endpoint(ports["nfd-worker"], pages("nfd-worker"))
        while not stop.is_set():
            wait(endpoint.readers(), 0.1)
        endpoint.close()

    async def work_as_agent() -> None:
        server = await device_agent.telemetry.serve(ports["device-agent"], pages("device-agent"))
        while not stop.is_set():
            await asyncio.sleep(0.1)
        server.close()

    runs: list[Callable[[], None]] = [work_as_worker, lambda: asyncio.run(work_as_agent())]
    threads = [threading.Thread(target=run) for run in runs]
    controller = telemetry.serve(0, healthy=lambda: True)
    for thread in threads:
        thread.start()
    try:
        yield {"driver-builder": controller.server_port, **ports}
    finally:
        stop.set()
        controller.shutdown()
        controller.server_close()
        for thread in threads:
            thread.join()


class Exposed(NamedTuple):
    """A metric: the names of its series' labels, and its kind."""

    labels: frozenset[str]
    kind: str


def exposed(texts: Mapping[str, str]) -> dict[str, Exposed]:
    """Return every metric, by the name that a query has for it."""
    found: dict[str, Exposed] = {}
    for text in texts.values():
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                known = found.get(sample.name, Exposed(frozenset(), family.type))
                found[sample.name] = Exposed(known.labels | sample.labels.keys(), family.type)
    return found
