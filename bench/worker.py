"""How light the labeler is: memory, CPU time at rest, bytes sent, and how soon a change of the host is published.

``python bench/worker.py`` installs the packages into a virtual environment of its own, not editable, as the image does,
and runs the real worker there (``python -I``) against an API server on the loopback that says yes to everything. The
environment is made by ``BENCH_PYTHON``; without it by ``/usr/bin/python3`` where that is of the same version, because
Debian's is the image's. Each figure stands beside that of Node Feature Discovery's worker, measured on one machine.
"""

import json
import os
import shutil
import signal
import site
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

UPSTREAM_RESIDENT_MIB = 39.0
UPSTREAM_CPU_SECONDS_PER_HOUR = 0.70
UPSTREAM_BYTES_UNCHANGED = 99_000

CYCLES = 10
PUBLISHES = 3
REST_SECONDS = 60.0
REST_CYCLES = 5
SAMPLES = 5
PCI_DEVICES = 64

REPOSITORY = Path(__file__).resolve().parents[1]
ETC = "etc/kubernetes/node-feature-discovery"

SCAN = """
import json, sys, time
from nfd_worker.config.config import Settings
from nfd_worker.cycle import run_cycle
from nfd_worker.host import Host
host, settings = Host(sys.argv[1]), Settings()
seconds = []
for _ in range(100):
    start = time.process_time()
    report = run_cycle(host, settings, {})
    seconds.append(time.process_time() - start)
print(json.dumps([seconds[0], min(seconds), len(report.features.instances["pci.device"])]))
"""


class ApiServer(BaseHTTPRequestHandler):
    """Says yes, and notes when each request came and how many bytes it had."""

    protocol_version = "HTTP/1.1"
    received: list[tuple[float, str, int]] = []  # noqa: RUF012 - one server in this process

    def do_PATCH(self) -> None:
        """Take a patch; the object is what was sent."""
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def do_GET(self) -> None:
        """Give a Node that carries nothing."""
        self._answer(json.dumps({"metadata": {"name": "bench", "resourceVersion": "1"}}).encode())

    def _answer(self, body: bytes) -> None:
        size = len(self.requestline) + len("\r\n") + len(bytes(self.headers)) + int(self.headers["Content-Length"] or 0)
        self.received.append((time.monotonic(), self.command, size))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


class Worker:
    """A running worker on a tree, in the installation; ``conf`` and ``features`` are files it watches."""

    def __init__(self, python: Path, folder: Path, root: Path, port: int) -> None:
        self.conf = folder / "nfd-worker.conf"
        self.features = root / ETC / "features.d" / "bench"
        self.sleep("1s")
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(_kubeconfig(port))
        flags = {"--config": self.conf, "--root": root, "--kubeconfig": kubeconfig, "--node-name": "bench", "--port": 0}
        arguments = [str(word) for pair in flags.items() for word in pair]
        self._log = folder / "log"
        command = [str(python), "-I", "-m", "nfd_worker", "run", "--log-level", "debug", *arguments]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(command, stderr=log)
        self.pid = self._process.pid

    def sleep(self, interval: str) -> None:
        """Set the interval between cycles; taken up at once."""
        self.conf.write_text(f"core: {{sleepInterval: {interval}}}")

    def publish(self, change: Callable[[], object]) -> float:
        """Change something; gives the seconds until the API server heard of it."""
        before, start = len(ApiServer.received), time.monotonic()
        change()
        while len(ApiServer.received) == before:
            assert self._process.poll() is None, "the worker has ended"
            assert time.monotonic() - start < 30, "the worker did not publish"
            time.sleep(0.002)
        elapsed = ApiServer.received[before][0] - start
        while self.children():
            time.sleep(0.01)
        return elapsed

    def label(self, text: str) -> float:
        """Write a feature file and wait for the publish."""
        return self.publish(lambda: self.features.write_text(f"bench={text}\n"))

    def children(self) -> str:
        """Name the running children."""
        return Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()

    def memory(self) -> dict[str, float]:
        """Give the MiB of its memory by kind: Rss, Pss, Anonymous..."""
        lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()[1:]
        return {line.split()[0].rstrip(":"): int(line.split()[1]) / 1024 for line in lines}

    def cycles(self) -> int:
        """Count the cycles so far."""
        return self._log.read_text().count("DEBUG cycle:")

    def cpu_seconds(self) -> float:
        """Give the time it ran so far, without children."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]) / 1e9

    def rest(self) -> float:
        """Wait until the next cycle has ended; gives the seconds of CPU since, for each cycle that was."""
        before, cycles = self.cpu_seconds(), self.cycles()
        while self.cycles() == cycles:
            time.sleep(1)
        # Soon enough that no other cycle begins. By the cycle: the kernel's uevents reach everybody, and whatever else
        # goes on here may ask for one more.
        time.sleep(0.5)
        return (self.cpu_seconds() - before) / (self.cycles() - cycles)

    def end(self) -> None:
        """Stop it."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(10)


CONTROL = """
import json, time
DATA = {str(n): list(range(50)) for n in range(200)}
def milliseconds():
    start = time.process_time()
    json.loads(json.dumps(DATA))
    return (time.process_time() - start) * 1000
hot = min(milliseconds() for _ in range(10))
def after_sleep():
    time.sleep(30)
    return milliseconds()
print(json.dumps([hot, sorted(after_sleep() for _ in range(3))[1]]))
"""
"""Some work of no worker's: how much more it costs after a sleep is the machine's doing, and so is a cycle's share."""


def main() -> None:
    """Measure and print."""
    server = HTTPServer(("127.0.0.1", 0), ApiServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        python = install(folder / "venv")
        with worker(python, folder, live_tree(folder / "live"), server.server_port) as running:
            report_resident(running)
        hot, cold = json.loads(_output(python, "-I", "-c", CONTROL))
        print(f"this machine after a sleep     any {hot:.1f} ms of Python take {cold:.1f} ms, {cold / hot:.0f} times")
        tree = generated_tree(folder / "generated")
        first, best, devices = json.loads(_output(python, "-I", "-c", SCAN, str(tree)))
        print(f"CPU of a cycle, {devices} PCI devices   {best * 1000:.1f} ms ({first * 1000:.1f} ms for the first one)")
        with worker(python, folder, tree, server.server_port) as running:
            report_latency(running, tree)


def report_resident(worker: Worker) -> None:
    """Print what a worker on this machine weighs and costs."""
    worker.publish(lambda: None)
    sent = [len(ApiServer.received)]
    for number in range(PUBLISHES - 1):
        worker.label(str(number))
        sent.append(len(ApiServer.received))
    time.sleep(CYCLES)
    memory = worker.memory()
    print(f"RSS, {CYCLES} cycles, {PUBLISHES} publishes   {_against(memory['Rss'], UPSTREAM_RESIDENT_MIB, 'MiB')}")
    print(f"PSS, and of it anonymous       {memory['Pss']:.1f} MiB, {memory['Anonymous']:.1f} MiB")
    changed = ApiServer.received[sent[-2] : sent[-1]]
    print(f"a changed cycle sends          {len(changed)} request, {sum(size for *_, size in changed)} bytes")
    unchanged = ApiServer.received[sent[-1] :]
    told = f"{len(unchanged)} requests, {sum(size for *_, size in unchanged)} bytes"
    upstream = f"{CYCLES} GETs, {CYCLES * UPSTREAM_BYTES_UNCHANGED} bytes"
    print(f"{CYCLES} unchanged cycles send       {told} (upstream: {upstream})")
    worker.sleep(f"{REST_SECONDS:g}s")
    time.sleep(2)
    rests = sorted(worker.rest() * 3600 / REST_SECONDS for _ in range(REST_CYCLES))
    told = _against(statistics.median(rests), UPSTREAM_CPU_SECONDS_PER_HOUR, "s an hour")
    spread = f"median of {REST_CYCLES} minutes, {rests[0]:.2f} to {rests[-1]:.2f}"
    print(f"CPU at rest, one cycle a minute {told} ({spread})")


def report_latency(worker: Worker, tree: Path) -> None:
    """Print how soon a change is published, with an interval that plays no part."""
    worker.publish(lambda: None)
    worker.sleep("1h")
    time.sleep(2)
    files = [worker.label(f"latency-{number}") for number in range(SAMPLES)]
    print(f"feature file to request        {_spread(files)} (upstream: at most a second, by its code)")
    uevent = next(
        (path for path in sorted(Path("/sys/bus/pci/devices").glob("*/uevent")) if os.access(path, os.W_OK)), None
    )
    if uevent is None or os.geteuid() != 0:
        print("hotplug to request             needs root and a PCI device")
        return

    def plug_in(number: int) -> Callable[[], object]:
        def plug() -> None:
            write_device(tree, PCI_DEVICES + number, vendor=f"0xbe{number:02x}")
            uevent.write_text("add")

        return plug

    plugged = [worker.publish(plug_in(number)) for number in range(SAMPLES)]
    print(f"hotplug to request             {_spread(plugged)} (upstream: 30 s, half an interval)")


@contextmanager
def worker(python: Path, folder: Path, root: Path, port: int) -> Iterator[Worker]:
    """Run a worker."""
    running = Worker(python, folder, root, port)
    try:
        yield running
    finally:
        running.end()


# --- the installation and the trees -----------------------------------------------------------------------------------


def install(folder: Path) -> Path:
    """Install the packages, compiled and not editable, beside the libraries of this interpreter; gives the python."""
    base = _base_python()
    subprocess.run([base, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for package in ("nfd_worker", "feature_rules", "kube_api"):
        shutil.copytree(REPOSITORY / package, packages / package, ignore=shutil.ignore_patterns("__pycache__"))
    (packages / "libraries.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "compileall", "-q", packages], check=True)
    version = _output(python, "-c", "import sys; print(sys.version.split()[0])").strip()
    print(f"interpreter                    {base} {version}, in a virtual environment as in the image, python -I")
    return python


def _base_python() -> str:
    debian = "/usr/bin/python3"
    version = "import sys; print(sys.version_info[:2])"
    is_same = os.access(debian, os.X_OK) and _output(debian, "-c", version).strip() == str(sys.version_info[:2])
    return os.environ.get("BENCH_PYTHON") or (debian if is_same else os.path.realpath(sys.executable))


def live_tree(root: Path) -> Path:
    """Make a root that shows this machine, with feature files of its own."""
    (root / ETC / "features.d").mkdir(parents=True)
    for name in ("proc", "sys", "boot", "lib", "usr"):
        (root / name).symlink_to(f"/{name}")
    shutil.copy("/etc/os-release", root / "etc")
    return root


def generated_tree(root: Path) -> Path:
    """Make a root with many PCI devices and little else."""
    (root / ETC / "features.d").mkdir(parents=True)
    for name in ("proc", "boot", "lib", "usr"):
        (root / name).symlink_to(f"/{name}")
    shutil.copy("/etc/os-release", root / "etc")
    for number in range(PCI_DEVICES):
        write_device(root, number)
    return root


def write_device(root: Path, number: int, vendor: str = "0x10de") -> None:
    """Write a GPU as sysfs shows one: a link on the bus to a directory of the device."""
    address = f"0000:{number:02x}:00.0"
    device = root / "sys" / "devices" / "pci0000:00" / address
    device.mkdir(parents=True)
    values = {"class": "0x030200", "vendor": vendor, "device": "0x2330", "subsystem_vendor": "0x10de",
              "subsystem_device": "0x16c1", "sriov_totalvfs": "16"}  # fmt: skip
    for name, value in values.items():
        (device / name).write_text(value + "\n")
    bus = root / "sys" / "bus" / "pci" / "devices"
    bus.mkdir(parents=True, exist_ok=True)
    (bus / address).symlink_to(f"../../../devices/pci0000:00/{address}")


# --- words ------------------------------------------------------------------------------------------------------------


def _against(ours: float, upstream: float, unit: str) -> str:
    return f"{ours:.2f} {unit}, {upstream / ours:.1f} times less than upstream's {upstream:g}"


def _spread(seconds: list[float]) -> str:
    return f"median {statistics.median(seconds):.2f} s, worst {max(seconds):.2f} s of {len(seconds)}"


def _output(*command: Any) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _kubeconfig(port: int) -> str:
    return json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "bench",
        "users": [{"name": "bench", "user": {"token": "bench"}}],
        "clusters": [{"name": "bench", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    })  # fmt: skip


if __name__ == "__main__":
    main()
