"""The device agent with a real kubelet: devices made by mknod, offered, allocated, lost, and offered again.

The tests build on each other, in the order they are written in.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kube_api.resources import PODS
from testbed.testbed import Testbed
from tests.support.real_parts import host_containers, product, reference_plugin
from tests.support.real_parts.device_agent import DAEMON_SET, NAMESPACE, SECONDS, Place
from tools import product_images

pytestmark = pytest.mark.chain

RESOURCE = "driverwright.io/widget"
REFERENCE = "example.com/widget"
"""The first of the same devices, offered by a device plugin that grpcio serves (``tests/data/reference-plugin``)."""
NODES_OF_DEVICES = [Path(f"/dev/driverwright-widget{number}") for number in range(2)]
IN_CONTAINER = "/dev/widget"
ZERO = os.makedev(1, 5)
MOST_MIB = 28.0
EXPORTS = Path("/run/driverwright")
USER_SPACE = EXPORTS / "team.widget"
"""A link to one of the copies beside it, as the loader of driver pods makes it."""
CONFIGURATION = f"""\
resources:
- name: {RESOURCE}
  groups:
  - paths:
    - path: /dev/driverwright-widget*
      mountPath: {IN_CONTAINER}
      permissions: r
    - path: {USER_SPACE}
      type: Mount
      mountPath: /opt/widget
      readOnly: true
      limit: 1000
  environment:
    WIDGETS: $(DEVICE_IDS)
"""

# One stream: of two the engine writes down lines in any order, also after what was printed later.
READ = (
    f'exec 2>&1; echo "$WIDGETS"; ls -l {IN_CONTAINER}; cat /opt/widget/lib/libwidget.so; touch /opt/widget/lib/mine;'
    f" head -c 4 {IN_CONTAINER} | od -An -tx1; exec sleep 3600"
)


def _start(place: Place, name: str) -> None:
    place.start_pod(name, place.ground.small_image, ["/bin/sh", "-c", f"trap exit TERM; {READ} & wait"])


def _device_of(place: Place, name: str) -> str:
    """Wait until a pod has read its device; returns the id of its device."""
    text = place.log_with(name, "00 00 00 00")
    assert IN_CONTAINER in text
    return text.splitlines()[0]


def _make_device(path: Path) -> None:
    os.mknod(path, 0o020644, ZERO)
    path.chmod(0o666)


def _export(version: str) -> None:
    """Export a user space as the loader does: a copy, and a link to it that is replaced at once."""
    copy = EXPORTS / f".team.widget@{version}"
    (copy / "lib").mkdir(parents=True, exist_ok=True)
    (copy / "lib/libwidget.so").write_text(f"libraries of {version}\n")
    link = EXPORTS / f"{copy.name}.link"
    link.symlink_to(copy.name)
    link.replace(USER_SPACE)


@pytest.fixture(scope="module")
def place(ground: Testbed) -> Iterator[Place]:
    """Deploy the agent on this machine's node; its devices come only later, as after a reboot."""
    with closing(ground.engine.client(timeout=600)) as engine:
        images = product_images.build_all(
            engine, ground.registry.host, base_image=ground.base_image, say=lambda _: None, keep=True,
            names=("device-agent",),
        )  # fmt: skip
        assert product.faults(engine, images, ground.base_image) == []
    for path in NODES_OF_DEVICES:
        path.unlink(missing_ok=True)
    _export("1.0")
    made = Place(ground, ground.host_node_name, RESOURCE)
    made.deploy(images["device-agent"], CONFIGURATION)
    yield made
    for path in NODES_OF_DEVICES:
        path.unlink(missing_ok=True)
    made.remove()
    USER_SPACE.unlink()
    for copy in EXPORTS.glob(".team.widget@*"):
        shutil.rmtree(copy)


def test_the_agent_waits_for_its_devices(place: Place) -> None:
    """Without a device it is registered, and the node has none; devices that come are seen."""
    place.agent()
    place.wait_for("0", "0")
    for path in NODES_OF_DEVICES:
        _make_device(path)
    place.wait_for("2", "2")


def test_an_unprivileged_pod_sees_its_device(place: Place) -> None:
    """The pod that requests a device has its node, readable, and the resource's variables."""
    _start(place, "widget-first")
    assert _device_of(place, "widget-first").startswith("driverwright-widget")


def test_it_has_the_user_space_of_when_it_was_started(place: Place) -> None:
    """Read-only, by the link of an exported one; after an upgrade the next pod has the new one."""
    for name, version in (("widget-first", "1.0"), ("widget-third", "1.1")):
        text = place.log_with(name, "00 00 00 00")
        assert f"libraries of {version}\n" in text
        assert "Read-only file system" in text
        if name == "widget-first":
            _export("1.1")
            _start(place, "widget-third")
    place.delete_pod("widget-third")


def test_a_device_that_is_gone_cannot_be_allocated_until_it_is_back(place: Place) -> None:
    """Capacity stays, allocatable sinks and recovers."""
    used = _device_of(place, "widget-first")
    free = next(path for path in NODES_OF_DEVICES if not used.startswith(path.name))
    free.unlink()
    place.wait_for("2", "1")
    _make_device(free)
    place.wait_for("2", "2")


def test_a_kubelet_that_was_killed_gets_its_devices_back(place: Place) -> None:
    """Another kubelet knows the resource again, and the pod with a device lives on."""
    before = place.pod("widget-first")["status"]["containerStatuses"][0]["containerID"]
    registrations = place.registrations()
    place.ground.host_node.kill()
    place.ground.host_node.start()
    # The Node says what it said before until the new kubelet writes to it.
    place.cluster.wait(
        "the resource is registered again", lambda: place.registrations() > registrations or None, timeout=SECONDS
    )
    place.wait_for("2", "2")
    place.agent()
    status = place.pod("widget-first")["status"]["containerStatuses"][0]
    assert (status["containerID"], "running" in status["state"]) == (before, True)


def test_what_is_allocated_stays_so_when_the_agent_is_killed(place: Place) -> None:
    """A killed agent comes back; the device of a running pod is not given to another one."""
    container = place.agent_container()
    host_containers.kill(container)
    place.cluster.wait(
        "another process of the agent", lambda: place.agent_container() != container or None, timeout=SECONDS
    )
    place.wait_for("2", "2")
    first = _device_of(place, "widget-first")
    _start(place, "widget-second")
    assert _device_of(place, "widget-second") != first
    for name in ("widget-first", "widget-second"):
        place.delete_pod(name)


def test_the_agent_is_small_and_rests(place: Place, record_property: Any) -> None:
    """At most 28 MiB are resident; processor time at rest is printed."""
    container = place.agent_container()
    began, ticks = time.monotonic(), place.ticks(container)
    time.sleep(10)
    share = (place.ticks(container) - ticks) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)
    status = host_containers.in_proc(container, "status").splitlines()
    rss = int(next(line for line in status if line.startswith("VmRSS")).split()[1]) / 1024
    record_property("rss_mib", rss)
    record_property("cpu_share", share)
    print(f"\ndevice-agent: {rss:.1f} MiB resident, {share:.2%} of a CPU at rest")
    assert rss <= MOST_MIB


@pytest.mark.long
def test_beside_a_device_plugin_by_grpcio(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """It takes less memory; memory, processor time at rest and how soon a lost device is noticed are printed."""
    path, ground = NODES_OF_DEVICES[0], place.ground
    for missing in (path for path in NODES_OF_DEVICES if not path.exists()):
        _make_device(missing)
    place.wait_for("2", "2")
    with closing(ground.engine.client(timeout=600)) as engine:
        base = f"{ground.registry.host}/driverwright/device-agent:latest"
        image = reference_plugin.build(engine, ground.registry.host, base_image=base)
    pod = reference_plugin.pod(image, name="reference", node=place.node, resource=REFERENCE, path=str(path))
    place.client.create(PODS.path(namespace=NAMESPACE), pod)
    other = Place(ground, place.node, REFERENCE)
    other.wait_for("1", "1")
    # Nobody asks the other one how it is.
    place.without_probes()
    place.wait_for("2", "2")
    race = reference_plugin.Race(
        ours=place, theirs=other, run=_run, take=path.unlink, bring=lambda: _make_device(path),
        containers=(place.agent_container(), reference_plugin.container_of(place.pod("reference"))),
    )  # fmt: skip
    with capsys.disabled():
        ours, theirs = race.measure()
    assert 0 < ours.rss_mib < theirs.rss_mib
    place.delete_pod("reference")


def _run(command: str) -> str:
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False).stdout


def test_an_agent_that_ends_leaves_no_device(place: Place) -> None:
    """It empties the kubelet's list before it goes: capacity is 0 at once, and not after the kubelet's five minutes."""
    selector = {"kubernetes.io/hostname": "nowhere"}
    body = {"spec": {"template": {"spec": {"nodeSelector": selector}}}}
    place.client.patch(DAEMON_SET, body)
    place.wait_for("0", "0")
