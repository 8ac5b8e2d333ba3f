"""A real kubelet and NVIDIA's devices: the real agent and container ``nvml`` on a test's NVML.

Device nodes are made where a driver's would be; opening one fails, as no driver has its number. The tests build on each
other, in the order they are written in.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from testbed import places
from testbed.testbed import Testbed
from tests.nvml import build
from tests.nvml.machine import FakeMachine
from tests.nvml.models import A100_40
from tests.support.programs import require_program
from tests.support.real_parts import nvml_of_test
from tests.support.real_parts.cluster_setup import FIELD_MANAGER, documents, path_of
from tests.support.real_parts.device_agent import Place
from tests.unit.device_agent.device_nodes.driver_texts import INFORMATION, PARAMS

pytestmark = pytest.mark.chain

RESOURCE = "nvidia.com/gpu"
MAJOR, UVM_MAJOR = 195, 384
"""NVIDIA's own number, and the one that the kernel gives to a driver last of all."""
DEVICES = f"Character devices:\n{MAJOR} nvidia\n{MAJOR} nvidiactl\n{UVM_MAJOR} nvidia-uvm\n\nBlock devices:\n"
COMMON = {
    "nvidiactl": os.makedev(MAJOR, 255),
    "nvidia-uvm": os.makedev(UVM_MAJOR, 0),
    "nvidia-uvm-tools": os.makedev(UVM_MAJOR, 1),
}
SHOW = 'exec 2>&1; ls /dev | grep nvidia; echo "cards $NVIDIA_VISIBLE_DEVICES"; exec sleep 3600'
PAIRS = ({0, 2}, {1, 3})


class Node:
    """This machine as a node with four cards; 0 and 2, and 1 and 3, are joined by NVLink."""

    def __init__(self, folder: Path, place: Place) -> None:
        require_program("gcc")
        self.place = place
        self.folder = folder
        self.machine = FakeMachine(folder / "machine", A100_40, 4)
        for one, other in PAIRS:
            self.machine.connect(one, other, links=12)
        self._library = build(folder)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._write("proc/devices", DEVICES)
        self._write("proc/driver/nvidia/params", PARAMS)
        self._write("proc/sys/kernel/random/boot_id", "a-boot\n")
        for number in range(4):
            self._write(f"proc/driver/nvidia/gpus/{self.machine.pci(number)}/information",
                        INFORMATION.format(minor=number))  # fmt: skip
        self._write("config.yaml", "nvidia: {}\n")
        # The kubelet's folders are the testbed's own; the path of a socket in them is too long but for a link.
        self._plugins = folder / "p"
        ground = places.find_ground(place.ground.host_node_name.removeprefix("host-"))
        self._plugins.symlink_to(ground / "private" / "var-lib-kubelet" / "device-plugins")

    def _write(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def start(self, name: str) -> None:
        """Start ``agent`` or ``nvml``."""
        flags = {
            "config": self.folder / "config.yaml", "root": self.folder, "plugin-dir": self._plugins, "port": 0,
            "state-dir": self.folder / "state", "nvml-socket": self.folder / nvml_of_test.SOCKET, "interval": "2s",
        }  # fmt: skip
        arguments = {
            "agent": ("device_agent", "run", *(f"--{flag}={value}" for flag, value in flags.items())),
            "nvml": (nvml_of_test.__name__, str(self.folder), str(self._library)),
        }
        environment = {**os.environ, **self.machine.environment()}
        self._processes[name] = subprocess.Popen([sys.executable, "-m", *arguments[name]], env=environment)

    def end(self, name: str, number: int = signal.SIGTERM) -> int:
        """End one, and return its exit status."""
        process = self._processes.pop(name)
        process.send_signal(number)
        return process.wait(60)

    def close(self) -> None:
        """End both, and take the device nodes away."""
        statuses = {name: self.end(name) for name in tuple(self._processes)}
        links = (link for major in (MAJOR, UVM_MAJOR) for link in Path("/dev/char").glob(f"{major}:*"))
        for path in (*Path("/dev").glob("nvidia*"), *links):
            with suppress(FileNotFoundError):
                path.unlink()
        assert set(statuses.values()) <= {0}

    def cards_of(self, name: str) -> set[int]:
        """Wait until a pod has said what it has; returns its cards. It has the nodes of these and of no other one."""
        lines = self.place.log_with(name, "cards ").splitlines()
        uuids = lines[-1].removeprefix("cards ").split(",")
        cards = {number for number in range(4) if self.machine.uuid(number) in uuids}
        assert len(cards) == len(uuids)
        assert sorted(lines[:-1]) == sorted([*COMMON, *(f"nvidia{number}" for number in cards)])
        return cards

    def start_pod(self, name: str, count: int) -> None:
        """Start a pod with so many cards."""
        script = f"trap exit TERM; {SHOW} & wait"
        self.place.start_pod(name, self.place.ground.small_image, ["/bin/sh", "-c", script], user=0, count=count)


@pytest.fixture(scope="module")
def node(ground: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Have four cards offered on this machine."""
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("NVIDIA's driver is loaded here, and its device nodes are no test's")
    place = Place(ground, ground.host_node_name, RESOURCE)
    for obj in documents("namespace.yaml"):
        place.client.apply(path_of(obj), obj, field_manager=FIELD_MANAGER)
    made = Node(tmp_path_factory.mktemp("n"), place)
    try:
        made.start("agent")
        made.start("nvml")
        yield made
    finally:
        made.close()


def test_four_cards_are_offered(node: Node) -> None:
    """Once their device nodes are made, which is when the kubelet knows the resource."""
    node.place.wait_for("4", "4")
    numbers = {path.name: path.stat().st_rdev for path in Path("/dev").glob("nvidia*")}
    cards = {f"nvidia{number}": os.makedev(MAJOR, number) for number in range(4)}
    assert numbers == {**cards, **COMMON}


@pytest.mark.parametrize("name", ["cards-first", "cards-second"])
def test_a_pod_has_two_cards_that_nvlink_joins(node: Node, name: str) -> None:
    """Whichever pair it is; it sees their device nodes, and its environment names them."""
    node.start_pod(name, 2)
    assert node.cards_of(name) in PAIRS


def test_an_error_that_wants_a_reset_takes_its_card_away(node: Node) -> None:
    """And no other card; pods live on."""
    began = time.monotonic()
    node.machine.set(0, "recovery", 1)
    node.machine.xid(0, 79)
    node.place.wait_for("4", "3")
    print(f"\nXid 79 to allocatable 3: {time.monotonic() - began:.1f} s")
    assert {node.place.pod(name)["status"]["phase"] for name in ("cards-first", "cards-second")} == {"Running"}


def test_the_verdict_outlives_the_agent(node: Node) -> None:
    """An agent that is killed knows it at once when it is started again, though the error is not said again."""
    node.end("nvml")
    node.end("agent", signal.SIGKILL)
    node.start("agent")
    node.start("nvml")
    node.place.wait_for("4", "3")


def test_a_card_is_back_when_the_driver_asks_for_nothing_any_more(node: Node) -> None:
    """And the card has answered twice. An error of a program on the card changes nothing."""
    node.machine.set(0, "recovery", 0)
    node.machine.xid(1, 31)
    node.place.wait_for("4", "4")


def test_a_lost_card_leaves_the_others(node: Node) -> None:
    """Three of four can be had, and the fourth one comes back when it answers."""
    for name in ("cards-first", "cards-second"):
        node.place.delete_pod(name)
    node.machine.lose(3)
    node.place.wait_for("4", "3")
    node.start_pod("cards-three", 3)
    assert node.cards_of("cards-three") == {0, 1, 2}
    node.machine.recover(3)
    node.place.wait_for("4", "4")


def test_without_nvml_nothing_is_given_and_pods_live_on(node: Node) -> None:
    """And all is as before when it is back."""
    node.end("nvml", signal.SIGKILL)
    node.place.wait_for("4", "0")
    assert node.place.pod("cards-three")["status"]["phase"] == "Running"
    node.start("nvml")
    node.place.wait_for("4", "4")
    node.place.delete_pod("cards-three")
