"""Drivers built without any cluster, by the command line: real engine, headers and registry. Then a controller looks.

What it would build is compared with what is there: it finds each image under the tag that it computes, and builds
nothing.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from driver_builder.api import driver_container
from driver_builder.builds.build_queue import BuildQueue
from driver_builder.builds.templates.templates import template_versions
from driver_builder.cli import common, main
from driver_builder.cluster.driver_inputs import DriverInputs
from driver_builder.cluster.observe import Observer
from driver_builder.controller.execute import Executor
from driver_builder.controller.read_images import ImageReader
from driver_builder.controller.reconcile import Reconciler
from driver_builder.controller.report import Reporter
from driver_builder.model.build import LogSink
from driver_builder.model.image_state import Present
from driver_builder.nodes.changes import ApplyObject, StartBuild
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.plan.plan import plan
from driver_builder.registry.given_objects import GivenObjects, object_of_files
from driver_builder.registry.referrers import referrers_of
from driver_builder.registry.registry import RegistryClient
from driver_builder.registry.registry_access import Registries
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets.desired_target import TemplateVersions
from kube_api.resources import CONFIG_MAPS, DRIVER_CONTAINERS, NODES
from testbed.kernels import CLOUD, available_releases, choose_kernels, release_key
from testbed.packages import refreshed_apt
from testbed.progress import PlainLines
from testbed.testbed import Testbed
from tests.support.driver_builder import factories
from tests.support.loopback import LOOPBACK
from tests.support.real_parts.cluster_setup import admin, as_service_account, create_quietly, install

Json = dict[str, Any]

NAMESPACE, SOURCE = "driverwright", "edu-driver-source"
EXAMPLE = Path(__file__).parents[2] / "examples" / "edu-driver"
WAIT_SECONDS = 900.0


def edu(ground: Testbed) -> Json:
    """Read the example's manifest, with the registry of the test."""
    document: Json = yaml.safe_load((EXAMPLE / "driver-container.yaml").read_text())
    changes = {
        "image": f"{ground.registry.host}/offline/edu",
        "registry": {"plainHttp": True},
        "nodeSelector": {"pool": "edu"},
    }
    build = {"template": "debian", "baseImage": ground.base_image}
    return {**document, "spec": {**document["spec"], **changes, "build": build}}


def acpi_call(ground: Testbed) -> Json:
    """Make the manifest of a DKMS package."""
    spec = {
        **edu(ground)["spec"], "version": "1.2.2", "image": f"{ground.registry.host}/offline/acpi-call",
        "source": {"package": {"name": "acpi-call-dkms"}}, "module": {"names": ["acpi_call"]},
    }  # fmt: skip
    return {**edu(ground), "metadata": {"name": "acpi-call", "namespace": NAMESPACE}, "spec": spec}


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No kubeconfig can be found, and docker has no configuration."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))


def build(
    ground: Testbed,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    kernels: list[str],
    *words: str,
    drivers: list[Json],
) -> list[Json]:
    """Run the command for drivers in a file; returns its results, all of which are well."""
    file = folder / "drivers.yaml"
    file.write_text(yaml.safe_dump_all(drivers))
    given = ["-f", str(file), "--config-map", f"{SOURCE}={EXAMPLE / 'src'}", "--kernel", ",".join(kernels)]
    engine = ["--docker-host", ground.engine.socket, "--os", "debian:12"]
    capsys.readouterr()
    code = main.main(["build", *given, *engine, "-o", "json", *words])
    printed = capsys.readouterr()
    results: list[Json] = json.loads(printed.out)
    assert code == 0, [printed.err, *(item["message"] for item in results)]
    return results


def seen_by_controller(ground: Testbed, kernels: list[str], versions: TemplateVersions) -> Snapshot:
    """Return what a controller sees in a cluster with a node on each kernel, its registry included."""
    manifest = edu(ground)
    driver = driver_container.parse({**manifest, "metadata": {**manifest["metadata"], "uid": "uid"}})
    inputs = DriverInputs(GivenObjects([object_of_files(CONFIG_MAPS, NAMESPACE, SOURCE, EXAMPLE / "src")]))
    nodes = [factories.node(f"node-{number}", kernel) for number, kernel in enumerate(kernels)]
    snapshot = factories.snapshot(*nodes, drivers=(driver,), sources=dict(inputs.sources((driver,))))
    return ImageReader(Registries(GivenObjects(), reach=LOOPBACK), versions).read(snapshot)


def test_a_controller_finds_the_images_and_builds_nothing(
    engine_ground: Testbed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two kernels from two series; written to a folder and imported, each image is the same to the byte."""
    kernels = [kernel.release for kernel in choose_kernels(2, PlainLines())]
    pushed = build(engine_ground, tmp_path, capsys, kernels, "--push", drivers=[edu(engine_ground)])
    assert [(item["kernel"], item["verdict"]) for item in pushed] == [(kernel, "verified") for kernel in kernels]

    versions = TemplateVersions(versions=template_versions())
    snapshot = seen_by_controller(engine_ground, kernels, versions)
    digests = {state.digest for state in snapshot.images.values() if isinstance(state, Present)}
    assert digests == {item["image"].partition("@")[2] for item in pushed}
    actions = plan(snapshot, PlanSettings(template_versions=versions)).actions
    assert [action for action in actions if isinstance(action, StartBuild)] == []
    assert sum(isinstance(action, ApplyObject) for action in actions) == len(kernels)

    folder = str(tmp_path / "images")
    written = build(engine_ground, tmp_path, capsys, kernels[:1], "--oci-dir", folder, drivers=[edu(engine_ground)])
    assert written[0]["image"] == pushed[0]["image"]
    host = engine_ground.registry.host
    words = ["--import", "--registry", f"{host}/mirror", "--registry-plain-http"]
    assert main.main(["bundle", folder, *words]) == common.EXIT_OK
    mirror, digest = RegistryClient(host, plain_http=True, reach=LOOPBACK), written[0]["image"].partition("@")[2]
    assert isinstance(mirror.inspect("mirror/offline/edu", digest), Present)
    assert len(referrers_of(mirror, "mirror/offline/edu", digest)) == 1


class Lab:
    """The controller's own parts on a real API server, with the registry; its builds are counted, and fail."""

    def __init__(self, cluster: Testbed) -> None:
        self.root = admin(cluster)
        self.started: list[StartBuild] = []
        self._made: list[str] = []
        self._client = as_service_account(cluster, NAMESPACE, "driver-builder")
        self._settings = PlanSettings(template_versions=TemplateVersions(versions=template_versions()))
        self._builds = BuildQueue(self._build, wake=lambda: None)

    def _build(self, action: StartBuild, log: LogSink, cancelled: threading.Event) -> str:
        assert not cancelled.is_set()
        log("a build was started")
        self.started.append(action)
        raise AssertionError(str(action))

    def reconcile(self) -> None:
        """Reconcile once."""
        observer = Observer(self._client, namespaces=(NAMESPACE,), builds=self._builds, clock=time.time)
        Reconciler(
            observer=observer,
            images=ImageReader(Registries(self._client, reach=LOOPBACK), self._settings.template_versions),
            executor=Executor(self._client, self._builds),
            reporter=Reporter(self._client),
            builds=self._builds,
            settings=self._settings,
        ).reconcile()

    def images(self, name: str) -> set[str]:
        """Return the digests in a driver's status."""
        status = self.root.get(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=name)).get("status") or {}
        return {target["imageDigest"] for target in status.get("targets") or () if target.get("imageDigest")}

    def add(self, number: int, kernel: str) -> None:
        """Let a node join."""
        labels = {**factories.node_labels(kernel), "pool": "edu"}
        name = f"offline-{number}"
        metadata = {"name": name, "labels": labels}
        self.root.create(NODES.path(), {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        self._made.append(NODES.path(name=name))

    def apply(self, driver: Json) -> None:
        """Apply a driver."""
        path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=driver["metadata"]["name"])
        self.root.apply(path, driver, field_manager="somebody")
        self._made.append(path)

    def clean(self) -> None:
        """Take everything away again."""
        self._builds.stop()
        for path in self._made:
            self.root.patch(path, {"metadata": {"finalizers": []}})
            self.root.delete(path)


@pytest.fixture
def lab(control_plane_ground: Testbed) -> Iterator[Lab]:
    """A controller without drivers."""
    install(admin(control_plane_ground))
    lab = Lab(control_plane_ground)
    yield lab
    lab.clean()


@pytest.mark.long
def test_two_drivers_for_four_kernels_and_then_a_cluster(
    engine_ground: Testbed, lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An own source and a DKMS package; the cluster that comes afterwards has a node on each of the kernels."""
    apt = refreshed_apt()
    oldest = min(release_key(release)[:2] for release in available_releases(apt, CLOUD))
    releases = [release for release in available_releases(apt, CLOUD) if release_key(release)[:2] == oldest]
    kernels = sorted(releases, key=release_key)[-4:]
    drivers = [edu(engine_ground), acpi_call(engine_ground)]
    results = build(engine_ground, tmp_path, capsys, kernels, "--push", drivers=drivers)
    assert len(results) == 8

    create_quietly(lab.root, CONFIG_MAPS.path(namespace=NAMESPACE), object_of_files(
        CONFIG_MAPS, NAMESPACE, SOURCE, EXAMPLE / "src",
    ))  # fmt: skip
    for number, kernel in enumerate(kernels):
        lab.add(number, kernel)
    for driver in drivers:
        lab.apply(driver)
    end = time.monotonic() + WAIT_SECONDS
    wanted = {item["image"].partition("@")[2] for item in results}
    while {*lab.images("edu"), *lab.images("acpi-call")} != wanted:
        assert time.monotonic() < end, (lab.images("edu"), lab.images("acpi-call"), wanted)
        lab.reconcile()
    lab.reconcile()
    assert lab.started == []
