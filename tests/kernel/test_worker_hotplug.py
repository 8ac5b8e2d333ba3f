"""A device that comes while a node runs is labelled at once, without a poll.

The machine runs a stock kernel and nothing but the worker, as a pod of the worker's service account would: a kubelet
beside it would take most of what an emulated CPU has.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from demo.cluster import NAMESPACE, Cluster
from kube_api.client import Client
from kube_api.names import FEATURE_LABEL_PREFIX
from kube_api.resources import NODES, SERVICE_ACCOUNTS
from testbed.guest import qmp
from testbed.testbed import Testbed
from tests.support.nfd_worker.machines import Machine, command_line, stock_kernel, worker_disk
from tests.support.real_parts.cluster_setup import admin, install

NODE = "hotplug"
HOST = "10.0.2.2"
"""What QEMU's user network calls this machine."""

# virtio-rng is class 00ff; what the kernel prints when it sees one names vendor and device.
LABEL = f"{FEATURE_LABEL_PREFIX}/pci-00ff_1af4.present"
SEEN = "[1af4:1005]"
CONFIG = "sources: {pci: {deviceClassWhitelist: ['00ff']}}"

TRIES = 2
PATIENCE_SECONDS = 600.0
"""Far less than the hour after which the worker would look by itself."""


@pytest.fixture
def client(control_plane_ground: Testbed) -> Client:
    """The administrator of a cluster with the accounts of both programs."""
    client = admin(control_plane_ground)
    install(client)
    return client


def machine(ground: Testbed, client: Client, qmp_socket: Path) -> Machine:
    """Describe a machine whose worker has what a pod has: a token, a CA, and where the API server is."""
    account = SERVICE_ACCOUNTS.path(namespace=NAMESPACE, name="nfd-worker", subresource="token")
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    token = client.create(account, request)["status"]["token"]
    folder = "run/secrets/kubernetes.io/serviceaccount"
    return Machine(
        arguments=(
            *("-M", "pc", "-cpu", "max", "-m", "512", "-qmp", f"unix:{qmp_socket},server=on,wait=off"),
            *("-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="),
        ),
        parameters="loglevel=7 net.ifnames=0",
        modules=("virtio_pci", "virtio_net"),
        prepare="busybox ifconfig eth0 10.0.2.15 up",
        command=f"NODE_NAME={NODE} KUBERNETES_SERVICE_HOST={HOST} KUBERNETES_SERVICE_PORT={ground.api_port} "
        "nfd-worker run --root / --config /nfd-worker.conf --sleep-interval 1h --removal-grace 1s --port 0",
        files={f"{folder}/token": token, f"{folder}/ca.crt": ground.ca_file.read_text()},
    )


@pytest.fixture
def running(
    control_plane_ground: Testbed, engine_ground: Testbed, client: Client, tmp_path: Path
) -> Iterator[tuple[Path, Path]]:
    """Boot the machine as a node of its own; returns its console and QEMU's control socket."""
    console, socket = tmp_path / "console", Path("/tmp", f"dw-hotplug-{control_plane_ground.name}.qmp")
    described = machine(control_plane_ground, client, socket)
    kernel = stock_kernel()
    command = command_line(worker_disk(engine_ground, tmp_path).make(kernel, described, CONFIG), kernel, described)
    client.create(NODES.path(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    try:
        with (
            console.open("w") as output,
            subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *command], stdin=subprocess.DEVNULL, stdout=output
            ) as process,
        ):
            try:
                yield console, socket
            finally:
                process.kill()
    finally:
        client.delete(NODES.path(name=NODE))
        socket.unlink(missing_ok=True)


def seconds_until(is_so: Callable[[], bool], console: Path, *, every: float = 0.01) -> float:
    """Wait until something is so; returns how long it took."""
    start = time.monotonic()
    while not is_so():
        assert time.monotonic() - start < PATIENCE_SECONDS, console.read_text(errors="replace")[-3000:]
        time.sleep(every)
    return time.monotonic() - start


def test_a_plugged_device_is_labelled_and_an_unplugged_one_is_not(
    client: Client, running: tuple[Path, Path], record_property: Callable[[str, object], None]
) -> None:
    """By the event alone: the worker would look again in an hour. How soon it was is printed, and no test's verdict."""
    console, socket = running

    def labels() -> dict[str, str]:
        return Cluster(client).labels(NODE)

    def sightings() -> int:
        return console.read_text(errors="replace").count(SEEN)

    seconds_until(lambda: f"{FEATURE_LABEL_PREFIX}/kernel-version.full" in labels(), console, every=0.5)
    before, took = labels(), []
    for number in range(TRIES):
        seen = sightings()
        qmp.execute(socket, "device_add", driver="virtio-rng-pci", id=f"plugged{number}")
        seconds_until(lambda seen=seen: sightings() > seen, console)  # type: ignore[misc]
        took.append(seconds_until(lambda: LABEL in labels(), console))
        assert labels() == {**before, LABEL: "true"}
        qmp.execute(socket, "device_del", id=f"plugged{number}")
        seconds_until(lambda: LABEL not in labels(), console)
        assert labels() == before
    print(f"hotplug to label: {', '.join(f'{seconds:.2f} s' for seconds in took)}")
    record_property("seconds_to_label", took)
