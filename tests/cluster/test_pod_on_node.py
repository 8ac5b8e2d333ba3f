"""What a driver's pods do to their node, by a real kubelet: load, leave, and take away when asked to."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from demo.cluster import Cluster
from demo.scenario import Scenario
from driver_builder.archives.image_archive import read_image_archive
from driver_builder.builds.docker.docker_builder import DockerBuilder
from driver_builder.model.images import ImageRef
from driver_builder.model.loader_privileges import LoaderPrivileges, security_context
from driver_builder.modules.verify import verify
from driver_builder.objects import manifests
from driver_builder.registry.registry import RegistryClient
from kube_api import names
from kube_api.client import Client
from kube_api.resources import DAEMON_SETS, NAMESPACES, NODES, PODS
from testbed.guest.guest import Guest
from testbed.kernels import KernelPackage
from testbed.testbed import Testbed
from tests.kernel.test_loader_on_real_kernels import VERSIONS, edu_request
from tests.support.driver_builder.factories import driver, spec_of
from tests.support.loopback import LOOPBACK

NAMESPACE = "driverwright"
IN_TREE, UNWANTED, ALSO = "dummy", "ifb", "veth"
"""Modules of the kernel that need no hardware and that nothing here uses."""
MODULE = {
    "names": ["edudrv"],
    "inTreeModulesToRemove": [IN_TREE],
    "inTreeModulesToLoad": [ALSO],
    "blacklist": [UNWANTED],
    "firmwarePath": "/source",
}
MODPROBE = "/usr/sbin/modprobe"
"""Kmod's: the shell would take busybox's, which does not know `install`."""
SECONDS = 600.0


def build(ground: Testbed, kernel: KernelPackage, folder: Path) -> tuple[ImageRef, str]:
    """Build, verify and push the edu driver, with its source for firmware; returns both identities."""
    request = replace(edu_request(kernel), recipe="test-pod-on-node", firmware_path="/source")
    client = ground.engine.client()
    try:
        built = DockerBuilder(client).build(request, directory=folder, log=lambda _: None, cancelled=threading.Event())
    finally:
        client.close()
    archive = read_image_archive(built.archive, folder)
    (module,) = verify(archive, request=request, module_symvers=built.module_symvers)
    registry = RegistryClient(ground.registry.host, plain_http=True, reach=LOOPBACK)
    digest = registry.push("drivers/edu-pod", archive)
    return ImageRef(ground.registry.host, "drivers/edu-pod", digest), str(module.srcversion)


def daemon_set(image: ImageRef, loader: str, identity: str, guest: Guest) -> dict[str, Any]:
    """Make the DaemonSet of a driver that asks for everything, on one node."""
    container = driver(spec_changes={"nodeSelector": {"kubernetes.io/hostname": guest.name}, "module": MODULE})
    target = edu_request(guest.kernel).target
    made = manifests.daemon_set(
        container,
        spec_of(container),
        target=target,
        image=image,
        identities={"edudrv": identity},
        loader_image=loader,
        privileges=LoaderPrivileges.LEAST,
    )
    # Its owner is not there: the garbage collector would take it.
    del made["metadata"]["ownerReferences"]
    return made


@pytest.fixture(params=[pytest.param("guest-a", id="Debian 12"), pytest.param("guest-b", id="Debian 13")])
def guest(booted: Scenario, request: pytest.FixtureRequest) -> Iterator[Guest]:
    """A node with the labels that its worker would give it; no worker runs yet."""
    guest = booted.guests[request.param]
    labels = {
        names.KERNEL_VERSION_LABEL: names.label_value(guest.kernel.release),
        names.OS_ID_LABEL: "debian",
        names.OS_VERSION_LABEL: VERSIONS[guest.kernel.codename],
    }
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": guest.name}}
    path, client = NODES.path(name=guest.name), booted.cluster.client
    client.apply(path, {**node, "metadata": {"name": guest.name, "labels": labels}}, field_manager="test")
    yield guest
    client.apply(path, node, field_manager="test")


def loaded(guest: Guest, name: str) -> bool:
    """Return whether a module is live in a guest."""
    return any(line.split()[0] == name for line in guest.check("cat /proc/modules").splitlines())


def unload_pod(loader: str, owner: str, identity: str, guest: Guest) -> dict[str, Any]:
    """Make the pod that takes the driver from its node: the loader's image alone, and the folders of the node."""
    folders = {"firmware": "/lib/firmware", "modprobe": "/etc/modprobe.d"}
    environment = {"DRIVER": owner, "BOOT_ID": guest.boot_id(), "UNLOAD": f"edudrv:{identity}"}
    container = {
        "name": "unload",
        "image": loader,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/busybox", "sh", "/loader.sh", "unload"],
        "securityContext": security_context(LoaderPrivileges.LEAST),
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "volumeMounts": [{"name": name, "mountPath": f"/host{path}"} for name, path in folders.items()],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "unload", "namespace": NAMESPACE},
        "spec": {
            "nodeName": guest.name,
            "hostNetwork": True,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
            "volumes": [{"name": name, "hostPath": {"path": path}} for name, path in folders.items()],
        },
    }


def terminated(status: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the verdicts that a container of a pod has ended with."""
    containers = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    states = [
        item[field].get("terminated") for item in containers if item["name"] == name for field in ("state", "lastState")
    ]
    return [json.loads(state["message"]) for state in states if state and state.get("message")]


def run_to_its_end(client: Client, cluster: Cluster, pod: dict[str, Any]) -> dict[str, Any]:
    """Run a pod; returns the verdict that it ended with."""
    name = pod["metadata"]["name"]
    path = PODS.path(namespace=NAMESPACE, name=name)
    client.create(PODS.path(namespace=NAMESPACE), pod)
    try:
        verdicts: list[dict[str, Any]] = cluster.wait(
            f"pod {name} has ended",
            lambda: terminated(client.get(path).get("status") or {}, name) or None,
            timeout=SECONDS,
        )
    finally:
        client.delete(path)
    return verdicts[0]


@pytest.mark.long
def test_pods_prepare_their_node_and_take_everything_away_when_asked(
    booted: Scenario, guest: Guest, tmp_path: Path
) -> None:
    """Firmware, modules that make room or come first, a blacklist; a pod that ends leaves all, one that unloads none.

    Debian 13's own modules are compressed with xz, those of this Debian 12 are not. With the least privileges:
    everything that a pod does to its node works with them.
    """
    kernel, loader, cluster, client = guest.kernel, booted.images["loader"], booted.cluster, booted.cluster.client
    image, identity = build(booted.ground, kernel, tmp_path)
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    client.apply(NAMESPACES.path(name=NAMESPACE), space, field_manager="test")
    guest.check(f"{MODPROBE} {IN_TREE}")
    files = f"/lib/firmware/updates/{kernel.release}"

    made = daemon_set(image, loader, identity, guest)
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
    assert loaded(guest, ALSO)
    assert guest.run(f"{MODPROBE} {UNWANTED}")[0] != 0
    assert "edudrv.c" in guest.check(f"ls {files}")
    owner = f"driverwright-{NAMESPACE}.edu-{edu_request(kernel).target.short_hash}.conf"
    assert owner in guest.check("ls /etc/modprobe.d").split()

    client.delete(path)
    cluster.wait("the driver pod is gone", lambda: not statuses() or None, timeout=SECONDS)
    assert loaded(guest, "edudrv")
    assert "edudrv.c" in guest.check(f"ls {files}")
    assert owner in guest.check("ls /etc/modprobe.d").split()

    name = owner.removeprefix("driverwright-").removesuffix(".conf")
    verdict = run_to_its_end(client, cluster, unload_pod(loader, name, identity, guest))
    assert verdict["result"] == "Unloaded"
    assert not loaded(guest, "edudrv")
    assert not loaded(guest, IN_TREE)
    assert guest.run(f"ls {files}")[0] != 0
    assert owner not in guest.check("ls /etc/modprobe.d").split()
    guest.check(f"{MODPROBE} {UNWANTED}")
    guest.check(f"rmmod {UNWANTED}")
