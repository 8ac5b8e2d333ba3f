"""The scenario on a testbed, with nodes that it boots.

Two nodes come up, one with Debian 12 and one with 13; workers label them; the edu DriverContainer is applied; an image
is built, verified and pushed for each kernel; both nodes load it and become ready; a workload runs; one node reboots
into a third kernel and is ready again; an annotation forces a rebuild; everything is taken away without a trace.
"""

import re
import time
from collections.abc import Sequence

from demo import deploy
from demo.cluster import Cluster, ScenarioError
from demo.patient import PatientClient
from demo.stage import (
    CONTROLLER,
    DRIVER,
    EDU_LABEL,
    EXAMPLE,
    NODE_SECONDS,
    READY_LABEL,
    REPOSITORY,
    SOURCE,
    WORKER,
    WORKER_CONFIG,
    Seen,
    Stage,
)
from demo.steps import Steps
from kube_api import names
from testbed import KernelPackage, Testbed
from testbed.guest.guest import Guest
from testbed.ports import free_ports
from testbed.progress import Progress, Step

__all__ = ["CONTROLLER", "DRIVER", "EDU_LABEL", "EXAMPLE", "READY_LABEL", "REPOSITORY", "SOURCE", "Scenario"]


class Scenario(Steps[Guest]):
    """The scenario on a testbed: boots the nodes, reboots one, and looks inside."""

    keeps_images = True

    def __init__(self, ground: Testbed, progress: Progress) -> None:
        cluster = Cluster(PatientClient.from_environment(str(ground.kubeconfig)))
        engine = ground.engine.client()
        super().__init__(
            Stage(cluster=cluster, engine=engine, registry=ground.registry.host, plain_http=True), progress
        )
        self.ground = ground
        self.kernels: list[KernelPackage] = []
        self.guests: dict[str, Guest] = {}

    def nodes(self) -> Sequence[Guest]:
        """Give all guests: each has an edu device."""
        return list(self.guests.values())

    def boot_nodes(self) -> None:
        """Boot a guest with Debian 12 and one with Debian 13, with our own images on their disks.

        The third kernel is another one of Debian 12, and refuses modules of the first.
        """
        with self.progress.step("Choose kernels of Debian 12 and of Debian 13"):
            first, third = self.ground.kernels(2)
            self.kernels = [first, self.ground.stock_kernel("trixie"), third]
            self.ground.provide_base_image("trixie")
        with self.progress.step("Prepare the nodes' disk"):
            self.ground.preload([self.images["nfd-worker"], self.images["loader"]])
        with self.progress.step("Boot two nodes, with Debian 12 and Debian 13") as step:
            for name, kernel in zip(("guest-a", "guest-b"), self.kernels, strict=False):
                self.guests[name] = self.ground.add_guest(name, kernel, boot=False)
            for guest in self.guests.values():
                guest.boot(guest.kernel)
            for guest in self.guests.values():
                step.detail(f"{guest.name} boots {guest.kernel.release}")
                guest.wait_ready(timeout=NODE_SECONDS)

    def overlay(self) -> deploy.Overlay:
        """What this cluster needs changed in ``deploy/``: it has no pod network, and its ports are its own."""
        api = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.ground.api_port)}
        ports = dict(zip(("driver-builder", "nfd-worker"), free_ports(2), strict=True))
        # To push toolchains takes longer than building from them saves here. Tests of them switch them on.
        settings = {"DRIVER_BUILDER_TOOLCHAINS": "false", "DRIVER_BUILDER_TEST_WAITS": "10,5,3600"}
        return deploy.Overlay(
            images=self.images,
            host_network=True,
            environment={"driver-builder": {**api, **settings}, "nfd-worker": api},
            arguments={
                "driver-builder": (
                    f"--port={ports['driver-builder']}",
                    # The testbed's registry is on this machine, has no TLS, and now and then a password.
                    "--registry-plain-http-passwords",
                    f"--registry-allowed-hosts={self.ground.registry.host}",
                ),
                "nfd-worker": (f"--port={ports['nfd-worker']}",),
            },
            probe_ports=ports,
            engine_socket=self.ground.engine.socket.removeprefix("unix://"),
            node_selectors={"driver-builder": {"kubernetes.io/hostname": self.ground.host_node_name}},
            worker_config=WORKER_CONFIG,
        )

    def wait_for_labels(self) -> None:
        """Wait until every guest's labels have its kernel and its PCI device."""
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
            return f"{guest.name}: {kernel}; worker: {self.describe_pods(WORKER)}"

        self.cluster.wait(
            f"{guest.name} is labelled with {guest.kernel.release}",
            check,
            timeout=NODE_SECONDS,
            seen=seen,
            detail=step.detail,
        )

    def reboot_into_third_kernel(self) -> float:
        """Reboot guest-a into a kernel without a driver image and wait until its driver is ready again.

        Returns the seconds between the node's Ready and its driver's.
        """
        guest, kernel = self.guests["guest-a"], self.kernels[2]
        with self.progress.step(f"guest-a reboots from {guest.kernel.release} into {kernel.release}"):
            guest.reboot(kernel)
            guest.wait_ready(timeout=NODE_SECONDS)
        began = time.monotonic()
        with self.progress.step(
            "nfd-worker reports the new kernel: the driver does not match, the node is no longer ready"
        ) as step:
            self.wait_for_kernel_label(guest, step)
            self.cluster.wait(
                "guest-a has lost its ready label",
                lambda: READY_LABEL not in self.cluster.labels(guest.name) or None,
                timeout=NODE_SECONDS,
                detail=step.detail,
            )
        with self.progress.step(f"Build, verify and push the driver for {kernel.release}") as step:
            self.wait_for_image(kernel.release, step)
        with self.progress.step("guest-a loads the driver and is ready again") as step:
            self.wait_for_ready_label(guest, step)
        seconds = time.monotonic() - began
        self.wait_for_ready()
        return seconds

    def check_removed(self, node: Guest) -> None:
        """Make sure that nothing of the driver is left on a guest."""
        super().check_removed(node)
        if "edudrv" in node.run("cat /proc/modules")[1]:
            raise ScenarioError(f"edudrv is still loaded on {node.name}")

    def look_at(self, node: Guest) -> Seen:
        """Look inside the guest, past everything that the product says."""
        identity = node.run("cat /sys/module/edudrv/srcversion")[1].strip()
        return Seen(
            kernel=node.run("uname -r")[1].strip(),
            module=f"edudrv {identity}",
            device=" ".join(self.bound_devices(node)),
        )

    @staticmethod
    def bound_devices(guest: Guest) -> list[str]:
        """List the PCI addresses that the driver is bound to inside a guest."""
        names_in_folder = guest.run("ls /sys/bus/pci/drivers/edudrv")[1].split()
        return [name for name in names_in_folder if re.fullmatch(r"[0-9a-f]{4}:[0-9a-f:.]+", name)]
