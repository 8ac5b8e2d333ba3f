"""``python -m bench.scale_parts.in_process FOLDER [--profile]``: the controller's own code on a fleet from files.

ClusterCache, Observer, ImageReader, ``plan`` and Reporter, put together as ``run`` does, without an API server: what it
would send is decoded from files, registries answer from memory. Prints one JSON object; with ``--profile`` the most
expensive functions of a reconcile instead.
"""

import cProfile
import gc
import json
import logging
import pstats
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.scale_parts.fleet import path_of
from bench.scale_parts.process import peak_mib, reset_peak, resident_mib
from bench.scale_parts.recorded import IMAGES, RecordedConnection
from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.cluster.cluster_cache import ClusterCache
from driver_builder.cluster.kept_writes import KeptWrites
from driver_builder.cluster.observe import Observer
from driver_builder.controller.execute import Executor
from driver_builder.controller.read_images import ImageReader
from driver_builder.controller.reconcile import Reconciler
from driver_builder.controller.report import Reporter
from driver_builder.model.image_state import Absent, ImageState, Present
from driver_builder.model.images import ImageRef
from driver_builder.plan.plan import Plan, plan
from driver_builder.targets.resolve_all import resolve_all
from kube_api.client import Client
from kube_api.resources import PODS
from tests.support.driver_builder.factories import NAMESPACE, SETTINGS
from tests.support.driver_builder.model_parts import ModelBuilds, digest_of

Json = dict[str, Any]

CHANGES = 7
FULL = 5
ANEW = 3
LONGEST_MILLISECONDS = 10_000
TOP = 25


class Images:
    """Registries that answer at once with what was built for the fleet."""

    def __init__(self, labels: dict[str, dict[str, str]]) -> None:
        self._labels = labels

    def inspect(
        self,
        namespace: str,
        settings: RegistrySettings,
        image: ImageRef,
        architecture: str = "",
        *,
        signed_by: str | None = None,
    ) -> ImageState:
        """Give what is known of an image."""
        del namespace, settings, architecture, signed_by
        labels = self._labels.get(str(image))
        return Absent() if labels is None else Present(digest=digest_of(image), labels=labels)


class Controller:
    """The parts of a controller, on a fleet; ``plans`` are those of its reconciles."""

    def __init__(self, folder: Path) -> None:
        self.connection = RecordedConnection(folder)
        self.plans: list[Plan] = []
        client = Client(self.connection)
        self.cache = ClusterCache(client, namespaces=(NAMESPACE,), clock=lambda: 0.0)
        self.builds = ModelBuilds()
        writes = KeptWrites(client, self.cache)
        built = Images(json.loads((folder / IMAGES).read_text()))
        # Time stands still for what is asked again after a while; and no registry says anything new.
        self.images = ImageReader(built, SETTINGS.template_versions, news=lambda: 0, clock=lambda: 0.0)
        self.observer = Observer(client, cache=self.cache, builds=self.builds, clock=time.time)
        self.reconciler = Reconciler(
            observer=self.observer,
            images=self.images,
            executor=Executor(writes, self.builds),
            reporter=Reporter(writes),
            builds=self.builds,
            settings=SETTINGS,
            planned=self.plans.append,
        )

    def follow(self) -> None:
        """List what is not known and read the news of all watches."""
        for follower in self.cache.followers:
            follower.repair()
            follower.watch(lambda: None, lambda: False)

    def relist(self) -> None:
        """List everything anew, as after watches that no API server goes on with."""
        for follower in self.cache.followers:
            follower.collection.doubt()
        self.follow()

    def reconcile(self) -> None:
        """Do one reconcile."""
        self.plans.clear()
        self.reconciler.reconcile()

    def settle(self) -> None:
        """Do what the loop does once, after its first reconcile: leave what is known out of searches for cycles."""
        gc.collect()
        gc.freeze()

    def change_a_pod(self, number: int) -> None:
        """Let a driver pod fail its probe, or answer it again: news that asks for no action at once."""
        path = path_of(PODS)
        pod = self.connection.first(path)
        ready = next(item for item in pod["status"]["conditions"] if item["type"] == "Ready")
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + number))
        ready |= {"status": "True" if number % 2 else "False", "lastTransitionTime": now}
        self.connection.changes(path, pod)


def measure(folder: Path) -> Json:
    """Measure a fleet: memory in MiB, CPU in milliseconds."""
    empty = resident_mib()
    controller = Controller(folder)
    found: Json = {"empty": empty, "list": _milliseconds(controller.follow), "listed": resident_mib()}
    found["start"] = _milliseconds(controller.reconcile)
    found["actions at start"] = len(controller.plans[0].actions)
    controller.settle()
    controller.follow()
    found["full"] = _usual(lambda _number: _milliseconds(controller.reconcile), FULL)
    samples = [_parts(controller) for _ in range(ANEW)]
    found |= {f"full: {part}": statistics.median(sample[part] for sample in samples) for part in samples[0]}
    found["actions at rest"] = len(controller.plans[0].actions)
    found["one pod"] = _usual(partial(_after_a_change, controller), CHANGES)
    found["actions after a pod"] = len(controller.plans[0].actions)
    found["steady"], found["peak at start"] = resident_mib(), peak_mib()
    reset_peak()
    found["relist"] = _milliseconds(controller.relist)
    controller.reconcile()
    found["peak at relist"], found["after relist"] = peak_mib(), resident_mib()
    found["requests"] = dict(controller.connection.requests)
    return found


def _usual(sample: Callable[[int], float], most: int) -> float:
    """Give the median of some samples, fewer where they take long."""
    found: list[float] = []
    while len(found) < most and sum(found) < LONGEST_MILLISECONDS:
        found.append(sample(len(found)))
    return statistics.median(found)


def _after_a_change(controller: Controller, number: int) -> float:
    """Let a pod change, then reconcile; gives the milliseconds of both."""
    controller.change_a_pod(number)

    def step() -> None:
        controller.follow()
        controller.reconcile()

    return _milliseconds(step)


def _parts(controller: Controller) -> dict[str, float]:
    """Give the milliseconds of each part of a reconcile that recalls no plan of before."""
    began = time.process_time()
    seen = controller.observer.observe()
    observed = time.process_time()
    resolved = resolve_all(seen, SETTINGS.template_versions)
    found = time.process_time()
    snapshot = controller.images.read(seen, resolved)
    read = time.process_time()
    plan(snapshot, SETTINGS, resolved)
    planned = time.process_time()
    times = (began, observed, found, read, planned)
    names = ("observe", "resolve", "images", "plan")
    return {name: (times[index + 1] - times[index]) * 1000 for index, name in enumerate(names)}


def _milliseconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1000


def profile(folder: Path) -> None:
    """Print the most expensive functions of reconciles with one changed pod, and of those with none."""
    controller = Controller(folder)
    for _ in range(3):
        controller.follow()
        controller.reconcile()
    controller.settle()
    works: dict[str, Callable[[int], object]] = {
        "a reconcile with one changed pod": lambda number: _after_a_change(controller, number),
        "a reconcile in which nothing changed": lambda _number: controller.reconcile(),
        "a listing of everything": lambda _number: controller.relist(),
    }
    for name, work in works.items():
        profiler = cProfile.Profile()
        for number in range(2):
            profiler.runcall(work, number)
        print(f"== {name}, twice, by the function's own time")
        statistics_of = pstats.Stats(profiler, stream=sys.stdout)
        statistics_of.strip_dirs().sort_stats("tottime").print_stats(TOP)
        print(f"== {name}, twice, with what it calls")
        statistics_of.sort_stats("cumulative").print_stats(TOP)


def main() -> None:
    """Measure, or profile, what is in a folder."""
    logging.disable(logging.INFO)
    folder = Path(sys.argv[1])
    if "--profile" in sys.argv[2:]:
        profile(folder)
    else:
        print(json.dumps(measure(folder)))


if __name__ == "__main__":
    main()
