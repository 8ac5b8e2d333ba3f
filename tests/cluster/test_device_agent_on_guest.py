"""A device of a driver of ours, offered to pods on a node with Debian 13: unplugged, and plugged in again."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kube_api import names
from kube_api.resources import DAEMON_SETS, NODES, PODS
from testbed.guest.guest import Guest
from testbed.testbed import Testbed
from tests.cluster.test_pod_on_node import build, daemon_set
from tests.kernel.test_loader_on_real_kernels import VERSIONS
from tests.support.real_parts import reference_plugin
from tests.support.real_parts.device_agent import NAMESPACE, Place
from tools import product_images

RESOURCE = "driverwright.io/edu"
REFERENCE = "example.com/edu"
"""The same device, offered by a device plugin that grpcio serves (``tests/data/reference-plugin``)."""
NODE = "guest-devices"
CONFIGURATION = f"""\
resources:
- name: {RESOURCE}
  groups:
  - paths: [{{path: /dev/edu*, mountPath: /dev/edu0, permissions: rw}}]
  health: {{driver: edudrv}}
"""

pytestmark = pytest.mark.long


@pytest.fixture
def images(ground: Testbed) -> dict[str, str]:
    """Build the images of the agent, the loader, the example's workload, and of the reference."""
    with closing(ground.engine.client(timeout=600)) as engine:
        built = product_images.build_all(
            engine, ground.registry.host, base_image=ground.base_image, say=lambda _: None, keep=True,
            names=("device-agent", "loader", "edu-workload"),
        )  # fmt: skip
        reference = reference_plugin.build(engine, ground.registry.host, base_image=built["device-agent"])
    return {**built, "reference": reference}


@pytest.fixture
def guest(ground: Testbed, images: dict[str, str]) -> Iterator[Guest]:
    """Boot a node with an edu device, and the labels that its worker would give it."""
    kernel = ground.stock_kernel("trixie")
    ground.preload(sorted(images.values()))
    guest = ground.add_guest(NODE, kernel)
    guest.wait_ready(timeout=900)
    labels = {
        names.KERNEL_VERSION_LABEL: names.label_value(kernel.release), names.OS_ID_LABEL: "debian",
        names.OS_VERSION_LABEL: VERSIONS[kernel.codename],
    }  # fmt: skip
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}}
    Place(ground, NODE, RESOURCE).client.apply(NODES.path(name=NODE), node, field_manager="test")
    yield guest
    guest.power_off()


def test_an_unprivileged_pod_computes_on_a_device_that_comes_and_goes(
    ground: Testbed, guest: Guest, images: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The agent waits for the driver; 10! by a pod without privileges; unplugged, allocatable sinks and recovers.

    Then the same beside a device plugin by grpcio, with what both take.
    """
    place = Place(ground, NODE, RESOURCE)
    place.deploy(images["device-agent"], CONFIGURATION)
    place.agent()
    place.wait_for("0", "0")

    image, identity = build(ground, guest.kernel, tmp_path)
    driver = daemon_set(image, images["loader"], identity, guest)
    path = DAEMON_SETS.path(namespace=NAMESPACE, name=driver["metadata"]["name"])
    place.client.apply(path, driver, field_manager="test")
    place.wait_for("1", "1")

    # The kernel makes the node root's alone; root without capabilities and privileges is enough.
    place.start_pod("factorial", images["edu-workload"], ["/bin/factorial", "10"], user=0)
    assert "10! = 3628800" in place.log_with("factorial", "10! = ")
    place.delete_pod("factorial")

    guest.unplug_edu()
    place.wait_for("1", "0")
    guest.plug_edu()
    place.wait_for("1", "1")

    other = Place(ground, NODE, REFERENCE)
    pod = reference_plugin.pod(images["reference"], name="reference", node=NODE, resource=REFERENCE, path="/dev/edu0")
    place.client.create(PODS.path(namespace=NAMESPACE), pod)
    other.wait_for("1", "1")
    containers = [reference_plugin.container_of(item) for item in (place.agent(), place.pod("reference"))]
    race = reference_plugin.Race(
        ours=place, theirs=other, containers=(containers[0], containers[1]), run=guest.check,
        take=guest.unplug_edu, bring=guest.plug_edu,
    )  # fmt: skip
    with capsys.disabled():
        print(f"\n{guest.kernel.release}, emulated, a device of QEMU that is unplugged", end="")
        ours, theirs = race.measure()
    assert 0 < ours.rss_mib < theirs.rss_mib

    place.delete_pod("reference")
    place.client.delete(path)
    place.remove()
