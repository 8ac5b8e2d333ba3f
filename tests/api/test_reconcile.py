"""Whole passes against a real API server and its controllers: DaemonSets make real Pod objects, garbage is collected.

Registry, builder and kubelet are played by the test: images are entries of a mapping, pods report what it says.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from driver_builder.api.driver_container import FINALIZER
from driver_builder.base.errors import BuildFailed
from driver_builder.base.reasons import Reason
from driver_builder.builds.build_queue import BuildQueue
from driver_builder.cluster.observe import Observer
from driver_builder.controller.execute import Executor
from driver_builder.controller.read_images import ImageReader
from driver_builder.controller.reconcile import Reconciler
from driver_builder.controller.report import Reporter
from driver_builder.model.build import LogSink
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.images import KEY_LABEL, MODULES_LABEL
from driver_builder.nodes.changes import StartBuild
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.objects import manifests, plugin
from driver_builder.objects.stage_labels import Stage, stage_label
from kube_api import names
from kube_api.client import Client
from kube_api.errors import Conflict, NotFound
from kube_api.resources import CONFIG_MAPS, DAEMON_SETS, DRIVER_CONTAINERS, EVENTS, NODES
from testbed.testbed import Testbed
from tests.support.driver_builder import factories
from tests.support.driver_builder.model_parts import ModelRegistries, digest_of
from tests.support.real_parts.cluster_setup import admin, as_service_account, create_quietly, install
from tests.support.real_parts.played_nodes import PlayedNodes

Json = dict[str, Any]

NAMESPACE = "driverwright"
KERNEL, NEW_KERNEL = factories.KERNEL, "6.1.0-56-cloud-amd64"
RETRY_SECONDS = 600.0
SETTINGS = PlanSettings(
    template_versions=factories.SETTINGS.template_versions,
    retry_min_seconds=RETRY_SECONDS,
    device_agent_image="r.io/agent:1",
)
RESOURCE: Json = {"name": "example.com/edu", "groups": [{"paths": [{"path": "/dev/edu*"}]}]}
TEST: Json = {"image": "r.io/test:1", "command": ["/test"]}
WAIT_SECONDS = 600.0


class Lab:
    """One driver, its nodes, and everything around them that the test plays itself."""

    def __init__(self, ground: Testbed, name: str, *, immortal: bool) -> None:
        self.name = name
        self.root = admin(ground)
        self.pushed: list[str] = []
        self.fail_builds = 0
        self.ahead = 0.0
        """By how many seconds the controller's clock is ahead."""
        self._builder = as_service_account(ground, NAMESPACE, "driver-builder")
        self._registries = ModelRegistries()
        self._nodes = PlayedNodes(ground, self.root, namespace=NAMESPACE, pool=name, driver=name)
        self._immortal = immortal
        self._queue: BuildQueue | None = None

    # ------------------------------------------------------------ what people do

    def add_node(self, name: str, kernel: str) -> None:
        """Let a node join the driver's pool."""
        self._nodes.add(name, kernel)

    def reboot(self, name: str, kernel: str) -> None:
        """Boot a node into another kernel, as its labels say."""
        self._nodes.reboot(name, kernel)

    def apply_driver(self, **changes: Any) -> None:
        """Ask for the driver."""
        source = {"metadata": {"name": f"{self.name}-source"}, "data": {"edudrv.c": "int x;"}}
        create_quietly(self.root, CONFIG_MAPS.path(namespace=NAMESPACE), source)
        spec: Json = {"nodeSelector": {"pool": self.name}, "source": {"configMap": {"name": f"{self.name}-source"}}}
        body = factories.driver_object(self.name, spec_changes={**spec, **changes})
        body["metadata"] = {"name": self.name, "namespace": NAMESPACE}
        del body["status"]
        self.root.apply(self.path, body, field_manager="somebody")

    def clean(self) -> None:
        """Take everything away again."""
        if self._queue is not None:
            self._queue.stop()
        try:
            self.root.patch(self.path, {"metadata": {"finalizers": []}})
            self.root.delete(self.path)
        except NotFound:
            pass
        self._nodes.stop()

    # ------------------------------------------------------------ what the controller does

    def reconcile(self) -> float | None:
        """Do a pass; a mortal controller is made anew for each, as if it had been killed after the one before."""
        if self._queue is None or not self._immortal:
            if self._queue is not None:
                self._queue.stop()
            self._queue = BuildQueue(self._build, wake=lambda: None, clock=self._now)
        observer = Observer(
            self._builder,
            namespaces=(NAMESPACE,),
            builds=self._queue,
            clock=self._now,
        )
        reconciler = Reconciler(
            observer=observer,
            images=ImageReader(self._registries, SETTINGS.template_versions),
            executor=Executor(self._builder, self._queue),
            reporter=Reporter(self._builder),
            builds=self._queue,
            settings=SETTINGS,
        )
        return reconciler.reconcile()

    def _now(self) -> float:
        return time.time() + self.ahead

    def _build(self, action: StartBuild, log: LogSink, cancelled: threading.Event) -> str:
        assert not cancelled.is_set()
        log("building")
        if self.fail_builds:
            self.fail_builds -= 1
            raise BuildFailed(Reason.COMPILE_ERROR, "edudrv.c:1: error: expected ';'")
        facts = [{"name": module.name, "identity": action.request.key} for module in action.request.modules]
        self._registries.images[action.image] = {KEY_LABEL: action.request.key, MODULES_LABEL: json.dumps(facts)}
        self.pushed.append(action.request.key)
        return digest_of(action.image)

    def until(self, what: str, reached: Callable[[], object]) -> None:
        """Let passes and kubelets go on until something is reached."""
        end = time.monotonic() + WAIT_SECONDS
        while not reached():
            assert time.monotonic() < end, f"not reached: {what}; the driver says {self.status()}"
            self.reconcile()
            # Where the cluster's controllers were faster it is looked again.
            with suppress(NotFound, Conflict):
                self._nodes.play()
            time.sleep(0.1)

    # ------------------------------------------------------------ what can be seen

    @property
    def path(self) -> str:
        """Where the DriverContainer lives."""
        return DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=self.name)

    def status(self) -> Json:
        """The driver's status."""
        found = self.root.list(DRIVER_CONTAINERS.path(namespace=NAMESPACE)).items
        statuses: list[Json] = [obj.get("status") or {} for obj in found if obj["metadata"]["name"] == self.name]
        return statuses[0] if statuses else {}

    def states(self) -> dict[str, str]:
        """State by kernel."""
        return {target["kernel"]: target["state"] for target in self.status().get("targets") or ()}

    def condition(self, kind: str) -> Json:
        """One condition, empty before it is set."""
        conditions = self.status().get("conditions") or ()
        return next((item for item in conditions if item["type"] == kind), {})

    def labels(self) -> dict[str, str | None]:
        """The value of the ready label by node."""
        return self._nodes.ready_labels(names.ready_label(NAMESPACE, self.name))

    def stages(self, node: str) -> list[Stage]:
        """The stages whose labels a node has."""
        labels = self.root.get(NODES.path(name=node))["metadata"]["labels"]
        return [stage for stage in Stage if stage_label(DriverKey(f"{NAMESPACE}/{self.name}"), stage) in labels]

    def plays_plugins(self) -> None:
        """Let nodes get the resource from the plugins that run there."""
        self._nodes.resource = RESOURCE["name"]

    def daemon_sets(self) -> list[Json]:
        """The driver's DaemonSets."""
        selector = f"{manifests.DRIVER_LABEL}={self.name}"
        return self.root.list(DAEMON_SETS.path(namespace=NAMESPACE), label_selector=selector).items

    def pods(self) -> list[Json]:
        """The driver's pods."""
        return self._nodes.pods()

    def versions(self) -> dict[str, object]:
        """Return what is another one after a pass that wrote.

        The version of a DaemonSet is its status' as well: its controller may still count the pods that are ready.
        """
        objects = [self.root.get(self.path), *self.pods()]
        theirs = ("resourceVersion", "managedFields")
        return {
            **{obj["metadata"]["name"]: obj["metadata"]["resourceVersion"] for obj in objects},
            **{
                obj["metadata"]["name"]: {key: value for key, value in obj["metadata"].items() if key not in theirs}
                for obj in self.daemon_sets()
            },
        }

    def events(self) -> dict[str, int]:
        """Reason of each Event to how often it happened."""
        counts: dict[str, int] = {}
        for event in self.root.list(EVENTS.path(namespace=NAMESPACE)).items:
            if event["involvedObject"]["name"] == self.name:
                counts[event["reason"]] = counts.get(event["reason"], 0) + event["count"]
        return counts


@pytest.fixture(scope="module")
def root(control_plane_ground: Testbed) -> Client:
    """Install CRD and accounts."""
    client = admin(control_plane_ground)
    install(client)
    return client


@pytest.fixture
def make_lab(control_plane_ground: Testbed, root: Client) -> Iterator[Callable[..., Lab]]:
    """Make labs that are taken down after the test."""
    assert root
    labs: list[Lab] = []

    def make(name: str, *, immortal: bool = True) -> Lab:
        labs.append(Lab(control_plane_ground, name, immortal=immortal))
        return labs[-1]

    yield make
    for lab in labs:
        lab.clean()


MakeLab = Callable[..., Lab]


@pytest.mark.parametrize(
    "immortal", [pytest.param(True, id="one-controller"), pytest.param(False, id="new-controller-each-pass")]
)
def test_a_driver_lives_from_apply_to_delete(make_lab: MakeLab, immortal: bool) -> None:
    """Built once per kernel, rolled out, proven, labelled; followed to a new kernel; cleaned up when deleted."""
    lab = make_lab(f"life-{immortal}".lower(), immortal=immortal)
    lab.add_node(f"{lab.name}-a", KERNEL)
    lab.add_node(f"{lab.name}-b", KERNEL)
    lab.apply_driver()

    lab.reconcile()
    assert lab.states() == {KERNEL: "Building"}
    assert FINALIZER in lab.root.get(lab.path)["metadata"]["finalizers"]

    lab.until("both nodes ready", lambda: lab.condition("Ready").get("status") == "True")
    assert lab.labels() == {f"{lab.name}-a": "1.0.0", f"{lab.name}-b": "1.0.0"}
    assert (lab.status()["readyNodes"], lab.status()["desiredNodes"]) == (2, 2)
    assert len(lab.pushed) == 1

    before = lab.versions()
    lab.reconcile()
    assert lab.versions() == before, "where all is well a pass writes nothing"

    lab.reboot(f"{lab.name}-a", NEW_KERNEL)
    lab.until("two kernels, both ready", lambda: lab.states() == {KERNEL: "Ready", NEW_KERNEL: "Ready"})
    assert lab.labels() == {f"{lab.name}-a": "1.0.0", f"{lab.name}-b": "1.0.0"}
    assert len(lab.daemon_sets()) == 2

    lab.reboot(f"{lab.name}-b", NEW_KERNEL)
    lab.until("one kernel left", lambda: lab.states() == {NEW_KERNEL: "Ready"} and len(lab.daemon_sets()) == 1)
    assert len(lab.pushed) == len(set(lab.pushed)) == 2

    lab.root.delete(lab.path)
    lab.until("the driver is gone", lambda: not exists(lab))
    assert lab.labels() == {f"{lab.name}-a": None, f"{lab.name}-b": None}
    assert (lab.daemon_sets(), lab.pods()) == ([], [])


def test_stages_follow_a_driver_in_their_order_and_leave_before_it(make_lab: MakeLab) -> None:
    """Driver, its validation, plugin, its validation; an upgrade and a removal take the plugin first."""
    lab, stages = make_lab("chain"), list(Stage)
    node, seen = f"{lab.name}-a", [list[Stage]()]
    lab.plays_plugins()
    lab.add_node(node, KERNEL)
    lab.apply_driver(validation=TEST, stages={"devicePlugin": {"resource": RESOURCE}, "pluginValidation": TEST})

    def has(*wanted: Stage) -> bool:
        now, modules = (
            lab.stages(node),
            [pod for pod in lab.pods() if manifests.TARGET_LABEL in pod["metadata"]["labels"]],
        )
        plugins = [pod for pod in lab.pods() if plugin.STAGE_LABEL in pod["metadata"]["labels"]]
        # Where a driver pod has come that has loaded nothing yet, no plugin is left.
        assert not plugins or all(pod["status"].get("initContainerStatuses") for pod in modules)
        if seen[-1] != now:
            seen.append(now)
        return now == list(wanted)

    lab.until("every stage", lambda: has(*Stage) and lab.condition("Stages").get("status") == "True")
    assert seen == [[], stages[:2], stages[:3], stages]
    before = lab.versions()
    lab.reconcile()
    assert lab.versions() == before

    lab.apply_driver(
        version="2.0.0", validation=TEST, module={"names": ["edudrv"], "parameters": {"edudrv": ["x=1"]}},
        stages={"devicePlugin": {"resource": RESOURCE}, "pluginValidation": TEST},
    )  # fmt: skip
    seen[:] = [stages]
    lab.until("run goes", lambda: has(Stage.VALID) or Stage.RUN not in seen[-1])
    lab.until("every stage again", lambda: has(*Stage) and lab.labels() == {node: "2.0.0"})
    assert all(now == stages[: len(now)] for now in seen)

    lab.root.delete(lab.path)
    lab.until("the driver is gone", lambda: has() and not exists(lab))
    assert (lab.daemon_sets(), lab.pods()) == ([], [])


def exists(lab: Lab) -> bool:
    """Return whether the DriverContainer is still there."""
    try:
        lab.root.get(lab.path)
    except NotFound:
        return False
    return True


def test_a_new_version_rolls_over_the_nodes_one_by_one(make_lab: MakeLab) -> None:
    """The label follows the version that is proven on each node, and is never missing on the way."""
    lab = make_lab("rolling")
    for letter in "abc":
        lab.add_node(f"rolling-{letter}", KERNEL)
    lab.apply_driver()
    lab.until("all ready", lambda: lab.condition("Ready").get("status") == "True")
    lab.apply_driver(version="2.0.0")
    lowest = 3

    def all_new() -> bool:
        nonlocal lowest
        lowest = min(lowest, sum(value is not None for value in lab.labels().values()))
        return set(lab.labels().values()) == {"2.0.0"}

    lab.until("all on the new version", all_new)
    assert lowest == 3
    lab.until("the status agrees", lambda: lab.states() == {KERNEL: "Ready"})


def test_a_failing_build_is_reported_and_tried_again(make_lab: MakeLab) -> None:
    """The failure is in the status with its reason and in an Event, and the next try comes by itself."""
    lab = make_lab("failing")
    lab.fail_builds = 1
    lab.add_node("failing-a", KERNEL)
    lab.apply_driver()
    lab.until("the failure is told", lambda: lab.states() == {KERNEL: "Failed"})
    (target,) = lab.status()["targets"]
    assert (target["reason"], target["failures"]) == ("CompileError", 1)
    assert "expected ';'" in target["message"]
    assert lab.condition("Degraded")["status"] == "True"
    assert lab.daemon_sets() == []
    lab.ahead = 2 * RETRY_SECONDS
    lab.until("the second try works", lambda: lab.states() == {KERNEL: "Ready"})
    told = lab.events()
    assert {"BuildStarted", "CompileError", "RollingOut", "TargetReady"} <= set(told)


def test_a_rebuild_annotation_builds_once(make_lab: MakeLab) -> None:
    """The annotation's new value makes a new image; the same value makes none, nor does its removal."""
    lab = make_lab("rebuilding", immortal=False)
    lab.add_node("rebuilding-a", KERNEL)
    lab.apply_driver()
    lab.until("ready", lambda: lab.states() == {KERNEL: "Ready"})
    for value, builds in (("1", 2), ("1", 2), (None, 2), ("1", 2), ("2", 3)):
        lab.root.patch(lab.path, {"metadata": {"annotations": {names.REBUILD_ANNOTATION: value}}})
        lab.reconcile()
        lab.until("ready again", lambda: lab.states() == {KERNEL: "Ready"})
        assert len(lab.pushed) == builds, value


def test_a_spec_that_cannot_be_acted_on_says_so(make_lab: MakeLab) -> None:
    """What passes the schema and is still wrong is named in the conditions."""
    lab = make_lab("invalid")
    lab.add_node("invalid-a", KERNEL)
    lab.apply_driver(kernelMappings=[{"regexp": "6.(1"}])
    lab.reconcile()
    for kind, status in (("Ready", "False"), ("Degraded", "True")):
        assert (lab.condition(kind)["status"], lab.condition(kind)["reason"]) == (status, "InvalidSpec")
    assert "spec.kernelMappings[0].regexp" in lab.condition("Ready")["message"]
    lab.reconcile()
    assert lab.events() == {"InvalidSpec": 1}
    lab.apply_driver(kernelMappings=[{"regexp": "6.*"}])
    lab.until("mended", lambda: lab.states() == {KERNEL: "Ready"})


def test_deprecated_fields_are_kept_and_reported(make_lab: MakeLab) -> None:
    """A manifest of 0.1 is accepted as it is, and its driver is built."""
    lab = make_lab("deprecated")
    lab.add_node("deprecated-a", KERNEL)
    fields = {"build": {"reuseAcrossKernels": False}, "retention": {"versions": 2}}
    lab.apply_driver(**fields)
    kept = lab.root.get(lab.path)["spec"]
    assert {name: kept[name] for name in fields} == fields
    lab.until("ready", lambda: lab.states() == {KERNEL: "Ready"})
    assert (lab.condition("DeprecatedFields")["status"], lab.condition("Ready")["status"]) == ("True", "True")
    assert lab.events()["FieldIgnored"] == 1


def test_a_paused_driver_stands_still(make_lab: MakeLab) -> None:
    """Paused, a new kernel is neither built for nor labelled, and loses the old one's label; resumed, it is ready."""
    lab = make_lab("pausing")
    lab.add_node("pausing-a", KERNEL)
    lab.apply_driver()
    lab.until("ready", lambda: lab.states() == {KERNEL: "Ready"})
    lab.root.patch(lab.path, {"metadata": {"annotations": {names.PAUSE_ANNOTATION: "true"}}})
    lab.reboot("pausing-a", NEW_KERNEL)
    for _ in range(3):
        lab.reconcile()
    assert lab.states() == {KERNEL: "Ready"}
    assert lab.condition("Progressing")["reason"] == "Paused"
    assert len(lab.pushed) == 1
    assert lab.labels() == {"pausing-a": None}
    lab.root.patch(lab.path, {"metadata": {"annotations": {names.PAUSE_ANNOTATION: None}}})
    lab.until("resumed", lambda: lab.states() == {NEW_KERNEL: "Ready"})


def test_what_the_api_server_refuses_is_reported(make_lab: MakeLab) -> None:
    """A toleration that our schema accepts and a DaemonSet's does not; fixed, the driver goes on."""
    lab = make_lab("refused")
    lab.add_node("refused-a", KERNEL)
    lab.apply_driver(tolerations=[{"operator": "Sometimes"}])
    lab.until("the refusal is told", lambda: lab.condition("Degraded").get("reason") == "ActionRefused")
    assert "Sometimes" in lab.condition("Degraded")["message"]
    for _ in range(3):
        lab.reconcile()
    assert lab.events()["ActionRefused"] == 1
    lab.apply_driver(tolerations=[{"operator": "Exists"}])
    lab.until("ready", lambda: lab.states() == {KERNEL: "Ready"})
    assert lab.condition("Degraded")["status"] == "False"
