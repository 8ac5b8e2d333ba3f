"""One cell on a real API server and etcd: a fleet that is loaded, a controller beside it, and what each thing costs.

The API server, etcd, the registry, the container engine and the controller are the real ones. The bench stands for
kubelets, nfd-worker and the DaemonSet controller: it writes Nodes and pods. Images are in the registry beforehand, but
for one that the engine builds, of a module that is compiled already.
"""

import base64
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.scale_parts import etcd, pushed
from bench.scale_parts.cells import Cell
from bench.scale_parts.controller_process import STARTED, Process, account, first_build, running
from bench.scale_parts.fleet import RESOURCES, Fleet, Making, driver_name, kernel, node_name
from bench.scale_parts.process import cpu_seconds, peak_mib, reset_peak, resident_mib
from bench.scale_parts.proxy import CountingProxy, a_minute
from driver_builder.builds.templates.templates import template_versions
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.targets.desired_target import TemplateVersions
from kube_api import names
from kube_api.client import STRATEGIC_MERGE_PATCH, Client
from kube_api.resources import DRIVER_CONTAINERS, NODES, PODS
from testbed.progress import Progress
from testbed.state import GroundState
from testbed.testbed import Testbed
from tests.support.driver_builder.factories import NAMESPACE
from tests.support.real_parts.cluster_setup import admin, install
from tests.support.real_parts.controller_life import BUILD, KERNEL, MODULES, TEMPLATE

Json = dict[str, Any]

NEW_KERNEL = KERNEL
"""The kernel that nodes change to: the compiled module is of it."""
MOVED = 1000
POD_CHANGES, LABEL_CHANGES, FULL_PLANS = 15, 5, 3
_IDLE_SECONDS = 2.0
LONGEST_SECONDS = 60.0
"""After so long a measure has no further sample."""
_BASE_IMAGE = "debian:bookworm-slim"


@dataclass(frozen=True, slots=True)
class Ground:
    """The real parts, and what the bench has of them."""

    testbed: Testbed
    client: Client
    folder: Path
    templates: Path
    progress: Progress

    @classmethod
    def on(cls, testbed: Testbed, folder: Path, progress: Progress) -> "Ground":
        """Install what the controller needs. Nobody but the bench is to write pods: other controllers end."""
        client = admin(testbed)
        install(client)
        testbed.control_plane.stop("kube-controller-manager")
        templates = folder / "templates"
        templates.mkdir()
        (templates / "quick.Dockerfile.j2").write_text(TEMPLATE)
        return cls(testbed, client, folder, templates, progress)

    @property
    def etcd(self) -> str:
        """Where clients reach etcd."""
        return f"http://127.0.0.1:{GroundState.load(self.testbed.folder).ports['etcd']}"


def making(ground: Ground, cell: Cell) -> Making:
    """Say how drivers are made: the first can be built for :data:`NEW_KERNEL`, the others skip it.

    Each cell has a source of its own, of which nothing is built yet.
    """
    files = {"build.sh": BUILD.format(life=cell), "Module.symvers": (MODULES / f"{KERNEL}.symvers").read_text()}
    module = base64.encodebytes((MODULES / "dw_helper.ko").read_bytes()).decode()

    def spec(number: int) -> Json:
        first = number == 0
        return {
            "image": f"{ground.testbed.registry.host}/drivers/{driver_name(number)}",
            "registry": {"plainHttp": True},
            "build": {"template": "quick", "baseImage": _BASE_IMAGE},
            "kernelMappings": [*([] if first else [{"literal": NEW_KERNEL, "skip": True}]), {"regexp": ".*"}],
            "module": {"names": ["dw_helper" if first else f"dw_module_{number}"]},
        }

    settings = PlanSettings(template_versions=TemplateVersions(versions=template_versions(ground.templates)))
    return Making(settings, {**files, "module": module}, spec)


def measure(ground: Ground, cell: Cell, *, rest_seconds: float) -> Json:
    """Measure a cell; memory in MiB, CPU in milliseconds, latencies in seconds."""
    folder = ground.folder / str(cell)
    folder.mkdir()
    with ground.progress.step(f"{cell}: make the fleet"):
        registries = pushed.Registries()
        fleet = Fleet(cell, making(ground, cell), registries)
    with ground.progress.step(f"{cell}: push {len(registries.images)} images") as step:
        pushed.push(registries.images, step.percent)
    try:
        load(ground, fleet)
        with beside(ground, folder) as (process, proxy):
            return Measuring(ground, cell, process, proxy).all(rest_seconds)
    finally:
        etcd.empty(ground.etcd)


def load(ground: Ground, fleet: Fleet) -> None:
    """Write a fleet into etcd."""
    counts = {NODES: fleet.cell.nodes, PODS: fleet.cell.pods}
    for resource in RESOURCES:
        with ground.progress.step(f"{fleet.cell}: write {resource.plural}") as step:
            count = counts.get(resource, 0)
            for done in etcd.load(ground.etcd, resource, fleet.objects(resource)):
                step.percent(100 * done / count if count else 0)


@contextmanager
def beside(ground: Ground, folder: Path) -> Iterator[tuple[Process, CountingProxy]]:
    """Run a controller, and a proxy between it and the API server."""
    pki = ground.testbed.folder / "pki"
    proxy = CountingProxy(ground.testbed.api_port, ground.testbed.ca_file, pki / "apiserver.crt", pki / "apiserver.key")
    files = account(ground.client, folder / "account", ground.testbed.ca_file)
    environment = {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(proxy.port),
        "POD_NAME": "driver-builder-0",
        "POD_NAMESPACE": NAMESPACE,
        "DOCKER_HOST": ground.testbed.engine.socket,
        "DRIVER_BUILDER_LOADER_IMAGE": "driverwright/loader:latest",
        "DRIVER_BUILDER_REGISTRY_ALLOWED_HOSTS": ground.testbed.registry.host,
    }
    try:
        flags = ("--namespace", NAMESPACE, "--templates", str(ground.templates))
        with running(folder, files, environment, *flags) as process:
            yield process, proxy
    finally:
        proxy.close()


def without_outliers(costs: Sequence[float]) -> float:
    """Give the mean of all but the highest tenth: now and then a reconcile comes that is due anyway.

    A median would be a number of whole ticks.
    """
    return statistics.mean(sorted(costs)[: len(costs) - len(costs) // 10])


class Measuring:
    """The measures of one cell, in their order: each begins and ends with a controller at rest."""

    def __init__(self, ground: Ground, cell: Cell, process: Process, proxy: CountingProxy) -> None:
        self._ground = ground
        self._client = ground.client
        self._cell = cell
        self._process = process
        self._proxy = proxy
        self._idle = 0.0
        """CPU seconds a second, at rest."""

    def all(self, rest_seconds: float) -> Json:
        """Measure everything."""
        parts: Sequence[tuple[str, Callable[[], Json]]] = (
            ("start", self.start),
            (f"rest for {rest_seconds:.0f} s", lambda: self.rest(rest_seconds)),
            ("change one pod", self.one_pod),
            ("decide everything anew", self.full),
            ("change a node's kernel", self.label),
            ("list everything anew", self.relist),
            (f"change the kernel of {min(MOVED, self._cell.nodes)} nodes", self.move),
        )
        found: Json = {}
        for name, part in parts:
            with self._ground.progress.step(f"{self._cell}: {name}"):
                found |= part()
        return found

    def start(self) -> Json:
        """From the start of the process to its rest."""
        began = time.monotonic()
        self._process.until("a first reconcile", lambda: self._passes() > 0, every=0.5)
        first = time.monotonic() - began
        self._process.settle(quiet=20)
        return {
            "start seconds": first,
            "start": cpu_seconds(self._process.pid) * 1000,
            "steady": resident_mib(self._process.pid),
            "peak at start": peak_mib(self._process.pid),
            "writes at start": len([item for item in self._proxy.requests if item.is_write]),
        }

    def rest(self, seconds: float) -> Json:
        """Do nothing for a while."""
        at, used = time.monotonic(), cpu_seconds(self._process.pid)
        passes, samples = self._passes(), [used]
        while time.monotonic() < at + seconds:
            time.sleep(_IDLE_SECONDS)
            samples.append(cpu_seconds(self._process.pid))
        requests, elapsed = self._proxy.since(at), time.monotonic() - at
        # As for changes: without the reconcile of each minute, and the images that it asks for.
        self._idle = without_outliers([later - now for now, later in pairwise(samples)]) / _IDLE_SECONDS
        counts = a_minute(requests, elapsed)
        return {
            "requests": len(requests) * 60 / elapsed,
            "lists": float(sum(count for name, count in counts.items() if name.startswith("LIST"))),
            "by verb": dict(sorted(counts.items())),
            "rest": (samples[-1] - used) / elapsed * 60_000,
            "rest between": self._idle * 60_000,
            "reconciles": (self._passes() - passes) * 60 / elapsed,
            "steady": resident_mib(self._process.pid),
        }

    def one_pod(self) -> Json:
        """Let one pod after the other fail its probe, then answer it again."""
        pods = self._client.list(PODS.path(namespace=NAMESPACE), label_selector=_FIRST_DRIVER).items
        changed = [pods[number * len(pods) // POD_CHANGES]["metadata"]["name"] for number in range(POD_CHANGES)]
        changes = [partial(self._report, name, status) for name in changed for status in ("False", "True")]
        before = self._passes()
        costs = self._costs(changes)
        return {"one pod": without_outliers(costs), "one pod reconciles": (self._passes() - before) / len(costs)}

    def full(self) -> Json:
        """Change every driver's spec in something that concerns no node."""
        changes = [partial(self._change_specs, number) for number in range(FULL_PLANS)]
        return {"full": statistics.median(self._costs(changes))}

    def label(self) -> Json:
        """Boot one node after the other into another kernel of the fleet, and back."""
        seconds: list[float] = []
        end = time.monotonic() + LONGEST_SECONDS
        for number in range(LABEL_CHANGES):
            if seconds and time.monotonic() > end:
                break
            node, other = number * 3 % self._cell.nodes, (number * 3 + 1) % self._cell.kernels
            for wanted, boot in ((kernel(other), 2), (kernel(node % self._cell.kernels), 1)):
                at = time.monotonic()
                self._boot(node, wanted, boot)
                if boot == 2:
                    self._process.until("a write", partial(self._has_written, at))
                    seconds.append(min(item.at for item in self._proxy.since(at) if item.is_write) - at)
                self._process.settle()
        return {"label": statistics.median(seconds), "label at worst": max(seconds)}

    def relist(self) -> Json:
        """Let no watch go on."""
        reset_peak(self._process.pid)
        at, used = time.monotonic(), cpu_seconds(self._process.pid)
        self._proxy.forget()
        self._process.until("a 410 of each collection", lambda: self._proxy.are_all_told)
        self._process.settle(quiet=20)
        listed = [item for item in self._proxy.since(at) if item.verb == "LIST"]
        assert {item.resource for item in listed} >= {"nodes", "pods"}
        elapsed = time.monotonic() - at
        return {
            "relist": (cpu_seconds(self._process.pid) - used - self._idle * elapsed) * 1000,
            "peak at relist": peak_mib(self._process.pid),
            "after relist": resident_mib(self._process.pid),
        }

    def move(self) -> Json:
        """Boot many nodes into a kernel that nobody has built for."""
        count, at, now = min(MOVED, self._cell.nodes), time.monotonic(), time.time()
        for number in range(count):
            self._boot(number, NEW_KERNEL, 3)
        took = time.monotonic() - at
        path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=driver_name(0))

        def placed() -> bool:
            targets = (self._client.get(path).get("status") or {}).get("targets") or ()
            (target,) = [item for item in targets if item["kernel"] == NEW_KERNEL] or [{}]
            return bool(target.get("imageDigest")) and target["nodes"] == count

        self._process.until("a build", lambda: STARTED.search(self._process.log) is not None)
        done = self._process.until("an image, and all nodes of it", placed, every=0.2)
        self._process.settle(quiet=20)
        return {
            "moved in": took,
            "build": first_build(self._process.log) - now,
            "placed": done - at,
            "builds": float(len(STARTED.findall(self._process.log))),
            "peak": peak_mib(self._process.pid),
        }

    def _passes(self) -> float:
        return self._process.metric("driver_builder_reconcile_seconds_count")

    def _costs(self, changes: Sequence[Callable[[], object]]) -> list[float]:
        """Give the CPU milliseconds of each change; of the first ones, where they take long."""
        end, costs = time.monotonic() + LONGEST_SECONDS, [self._cost(changes[0])]
        for change in changes[1:]:
            if time.monotonic() < end:
                costs.append(self._cost(change))
        return costs

    def _cost(self, change: Callable[[], object]) -> float:
        """Give the CPU milliseconds that a change costs, beyond those of rest."""
        at, used = time.monotonic(), cpu_seconds(self._process.pid)
        change()
        time.sleep(0.5)
        self._process.settle()
        return (cpu_seconds(self._process.pid) - used - self._idle * (time.monotonic() - at)) * 1000

    def _report(self, pod: str, status: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "Ready", "status": status, "lastTransitionTime": now}
        path = PODS.path(namespace=NAMESPACE, name=pod, subresource="status")
        self._client.patch(path, {"status": {"conditions": [condition]}}, content_type=STRATEGIC_MERGE_PATCH)

    def _change_specs(self, number: int) -> None:
        for driver in range(self._cell.drivers):
            path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=driver_name(driver))
            mappings = self._client.get(path)["spec"]["kernelMappings"]
            skipped = {"literal": f"0.0.{number}", "skip": True}
            self._client.patch(path, {"spec": {"kernelMappings": [skipped, *mappings]}})

    def _boot(self, node: int, wanted: str, boot: int) -> None:
        annotations = {names.BOOT_ID_ANNOTATION: f"{boot}-boot-{node_name(node)}"}
        body = {"metadata": {"labels": {names.KERNEL_VERSION_LABEL: wanted}, "annotations": annotations}}
        self._client.patch(NODES.path(name=node_name(node)), body)

    def _has_written(self, at: float) -> bool:
        return any(item.is_write for item in self._proxy.since(at))


_FIRST_DRIVER = f"driverwright.io/driver-container={driver_name(0)}"
