"""The steps that every scenario has: they need a cluster, a registry and an engine, and no more.

Each step acts, waits until the cluster shows its effect, and leaves what it found. Where the nodes come from, and what
is different about the cluster, is in :class:`demo.scenario.Scenario` (the testbed) and
:class:`demo.own_cluster.OwnClusterScenario` (the user's own cluster).
"""

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import yaml

from demo import deploy
from demo.cluster import NAMESPACE, Json, ScenarioError
from demo.stage import (
    BASE_IMAGE,
    BUILD_SECONDS,
    CONTROLLER,
    DRIVER,
    EXAMPLE,
    LOAD_SECONDS,
    NODE_SECONDS,
    READY_LABEL,
    REPOSITORY,
    SOURCE,
    Node,
    NodeRow,
    Seen,
    Stage,
    hopeless,
)
from kube_api import names
from kube_api.errors import NotFound
from kube_api.resources import DRIVER_CONTAINERS
from testbed.progress import Progress, Step
from tools import product_images

AnyNode = TypeVar("AnyNode", bound=Node)

_BUILD_STEP = re.compile(r"Step (\d+)/(\d+)")


class Steps(ABC, Generic[AnyNode]):
    """The scenario. Its steps are called in the order they are written in."""

    keeps_images = False
    """Whether the product's images are kept in the cache, for other engines than the one that builds them."""

    def __init__(self, stage: Stage, progress: Progress) -> None:
        self.stage = stage
        self.cluster = stage.cluster
        self.progress = progress
        self.images: Mapping[str, str] = {}

    @abstractmethod
    def nodes(self) -> Sequence[AnyNode]:
        """List the nodes that the driver is for."""

    @abstractmethod
    def overlay(self) -> deploy.Overlay:
        """What this cluster needs changed in ``deploy/``."""

    @abstractmethod
    def look_at(self, node: AnyNode) -> Seen:
        """Say what runs on a node."""

    def apply(self, objects: Iterable[Json]) -> None:
        """Apply objects to the cluster."""
        deploy.apply(self.cluster.client, objects)

    def build_product(self) -> None:
        """Build the images of nfd-worker, driver-builder and the example workload."""
        with self.progress.step("Build the images of nfd-worker and driver-builder") as step:
            self.images = product_images.build_all(
                self.stage.engine, self.stage.registry, base_image=BASE_IMAGE, say=step.detail, keep=self.keeps_images
            )

    def deploy_programs(self) -> None:
        """Apply ``deploy/`` and wait for the controller's pod."""
        with self.progress.step("Deploy nfd-worker and driver-builder") as step:
            self.apply(self.manifests())
            self.wait_for_controller(step)

    def manifests(self) -> Iterator[Json]:
        """Yield what is deployed, in the order to create it."""
        return deploy.manifests(self.overlay())

    def wait_for_controller(self, step: Step | None = None) -> None:
        """Wait until a pod of the controller runs."""
        self.cluster.wait(
            "the driver-builder pod is running",
            lambda: self._running(CONTROLLER) or None,
            timeout=NODE_SECONDS,
            seen=lambda: self.describe_pods(CONTROLLER),
            detail=step.detail if step else None,
        )

    def apply_driver(self, *, driver_spec: Mapping[str, Any] | None = None) -> None:
        """Apply the driver's source as a ConfigMap, and the DriverContainer."""
        with self.progress.step("Apply the edu DriverContainer"):
            self.apply_source()
            driver = yaml.safe_load((EXAMPLE / "driver-container.yaml").read_text())
            driver["spec"] |= {**self._registry_fields(), **(driver_spec or {})}
            self.apply([driver])

    def _registry_fields(self) -> Json:
        fields: Json = {
            "image": f"{self.stage.registry}/{REPOSITORY}",
            "registry": {"plainHttp": self.stage.plain_http},
        }
        if self.stage.pull_secret is not None:
            fields["registry"]["secretRef"] = {"name": self.stage.pull_secret}
            fields["imagePullSecrets"] = [{"name": self.stage.pull_secret}]
        return fields

    def apply_source(self, replace: Mapping[str, str] | None = None) -> None:
        """Write ``src/`` into the ConfigMap; ``replace`` gives other contents for some of the files."""
        files = {path.name: path.read_text() for path in sorted((EXAMPLE / "src").iterdir()) if path.is_file()}
        source: Json = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": SOURCE, "namespace": NAMESPACE},
            "data": {**files, **(replace or {})},
        }
        self.apply([source])

    def wait_for_builds(self, *, patient: bool = False) -> None:
        """Wait until an image is built, verified and pushed for the kernel of every node."""
        for kernel in sorted({node.kernel.release for node in self.nodes()}):
            with self.progress.step(f"Build, verify and push the driver for {kernel}") as step:
                self.wait_for_image(kernel, step, patient=patient)

    def wait_for_image(self, kernel: str, step: Step, *, not_digest: str = "", patient: bool = False) -> str:
        """Wait for the image of one kernel; gives its digest, which is another one than ``not_digest``.

        Raises:
            ScenarioError: after ``BUILD_SECONDS``; as soon as waiting is in vain, unless ``patient``.
        """

        def check() -> str | None:
            target = self.cluster.targets(DRIVER).get(kernel, {})
            digest: str = target.get("imageDigest", "")
            self._show_build(step)
            if digest and digest != not_digest:
                return digest
            why = None if patient else hopeless(target)
            if why is not None:
                raise ScenarioError(f"there will be no image for {kernel}: {why}")
            return None

        return self.cluster.wait(
            f"the image for {kernel} is pushed",
            check,
            timeout=BUILD_SECONDS,
            seen=lambda: self.cluster.describe_targets(DRIVER),
        )

    def _show_build(self, step: Step) -> None:
        line = self.cluster.log_tail(CONTROLLER)
        if not line:
            return
        step.detail(line.partition(": ")[2] or line)
        place = _BUILD_STEP.search(line)
        if place is not None:
            step.percent(100.0 * int(place[1]) / int(place[2]))

    def wait_for_ready(self) -> None:
        """Wait until the driver is proven on every node."""
        with self.progress.step("Nodes load the driver, verify it and become ready") as step:
            for node in self.nodes():
                self.wait_for_ready_label(node, step)
            self.cluster.wait(
                "the DriverContainer is Ready",
                lambda: self.cluster.condition(DRIVER, "Ready").get("status") == "True" or None,
                timeout=LOAD_SECONDS,
                seen=lambda: self.cluster.describe_targets(DRIVER),
                detail=step.detail,
            )

    def wait_for_ready_label(self, node: AnyNode, step: Step) -> None:
        """Wait until a node carries the ready label."""
        self.cluster.wait(
            f"{node.name} is ready",
            lambda: READY_LABEL in self.cluster.labels(node.name) or None,
            timeout=LOAD_SECONDS,
            seen=lambda: self.cluster.describe_targets(DRIVER),
            detail=step.detail,
        )

    def run_workload(self, name: str = "edu-factorial") -> str:
        """Run the example Job on a ready node; gives what it printed."""
        with self.progress.step("A workload that selects the ready label computes a factorial") as step:
            job = yaml.safe_load((EXAMPLE / "workload.yaml").read_text())
            job["metadata"] |= {"name": name, "namespace": NAMESPACE}
            for container in job["spec"]["template"]["spec"]["containers"]:
                container["image"] = self.images["edu-workload"]
            if self.stage.pull_secret is not None:
                job["spec"]["template"]["spec"]["imagePullSecrets"] = [{"name": self.stage.pull_secret}]
            self.apply([job])
            ended = self.cluster.wait(
                f"Job {name} has ended",
                lambda: self.cluster.job_result(name),
                timeout=LOAD_SECONDS,
                seen=lambda: self.describe_pods(f"job-name={name}"),
                detail=step.detail,
            )

            def said() -> str:
                return self.cluster.log_tail(f"job-name={name}", 5) or str(ended.get("message", "")).strip()

            if ended["exitCode"] != 0:
                raise ScenarioError(f"Job {name} ended with {ended['exitCode']}: {said()}")
            # The kubelet of a busy node may be late with it.
            words = self.cluster.wait(f"the log of Job {name}", lambda: said() or None, timeout=LOAD_SECONDS)
            step.detail(words)
            return words

    def force_rebuild(self) -> dict[str, tuple[str, str]]:
        """Annotate the DriverContainer and wait for new images; gives kernel to (old, new) digest."""
        before = {kernel: target["imageDigest"] for kernel, target in self.cluster.targets(DRIVER).items()}
        with self.progress.step("An annotation forces a rebuild") as step:
            value = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER)
            self.cluster.client.patch(path, {"metadata": {"annotations": {names.REBUILD_ANNOTATION: value}}})
            after = {kernel: self.wait_for_image(kernel, step, not_digest=digest) for kernel, digest in before.items()}
        with self.progress.step("The nodes switch to the new images") as step:
            self.cluster.wait(
                "every target is Ready with its new image",
                self._is_rolled_out,
                timeout=LOAD_SECONDS,
                seen=lambda: self.cluster.describe_targets(DRIVER),
                detail=step.detail,
            )
        return {kernel: (before[kernel], after[kernel]) for kernel in before}

    def _is_rolled_out(self) -> bool | None:
        """Return whether every target is Ready, and the wave has ended."""
        status = self.cluster.driver(DRIVER).get("status") or {}
        is_ready = all(item["state"] == "Ready" for item in status.get("targets") or ())
        return (is_ready and "rollout" not in status) or None

    def remove_driver(self) -> None:
        """Delete the DriverContainer and wait until labels and modules are gone."""
        with self.progress.step("Delete the DriverContainer: labels and modules are removed") as step:
            self.cluster.client.delete(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER))
            self.wait_until_driver_is_gone(step)
            for node in self.nodes():
                self.check_removed(node)

    def check_removed(self, node: AnyNode) -> None:
        """Make sure that nothing of the driver is left on a node.

        Raises:
            ScenarioError: it names what is.
        """
        if READY_LABEL in self.cluster.labels(node.name):
            raise ScenarioError(f"{node.name} still has the ready label")

    def wait_until_driver_is_gone(self, step: Step | None = None) -> None:
        """Wait until neither the DriverContainer nor a pod of it is left."""
        path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER)
        self.cluster.wait(
            "the DriverContainer and its pods are gone",
            lambda: (self._is_gone(path) and not self.cluster.driver_pods(DRIVER)) or None,
            timeout=LOAD_SECONDS,
            seen=lambda: f"{len(self.cluster.driver_pods(DRIVER))} driver pods",
            detail=step.detail if step else None,
        )

    def table(self) -> list[NodeRow]:
        """Read the final table: from the cluster, and what the nodes themselves say."""
        targets = self.cluster.targets(DRIVER)
        return [self._row(node, targets.get(node.kernel.release, {})) for node in self.nodes()]

    def _row(self, node: AnyNode, target: Json) -> NodeRow:
        seen = self.look_at(node)
        return NodeRow(
            node=node.name,
            kernel=seen.kernel,
            image=str(target.get("image", "")),
            digest=str(target.get("imageDigest", "")),
            module=seen.module,
            device=seen.device,
            ready=self.cluster.labels(node.name).get(READY_LABEL, "no"),
        )

    def _is_gone(self, path: str) -> bool:
        try:
            self.cluster.client.get(path)
        except NotFound:
            return True
        return False

    def _running(self, selector: str) -> bool:
        pods = self.cluster.pods(selector)
        return any(
            item.get("ready") for pod in pods for item in (pod.get("status") or {}).get("containerStatuses") or ()
        )

    def describe_pods(self, selector: str) -> str:
        """Say how the pods with a label are, in one line."""
        words = []
        for pod in self.cluster.pods(selector):
            status = pod.get("status") or {}
            waiting = [
                (item["state"].get("waiting") or {}).get("reason", "")
                for item in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
            ]
            node = pod["spec"].get("nodeName", "no node")
            words.append(f"{node}: {status.get('phase', '?')} {' '.join(filter(None, waiting))}".strip())
        return "; ".join(words) or "no pod yet"
