"""What a driver's pod does to its node besides loading: by a real kubelet on a real node, and undone when it goes."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from driver_builder.building.docker_builder import DockerBuilder
from driver_builder.kernel_modules.verify import verify
from driver_builder.model.images import ImageRef
from driver_builder.oci.image_archive import read_image_archive
from driver_builder.oci.registry import RegistryClient
from driver_builder.planning import manifests
from kube_api import names
from kube_api.client import Client
from kube_api.resources import DAEMON_SETS, NAMESPACES, NODES, PODS
from tests.integration.test_loader_on_real_kernels import edu_request
from tests.proving_ground.ground import ProvingGround
from tests.proving_ground.guest.guest import Guest
from tests.proving_ground.kernels import KernelPackage
from tests.story.cluster import Cluster
from tests.unit.driver_builder.factories import driver, spec_of

pytestmark = pytest.mark.e2e

NAMESPACE = "driverwright"
NODE = "guest-pod"
IN_TREE, UNWANTED = "dummy", "ifb"
"""Modules of the kernel that need no hardware and that nothing here uses."""
MODULE = {
    "names": ["edudrv"],
    "inTreeModulesToRemove": [IN_TREE],
    "blacklist": [UNWANTED],
    "firmwarePath": "/source",
}
MODPROBE = "/usr/sbin/modprobe"
"""Kmod's: the shell would take busybox's, which does not know `install`."""
SECONDS = 600.0


def build(ground: ProvingGround, kernel: KernelPackage, folder: Path) -> tuple[ImageRef, str]:
    """Build, verify and push the edu driver, with its source for firmware; gives both identities."""
    request = replace(edu_request(kernel), key="test-pod-on-node", firmware_path="/source")
    client = ground.engine.client()
    try:
        built = DockerBuilder(client).build(request, directory=folder, log=lambda _: None, cancelled=threading.Event())
    finally:
        client.close()
    archive = read_image_archive(built.archive, folder)
    (module,) = verify(archive, request=request, module_symvers=built.module_symvers)
    registry = RegistryClient(ground.registry.host, plain_http=True)
    digest = registry.push("drivers/edu-pod", archive)
    return ImageRef(ground.registry.host, "drivers/edu-pod", digest), str(module.srcversion)


def daemon_set(image: ImageRef, identity: str, kernel: KernelPackage) -> dict[str, Any]:
    """Make the DaemonSet of a driver that asks for everything, on the node of this test."""
    container = driver(spec_changes={"nodeSelector": {"kubernetes.io/hostname": NODE}, "module": MODULE})
    target = edu_request(kernel).target
    made = manifests.daemon_set(
        container, spec_of(container), target=target, image=image, identities={"edudrv": identity}
    )
    # Its owner is not there: the garbage collector would take it.
    del made["metadata"]["ownerReferences"]
    return made


def label(client: Client, kernel: KernelPackage) -> None:
    """Label the node as its worker would."""
    labels = {
        names.KERNEL_VERSION_LABEL: names.label_value(kernel.release),
        names.OS_ID_LABEL: "debian",
        names.OS_VERSION_LABEL: "12",
    }
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}}
    client.apply(NODES.path(name=NODE), node, field_manager="test")


def loaded(guest: Guest, name: str) -> bool:
    """Tell whether a module is live in a guest."""
    return any(line.split()[0] == name for line in guest.check("cat /proc/modules").splitlines())


def test_a_pod_prepares_its_node_and_leaves_it_as_it_was(ground: ProvingGround, tmp_path: Path) -> None:
    """Firmware, a module that makes room, a blacklist: there while the pod is, and gone with it."""
    kernel = ground.kernels(2)[0]
    image, identity = build(ground, kernel, tmp_path)
    guest = ground.add_guest(NODE, kernel)
    guest.wait_ready(timeout=SECONDS)
    client = Client.from_environment(str(ground.kubeconfig))
    cluster = Cluster(client)
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    client.apply(NAMESPACES.path(name=NAMESPACE), space, field_manager="test")
    label(client, kernel)
    guest.check(f"{MODPROBE} {IN_TREE}")
    files = f"/lib/firmware/updates/{kernel.release}"

    made = daemon_set(image, identity, kernel)
    path = DAEMON_SETS.path(namespace=NAMESPACE, name=made["metadata"]["name"])
    client.apply(path, made, field_manager="test")

    def statuses() -> list[Any]:
        pods = client.list(PODS.path(namespace=NAMESPACE), label_selector=f"{manifests.DRIVER_LABEL}=edu").items
        return [pod.get("status", {}) for pod in pods]

    def ready() -> bool | None:
        conditions = [item for status in statuses() for item in status.get("conditions") or ()]
        return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions) or None

    cluster.wait("the driver pod is ready", ready, timeout=SECONDS, seen=lambda: str(statuses())[-1500:])
    assert loaded(guest, "edudrv")
    assert not loaded(guest, IN_TREE)
    assert guest.run(f"{MODPROBE} {UNWANTED}")[0] != 0
    assert "edudrv.c" in guest.check(f"ls {files}")
    owner = f"driverwright-{NAMESPACE}.edu-{edu_request(kernel).target.short_hash}.conf"
    assert owner in guest.check("ls /etc/modprobe.d").split()

    client.delete(path)
    cluster.wait("the driver pod is gone", lambda: not statuses() or None, timeout=SECONDS)
    assert not loaded(guest, "edudrv")
    assert not loaded(guest, IN_TREE)
    assert guest.run(f"ls {files}")[0] != 0
    assert owner not in guest.check("ls /etc/modprobe.d").split()
    guest.check(f"{MODPROBE} {UNWANTED}")
