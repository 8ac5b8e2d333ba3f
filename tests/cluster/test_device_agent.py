"""The device agent with a real kubelet: devices made by mknod, offered, allocated, lost, and offered again."""

import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from demo.cluster import Cluster
from kube_api.client import Client
from kube_api.errors import NotFound
from kube_api.resources import CONFIG_MAPS, DAEMON_SETS, PODS
from testbed.ports import free_ports
from testbed.testbed import Testbed
from tests.support.real_parts.cluster_setup import FIELD_MANAGER, admin, documents, path_of
from tools import product_images

Json = dict[str, Any]

NAMESPACE = "driverwright"
RESOURCE = "driverwright.io/widget"
NODES_OF_DEVICES = [Path(f"/dev/driverwright-widget{number}") for number in range(2)]
IN_CONTAINER = "/dev/widget"
ZERO = os.makedev(1, 5)
SECONDS = 240.0
MOST_MIB = 28.0
CONFIGURATION = f"""\
resources:
- name: {RESOURCE}
  groups:
  - paths:
    - path: /dev/driverwright-widget*
      mountPath: {IN_CONTAINER}
      permissions: r
  environment:
    WIDGETS: $(DEVICE_IDS)
"""

pytestmark = pytest.mark.cluster


class Place:
    """The cluster, the node of this machine, and what the tests make there."""

    def __init__(self, ground: Testbed, port: int) -> None:
        self.ground = ground
        self.client: Client = admin(ground)
        self.cluster = Cluster(self.client)
        self.node = ground.host_node_name
        self.port = port

    def count(self, of: str) -> str | None:
        """Return how many devices the node has, in ``capacity`` or ``allocatable``."""
        amount: str | None = self.cluster.node(self.node)["status"][of].get(RESOURCE)
        return amount

    def wait_for(self, capacity: str, allocatable: str) -> None:
        """Wait until the kubelet reports these numbers."""
        self.cluster.wait(
            f"{capacity} devices, {allocatable} of them allocatable",
            lambda: (self.count("capacity"), self.count("allocatable")) == (capacity, allocatable) or None,
            timeout=SECONDS,
            seen=lambda: f"{self.count('capacity')}, {self.count('allocatable')}",
        )

    def start_pod(self, name: str) -> None:
        """Start an unprivileged pod that requests a device and reads from it."""
        script = f'echo "$WIDGETS"; ls -l {IN_CONTAINER}; head -c 4 {IN_CONTAINER} | od -An -tx1; exec sleep 3600'
        container = {
            "name": "main",
            "image": self.ground.small_image,
            "command": ["/bin/sh", "-c", f"trap exit TERM; {script} & wait"],
            "resources": {"limits": {RESOURCE: "1"}},
            "securityContext": {
                "runAsUser": 65534, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
            },
        }  # fmt: skip
        spec = {
            "containers": [container], "hostNetwork": True, "terminationGracePeriodSeconds": 1,
            "nodeSelector": {"kubernetes.io/hostname": self.node}, "tolerations": [{"operator": "Exists"}],
        }  # fmt: skip
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
        self.client.create(PODS.path(namespace=NAMESPACE), body)

    def pod(self, name: str) -> Json:
        """Read a pod."""
        return self.client.get(PODS.path(namespace=NAMESPACE, name=name))

    def read_device(self, name: str) -> str:
        """Wait until a pod has read its device; returns the id of its device."""
        log = PODS.path(namespace=NAMESPACE, name=name, subresource="log")

        def said() -> str | None:
            text = "\n".join(self.client.follow(log)).strip()
            return text if "00 00 00 00" in text else None

        text = self.cluster.wait(f"{name} reads its device", said, timeout=SECONDS, seen=lambda: self.why(name))
        assert f"{IN_CONTAINER}" in text
        return text.splitlines()[0]

    def why(self, name: str) -> str:
        """Return what is known of a pod, for messages."""
        status = self.pod(name)["status"]
        return f"{status['phase']}: {status.get('message', '')} {status.get('containerStatuses', '')}"

    def delete_pod(self, name: str) -> None:
        """Delete a pod and wait until it is gone."""
        path = PODS.path(namespace=NAMESPACE, name=name)
        self.client.delete(path)

        def gone() -> bool | None:
            try:
                self.client.get(path)
            except NotFound:
                return True
            return None

        self.cluster.wait(f"{name} is gone", gone, timeout=SECONDS)

    def agent(self) -> Json:
        """Wait for a ready pod of the agent; ready means registered."""

        def ready() -> Json | None:
            pods = self.cluster.pods("app.kubernetes.io/name=device-agent")
            return next((pod for pod in pods if _is_ready(pod)), None)

        return self.cluster.wait("the agent is ready", ready, timeout=SECONDS, seen=self.logs)

    def logs(self) -> str:
        """Return the end of the agent's log."""
        return self.cluster.log_tail("app.kubernetes.io/name=device-agent", 5)

    def agent_container(self) -> str:
        """Return the container of the ready agent."""
        container: str = self.agent()["status"]["containerStatuses"][0]["containerID"]
        return container.removeprefix("docker://")

    def in_proc(self, container: str, file: str) -> str:
        """Read a file that /proc has of the process in a container."""
        with closing(self.ground.engine.client()) as engine:
            command = engine.exec_create(container, ["cat", f"/proc/1/{file}"])
            output: bytes = engine.exec_start(command)
        return output.decode()

    def ticks(self, container: str) -> int:
        """Return the processor time that the process has taken, in ticks of the clock."""
        fields = self.in_proc(container, "stat").rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])


def _is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions") or ()
    is_ready = any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
    return is_ready and "deletionTimestamp" not in pod["metadata"]


def _make_device(path: Path) -> None:
    os.mknod(path, 0o020644, ZERO)
    path.chmod(0o666)


@pytest.fixture(scope="module")
def place(ground: Testbed) -> Iterator[Place]:
    """Deploy the agent on this machine's node; its devices come only later, as after a reboot."""
    with closing(ground.engine.client(timeout=600)) as engine:
        images = product_images.build_all(
            engine, ground.registry.host, base_image=ground.base_image, say=lambda _: None, keep=True,
            names=("device-agent",),
        )  # fmt: skip
    (port,) = free_ports(1)
    made = Place(ground, port)
    for path in NODES_OF_DEVICES:
        path.unlink(missing_ok=True)
    for obj in documents("namespace.yaml", "device-agent/serviceaccount.yaml", "device-agent/configmap.yaml",
                         "device-agent/daemonset.yaml"):  # fmt: skip
        if obj["kind"] == CONFIG_MAPS.kind:
            obj["data"]["config.yaml"] = CONFIGURATION
        if obj["kind"] == DAEMON_SETS.kind:
            _fit(obj, images["device-agent"], made)
        made.client.apply(path_of(obj), obj, field_manager=FIELD_MANAGER)
    yield made
    made.client.delete(DAEMON_SETS.path(namespace=NAMESPACE, name="device-agent"))
    for device in NODES_OF_DEVICES:
        device.unlink(missing_ok=True)


def _fit(daemon_set: Json, image: str, place: Place) -> None:
    """Change the manifest for a cluster without a pod network."""
    spec = daemon_set["spec"]["template"]["spec"]
    spec |= {"hostNetwork": True, "nodeSelector": {"kubernetes.io/hostname": place.node}}
    (container,) = spec["containers"]
    container |= {"image": image, "args": ["run", f"--port={place.port}"], "ports": []}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        container[probe]["httpGet"]["port"] = place.port
        container[probe]["periodSeconds"] = 2


def test_the_agent_waits_for_its_devices(place: Place) -> None:
    """Without a device it is registered, and the node has none; devices that come are seen."""
    place.agent()
    place.wait_for("0", "0")
    for path in NODES_OF_DEVICES:
        _make_device(path)
    place.wait_for("2", "2")


def test_an_unprivileged_pod_sees_its_device(place: Place) -> None:
    """The pod that requests a device has its node, readable, and the resource's variables."""
    place.start_pod("widget-first")
    assert place.read_device("widget-first").startswith("driverwright-widget")


def test_a_device_that_is_gone_cannot_be_allocated_until_it_is_back(place: Place) -> None:
    """Capacity stays, allocatable sinks and recovers."""
    used = place.read_device("widget-first")
    free = next(path for path in NODES_OF_DEVICES if not used.startswith(path.name))
    free.unlink()
    place.wait_for("2", "1")
    _make_device(free)
    place.wait_for("2", "2")


def test_a_kubelet_that_was_killed_gets_its_devices_back(place: Place) -> None:
    """Another kubelet knows the resource again, and the pod with a device lives on."""
    before = place.pod("widget-first")["status"]["containerStatuses"][0]["containerID"]
    place.ground.host_node.kill()
    place.ground.host_node.start()
    place.wait_for("2", "2")
    place.agent()
    status = place.pod("widget-first")["status"]["containerStatuses"][0]
    assert (status["containerID"], "running" in status["state"]) == (before, True)


def test_what_is_allocated_stays_so_when_the_agent_is_killed(place: Place) -> None:
    """A killed agent comes back; the device of a running pod is not given to another one."""
    container = place.agent_container()
    with closing(place.ground.engine.client()) as engine:
        engine.kill(container)
    place.cluster.wait(
        "another process of the agent", lambda: place.agent_container() != container or None, timeout=SECONDS
    )
    place.wait_for("2", "2")
    first = place.read_device("widget-first")
    place.start_pod("widget-second")
    assert place.read_device("widget-second") != first
    for name in ("widget-first", "widget-second"):
        place.delete_pod(name)


def test_the_agent_is_small_and_rests(place: Place, record_property: Any) -> None:
    """At most 28 MiB are resident; processor time at rest is printed."""
    container = place.agent_container()
    began, ticks = time.monotonic(), place.ticks(container)
    time.sleep(10)
    share = (place.ticks(container) - ticks) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)
    status = place.in_proc(container, "status").splitlines()
    rss = int(next(line for line in status if line.startswith("VmRSS")).split()[1]) / 1024
    record_property("rss_mib", rss)
    record_property("cpu_share", share)
    print(f"\ndevice-agent: {rss:.1f} MiB resident, {share:.2%} of a CPU at rest")
    assert rss <= MOST_MIB


def test_an_agent_that_ends_leaves_no_device(place: Place) -> None:
    """It empties the kubelet's list before it goes: capacity is 0 at once, and not after the kubelet's five minutes."""
    selector = {"kubernetes.io/hostname": "nowhere"}
    body = {"spec": {"template": {"spec": {"nodeSelector": selector}}}}
    place.client.patch(DAEMON_SETS.path(namespace=NAMESPACE, name="device-agent"), body)
    place.wait_for("0", "0")
