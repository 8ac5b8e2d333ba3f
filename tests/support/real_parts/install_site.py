"""A testbed for an installation by the documentation: its admin, its nodes, and what it needs that no page can know."""

import os
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

from demo.cluster import Cluster
from demo.stage import BASE_IMAGE
from testbed.guest.guest import Guest
from testbed.ports import free_ports
from testbed.testbed import Testbed
from tests.support.real_parts import acts
from tests.support.real_parts.admin_shell import Admin
from tests.support.real_parts.cluster_setup import admin
from tools import product_images

Json = dict[str, Any]

EXAMPLE = "examples/edu-driver"
_OVERLAY = "examples/overlay"
_PRELOADED = ("nfd-worker", "loader", "device-agent")
"""Images that are on the disks of emulated nodes before they boot: to unpack them takes minutes there."""
_PROGRAMS = {"driver-builder": "Deployment", "nfd-worker": "DaemonSet"}
_POD = "/spec/template/spec"
_FIRST = f"{_POD}/containers/0"


class Site:
    """The testbed, and somebody at a shell with its kubeconfig, its engine and an empty folder.

    There is no pod network, so that programs and builds use the nodes' own, with ports that are free there. The nodes
    are emulated: this machine builds, and runs the controller. The registry has no TLS, and the base image of builds.
    """

    def __init__(self, ground: Testbed, folder: Path, say: Callable[[str], None]) -> None:
        self.ground = ground
        self.client = admin(ground)
        self.cluster = Cluster(self.client)
        self.registry = f"{ground.registry.host}/team"
        self.guests: list[Guest] = []
        self._ports = dict(zip(_PROGRAMS, free_ports(2), strict=True))
        environment = {
            "REGISTRY": self.registry,
            "KUBECONFIG": str(ground.kubeconfig),
            "DOCKER_HOST": ground.engine.socket,
            "PATH": os.pathsep.join((str(ground.binaries.folder), os.environ["PATH"])),
        }
        self.admin = Admin(folder, environment, say)

    def fit_overlay(self) -> None:
        """Add what the programs need to the overlay of the example."""
        folder = self.admin.folder / _OVERLAY
        patches = []
        for program, kind in _PROGRAMS.items():
            (folder / f"{program}.yaml").write_text(yaml.safe_dump(self._patch(program)))
            target = {"group": "apps", "version": "v1", "kind": kind, "name": program}
            patches.append({"target": target, "path": f"{program}.yaml"})
        with (folder / "kustomization.yaml").open("a") as file:
            file.write(yaml.safe_dump({"patchesJson6902": patches}))

    def fit_chart(self) -> tuple[Path, Json]:
        """Let pods of the chart use their nodes' network, which is no value of it; returns it, and what are values."""
        chart = self.admin.folder / "deploy/chart/driverwright"
        for name in ("driver-builder/deployment.yaml", "nfd-worker/_daemonset.tpl"):
            template = chart / "templates" / name
            text = template.read_text().replace(
                "containerPort: 8080", f"containerPort: {self._ports['driver-builder']}"
            )
            text, count = re.subn(
                r"^( +)serviceAccountName: .+$", r"\g<0>\n\1hostNetwork: true", text, flags=re.MULTILINE
            )
            assert count == 1, template
            template.write_text(text)
        return chart, {
            "driverBuilder": {
                "args": [f"--port={self._ports['driver-builder']}"],
                "env": self._variables("driver-builder"),
                "nodeSelector": {"kubernetes.io/hostname": self.ground.host_node_name},
            },
            "nfdWorker": {"port": self._ports["nfd-worker"], "env": self._variables("nfd-worker")},
        }

    def _variables(self, program: str) -> dict[str, str]:
        server = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.ground.api_port)}
        # Toolchains are pushed, as the manifests have it: no step waits for them.
        jobs = {
            "DRIVER_BUILDER_JOB_HOST_NETWORK": "true",
            "DRIVER_BUILDER_JOB_NODE_SELECTOR": f"kubernetes.io/hostname={self.ground.host_node_name}",
            "DRIVER_BUILDER_MAX_BUILDS": "2",
            "DRIVER_BUILDER_REGISTRY_ALLOWED_HOSTS": self.ground.registry.host,
        }
        return {**server, **(jobs if program == "driver-builder" else {})}

    def _patch(self, program: str) -> list[Json]:
        port, variables = self._ports[program], self._variables(program)
        added: list[tuple[str, Any]] = [(f"{_POD}/hostNetwork", True), (f"{_FIRST}/args/-", f"--port={port}")]
        if program == "driver-builder":
            added.append((f"{_POD}/nodeSelector", {"kubernetes.io/hostname": self.ground.host_node_name}))
        added += [(f"{_FIRST}/env/-", {"name": name, "value": text}) for name, text in variables.items()]
        return [
            {"op": "replace", "path": f"{_FIRST}/ports/0/containerPort", "value": port},
            *({"op": "add", "path": path, "value": value} for path, value in added),
        ]

    def fit_driver(self, name: str, **settings: Any) -> None:
        """Let a DriverContainer of the example know this registry, and the base image that is in it."""
        path = self.admin.folder / EXAMPLE / name
        driver = yaml.safe_load(path.read_text())
        build = {**driver["spec"].get("build", {}), "baseImage": f"{self.ground.registry.host}/{BASE_IMAGE}"}
        driver["spec"] |= {"registry": {"plainHttp": True}, "build": build, **settings}
        path.write_text(yaml.safe_dump(driver))

    def fit_pods(self, *names: str) -> None:
        """Let pods of the example use their nodes' network."""
        for name in names:
            path = self.admin.folder / EXAMPLE / name
            workload = yaml.safe_load(path.read_text())
            workload["spec"]["template"]["spec"]["hostNetwork"] = True
            path.write_text(yaml.safe_dump(workload))

    def push_images_of_others(self) -> None:
        """Push what comes from other registries where a cluster reaches them: the base image, and a busybox."""
        ground, busybox = self.ground, f"{self.registry}/busybox"
        with closing(ground.engine.client()) as engine:
            product_images.push_base_image(engine, ground.registry.host, base_image=ground.base_image)
            engine.tag(ground.small_image, busybox, "1.36")
            engine.push(busybox, "1.36")

    def boot(self) -> None:
        """Boot two nodes with kernels of two series, on which nothing of ours has ever been."""
        self.ground.preload([f"{self.registry}/driverwright/{name}:latest" for name in _PRELOADED])
        for name, kernel in zip(("node-a", "node-b"), self.ground.kernels(2), strict=True):
            self.guests.append(self.ground.add_guest(name, kernel, boot=False))
        for guest in self.guests:
            guest.boot(guest.kernel)
        for guest in self.guests:
            guest.wait_ready()
            # Other tests want it on the disk.
            guest.check("rm -r /etc/kubernetes")
        acts.wait_for("Kubernetes is done with its new nodes", self._nodes_are_known)

    def _nodes_are_known(self) -> bool:
        """Kubernetes takes its taints away and a kubelet makes its Lease only after the node is ready."""
        tainted = any(node["spec"].get("taints") for node in self.client.list("/api/v1/nodes").items)
        leases = self.client.list("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases").items
        return not tainted and {lease["metadata"]["name"] for lease in leases} == set(self.nodes())

    def nodes(self) -> list[str]:
        """Name all nodes."""
        return [self.ground.host_node_name, *(guest.name for guest in self.guests)]
