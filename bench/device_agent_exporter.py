"""What an exporting device-agent costs on a node with eight NVIDIA GPUs that 32 pods share, beside prometheus_client.

``python bench/device_agent_exporter.py`` starts the container ``nvml`` (a supervisor and its child) and the agent with
an exporter of pods' use and ``memory.mode: watch``, on a folder in place of a node, with the test library in place of
NVML (tests/nvml; it needs gcc) and stand-ins for the kubelet. Beside them, at the same time and on the same GPUs, runs
one process of pynvml and prometheus_client, with nine values and no pods. Before that, ``nvml`` runs without them.

Printed is PSS, in MiB; the same "alone", where nothing else on the machine shares the interpreter's files; the CPU time
of a scrape, with all that the process does meanwhile; and for each how many times that the other one has. The status is
1 where the pod has more than 48 MiB alone, or ``nvml`` more than 16 of the pod's sum; it says nothing of speed.

All run with the interpreter that runs this, ``-I -S``, as in ``bench/device_agent_memory.py``.
"""

import asyncio
import json
import os
import sys
import sysconfig
import tempfile
import time
import urllib.request
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from bench.device_agent_memory import PATH, START, Weight, alone_mib, child_of, running, weigh  # noqa: E402
from device_agent.boot import read_boot_id  # noqa: E402
from device_agent.gpu_state.requests import FOLLOW_USE  # noqa: E402
from testbed.ports import free_ports  # noqa: E402
from tests.nvml import build  # noqa: E402
from tests.nvml.gpu import USE  # noqa: E402
from tests.nvml.machine import FakeMachine  # noqa: E402
from tests.nvml.mig_file import Gi, MigGpu  # noqa: E402
from tests.nvml.models import A100_40  # noqa: E402
from tests.unit.device_agent.kubelet_stand_in import Kubelet  # noqa: E402
from tests.unit.device_agent.nvidia.pods import Pods  # noqa: E402
from tests.unit.device_agent.nvml_container.node_folder import NodeFolder  # noqa: E402
from tests.unit.device_agent.nvml_container.running import Client, answers, wait_for  # noqa: E402

GPUS, SHARES = 8, 4
REFERENCE = "pynvml with prometheus_client"
MOST_POD, MOST_NVML = 48.0, 16.0
REST_SECONDS = 30.0
"""Longer than two looks at the GPUs and ten samples of their use."""
SCRAPES = 500
INSTANCES, MIG_SHARES = 7, 2
RESOURCE, MIG_RESOURCE = "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb.shared"
PROFILE = {"version": "v1", "sharing": {"timeSlicing": {"renameByDefault": True, "resources": [
    {"name": "nvidia.com/gpu", "replicas": SHARES}, {"name": "nvidia.com/mig-1g.5gb", "replicas": MIG_SHARES},
]}}}  # fmt: skip

NVML = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from device_agent.cli.start import without_tls
without_tls()
import os
from device_agent.nvml_container.run import end_on_sigterm, supervise
from device_agent.nvml_container.settings import Places, build_settings
end_on_sigterm()
folder, socket = sys.argv[2:]
settings = build_settings({"socket": socket}, os.environ)
sys.exit(supervise(settings._replace(places=Places(root=folder, proc_root=folder))))
"""
"""``device-agent nvml``, with processes of a folder in place of ``/proc``."""


class Exporter(NamedTuple):
    """An exporter's processes, its series, and how many milliseconds of CPU time a scrape takes."""

    weights: Mapping[str, Weight]
    series: int
    scrape_ms: float


class Found(NamedTuple):
    """What was measured: ``nvml`` by itself, the whole pod, and the reference."""

    nvml: Mapping[str, Weight]
    ours: Exporter
    reference: Exporter


class Node:
    """A folder in place of a node: GPUs that pods share, each pod with one process.

    ``mig``: so many GPUs beside them are in MIG mode, with seven instances each, which pods share as well. The last one
    of these has none yet.
    """

    def __init__(self, folder: Path, gpus: int, mig: int = 0) -> None:
        self.folder = folder
        self.library = build(folder)
        self.machine = FakeMachine(folder / "machine", A100_40, gpus + mig, changes_mig=mig > 0)
        self.root = folder / "host"
        self.files = NodeFolder(self.root)
        self.held = {RESOURCE: [f"{self.machine.uuid(gpu)}::{share}" for gpu in range(gpus) for share in range(SHARES)]}
        with self.machine.at_once():
            for gpu in range(gpus + mig):
                self.machine.set_use(gpu, **USE)
            for number in range(gpus * SHARES):
                self._add_process(number, number // SHARES, (1 + number % SHARES) << 30)
            if mig:
                self.held[MIG_RESOURCE] = [*self._partition(range(gpus, gpus + mig - 1))]
        self.environment = {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(folder),
            "NODE_NAME": "n",
            **self.machine.environment(),
        }

    @property
    def pods(self) -> list[str]:
        """Return the names of all pods."""
        return [f"p{number}" for number in range(sum(map(len, self.held.values())))]

    def _partition(self, gpus: range) -> Iterator[str]:
        number = len(self.held[RESOURCE])
        for gpu in gpus:
            placed = tuple(Gi(7 + place, "1g.5gb", place, (1,)) for place in range(INSTANCES))
            self.machine.mig.set(self.machine.uuid(gpu), MigGpu(1, 1, placed))
            for one in self.machine.mig.gpu(self.machine.uuid(gpu)).instances:
                for share in range(MIG_SHARES):
                    self._add_process(number, gpu, 1 << 30, one.uuids[0])
                    number += 1
                    yield f"{one.uuids[0]}::{share}"

    def _add_process(self, number: int, gpu: int, memory: int, mig: str = "") -> None:
        uid, pid = str(uuid.UUID(int=number + 1)), 1000 + number
        self.files.pod(f"default/p{number}", uid)
        self.files.process(pid, uid)
        self.machine.add_process(gpu, pid, memory, 5, mig=mig)

    def write_configuration(self, port: int, nvidia: str = "{}", memory: str = "watch") -> None:
        """Write what the agent reads: its configuration, the profile, and that the pods' devices were given."""
        exporter = json.dumps({"enabled": True, "port": port, "perPod": True})
        config = f"nvidia: {nvidia}\nexporter: {exporter}\nmemory: {{mode: {memory}}}\n"
        (self.folder / "config.yaml").write_text(config)
        (self.folder / "profiles").mkdir()
        (self.folder / "profiles/default").write_text(json.dumps(PROFILE))
        given = [
            {"resource": resource, "id": device, "identity": ["x"], "shares": shares, "at": 1.0}
            for resource, shares in ((RESOURCE, SHARES), (MIG_RESOURCE, MIG_SHARES))
            for device in self.held.get(resource, ())
        ]
        content = {"version": 1, "boot": read_boot_id("/"), "given": given}
        (self.folder / "allocations.json").write_text(json.dumps(content))


def main() -> int:
    """Measure and print; returns the exit status."""
    with tempfile.TemporaryDirectory() as name:
        found = asyncio.run(measure(Path(name), GPUS, REST_SECONDS, SCRAPES))
    for line in lines(found):
        print(line)
    return int(alone(found.ours.weights) > MOST_POD or total(part_of_nvml(found.ours.weights)) > MOST_NVML)


async def measure(folder: Path, gpus: int, rest: float, scrapes: int) -> Found:
    """Measure on so many GPUs. ``rest``: seconds until processes are weighed."""
    node = Node(folder, gpus)
    alone = await asyncio.to_thread(measure_nvml, node, rest)
    port, other = free_ports(2)
    node.write_configuration(port)
    library_path = (json.dumps([sysconfig.get_path("purelib")]), str(node.library), str(other))
    script = str(REPOSITORY / "bench/device_agent_parts/exporter_reference.py")
    async with kubelet(node):
        with nvml(node) as supervisor, agent(node) as resident, running(
            script, *library_path, environment=node.environment
        ) as reference:  # fmt: skip
            await asyncio.to_thread(wait_for_pods, port, len(node.pods))
            await asyncio.sleep(rest)
            processes = {"agent": resident, "nvml, supervisor": supervisor, "nvml, child": child_of(supervisor)}
            ours = await asyncio.to_thread(exporter, processes, port, scrapes)
            theirs = await asyncio.to_thread(exporter, {REFERENCE: reference.pid}, other, scrapes)
    return Found(alone, ours, theirs)


def measure_nvml(node: Node, rest: float) -> dict[str, Weight]:
    """Weigh the container ``nvml`` while no other program of ours runs but this one."""
    with nvml(node) as supervisor:
        client = Client(node.folder / "nvml.sock")
        client.ask(FOLLOW_USE, tuple(f"default/{name}" for name in node.pods))
        end = time.monotonic() + rest
        client.use(lambda use: sum(len(card.processes) for card in use.cards) == len(node.pods))
        while time.monotonic() < end:
            client.use()
        found = {"nvml, supervisor": weigh(supervisor), "nvml, child": weigh(child_of(supervisor))}
        client.close()
    return found


@contextmanager
def nvml(node: Node) -> Iterator[int]:
    """Run the container's processes; gives the supervisor's PID."""
    sock = node.folder / "nvml.sock"
    with running("-c", NVML, PATH, str(node.root), str(sock), environment=node.environment) as process:
        wait_for(lambda: answers(sock) or process.poll() is not None, "the socket")
        yield process.pid
    sock.unlink(missing_ok=True)


@contextmanager
def agent(node: Node, *more: str, start: str = START) -> Iterator[int]:
    """Run the agent, with ``more`` arguments; gives its PID."""
    folder = node.folder
    arguments = (
        "run", f"--config={folder}/config.yaml", f"--root={node.root}", f"--plugin-dir={folder}/plugins",
        f"--socket={folder}/agent.sock", "--port=0", f"--nvml-socket={folder}/nvml.sock", f"--state-dir={folder}",
        f"--profiles={folder}/profiles", f"--pod-resources={folder}/pods.sock", f"--report-dir={folder}", *more,
    )  # fmt: skip
    with running("-c", start, PATH, *arguments, environment=node.environment) as process:
        yield process.pid


@asynccontextmanager
async def kubelet(node: Node) -> AsyncIterator[None]:
    """Be the node's kubelet, whose pods have devices, one each."""
    (node.folder / "plugins").mkdir()
    plugins, pods = Kubelet(node.folder / "plugins"), Pods(node.folder)
    for resource, devices in node.held.items():
        pods.run(resource, *devices)
    await pods.start()
    await plugins.start()
    try:
        yield
    finally:
        await plugins.stop()
        await pods.stop()


def wait_for_pods(port: int, pods: int) -> None:
    """Wait until the page has the memory of so many pods."""

    def is_complete() -> bool:
        used = (line for line in get(port).splitlines() if line.startswith("DCGM_FI_DEV_FB_USED{"))
        return sum('pod="p' in line for line in used) == pods

    wait_for(is_complete, "the series of all pods")


def get(port: int) -> str:
    """Read a page for Prometheus; empty while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def count(page: str) -> int:
    """Count the series of a page."""
    return sum(not line.startswith("#") for line in page.splitlines())


def exporter(processes: Mapping[str, int], port: int, scrapes: int) -> Exporter:
    """Weigh the processes of an exporter, the first of which has the port, and scrape it."""
    weights = {name: weigh(pid) for name, pid in processes.items()}
    return Exporter(weights, count(get(port)), scrape(port, next(iter(processes.values())), scrapes))


def scrape(port: int, pid: int, times: int) -> float:
    """Return the milliseconds of CPU time of a process for each of so many scrapes."""
    before = cpu_seconds(pid)
    for _ in range(times):
        get(port)
    return 1000 * (cpu_seconds(pid) - before) / times


def cpu_seconds(pid: int) -> float:
    """Return how long a process has run, threads that have ended included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def alone(weights: Mapping[str, Weight]) -> float:
    """Return what processes have where nothing else shares their files, in MiB."""
    return alone_mib([*weights.values()])


def lines(
    found: Found, most_pod: str = f" of at most {MOST_POD:.0f}", most_nvml: str = f" of at most {MOST_NVML:.0f}"
) -> Iterator[str]:
    """Say what was found; ``most_pod``, ``most_nvml``: behind what the pod has alone, and the container ``nvml``."""
    ours, other = found.ours, found.reference
    for name, weight in ours.weights.items():
        yield f"{name:<32}{weight.pss:6.1f} MiB"
    nvml_part = total(part_of_nvml(ours.weights))
    yield f"{'nvml in the pod':<32}{nvml_part:6.1f} MiB{most_nvml}"
    yield f"{'nvml by itself':<32}{total(found.nvml):6.1f} MiB, alone {alone(found.nvml):.1f} MiB"
    yield (f"{'the pod':<32}{total(ours.weights):6.1f} MiB, alone {alone(ours.weights):.1f} MiB{most_pod}")
    (name,) = other.weights
    yield f"{name:<32}{total(other.weights):6.1f} MiB, alone {alone(other.weights):.1f} MiB"
    yield (
        f"{'times the reference':<32}{total(ours.weights) / total(other.weights):6.2f}, "
        f"alone {alone(ours.weights) / alone(other.weights):.2f}"
    )
    yield f"{'a scrape':<32}{ours.scrape_ms:6.2f} ms of CPU time for {ours.series} series"
    yield f"{'a scrape of the reference':<32}{other.scrape_ms:6.2f} ms of CPU time for {other.series} series"
    times = ours.scrape_ms / other.scrape_ms if other.scrape_ms else float("nan")
    yield f"{'times the reference':<32}{times:6.2f}"


def part_of_nvml(weights: Mapping[str, Weight]) -> Mapping[str, Weight]:
    """Return the processes of the container ``nvml``."""
    return {name: weight for name, weight in weights.items() if name.startswith("nvml")}


def total(weights: Mapping[str, Weight]) -> float:
    """Add PSS, in MiB."""
    return sum(weight.pss for weight in weights.values())


if __name__ == "__main__":
    sys.exit(main())
