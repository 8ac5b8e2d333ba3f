"""How light the labeler is: memory, CPU, bytes sent, and how soon a change of the host is published.

``python bench/worker.py [PART...]`` installs the packages into a virtual environment of its own, not editable, as the
image does, and runs the real worker there as in a pod (:mod:`bench.worker_parts.pod`): with a service account, against
an API server with TLS that says yes to everything. PART is one or more of ``cost``, ``resident``, ``latency`` and
``churn``; all without. The environment is made by ``BENCH_PYTHON``; without it by ``/usr/bin/python3`` where that is of
the same version, because Debian's is the image's. CPU stands beside that of the same Python that does nothing
(``python -I -S -c pass``), measured in turns; other figures beside those of Node Feature Discovery's worker, measured
once on another machine.
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
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from bench.worker_parts.churn import SECONDS as CHURN_SECONDS  # noqa: E402
from bench.worker_parts.churn import Churn  # noqa: E402
from bench.worker_parts.cost import in_turns, milliseconds_of, ticks_of  # noqa: E402
from bench.worker_parts.pod import ApiServer, leave_mounts, start_api_server  # noqa: E402

UPSTREAM_RESIDENT_MIB = 39.0
UPSTREAM_CPU_SECONDS_PER_HOUR = 0.70
UPSTREAM_BYTES_UNCHANGED = 99_000

CYCLES = 10
CHECKS = 30
CHECK_SECONDS = 300.0 * 15 / 16
"""How often a Node is checked: five minutes, and up to an eighth less."""
PUBLISHES = 3
REST_SECONDS = 60.0
REST_CYCLES = 5
SAMPLES = 5
PCI_DEVICES = 64
ROUNDS = 9
CHANGES = 15
CHURN_PORT = 38640

ETC = "etc/kubernetes/node-feature-discovery"

SCRIPT = """\
#!{python}
# -*- coding: utf-8 -*-
import re
import sys
from nfd_worker.cli.start import main
if __name__ == '__main__':
    sys.argv[0] = re.sub(r'(-script\\.pyw|\\.exe)?$', '', sys.argv[0])
    sys.exit(main())
"""
"""What pip makes of an entry point."""

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


class Worker:
    """A running worker on a tree, in the installation; ``conf`` and ``features`` are files it watches."""

    def __init__(self, program: Path, folder: Path, root: Path, environment: Mapping[str, str], port: int = 0) -> None:
        self.conf = folder / "nfd-worker.conf"
        self.rules = folder / "rules.d"
        self.rules.mkdir(exist_ok=True)
        self.features = root / ETC / "features.d" / "bench"
        self.sleep("1s")
        flags = {"--config": self.conf, "--root": root, "--rules-dir": self.rules, "--port": port}
        arguments = [str(word) for pair in flags.items() for word in pair]
        self._log = folder / "log"
        with self._log.open("w") as log:
            command = [str(program), "run", "--log-level", "debug", *arguments]
            self._process = subprocess.Popen(command, stderr=log, env=environment)
        self.pid = self._process.pid

    def sleep(self, interval: str, check: str = "0") -> None:
        """Set the interval between cycles, and that between checks of the Node; taken up at once."""
        self.conf.write_text(f"core: {{sleepInterval: {interval}}}\nresyncPeriod: {check}\n")

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

    def check(self) -> tuple[float, int]:
        """Let it check its Node some times; gives the seconds of CPU of one, its child included, and its requests."""
        self.sleep("1h", "1s")
        time.sleep(3)
        before, sent = ticks_of(self.pid), len(ApiServer.received)
        while len(ApiServer.received) < sent + CHECKS:
            time.sleep(0.5)
        self.sleep("1h")
        time.sleep(2)
        requests = ApiServer.received[sent:]
        assert {verb for _, verb, _ in requests} == {"GET"}, "a Node that has lost nothing was written"
        return (ticks_of(self.pid) - before) / 1000 / len(requests), requests[-1][2]

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
    parts = sys.argv[1:] or list(PARTS)
    leave_mounts()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        bench = Bench(install(folder / "venv"), folder, start_api_server(folder))
        for part in parts:
            PARTS[part](bench)


class Bench(NamedTuple):
    """The installation's ``bin``, a folder for trees, and the environment of a container."""

    programs: Path
    folder: Path
    environment: Mapping[str, str]

    @contextmanager
    def worker(self, root: Path, port: int = 0) -> Iterator[Worker]:
        """Run a worker."""
        running = Worker(self.programs / "nfd-worker", self.folder, root, self.environment, port)
        try:
            yield running
        finally:
            running.end()

    def empty(self) -> float:
        """Give the milliseconds of CPU of an interpreter that does nothing."""
        return milliseconds_of([str(self.programs / "python"), "-I", "-S", "-c", "pass"], self.environment)

    def oneshot(self, root: Path, *flags: str) -> float:
        """Give the milliseconds of CPU of a worker that runs once."""
        command = [str(self.programs / "nfd-worker"), "--oneshot", "--root", str(root), *flags]
        return milliseconds_of(command, self.environment)


def report_cost(bench: Bench) -> None:
    """Print what starting, and publishing a change, costs; beside an interpreter that does nothing."""
    tree = live_tree(bench.folder / "cost")
    for _ in range(3):
        bench.empty()
    print(f"an empty interpreter           {statistics.median(bench.empty() for _ in range(ROUNDS)):.1f} ms of CPU")
    print(f"oneshot without publishing     {in_turns(bench.empty, lambda: bench.oneshot(tree, '--no-publish'))}")
    print(f"oneshot with publishing        {in_turns(bench.empty, lambda: bench.oneshot(tree))}")
    with bench.worker(tree) as running:
        running.publish(lambda: None)
        running.sleep("1h")
        time.sleep(2)
        empties: list[float] = []
        numbers = iter(range(1000))

        def change() -> float:
            empties.clear()
            before = ticks_of(running.pid)
            for _ in range(CHANGES):
                running.label(f"cost-{next(numbers)}")
                empties.append(bench.empty())
                # The second cycle of the burst is part of what a change costs.
                time.sleep(0.5)
            return (ticks_of(running.pid) - before) / CHANGES

        pairs = [(change(), statistics.mean(empties)) for _ in range(3)]
    ours, ratio = (statistics.median(values) for values in zip(*((a, a / b) for a, b in pairs), strict=True))
    print(f"a published change             {ours:.0f} ms, {ratio:.1f} times an empty interpreter's")


def report_churn(bench: Bench) -> None:
    """Print how a worker's memory grows on a node that does not rest."""
    tree = generated_tree(bench.folder / "churn")
    with bench.worker(tree, port=CHURN_PORT) as running:
        running.publish(lambda: None)
        churn = Churn(tree / ETC, running.rules, running.conf, CHURN_PORT)
        for has_regexps, seconds in ((False, CHURN_SECONDS), (True, CHURN_SECONDS / 3)):
            churn.has_regexps = has_regexps
            sizes = [f"{running.memory()['Rss']:.1f}"]
            churn.run(seconds, lambda: sizes.append(f"{running.memory()['Rss']:.1f}"))  # noqa: B023 - called in run()
            told = f"{running.memory()['Rss']:.1f} MiB, with{'' if has_regexps else 'out'} regular expressions in rules"
            print(f"RSS after {churn.operations:>4} changes         {told}")
            print(f"  minute by minute             {' '.join(sizes)}")


def report_resident(bench: Bench) -> None:
    """Print what a worker on this machine weighs, and costs at rest."""
    # With the endpoint, as in deploy/: its sockets are the publish child's as well.
    with bench.worker(live_tree(bench.folder / "live"), port=CHURN_PORT) as running:
        _report_resident(running)
    python = bench.programs / "python"
    hot, cold = json.loads(_output(python, "-I", "-c", CONTROL))
    print(f"this machine after a sleep     any {hot:.1f} ms of Python take {cold:.1f} ms, {cold / hot:.0f} times")
    tree = generated_tree(bench.folder / "scanned")
    first, best, devices = json.loads(_output(python, "-I", "-c", SCAN, str(tree)))
    print(f"CPU of a cycle, {devices} PCI devices   {best * 1000:.1f} ms ({first * 1000:.1f} ms for the first one)")


def _report_resident(worker: Worker) -> None:
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
    spread = f"median of {REST_CYCLES} minutes, {rests[0]:.2f} to {rests[-1]:.2f}"
    print(f"CPU of one cycle a minute      {statistics.median(rests):.2f} s an hour ({spread})")
    check, size = worker.check()
    print(f"a check of the Node            {check * 1000:.1f} ms of CPU, sends {size} bytes, receives {ApiServer.sent}")
    at_rest = statistics.median(rests) + check * 3600 / CHECK_SECONDS
    print(f"CPU at rest, with children     {_against(at_rest, UPSTREAM_CPU_SECONDS_PER_HOUR, 's an hour')}")
    memory = worker.memory()
    print(f"RSS and PSS after {CHECKS} checks    {memory['Rss']:.1f} MiB, {memory['Pss']:.1f} MiB")


def report_latency(bench: Bench) -> None:
    """Print how soon a change is published, with an interval that plays no part."""
    tree = generated_tree(bench.folder / "generated")
    with bench.worker(tree) as running:
        _report_latency(running, tree)


def _report_latency(worker: Worker, tree: Path) -> None:
    worker.publish(lambda: None)
    worker.sleep("1h")
    time.sleep(2)
    files = [alone(partial(worker.label, f"latency-{number}")) for number in range(SAMPLES)]
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

    plugged = [alone(partial(worker.publish, plug_in(number))) for number in range(SAMPLES)]
    print(f"hotplug to request             {_spread(plugged)} (upstream: 30 s, half an interval)")


def alone(change: Callable[[], float]) -> float:
    """Make a change that belongs to no burst."""
    time.sleep(1.0)
    return change()


# --- the installation and the trees -----------------------------------------------------------------------------------


def install(folder: Path) -> Path:
    """Install the packages, compiled and not editable, beside the libraries of this interpreter; gives its ``bin``."""
    base = _base_python()
    subprocess.run([base, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for package in ("nfd_worker", "feature_rules", "file_watch", "kube_api", "nvml_inventory"):
        shutil.copytree(REPOSITORY / package, packages / package, ignore=shutil.ignore_patterns("__pycache__"))
    # The image has no libyaml, which would be mapped and not used.
    yaml = Path(_output(sys.executable, "-c", "import yaml; print(yaml.__path__[0])").strip())
    shutil.copytree(yaml, packages / "yaml", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    (packages / "libraries.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    python = folder / "bin" / "python"
    (folder / "bin" / "nfd-worker").write_text(SCRIPT.format(python=python))
    (folder / "bin" / "nfd-worker").chmod(0o755)
    subprocess.run([python, "-m", "compileall", "-q", packages], check=True)
    version = _output(python, "-c", "import sys; print(sys.version.split()[0])").strip()
    print(f"interpreter                    {base} {version}, in a virtual environment as in the image")
    return python.parent


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


PARTS = {"cost": report_cost, "resident": report_resident, "latency": report_latency, "churn": report_churn}


if __name__ == "__main__":
    main()
