"""A real kubelet, real pods and their real processes: who uses which card, and what is ended for its memory.

NVML is a test's: it names the PIDs of real processes of containers, and what they are said to use.
"""

import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import places
from testbed.ports import free_ports
from testbed.testbed import Testbed
from tests.support.real_parts import reference_plugin
from tests.support.real_parts.device_agent import SECONDS
from tests.support.real_parts.shared_cards import SharedCards, profile, shared_cards

pytestmark = pytest.mark.long

GIB = 1 << 30
SHARES = profile(4, renamed=True, policy="packed")
"""Each share is a quarter of 40 GiB."""
CONFIG = """\
nvidia: {{}}
exporter: {{enabled: true, port: {port}, perPod: true}}
memory: {{mode: watch, graceSeconds: 3, dryRun: {dry}}}
"""


class Used:
    """The node, and what its exporter says."""

    def __init__(self, cards: SharedCards, port: int) -> None:
        self.cards = cards
        self.node = cards.node
        self._port = port

    def configure(self, *, is_dry: bool) -> None:
        """Have the limits kept, or only said."""
        self.node.configure(CONFIG.format(port=self._port, dry=str(is_dry).lower()))

    def pid(self, pod: str) -> int:
        """Return the first process of a pod's container, as this machine numbers it."""
        container = reference_plugin.container_of(self.cards.place.pod(pod))
        (found,) = [pid for pid in _pids() if container in _read(pid, "cgroup") and _is_first(pid)]
        return found

    def link_processes(self) -> None:
        """Have the processes of this machine in the folder that stands for the node's ``/``."""
        for pid in _pids():
            link = self.node.folder / "proc" / str(pid)
            if pid != 1 and not link.is_symlink():
                link.symlink_to(f"/proc/{pid}")

    def card_of(self, *pods: str) -> int:
        """Return the card that pods share."""
        (card,) = set.intersection(*self.cards.cards(*pods))
        return card

    def series(self, expression: str) -> dict[str, float]:
        """Return the values of the exporter's series whose line matches, by pod."""
        found: dict[str, float] = {}
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=20) as page:
                text = page.read().decode()
        except OSError:
            return found
        for line in text.splitlines():
            if re.search(expression, line):
                found[re.findall(r'pod="([^"]*)"', line)[0]] = float(line.rpartition(" ")[2])
        return found

    def shows(self, expression: str, wanted: dict[str, float]) -> None:
        """Wait until the exporter has just these series."""
        self.cards.place.cluster.wait(
            f"{expression}: {wanted}", lambda: self.series(expression) == wanted or None, timeout=SECONDS,
            seen=lambda: str(self.series(expression)), every=0.5,
        )  # fmt: skip

    def exit_code(self, pod: str) -> int | None:
        """Return the exit code of a pod's container that has ended."""
        for status in self.cards.place.pod(pod)["status"].get("containerStatuses") or ():
            if "terminated" in status["state"]:
                return int(status["state"]["terminated"]["exitCode"])
        return None


@pytest.fixture(scope="module")
def used(ground: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Used]:
    """Have four cards of four shares each, the agent with exporter and limits, and the node's own /proc and pods."""
    (port,) = free_ports(1)
    with shared_cards(ground, tmp_path_factory.mktemp("u")) as cards:
        made = Used(cards, port)
        made.configure(is_dry=True)
        first = cards.node.folder / "proc/1"
        first.mkdir()
        (first / "cgroup").write_text("0::/init.scope\n")
        (cards.node.folder / "proc/self").symlink_to("/proc/self")
        logs = cards.node.folder / "var/log"
        logs.mkdir(parents=True)
        ground_folder = places.find_ground(ground.host_node_name.removeprefix("host-"))
        (logs / "pods").symlink_to(ground_folder / "private/var-log-pods")
        cards.write(SHARES)
        cards.node.start("agent")
        cards.node.start("nvml")
        cards.shows(gpu=(0, 0), shared=(16, 16))
        yield made


@pytest.fixture(scope="module")
def pods(used: Used) -> tuple[str, str]:
    """Have two pods that share a card, each with a process on it, and a third process in no pod."""
    names = ("big", "small")
    used.cards.run_pods(used.cards.shared, *names)
    used.link_processes()
    card = used.card_of(*names)
    machine = used.node.machine
    with machine.at_once():
        machine.set_use(card, busy_percent=60.0)
        machine.add_process(card, used.pid("big"), 4 * GIB)
        machine.add_process(card, used.pid("small"), 2 * GIB)
    return names


def test_each_pod_of_a_shared_card_has_series_of_its_own(used: Used, pods: tuple[str, str]) -> None:
    """Beside the card's, whose labels are empty; a process in no pod counts in the card's alone."""
    card = used.card_of(*pods)
    stranger = subprocess.Popen(["sleep", "3600"])
    try:
        used.link_processes()
        used.node.machine.add_process(card, stranger.pid, 30 * GIB)
        used.shows(rf'^DCGM_FI_DEV_FB_USED{{gpu="{card}"', {"": 36 * 1024, "big": 4 * 1024, "small": 2 * 1024})
        used.shows("^device_agent_device_allocated", {"big": 1, "small": 1})
        said = used.node.page("/who")[1]
        assert all(f'"pod":"{pod}"' in said for pod in pods)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
        used.node.machine.remove_process(card, stranger.pid)


def test_a_dry_run_ends_nothing(used: Used, pods: tuple[str, str]) -> None:
    """It is logged and counted."""
    card, since = used.card_of(*pods), used.cards.said()
    used.node.machine.add_process(card, used.pid("big"), 12 * GIB)
    used.cards.logs(since, "driverwright/big", "would be ended, but memory.dryRun is set")
    used.cards.place.cluster.wait(
        "it is counted", lambda: "memory_kills_total{" in used.node.page("/metrics")[1] or None, timeout=SECONDS
    )
    assert [used.exit_code(pod) for pod in pods] == [None, None]
    used.node.machine.add_process(card, used.pid("big"), 4 * GIB)


def test_a_process_over_its_limit_is_ended_and_its_neighbour_lives(used: Used, pods: tuple[str, str]) -> None:
    """Exit code 137 of the one pod; the other one, and a process in no pod with ten times as much, live on."""
    card, since = used.card_of(*pods), used.cards.said()
    used.configure(is_dry=False)
    used.cards.logs(since, "config.yaml changed")
    stranger = subprocess.Popen(["sleep", "3600"])
    try:
        used.link_processes()
        with used.node.machine.at_once():
            used.node.machine.add_process(card, stranger.pid, 120 * GIB)
            used.node.machine.add_process(card, used.pid("big"), 12 * GIB)
        used.cards.place.cluster.wait(
            "the container has ended", lambda: used.exit_code("big"), timeout=SECONDS,
            seen=lambda: used.cards.log.read_text()[since:],
        )  # fmt: skip
        assert used.exit_code("big") == 137
        used.cards.logs(since, "driverwright/big", "was ended")
        assert used.exit_code("small") is None
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def _pids() -> list[int]:
    return [int(one.name) for one in Path("/proc").iterdir() if one.name.isdecimal()]


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""


def _is_first(pid: int) -> bool:
    """Return whether a process is the first one of its PID namespace."""
    numbers = re.findall(r"^NSpid:(.*)$", _read(pid, "status"), re.MULTILINE)
    return bool(numbers) and numbers[0].split()[-1] == "1"
