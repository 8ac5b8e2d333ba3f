"""This machine as a node with four NVIDIA cards: the real agent and container ``nvml`` on a test's NVML.

Device nodes are made where a driver's would be; opening one fails, as no driver has its number.
"""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from pathlib import Path

import pytest

from device_agent.cli.get_command import get_page
from device_agent.cli.who_command import print_who
from kube_api.errors import NotFound
from kube_api.resources import PODS
from testbed import places
from testbed.testbed import Testbed
from tests.nvml import build
from tests.nvml.machine import FakeMachine
from tests.nvml.models import A100_40
from tests.support.programs import require_program
from tests.support.real_parts import agent_of_test, boots, host_containers, nvml_of_test
from tests.support.real_parts.cluster_setup import FIELD_MANAGER, documents, path_of
from tests.support.real_parts.device_agent import SECONDS, Json, Place
from tests.unit.device_agent.device_nodes.driver_texts import ACCESS, INFORMATION, PARAMS

RESOURCE = "nvidia.com/gpu"
CARDS = range(4)
PAIRS = ({0, 2}, {1, 3})
"""Cards that NVLink joins."""
MAJOR, CAPABILITIES_MAJOR, UVM_MAJOR = 195, 385, 384
"""NVIDIA's own number, and two that the kernel gives to a driver last of all."""
COMMON = {
    "nvidiactl": os.makedev(MAJOR, 255),
    "nvidia-uvm": os.makedev(UVM_MAJOR, 0),
    "nvidia-uvm-tools": os.makedev(UVM_MAJOR, 1),
}
"""The nodes that each container gets, without ``/dev/``."""
CAPABILITIES = "nvidia-caps/nvidia-cap"

_DEVICES = (
    f"Character devices:\n{MAJOR} nvidia\n{MAJOR} nvidiactl\n{UVM_MAJOR} nvidia-uvm\n"
    f"{CAPABILITIES_MAJOR} nvidia-caps\n\nBlock devices:\n"
)
_DRIVER = "proc/driver/nvidia"
_BOOT_ID = "proc/sys/kernel/random/boot_id"
_SHOW = (
    "exec 2>&1; cd /dev; for one in nvidia* nvidia-caps/*; do if [ -c $one ]; then echo $one; fi; done; "
    'echo "cards $NVIDIA_VISIBLE_DEVICES"; exec sleep 3600'
)
SHOW = ["/bin/sh", "-c", f"trap exit TERM; {_SHOW} & wait"]
"""What a pod runs: it says which device nodes it has, and the UUIDs of its environment."""


class Node:
    """The node. ``machine``: its cards, to be changed; ``plugins``: a link to the kubelet's folder of sockets.

    ``flags``: of the agent, beside those that it always has. ``log``: the file in which it logs; None: where this does.
    ``account``: folder with the files of its service account; None: it has none. ``environment``: what it needs more.
    ``changes_mig``: the cards' MIG mode and instances may be changed, by the container ``nvml`` as well.
    """

    def __init__(self, folder: Path, place: Place, *, changes_mig: bool = False) -> None:
        require_program("gcc")
        self.place = place
        self.folder = folder
        self.machine = FakeMachine(folder / "machine", A100_40, len(CARDS), changes_mig=changes_mig)
        for one, other in PAIRS:
            self.machine.connect(one, other, links=12)
        self._library = build(folder)
        self._pages = folder / "pages.sock"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._pods: list[str] = []
        self.flags: dict[str, object] = {}
        self.log: Path | None = None
        self.account: Path | None = None
        self.environment: dict[str, str] = {}
        self._write("proc/devices", _DEVICES)
        self._write(f"{_DRIVER}/params", PARAMS)
        self._write(_BOOT_ID, "a-boot\n")
        for card in CARDS:
            self.number(card, card)
        if changes_mig:
            self.machine.write_proc(folder / _DRIVER)
        self.configure("nvidia: {}\n")
        self.plugins = self.link("p", "device-plugins")

    def link(self, name: str, to: str) -> Path:
        """Make a link to a folder of the kubelet: they are the testbed's own, and the path of a socket is too long."""
        ground = places.find_ground(self.place.ground.host_node_name.removeprefix("host-"))
        made = self.folder / name
        made.symlink_to(ground / "private" / "var-lib-kubelet" / to)
        return made

    def _write(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def _information(self, card: int) -> str:
        return f"{_DRIVER}/gpus/{self.machine.pci(card)}/information"

    # ------------------------------------------------------------ what the node is

    def configure(self, text: str) -> None:
        """Write the agent's configuration file."""
        self._write("config.yaml", text)

    def number(self, card: int, minor: int) -> None:
        """Give a card a minor number."""
        self.machine.set(card, "minor", minor)
        self._write(self._information(card), INFORMATION.format(minor=minor))

    def split(self, card: int, gi: int, minors: tuple[int, int]) -> str:
        """Give a card an instance ``1g.5gb`` and the nodes that open it; returns its UUID."""
        for path, minor in zip((f"gi{gi}", f"gi{gi}/ci0"), minors, strict=True):
            text = ACCESS.format(minor=minor, mode=292, modify=1)
            self._write(f"{_DRIVER}/capabilities/gpu{card}/mig/{path}/access", text)
        return self.machine.add_mig(card, "1g.5gb", gi)

    def reboot_without(self, lost: int) -> None:
        """Have another boot: a card is lost, those behind it get the number before theirs, ``/dev`` has no node."""
        self._write(_BOOT_ID, "another-boot\n")
        shutil.rmtree((self.folder / self._information(lost)).parent)
        self.machine.remove(lost)
        for card in CARDS[lost + 1 :]:
            self.number(card, card - 1)
        remove_device_nodes()

    def boot(self, boot_id: str, minors: Mapping[int, int]) -> None:
        """Boot: all that runs ends, cards have these minor numbers and no instances, and ``/dev`` has no node of them.

        The kubelet runs again; it alone sees the boot before. Agent and container ``nvml`` are to be started.
        """
        ground = self.place.ground
        ground.host_node.kill()
        for name in tuple(self._processes):
            self.end(name, signal.SIGKILL)
        pods = self.place.client.list(PODS.path(), field_selector=f"spec.nodeName={self.place.node}").items
        for pod in pods:
            host_containers.end_pod(pod["metadata"]["uid"])
        shutil.rmtree(self.folder / _DRIVER / "capabilities", ignore_errors=True)
        self.machine.boot()
        for card, minor in minors.items():
            self.number(card, minor)
        remove_device_nodes()
        self._write(_BOOT_ID, f"{boot_id}\n")
        self.environment |= boots.environment(self.folder / _BOOT_ID)
        ground.host_node.start()

    # ------------------------------------------------------------ what runs on it

    def start(self, name: str) -> None:
        """Start ``agent`` or ``nvml``."""
        flags = {
            "config": self.folder / "config.yaml", "root": self.folder, "plugin-dir": self.plugins, "port": 0,
            "socket": self._pages, "state-dir": self.folder / "state", "interval": "2s",
            "nvml-socket": self.folder / nvml_of_test.SOCKET, **self.flags,
        }  # fmt: skip
        agent = ("device_agent", "run") if self.account is None else (agent_of_test.__name__, str(self.account))
        arguments = {
            "agent": (*agent, *(f"--{flag}={value}" for flag, value in flags.items())),
            "nvml": (nvml_of_test.__name__, str(self.folder), str(self._library)),
        }
        environment = {**os.environ, **self.machine.environment(), **self.environment}
        with ExitStack() as stack:
            log = stack.enter_context(self.log.open("ab")) if self.log is not None and name == "agent" else None
            command = [sys.executable, "-m", *arguments[name]]
            self._processes[name] = subprocess.Popen(command, env=environment, stderr=log)

    def pid(self, name: str) -> int:
        """Return the process of one that runs."""
        return self._processes[name].pid

    def end(self, name: str, number: int = signal.SIGTERM) -> int:
        """End one, and return its exit status."""
        process = self._processes.pop(name)
        process.send_signal(number)
        return process.wait(60)

    def close(self) -> None:
        """End both, take the device nodes away, and delete the pods that are left."""
        statuses = {name: self.end(name) for name in tuple(self._processes)}
        remove_device_nodes()
        for name in self._pods:
            with suppress(NotFound):
                self.place.delete_pod(name)
        assert set(statuses.values()) <= {0}

    def page(self, path: str) -> tuple[bool, str]:
        """Ask the agent for a page: whether its status is 200, and its text."""
        with redirect_stdout(io.StringIO()) as said:
            status = get_page(path, {"DEVICE_AGENT_SOCKET": str(self._pages)})
        return status == 0, said.getvalue()

    def who(self) -> list[Json]:
        """Return what ``device-agent who -o json`` says of devices; nothing where it does not know."""
        with redirect_stdout(io.StringIO()) as said:
            status = print_who("json", {"DEVICE_AGENT_SOCKET": str(self._pages)})
        found: list[Json] = [] if status else json.loads(said.getvalue())["devices"]
        return found

    def wait_for_page(self, path: str, words: str, *, is_well: bool = True) -> None:
        """Wait until a page of the agent has some words, with status 200 or another one."""

        def says() -> bool | None:
            status, text = self.page(path)
            return (status is is_well and words in text) or None

        self.place.cluster.wait(f"{path} says {words!r}", says, timeout=SECONDS, seen=lambda: str(self.page(path)))

    def wait_for_card(self, card: int) -> None:
        """Wait until the agent knows a card."""
        memory = self.folder / "state" / "verdicts.json"

        def is_known() -> bool | None:
            return (memory.exists() and self.machine.uuid(card) in memory.read_text()) or None

        self.place.cluster.wait(f"card {card} is known", is_known, timeout=SECONDS)

    # ------------------------------------------------------------ pods

    def start_pod(self, name: str, count: int, *, place: Place | None = None, restart: str = "Never") -> None:
        """Start a pod with so many cards, or units of the resource of another place."""
        image = self.place.ground.small_image
        self._pods.append(name)
        (place or self.place).start_pod(name, image, SHOW, user=0, count=count, restart=restart)

    def seen_by(self, name: str) -> tuple[set[str], list[str]]:
        """Wait until a pod has said what it has; returns its device nodes and the UUIDs of its environment."""
        lines = self.place.log_with(name, "cards ").splitlines()
        return set(lines[:-1]), lines[-1].removeprefix("cards ").split(",")

    def cards_of(self, name: str) -> set[int]:
        """Return the cards of a pod. It has the nodes of these and of no other one."""
        nodes, uuids = self.seen_by(name)
        cards = {card for card in CARDS if self.machine.uuid(card) in uuids}
        assert len(cards) == len(uuids)
        assert nodes == {*COMMON, *(f"nvidia{self.machine.gpus[card].facts['minor']}" for card in cards)}
        return cards


@contextmanager
def node_with_cards(ground: Testbed, folder: Path, *, changes_mig: bool = False) -> Iterator[Node]:
    """Have the node on which nothing runs yet; what was started ends with it. The folder's path is short.

    ``changes_mig``: as :class:`Node` has it.
    """
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("NVIDIA's driver is loaded here, and its device nodes are no test's")
    place = Place(ground, ground.host_node_name, RESOURCE)
    for obj in documents("namespace.yaml"):
        place.client.apply(path_of(obj), obj, field_manager=FIELD_MANAGER)
    node = Node(folder, place, changes_mig=changes_mig)
    try:
        yield node
    finally:
        node.close()


def device_nodes() -> dict[str, int]:
    """Return the cards' and the driver's device nodes of this machine, with their numbers."""
    return {path.name: path.stat().st_rdev for path in Path("/dev").glob("nvidia*") if path.is_char_device()}


def remove_device_nodes() -> None:
    """Take them all away, and the links to them."""
    majors = (MAJOR, UVM_MAJOR, CAPABILITIES_MAJOR)
    links = (link for major in majors for link in Path("/dev/char").glob(f"{major}:*"))
    for path in (*Path("/dev").glob("nvidia*"), *links):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
