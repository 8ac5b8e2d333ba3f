"""The chart's device-agent with NVIDIA's devices, at a real kubelet: what a DaemonSet of it does on a node.

The library is a test's NVML; there is no driver, so that its cards are seen and none can be given. The tests build on
each other, in the order they are written in.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from kube_api.resources import DAEMON_SETS, NAMESPACES, NODES, PODS
from testbed.testbed import Testbed
from tests.nvml import build
from tests.nvml.machine import FakeMachine
from tests.nvml.models import A100_40
from tests.support.real_parts.cluster_setup import FIELD_MANAGER, path_of
from tests.support.real_parts.device_agent import AGENT, NAMESPACE, SECONDS, Json, Place
from tools import manifests, product_images

pytestmark = [pytest.mark.long, pytest.mark.chain]

RESOURCE = "nvidia.com/gpu"
RUN = f"driverwright.io/{NAMESPACE}.gpu.run"
"""The label that driver-builder takes away before it replaces the driver."""
DRIVER = Path("/run/nvidia/driver")
"""Where a driver container has its user space."""


class Chart(Place):
    """A release of the chart that offers NVIDIA's devices where one driver is."""

    def install(self, image: str) -> None:
        """Apply what the chart makes for device-agent, changed for a cluster without a pod network."""
        values = {"deviceAgent": {"enabled": True, "nvidia": {"enabled": True, "driver": f"{NAMESPACE}/gpu"}}}
        made = manifests.render({"namespace": {"create": True}, **values})
        texts = [text for name, text in made.items() if name.startswith("device-agent/")]
        namespace = {"apiVersion": "v1", "kind": NAMESPACES.kind, "metadata": {"name": NAMESPACE}}
        for obj in (namespace, *(obj for text in texts for obj in yaml.safe_load_all(text) if obj)):
            if obj["kind"] == DAEMON_SETS.kind:
                self._change(obj["spec"]["template"]["spec"], image)
            self.client.apply(path_of(obj), obj, field_manager=FIELD_MANAGER)

    def _change(self, spec: Json, image: str) -> None:
        spec["hostNetwork"] = True
        for container in spec["containers"]:
            container |= {"image": image, "imagePullPolicy": "IfNotPresent"}

    def label(self, value: str | None) -> None:
        """Set the label ``run`` of the driver on the node, or take it away."""
        self.client.patch(NODES.path(name=self.node), {"metadata": {"labels": {RUN: value}}})

    def pods(self) -> list[Json]:
        """Return the pods of the release."""
        return self.cluster.pods(AGENT)

    def log(self, container: str) -> str:
        """Return what a container of the only pod has said."""
        (pod,) = self.pods()
        path = PODS.path(namespace=NAMESPACE, name=pod["metadata"]["name"], subresource="log")
        return "\n".join(self.client.follow(path, query={"container": container}))


@pytest.fixture(scope="module")
def chart(ground: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chart]:
    """Install the chart on this machine's node, which has the user space of a driver and not yet its label."""
    if DRIVER.exists() or Path("/proc/driver/nvidia").exists():
        pytest.skip("NVIDIA's driver is here, and its folders are no test's")
    folder = DRIVER / f"usr/lib/{os.uname().machine}-linux-gnu"
    folder.mkdir(parents=True)
    machine = FakeMachine(tmp_path_factory.mktemp("machine") / "fake_nvml_machine", A100_40, 2)
    build(folder)
    (folder / machine.path.name).write_text(machine.text())
    with closing(ground.engine.client(timeout=600)) as engine:
        images = product_images.build_all(
            engine, ground.registry.host, base_image=ground.base_image, say=lambda _: None, keep=True,
            names=("device-agent",),
        )  # fmt: skip
    made = Chart(ground, ground.host_node_name, RESOURCE)
    made.install(images["device-agent"])
    try:
        yield made
    finally:
        made.label(None)
        made.remove()
        shutil.rmtree(DRIVER)


def test_no_pod_runs_where_the_driver_may_not_be_used(chart: Chart) -> None:
    """The DaemonSet is observed, and wants no pod: the node has no label ``run``."""

    def wanted() -> int | None:
        found = chart.client.get(DAEMON_SETS.path(namespace=NAMESPACE, name="device-agent"))
        is_observed = found["status"].get("observedGeneration") == found["metadata"]["generation"]
        return found["status"]["desiredNumberScheduled"] if is_observed else None

    assert chart.cluster.wait("the DaemonSet is observed", lambda: str(n) if (n := wanted()) is not None else None,
                              timeout=SECONDS) == "0"  # fmt: skip


def test_the_cards_are_seen_and_not_given_without_their_device_nodes(chart: Chart) -> None:
    """Both containers run, the resource is registered, and the log says what each card lacks."""
    chart.label("true")
    chart.wait_for("2", "0")
    assert "nvidia.com/gpu" in chart.log("device-agent")
    (pod,) = chart.pods()
    assert [status["restartCount"] for status in pod["status"]["containerStatuses"]] == [0, 0]
    chart.cluster.wait(
        "the log says why", lambda: "is not healthy: " in chart.log("device-agent") or None, timeout=SECONDS
    )
    print("\n".join(line for line in chart.log("device-agent").splitlines() if "not healthy" in line))


def test_the_pod_is_ready_and_has_no_token(chart: Chart) -> None:
    """Cards that cannot be given are no reason to be unready: they are in the kubelet's list."""

    def is_ready() -> bool:
        (pod,) = chart.pods()
        return all(status["ready"] for status in pod["status"]["containerStatuses"])

    chart.cluster.wait("the pod is ready", lambda: is_ready() or None, timeout=SECONDS)
    (pod,) = chart.pods()
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert not [volume for volume in pod["spec"]["volumes"] if "projected" in volume or "secret" in volume]


def test_the_pod_leaves_before_the_driver_does(chart: Chart) -> None:
    """Without the label no process of it is left, and no card can be had."""
    chart.label(None)
    chart.cluster.wait("the pod is gone", lambda: not chart.pods() or None, timeout=SECONDS)
    chart.cluster.wait("no card is allocatable", lambda: chart.count("allocatable") == "0" or None, timeout=SECONDS)
