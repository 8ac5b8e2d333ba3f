"""Kernel discovery in a real base image, and a real driver prebuilt before the first node boots the newest kernel."""

from __future__ import annotations

import io
import shutil
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from driver_builder.api.prebuild_status import CONDITION
from driver_builder.builds.build_limits import BuildLimits
from driver_builder.builds.build_queue import BuildQueue
from driver_builder.builds.docker.docker_builder import DockerBuilder
from driver_builder.builds.docker.docker_engine import docker_engine
from driver_builder.builds.pipeline.pipeline import build_and_push
from driver_builder.builds.templates.templates import template_versions, templates_directory
from driver_builder.cli import main
from driver_builder.cluster.observe import Observer
from driver_builder.controller.execute import Executor
from driver_builder.controller.read_images import ImageReader
from driver_builder.controller.reconcile import Reconciler
from driver_builder.controller.report import Reporter
from driver_builder.model.build import LogSink
from driver_builder.model.repositories import Repository
from driver_builder.nodes.changes import DiscoverKernels, StartBuild
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.prebuild.discovery_queue import DiscoveryQueue
from driver_builder.prebuild.docker_kernel_discovery import DockerKernelDiscovery
from driver_builder.prebuild.newest_kernel import newest, stream_of
from driver_builder.prebuild.upgrade_labels import ready_for_label
from driver_builder.registry.registry_access import Registries
from driver_builder.targets.desired_target import TemplateVersions
from kube_api.client import Client
from kube_api.errors import NotFound
from kube_api.resources import CONFIG_MAPS, DRIVER_CONTAINERS, NODES
from testbed.kernels import CLOUD, available_releases
from testbed.packages import refreshed_apt
from testbed.testbed import Testbed
from tests.support.driver_builder import factories
from tests.support.loopback import ALLOWED, LOOPBACK
from tests.support.real_parts.cluster_setup import admin, as_service_account, create_quietly, install

Json = dict[str, Any]

NAMESPACE = "driverwright"
EDU_SOURCE = Path(__file__).parents[2] / "examples" / "edu-driver" / "src"
OLD_KERNEL = "6.1.0-1-cloud-amd64"
"""Older than any that the archives still have, and of the series of Debian 12."""
NODE = "ahead-a"
WAIT_SECONDS = 900.0
BAD_SOURCE = '#include <linux/module.h>\nint dw_bad(void) { return nobody_declared(1); }\nMODULE_LICENSE("GPL");\n'


@pytest.fixture
def api(engine_ground: Testbed) -> Iterator[docker.APIClient]:
    """The engine, closed again."""
    with docker_engine(engine_ground.engine.socket) as client:
        yield client


@pytest.fixture(scope="module")
def offered() -> set[str]:
    """The cloud kernels that this machine's own apt has headers and images of."""
    return set(available_releases(refreshed_apt(), CLOUD))


def debian(base_image: str) -> Repository:
    """Name the repository that a Debian base image knows."""
    return Repository("debian", base_image, "amd64")


def images(api: docker.APIClient) -> set[str]:
    """Return the ids of all images, also those without a name."""
    return {image["Id"] for image in api.images(all=True)}


@pytest.mark.long
def test_a_real_base_image_lists_what_apt_offers(
    engine_ground: Testbed, api: docker.APIClient, offered: set[str]
) -> None:
    """What this machine's archives have, and what came since it looked; and no image is left in the engine."""
    before = images(api)
    found = DockerKernelDiscovery(api).discover(debian(engine_ground.base_image), cancelled=threading.Event())
    assert images(api) == before
    stream = stream_of("debian", OLD_KERNEL) or ""
    assert newest("debian", stream, offered) in found
    assert newest("debian", stream, found) == newest("debian", stream, {*found, *offered})


@pytest.mark.every_engine
def test_nothing_of_a_kernel_discovery_comes_from_the_cache(engine_ground: Testbed, api: docker.APIClient) -> None:
    """Yesterday's result is not repeated today."""
    content = f"FROM {engine_ground.base_image}\nRUN echo told $(cat /proc/sys/kernel/random/uuid)\n".encode()
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        entry = tarfile.TarInfo("Dockerfile")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    told: list[str] = []
    for _ in range(2):
        limits = BuildLimits(WAIT_SECONDS, threading.Event(), time.monotonic)
        DockerBuilder(api).run(context.getvalue(), name="driverwright-test/told:latest", log=told.append, limits=limits)
    words = [line for line in told if line.startswith("told ")]
    assert len(words) == len(set(words)) == 2


class Lab:
    """The controller's own parts on a real API server, engine and registry; nodes are objects that the test makes."""

    def __init__(self, cluster: Testbed, engine: Testbed, templates: Path) -> None:
        self.root = admin(cluster)
        self.kubeconfig = str(cluster.kubeconfig)
        self.asked: list[DiscoverKernels] = []
        self.found: tuple[str, ...] = ()
        self.built: list[StartBuild] = []
        self._client = as_service_account(cluster, NAMESPACE, "driver-builder")
        self._engine = engine
        self._registries = Registries(self._client, reach=LOOPBACK)
        self._settings = PlanSettings(template_versions=TemplateVersions(versions=template_versions(templates)))
        self._templates = templates
        self._names: list[str] = []
        self.restart()

    def restart(self) -> None:
        """Start a controller anew: what one before it knew is gone."""
        self._builds = BuildQueue(self._build, wake=lambda: None)
        self._discoveries = DiscoveryQueue(self._discover, wake=lambda: None)

    def add_node(self) -> None:
        """Let a node join that runs an old kernel."""
        labels = {**factories.node_labels(OLD_KERNEL), "pool": "ahead"}
        self.root.create(
            NODES.path(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}}
        )

    def apply_driver(self, name: str, files: dict[str, str], module: str) -> None:
        """Apply a driver with prebuilds that skips the old kernel."""
        source = {"metadata": {"name": f"{name}-source"}, "data": files}
        create_quietly(self.root, CONFIG_MAPS.path(namespace=NAMESPACE), source)
        changes = {
            "nodeSelector": {"pool": "ahead"},
            "image": f"{self._engine.registry.host}/ahead/{name}",
            "registry": {"plainHttp": True},
            "source": {"configMap": {"name": f"{name}-source"}},
            "build": {"baseImage": self._engine.base_image},
            "module": {"names": [module]},
            "kernelMappings": [{"literal": OLD_KERNEL, "skip": True}, {"regexp": ".*"}],
            "preflight": {"followRepository": True},
        }
        body = factories.driver_object(name, spec_changes=changes)
        body["metadata"] = {"name": name, "namespace": NAMESPACE}
        del body["status"]
        self.root.apply(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=name), body, field_manager="somebody")
        self._names.append(name)

    def reconcile(self) -> None:
        """Do a pass."""
        observer = Observer(
            self._client,
            namespaces=(NAMESPACE,),
            builds=self._builds,
            discoveries=self._discoveries,
            clock=time.time,
        )
        Reconciler(
            observer=observer,
            images=ImageReader(self._registries, self._settings.template_versions),
            executor=Executor(self._client, self._builds, self._discoveries),
            reporter=Reporter(self._client),
            builds=self._builds,
            settings=self._settings,
        ).reconcile()

    def until(self, what: str, reached: Callable[[], object]) -> None:
        """Let passes go on until something is reached."""
        end = time.monotonic() + WAIT_SECONDS
        while not reached():
            assert time.monotonic() < end, f"not reached: {what}; {[self.status(name) for name in self._names]}"
            self.reconcile()
            time.sleep(1)

    def gate(self, kernel: str) -> int:
        """Ask as kured would."""
        words = ["--kubeconfig", self.kubeconfig, "-n", NAMESPACE, "--templates", str(self._templates)]
        words.append(f"--registry-allowed-hosts={ALLOWED}")
        return main.main(["gate", NODE, kernel, *words])

    def label(self, kernel: str) -> str | None:
        """Return the value of the node's label for a kernel."""
        labels = self.root.get(NODES.path(name=NODE))["metadata"]["labels"]
        value: str | None = labels.get(ready_for_label(kernel))
        return value

    def status(self, name: str) -> Json:
        """Return a driver's status."""
        status: Json = self.root.get(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=name)).get("status") or {}
        return status

    def condition(self, name: str) -> Json:
        """Return the condition about the newest kernel, empty before it is set."""
        conditions = self.status(name).get("conditions") or ()
        return next((item for item in conditions if item["type"] == CONDITION), {})

    def clean(self) -> None:
        """Take everything away again."""
        self._builds.stop()
        self._discoveries.stop()
        for name in self._names:
            path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=name)
            try:
                self.root.patch(path, {"metadata": {"finalizers": []}})
                self.root.delete(path)
            except NotFound:
                pass
        self.root.delete(NODES.path(name=NODE))

    def _build(self, action: StartBuild, log: LogSink, cancelled: threading.Event) -> str:
        self.built.append(action)
        with docker_engine(self._engine.engine.socket) as api:
            return build_and_push(
                action,
                builder=DockerBuilder(api, templates=self._templates),
                registries=self._registries,
                log=log,
                cancelled=cancelled,
            )

    def _discover(self, action: DiscoverKernels, cancelled: threading.Event) -> tuple[str, ...]:
        self.asked.append(action)
        with docker_engine(self._engine.engine.socket) as api:
            self.found = DockerKernelDiscovery(api).discover(action.repository, cancelled=cancelled)
            return self.found


@pytest.fixture
def lab(control_plane_ground: Testbed, engine_ground: Testbed, tmp_path: Path) -> Iterator[Lab]:
    """A node on an old kernel, and a controller to be run, with templates that nobody edits meanwhile."""
    root: Client = admin(control_plane_ground)
    install(root)
    templates = shutil.copytree(templates_directory(), tmp_path / "templates")
    made = Lab(control_plane_ground, engine_ground, templates)
    made.add_node()
    yield made
    made.clean()


def test_a_driver_is_prebuilt_and_nodes_are_labelled(lab: Lab) -> None:
    """Looked up, built, verified, pushed, labelled, let through the gate; a driver that does not compile closes it.

    The kernel is the newest that the image's archive has, which may have come since this machine's apt looked.
    """
    edu = {path.name: path.read_text() for path in EDU_SOURCE.iterdir()}
    lab.apply_driver("ahead-edu", edu, "edudrv")
    lab.until("the archive was asked", lambda: lab.found)
    kernel = newest("debian", stream_of("debian", OLD_KERNEL) or "", lab.found)
    assert kernel is not None
    assert lab.gate(kernel) == 1
    lab.until("the node may move", lambda: lab.label(kernel) == "true")
    lab.until("the driver says so", lambda: lab.condition("ahead-edu").get("status") == "True")
    (entry,) = lab.status("ahead-edu")["ahead"]
    assert (entry["kernel"], entry["state"], entry["reason"], entry["nodes"]) == (kernel, "Ready", "BuiltAhead", 1)
    assert lab.gate(kernel) == 0
    assert [action.waiting for action in lab.built] == [0]

    lab.restart()
    lab.reconcile()
    lab.reconcile()
    assert (len(lab.asked), len(lab.built), lab.label(kernel)) == (1, 1, "true"), "the status is enough"

    lab.apply_driver("ahead-bad", {"bad.c": BAD_SOURCE, "Makefile": "obj-m := bad.o\n"}, "bad")
    lab.until("the failure is told", lambda: lab.condition("ahead-bad").get("reason") == "CompileError")
    lab.reconcile()
    told = lab.condition("ahead-bad")
    assert told["status"] == "False"
    assert told["message"].startswith(f"{kernel}: ")
    assert "/source/bad.c:2: implicit declaration of function 'nobody_declared'" in told["message"]
    assert lab.label(kernel) is None
    assert lab.gate(kernel) == 1
    assert lab.condition("ahead-edu")["status"] == "True", "each driver speaks for itself"
