"""The story, step by step. Each step acts, waits until the cluster shows its effect, and leaves what it found.

Two nodes come up on different kernels; workers label them; the edu DriverContainer is applied; an image is built,
verified and pushed for each kernel; both nodes load it and become ready; a workload runs; one node reboots into a third
kernel and is ready again; an annotation forces a rebuild; everything is taken away without a trace.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kube_api import names
from kube_api.client import Client
from kube_api.errors import NotFound
from kube_api.resources import CONFIG_MAPS, DRIVER_CONTAINERS, JOBS
from tests.proving_ground import KernelPackage, ProvingGround
from tests.proving_ground.guest.guest import Guest
from tests.proving_ground.ports import free_ports
from tests.proving_ground.progress import Progress, Step
from tests.story import deploy, product_images
from tests.story.cluster import NAMESPACE, Cluster, Json, StoryError

EXAMPLE = Path(__file__).parents[2] / "examples/edu-driver"
DRIVER = "edu"
SOURCE = "edu-driver-source"
EDU_LABEL = f"{names.FEATURE_LABEL_PREFIX}/pci-00ff_1234.present"
READY_LABEL = names.ready_label(NAMESPACE, DRIVER)
CONTROLLER = "app.kubernetes.io/name=driver-builder"
REPOSITORY = "drivers/edu"
BASE_IMAGE = "debian:bookworm-slim"

NODE_SECONDS = 240.0
BUILD_SECONDS = 600.0
LOAD_SECONDS = 240.0

_BUILD_STEP = re.compile(r"Step (\d+)/(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One line of the final table."""

    node: str
    kernel: str
    image: str
    digest: str
    module: str
    device: str
    ready: str


class Story:
    """Tells the story on a proving ground. The steps are called in the order they are written in."""

    def __init__(self, ground: ProvingGround, progress: Progress) -> None:
        self.ground = ground
        self.progress = progress
        self.cluster = Cluster(Client.from_environment(str(ground.kubeconfig)))
        self.images: Mapping[str, str] = {}
        self.kernels: list[KernelPackage] = []
        self.guests: dict[str, Guest] = {}

    def build_product(self) -> None:
        """Build the images of nfd-worker, driver-builder and the example workload."""
        with self.progress.step("Build the images of nfd-worker and driver-builder") as step:
            self.images = product_images.build_all(
                self.ground.engine.client(), self.ground.registry.host, base_image=BASE_IMAGE, say=step.detail
            )

    def boot_nodes(self) -> None:
        """Boot two guests on kernels that refuse each other's modules, with the worker's image on their disks."""
        with self.progress.step("Choose three kernels that refuse each other's modules"):
            self.kernels = self.ground.kernels(3)
        with self.progress.step("Prepare the nodes' disk"):
            self.ground.preload([self.images["nfd-worker"]])
        with self.progress.step("Boot two nodes on different kernels") as step:
            for name, kernel in zip(("guest-a", "guest-b"), self.kernels, strict=False):
                self.guests[name] = self.ground.add_guest(name, kernel)
            for guest in self.guests.values():
                step.detail(f"{guest.name} boots {guest.kernel.release}")
                guest.wait_ready(timeout=NODE_SECONDS)

    def deploy_programs(self) -> None:
        """Apply ``deploy/`` and wait for the controller's pod."""
        with self.progress.step("Deploy nfd-worker and driver-builder") as step:
            deploy.apply(self.cluster.client, deploy.manifests(self.overlay()))
            self.wait_for_controller(step)

    def wait_for_controller(self, step: Step | None = None) -> None:
        """Wait until a pod of the controller runs."""
        self.cluster.wait(
            "the driver-builder pod is running",
            lambda: self._running(CONTROLLER) or None,
            timeout=120,
            seen=lambda: self._describe_pods(CONTROLLER),
            detail=step.detail if step else None,
        )

    def overlay(self) -> deploy.Overlay:
        """What this cluster needs changed in ``deploy/``: it has no pod network, and its ports are its own."""
        api = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.ground.api_port)}
        ports = dict(zip(("driver-builder", "nfd-worker"), free_ports(2), strict=True))
        return deploy.Overlay(
            images=self.images,
            host_network=True,
            environment={"driver-builder": api, "nfd-worker": api},
            arguments={
                "driver-builder": (f"--port={ports['driver-builder']}", "--retry-min-seconds=5", "--resync-seconds=10"),
                "nfd-worker": (f"--port={ports['nfd-worker']}",),
            },
            probe_ports=ports,
            engine_socket=self.ground.engine.socket.removeprefix("unix://"),
            builder_node_selector={"kubernetes.io/hostname": self.ground.host_node_name},
            worker_config=yaml.safe_dump({"sources": {"pci": {"deviceClassWhitelist": ["00ff", "03", "0b40", "12"]}}}),
        )

    def wait_for_labels(self) -> None:
        """Wait until every guest's labels tell its kernel and its PCI device."""
        with self.progress.step("nfd-worker labels the nodes") as step:
            for guest in self.guests.values():
                self.wait_for_kernel_label(guest, step)

    def wait_for_kernel_label(self, guest: Guest, step: Step) -> None:
        """Wait until a guest is labelled with the kernel it runs."""

        def check() -> bool | None:
            labels = self.cluster.labels(guest.name)
            right = (
                labels.get(names.KERNEL_VERSION_LABEL) == names.label_value(guest.kernel.release)
                and EDU_LABEL in labels
            )
            return right or None

        def seen() -> str:
            kernel = self.cluster.labels(guest.name).get(names.KERNEL_VERSION_LABEL, "no kernel label")
            return f"{guest.name}: {kernel}; worker: {self._describe_pods('app.kubernetes.io/name=nfd-worker')}"

        self.cluster.wait(
            f"{guest.name} is labelled with {guest.kernel.release}",
            check,
            timeout=NODE_SECONDS,
            seen=seen,
            detail=step.detail,
        )

    def apply_driver(self, *, driver_spec: Mapping[str, Any] | None = None) -> None:
        """Apply the driver's source as a ConfigMap, and the DriverContainer."""
        with self.progress.step("Apply the edu DriverContainer"):
            self.apply_source()
            driver = yaml.safe_load((EXAMPLE / "driver-container.yaml").read_text())
            driver["spec"] |= {
                "image": f"{self.ground.registry.host}/{REPOSITORY}",
                "registry": {"plainHttp": True},
                **(driver_spec or {}),
            }
            path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER)
            self.cluster.client.apply(path, driver, field_manager=deploy.FIELD_MANAGER)

    def apply_source(self, replace: Mapping[str, str] | None = None) -> None:
        """Write ``src/`` into the ConfigMap; ``replace`` gives other contents for some of the files."""
        files = {path.name: path.read_text() for path in sorted((EXAMPLE / "src").iterdir()) if path.is_file()}
        source: Json = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": SOURCE, "namespace": NAMESPACE},
            "data": {**files, **(replace or {})},
        }
        path = CONFIG_MAPS.path(namespace=NAMESPACE, name=SOURCE)
        self.cluster.client.apply(path, source, field_manager=deploy.FIELD_MANAGER)

    def wait_for_builds(self) -> None:
        """Wait until an image is built, verified and pushed for the kernel of every guest."""
        kernels = sorted({guest.kernel.release for guest in self.guests.values()})
        for kernel in kernels:
            with self.progress.step(f"Build, verify and push the driver for {kernel}") as step:
                self.wait_for_image(kernel, step)

    def wait_for_image(self, kernel: str, step: Step, *, not_digest: str = "") -> str:
        """Wait for the image of one kernel; gives its digest, which is another one than ``not_digest``."""

        def check() -> str | None:
            digest: str = self.cluster.targets(DRIVER).get(kernel, {}).get("imageDigest", "")
            self._show_build(step)
            return digest if digest and digest != not_digest else None

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
        """Wait until the driver is proven on every guest."""
        with self.progress.step("Nodes load the driver, prove it and become ready") as step:
            for guest in self.guests.values():
                self.wait_for_ready_label(guest, step)
            self.cluster.wait(
                "the DriverContainer is Ready",
                lambda: self.cluster.condition(DRIVER, "Ready").get("status") == "True" or None,
                timeout=LOAD_SECONDS,
                seen=lambda: self.cluster.describe_targets(DRIVER),
                detail=step.detail,
            )

    def wait_for_ready_label(self, guest: Guest, step: Step) -> None:
        """Wait until a guest carries the ready label."""
        self.cluster.wait(
            f"{guest.name} is ready",
            lambda: READY_LABEL in self.cluster.labels(guest.name) or None,
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
            self.cluster.client.create(JOBS.path(namespace=NAMESPACE), job)
            ended = self.cluster.wait(
                f"Job {name} has ended",
                lambda: self.cluster.job_result(name),
                timeout=LOAD_SECONDS,
                seen=lambda: self._describe_pods(f"job-name={name}"),
                detail=step.detail,
            )
            said = self.cluster.log_tail(f"job-name={name}", 5) or str(ended.get("message", "")).strip()
            step.detail(said)
            if ended["exitCode"] != 0:
                raise StoryError(f"Job {name} ended with {ended['exitCode']}: {said}")
            return said

    def reboot_into_third_kernel(self) -> None:
        """Reboot guest-a into a kernel nobody has built for yet and wait until it is ready again."""
        guest, kernel = self.guests["guest-a"], self.kernels[2]
        with self.progress.step(f"guest-a reboots from {guest.kernel.release} into {kernel.release}"):
            guest.reboot(kernel)
            guest.wait_ready(timeout=NODE_SECONDS)
        with self.progress.step("nfd-worker says the new kernel: mismatch, no longer ready") as step:
            self.wait_for_kernel_label(guest, step)
            self.cluster.wait(
                "guest-a has lost its ready label",
                lambda: READY_LABEL not in self.cluster.labels(guest.name) or None,
                timeout=60,
                detail=step.detail,
            )
        with self.progress.step(f"Build, verify and push the driver for {kernel.release}") as step:
            self.wait_for_image(kernel.release, step)
        self.wait_for_ready()

    def force_rebuild(self) -> dict[str, tuple[str, str]]:
        """Annotate the DriverContainer and wait for new images; gives kernel to (old, new) digest."""
        before = {kernel: target["imageDigest"] for kernel, target in self.cluster.targets(DRIVER).items()}
        with self.progress.step("An annotation forces a rebuild") as step:
            value = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER)
            self.cluster.client.patch(path, {"metadata": {"annotations": {names.REBUILD_ANNOTATION: value}}})
            after = {kernel: self.wait_for_image(kernel, step, not_digest=digest) for kernel, digest in before.items()}
        with self.progress.step("The nodes change over to the new images") as step:
            self.cluster.wait(
                "every target is Ready with its new image",
                lambda: all(item["state"] == "Ready" for item in self.cluster.targets(DRIVER).values()) or None,
                timeout=LOAD_SECONDS,
                seen=lambda: self.cluster.describe_targets(DRIVER),
                detail=step.detail,
            )
        return {kernel: (before[kernel], after[kernel]) for kernel in before}

    def remove_driver(self) -> None:
        """Delete the DriverContainer and wait until labels and modules are gone."""
        with self.progress.step("Delete the DriverContainer: labels and modules go") as step:
            self.cluster.client.delete(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER))
            self.wait_until_driver_is_gone(step)
            for guest in self.guests.values():
                if READY_LABEL in self.cluster.labels(guest.name):
                    raise StoryError(f"{guest.name} still has the ready label")
                if "edudrv" in guest.run("cat /proc/modules")[1]:
                    raise StoryError(f"edudrv is still loaded on {guest.name}")

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
        """Read the final table from the cluster and out of the guests."""
        targets = self.cluster.targets(DRIVER)
        return [self._row(guest, targets.get(guest.kernel.release, {})) for guest in self.guests.values()]

    def _row(self, guest: Guest, target: Json) -> NodeRow:
        return NodeRow(
            node=guest.name,
            kernel=guest.run("uname -r")[1].strip(),
            image=str(target.get("image", "")),
            digest=str(target.get("imageDigest", "")),
            module=f"edudrv {guest.run('cat /sys/module/edudrv/srcversion')[1].strip()}",
            device=" ".join(self.bound_devices(guest)),
            ready=self.cluster.labels(guest.name).get(READY_LABEL, "no"),
        )

    @staticmethod
    def bound_devices(guest: Guest) -> list[str]:
        """List the PCI addresses that the driver is bound to inside a guest."""
        names_in_folder = guest.run("ls /sys/bus/pci/drivers/edudrv")[1].split()
        return [name for name in names_in_folder if re.fullmatch(r"[0-9a-f]{4}:[0-9a-f:.]+", name)]

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

    def _describe_pods(self, selector: str) -> str:
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
