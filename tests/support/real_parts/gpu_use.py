"""A node with shared cards of which a test says which real processes of containers use them, and how much."""

import re
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from testbed import places
from testbed.ports import free_ports
from testbed.testbed import Testbed
from tests.support.real_parts import nvml_of_test
from tests.support.real_parts.device_agent import SECONDS
from tests.support.real_parts.held_requests import HeldRequests
from tests.support.real_parts.nvidia_node import CARDS
from tests.support.real_parts.shared_cards import SharedCards, profile, shared_cards

GIB = 1 << 30
MAIN = "main"
"""The container of a pod that has only one."""
WORKERS_ROOT = "w"
"""In the node's folder, what stands for the node's ``/`` to a worker."""
REPORTS = f"{WORKERS_ROOT}/run/driverwright-agent"
SHARES = profile(4, renamed=True, policy="packed")
"""Each share is a quarter of 40 GiB."""
CONFIG = """\
nvidia: {{}}
exporter: {{enabled: true, port: {port}, perPod: true}}
memory: {{mode: watch, graceSeconds: 3, dryRun: {dry}}}
"""


class Used:
    """The node, and what its exporter says. ``requests``: those of the agent to ``nvml``."""

    def __init__(self, cards: SharedCards, port: int, requests: HeldRequests) -> None:
        self.cards = cards
        self.node = cards.node
        self.requests = requests
        self._port = port

    # ------------------------------------------------------------ what is arranged

    def configure(self, *, is_dry: bool) -> None:
        """Have the limits kept, or only said."""
        self.node.configure(CONFIG.format(port=self._port, dry=str(is_dry).lower()))

    def starts(self) -> int:
        """Have cards that nobody uses, no pod, and limits that are kept; returns how much the agent has logged."""
        self.cards.starts_with(SHARES)
        for card in CARDS:
            self.uses(card, {})
        self.configure(is_dry=False)
        return self.cards.said()

    def run_pods(self, *names: str) -> int:
        """Start pods with a share of the same card each; returns that card."""
        for name in names:
            self.cards.start_containers(name, {MAIN: 1})
        return self.card_of(*names)

    def uses(self, card: int, gib: Mapping[int, int]) -> None:
        """Have these processes use a card, each so much, and no other ones."""
        self.link_processes()
        with self.node.machine.at_once():
            for process in self.node.machine.gpus[card].processes:
                self.node.machine.remove_process(card, process.pid)
            for pid, size in gib.items():
                self.node.machine.add_process(card, pid, size * GIB)

    def link_processes(self) -> None:
        """Have the processes of this machine in the folder that stands for the node's ``/``."""
        for pid in _pids():
            link = self.node.folder / "proc" / str(pid)
            if pid != 1 and not link.is_symlink():
                link.symlink_to(f"/proc/{pid}")

    # ------------------------------------------------------------ what is there

    def pid(self, pod: str, container: str = MAIN) -> int:
        """Return the process that has started all others of a container, as this machine numbers it."""
        statuses = self.cards.place.pod(pod)["status"]["containerStatuses"]
        (name,) = (one["containerID"].rpartition("/")[2] for one in statuses if one["name"] == container)
        parents = {pid: _parent(pid) for pid in _pids() if name in _read(pid, "cgroup")}
        (found,) = (pid for pid, parent in parents.items() if parent not in parents)
        return found

    def containers(self) -> dict[tuple[str, str], set[int]]:
        """Return the cards of each pod and container, as ``device-agent who`` says it."""
        by_uuid = {self.node.machine.uuid(card): card for card in CARDS}
        found: dict[tuple[str, str], set[int]] = {}
        for one in self.node.who():
            cards = {by_uuid[uuid]} if (uuid := one["device"].partition("::")[0]) in by_uuid else set()
            found.setdefault((one["pod"], one["container"]), set()).update(cards)
        return found

    def card_of(self, *pods: str) -> int:
        """Wait until it is known which card the containers of these pods have, which is one; returns it."""

        def known() -> dict[tuple[str, str], set[int]] | None:
            found = {one: cards for one, cards in self.containers().items() if one[0] in pods}
            return found if {pod for pod, _ in found} == {*pods} else None

        found = self.cards.place.cluster.wait(
            f"the devices of {pods}", known, timeout=SECONDS, seen=lambda: str(self.containers())
        )
        (card,) = set.union(*found.values())
        return card

    def has_limits(self, card: int, **gib: int) -> None:
        """Wait until the agent's metrics say these limits of memory of pods on a card, and no other ones."""
        expression = f'^device_agent_memory_limit_bytes.*"{self.node.machine.uuid(card)}"'
        wanted = {pod: float(size * GIB) for pod, size in gib.items()}

        def said() -> dict[str, float]:
            return _by_pod(self.node.page("/metrics")[1], expression)

        self.cards.place.cluster.wait(
            f"limits {gib}", lambda: said() == wanted or None, timeout=SECONDS, seen=lambda: str(said())
        )

    def series(self, expression: str) -> dict[str, float]:
        """Return the values of the exporter's series whose line matches, by pod."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=20) as page:
                return _by_pod(page.read().decode(), expression)
        except OSError:
            return {}

    def shows(self, expression: str, wanted: dict[str, float]) -> None:
        """Wait until the exporter has just these series."""
        self.cards.place.cluster.wait(
            f"{expression}: {wanted}", lambda: self.series(expression) == wanted or None, timeout=SECONDS,
            seen=lambda: str(self.series(expression)), every=0.5,
        )  # fmt: skip

    def shows_memory(self, card: int, **gib: int) -> None:
        """Wait until the exporter says that so much of a card is used: ``of_all`` together, and of each pod."""
        wanted = {"" if name == "of_all" else name: size * 1024.0 for name, size in gib.items()}
        self.shows(rf'^DCGM_FI_DEV_FB_USED{{gpu="{card}"', wanted)

    def exit_code(self, pod: str, container: str = MAIN) -> int | None:
        """Return the exit code of a container that has ended."""
        for status in self.cards.place.pod(pod)["status"].get("containerStatuses") or ():
            if status["name"] == container and "terminated" in status["state"]:
                return int(status["state"]["terminated"]["exitCode"])
        return None

    def wait_for_end(self, pod: str, container: str = MAIN) -> int:
        """Wait until a container has ended; returns its exit code."""
        return self.cards.place.cluster.wait(
            f"{pod}/{container} has ended", lambda: self.exit_code(pod, container), timeout=SECONDS,
            seen=lambda: self.cards.log.read_text()[-4000:],
        )  # fmt: skip

    def waits_for_request(self, pid: int) -> None:
        """Wait until the agent wants a process to be ended, which is kept back."""
        self.cards.place.cluster.wait(
            f"{pid} is to be ended", lambda: pid in self.requests.kept() or None, timeout=SECONDS, every=0.05,
            seen=lambda: self.cards.log.read_text()[-4000:],
        )  # fmt: skip

    def answer(self, pid: int) -> str:
        """Wait until ``nvml`` has said what became of a request; returns why the process was not ended."""
        return self.cards.place.cluster.wait(
            f"what became of {pid}", lambda: self.requests.answer(pid), timeout=SECONDS
        )

    def labels(self) -> dict[str, str]:
        """Return the labels of the Node."""
        return self.cards.place.cluster.labels(self.cards.place.node)

    def wait_until_gone(self, pid: int) -> None:
        """Wait until a process has ended, and nobody has to ask for its status any more."""
        self.cards.place.cluster.wait(
            f"{pid} is gone", lambda: not Path(f"/proc/{pid}").exists() or None, timeout=SECONDS, every=0.02
        )


@contextmanager
def used_cards(ground: Testbed, folder: Path) -> Iterator[Used]:
    """Have four cards of four shares each, the agent with exporter and limits, and the node's own /proc and pods."""
    (port,) = free_ports(1)
    with shared_cards(ground, folder) as cards:
        node = cards.node
        requests = HeldRequests(node.folder / "held.sock", node.folder / nvml_of_test.SOCKET)
        node.flags |= {"nvml-socket": node.folder / "held.sock", "report-dir": node.folder / REPORTS}
        made = Used(cards, port, requests)
        for card in CARDS:
            node.machine.set_use(card, busy_percent=60.0)
        made.configure(is_dry=True)
        first = node.folder / "proc/1"
        first.mkdir()
        (first / "cgroup").write_text("0::/init.scope\n")
        (node.folder / "proc/self").symlink_to("/proc/self")
        logs = node.folder / "var/log"
        logs.mkdir(parents=True)
        ground_folder = places.find_ground(ground.host_node_name.removeprefix("host-"))
        (logs / "pods").symlink_to(ground_folder / "private/var-log-pods")
        cards.write(SHARES)
        node.start("agent")
        node.start("nvml")
        cards.shows(gpu=(0, 0), shared=(16, 16))
        try:
            yield made
        finally:
            requests.close()


def _by_pod(text: str, expression: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if re.search(expression, line)]
    return {re.findall(r'pod="([^"]*)"', line)[0]: float(line.rpartition(" ")[2]) for line in lines}


def _pids() -> list[int]:
    return [int(one.name) for one in Path("/proc").iterdir() if one.name.isdecimal()]


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""


def _parent(pid: int) -> int:
    """Return the process that has started one; -1 where it has ended."""
    found = re.findall(r"^PPid:\s*(\d+)$", _read(pid, "status"), re.MULTILINE)
    return int(found[0]) if found else -1
