"""The world of a soak: a driver, and nodes that come, go, reboot and change their kernels, with played kubelets.

All of it is written to the API server itself, past the proxies.
"""

from __future__ import annotations

import base64
import threading
import time
from pathlib import Path
from typing import Any

from driver_builder.objects import load_report, manifests
from kube_api import names
from kube_api.client import Client
from kube_api.resources import CONFIG_MAPS, DRIVER_CONTAINERS, NODES
from testbed.testbed import Testbed
from tests.support.driver_builder import factories
from tests.support.real_parts.cluster_setup import make_namespace
from tests.support.real_parts.played_nodes import PlayedNodes
from tests.support.soak.schedule import Act

Json = dict[str, Any]

DRIVER = "edu"
MODULES = Path(__file__).parents[2] / "data" / "modules"
BUILT_FOR = "6.1.0-55-cloud-amd64"
KERNELS = (BUILT_FOR, "6.1.0-56-cloud-amd64", "6.1.0-47-cloud-amd64")
"""Their names are of one length: the module is made for another one by writing another name into it."""
TEMPLATE_NAME = "soak"
MODULE_PATH = "updates/dw_helper.ko"

FEWEST, MOST = 2, 6
HEARTBEAT_SECONDS = 5.0

BUILD = f"""\
mkdir -p /facts /out/driver "/out/lib/modules/$1/updates"
base64 -d /src/module | LC_ALL=C sed "s/{BUILT_FOR}/$1/g" >"/out/lib/modules/$1/{MODULE_PATH}"
echo {MODULE_PATH}: >"/out/lib/modules/$1/modules.dep"
echo {{life}} >/out/driver/loader
cp /src/Module.symvers /facts/
echo gcc >/facts/compiler
"""


def module_for(kernel: str) -> bytes:
    """Return the module that an image for a kernel must have."""
    return (MODULES / "dw_helper.ko").read_bytes().replace(BUILT_FOR.encode(), kernel.encode())


class Fleet(PlayedNodes):
    """Played nodes with boots of their own; ``proofs`` are the nodes with the boot and kernel that a pod proved."""

    def __init__(self, ground: Testbed, client: Client, *, namespace: str) -> None:
        super().__init__(ground, client, namespace=namespace, pool=namespace)
        self.proofs: set[tuple[str, str]] = set()
        self._boots: dict[str, str] = {}
        self._booted = 0
        self._beaten = 0.0
        self._busy = threading.Lock()

    @property
    def kernels(self) -> dict[str, str]:
        """The kernel of each node."""
        return dict(self._kernels)

    def place(self, node: str) -> str:
        """Return boot and kernel of a node, as they are written beside a ready label."""
        return f"{self._boots[node]} {self._kernels[node]}"

    def come(self, kernel: str) -> None:
        """Let a new node come."""
        self._booted += 1
        name, boot = f"{self._namespace}-{self._booted}", f"boot-{self._booted}"
        self._boots[name] = boot
        self.add(name, kernel, _annotations(kernel, boot))

    def boot(self, node: str, kernel: str) -> None:
        """Boot a node, into the kernel that it has or into another one."""
        with self._busy:
            self._booted += 1
            boot = f"boot-{self._booted}"
            self._boots[node], self._kernels = boot, {**self._kernels, node: kernel}
            metadata = {"labels": {names.KERNEL_VERSION_LABEL: kernel}, "annotations": _annotations(kernel, boot)}
            self._client.patch(NODES.path(name=node), {"metadata": metadata})

    def go(self, node: str) -> None:
        """Let a node go; its pods follow."""
        with self._busy:
            self._kernels = {name: kernel for name, kernel in self._kernels.items() if name != node}
            self._client.delete(NODES.path(name=node))

    def boot_of(self, node: str) -> str:
        """Return the id of a node's boot."""
        return self._boots[node]

    def has_reported(self, pod: Json) -> bool:
        """Tell whether a pod has reported on the boot that its node is on."""
        found = load_report_of(pod)
        return found is not None and found.boot_id == self._boots[pod["spec"]["nodeName"]]

    def send_heartbeats(self, now: str) -> None:
        """Now and then."""
        if time.monotonic() - self._beaten >= HEARTBEAT_SECONDS:
            super().send_heartbeats(now)
            self._beaten = time.monotonic()

    def play(self) -> None:
        """Play, while no node changes."""
        with self._busy:
            super().play()

    def play_pod(self, pod: Json, now: str) -> None:
        """Let pods of nodes that are gone go, too."""
        node = pod["spec"].get("nodeName")
        if node and node not in self._kernels:
            self._force_delete(pod)
            return
        super().play_pod(pod, now)

    def _report(self, pod: Json) -> Json:
        node = pod["spec"]["nodeName"]
        if pod["metadata"]["annotations"][manifests.KERNEL_ANNOTATION] == self._kernels[node]:
            self.proofs.add((node, self.place(node)))
        return super()._report(pod)


def load_report_of(pod: Json) -> load_report.LoadReport | None:
    """Read what a pod's loader reported."""
    for container in pod["status"].get("initContainerStatuses") or ():
        message = ((container.get("state") or {}).get("terminated") or {}).get("message")
        if message:
            return load_report.parse(message)
    return None


class World:
    """A driver in a namespace of its own, and its nodes. What is wanted is in ``version`` and ``rebuild``.

    Nodes run KERNELS, or ``compiled`` and the first two of these.
    """

    def __init__(self, ground: Testbed, client: Client, *, namespace: str, registry: str, compiled: str = "") -> None:
        self.namespace = namespace
        self._possible = tuple(dict.fromkeys((compiled or KERNELS[0], *KERNELS)))[: len(KERNELS)]
        self.version = ""
        self.rebuild = ""
        self.fleet = Fleet(ground, client, namespace=namespace)
        self._client = client
        self._repository = f"{registry}/{namespace}/{DRIVER}"
        self._edits = self._rebuilds = self._cosmetics = 0
        self._path = DRIVER_CONTAINERS.path(namespace=namespace, name=DRIVER)

    @property
    def label(self) -> str:
        """The driver's ready label."""
        return names.ready_label(self.namespace, DRIVER)

    def begin(self, nodes: int) -> None:
        """Make namespace, source, nodes and driver."""
        make_namespace(self._client, self.namespace)
        files = {
            "build.sh": BUILD.format(life=self.namespace),
            "Module.symvers": (MODULES / f"{BUILT_FOR}.symvers").read_text(),
            "module": base64.encodebytes((MODULES / "dw_helper.ko").read_bytes()).decode(),
            "dw_helper.c": (MODULES / "dw_helper.c").read_text(),
            "Makefile": "obj-m := dw_helper.o\n",
        }
        source = {"metadata": {"name": "source"}, "data": files}
        self._client.create(CONFIG_MAPS.path(namespace=self.namespace), source)
        for number in range(nodes):
            self.fleet.come(self._possible[number % len(self._possible)])
        self.fleet.start()
        self.act(Act.EDIT, 0)

    def act(self, act: Act, draw: int) -> None:
        """Change the world."""
        kernels = self.fleet.kernels
        nodes = sorted(kernels)
        node = nodes[draw % len(nodes)]
        kernel = self._possible[draw % len(self._possible)]
        match act:
            case Act.EDIT:
                self._edits += 1
                self.version = f"{self._edits}.0.0"
                self._apply()
            case Act.COSMETIC:
                self._cosmetics += 1
                self._apply()
            case Act.REBUILD:
                self._rebuilds += 1
                self.rebuild = f"request-{self._rebuilds}"
                annotations = {names.REBUILD_ANNOTATION: self.rebuild}
                self._client.patch(self._path, {"metadata": {"annotations": annotations}})
            case Act.JOIN if len(nodes) < MOST:
                self.fleet.come(kernel)
            case Act.LEAVE if len(nodes) > FEWEST:
                self.fleet.go(node)
            case Act.REBOOT | Act.JOIN | Act.LEAVE:
                self.fleet.boot(node, kernels[node])
            case Act.MOVE:
                others = [other for other in self._possible if other != kernels[node]]
                self.fleet.boot(node, others[draw % len(others)])
            case _:
                raise ValueError(f"{act} is no change of the world")

    def _apply(self) -> None:
        changes: Json = {
            "version": self.version,
            "nodeSelector": {"pool": self.namespace},
            "image": self._repository,
            "registry": {"plainHttp": True},
            "source": {"configMap": {"name": "source"}},
            "module": {"names": ["dw_helper"], "parameters": {"dw_helper": [f"level={self._edits}"]}},
            "build": {"template": TEMPLATE_NAME, "baseImage": "debian:bookworm-slim", "reuseAcrossKernels": False},
            "kernelMappings": [{"literal": kernel} for kernel in self._possible],
            # Of pods alone: no node has anything of it.
            "tolerations": [{"operator": "Exists"}, {"key": f"cosmetic-{self._cosmetics}", "operator": "Exists"}],
        }
        body = factories.driver_object(DRIVER, spec_changes=changes)
        body["metadata"] = {"name": DRIVER, "namespace": self.namespace}
        del body["status"]
        self._client.apply(self._path, body, field_manager="somebody")

    def driver(self) -> Json:
        """Read the driver."""
        return self._client.get(self._path)


def _annotations(kernel: str, boot: str) -> dict[str, str]:
    return {names.BOOT_ID_ANNOTATION: boot, names.KERNEL_VERSION_ANNOTATION: kernel}
