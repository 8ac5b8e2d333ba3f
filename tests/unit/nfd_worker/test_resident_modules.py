"""What the resident process has loaded and what it weighs, with everything open that it opens on a node.

``-I -S`` and a search path of two entries: what an editable installation loads by itself is not the worker's.
"""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

import pytest

from testbed.ports import free_ports
from tests.unit.nfd_worker.test_daemon import CLUSTER_RULE, CUSTOM_RULE, ETC, live_tree

REPOSITORY = Path(__file__).parents[3]

FORBIDDEN = frozenset({
    "argparse", "asyncio", "concurrent", "dataclasses", "decimal", "difflib", "email", "fractions", "hashlib", "html",
    "http", "inspect", "ipaddress", "kubernetes", "multiprocessing", "nvml_inventory", "pathlib", "prometheus_client",
    "pydantic", "pynvml", "random", "re2", "requests", "shutil", "ssl", "subprocess", "tempfile", "unittest", "urllib",
    "urllib3",
})  # fmt: skip
"""Each of them would cost the resident process from 0.2 to 14 MiB for ever."""

FORBIDDEN_OF_OURS = frozenset({
    "feature_rules.go_template", "nfd_worker.cli.commands.labels_command", "nfd_worker.cli.output",
    "nfd_worker.cli.commands.rules_command", "nfd_worker.cli.commands.scan_command", "nfd_worker.gpu.gpu_scan",
    "nfd_worker.publish.publish_child", "nfd_worker.publish.take_over",
})  # fmt: skip
"""What belongs to a child, to another command, or to rules that this node does not have."""

MOST_MIB_ABOVE_THE_INTERPRETER = 9.3 if sys.version_info < (3, 14) else 10.5
"""Debian 12's interpreter alone has 7.7 MiB, and the limit for the image is 17. Python 3.14's own logging has more."""

LOOK_AT_ITSELF = """
import json, os, signal, sys, threading
sys.path[:0] = json.loads(sys.argv[1])

def resident_kib():
    with open("/proc/self/smaps_rollup") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))

before = resident_kib()
import logging
own = set(sys.modules)

def look():
    for _ in range(4):
        assert cycles.acquire(timeout=250)
    print(json.dumps([sorted(set(sys.modules) - own), before, resident_kib()]), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

from nfd_worker import daemon
from nfd_worker.config import options
options._SHORTEST_INTERVAL = 0.1
cycles = threading.Semaphore(0)
cycle = daemon.run_cycle

def counted(*arguments, **named):
    cycles.release()
    return cycle(*arguments, **named)

daemon.run_cycle = counted
threading.Thread(target=look).start()
from nfd_worker.cli.main import run
sys.exit(run(json.loads(sys.argv[2]), {}))
"""


class Resident(NamedTuple):
    """What a running worker has loaded beside Python's own logging, and how much more than an interpreter it weighs."""

    modules: frozenset[str]
    mib: float


@pytest.fixture(scope="module")
def resident(tmp_path_factory: pytest.TempPathFactory) -> Resident:
    """Look into a worker that has run some cycles, with a configuration file, rules, uevents and the endpoint."""
    folder = tmp_path_factory.mktemp("resident")
    root = live_tree(folder / "root")
    (root / ETC / "custom.d").mkdir(parents=True)
    (root / ETC / "custom.d" / "mine.yaml").write_text(CUSTOM_RULE.format("yes"))
    (root / ETC / "features.d").mkdir()
    (root / ETC / "features.d" / "mine").write_text("# +expiry-time=2080-07-28T11:22:33Z\nmine=1\n")
    (folder / "rules.d").mkdir()
    (folder / "rules.d" / "mine.yaml").write_text(CLUSTER_RULE)
    (folder / "nfd-worker.conf").write_text("core: {sleepInterval: 100ms}")
    (port,) = free_ports(1)
    arguments = [
        "run", "--no-publish", "--port", str(port), "--root", str(root),
        "--config", str(folder / "nfd-worker.conf"), "--rules-dir", str(folder / "rules.d"),
    ]  # fmt: skip
    path = [str(REPOSITORY), sysconfig.get_path("purelib")]
    command = [sys.executable, "-I", "-S", "-c", LOOK_AT_ITSELF, json.dumps(path), json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    modules, before, after = json.loads(done.stdout)
    return Resident(frozenset(modules), (after - before) / 1024)


def test_it_runs_on_what_it_needs(resident: Resident) -> None:
    """The process that was looked at is the real one."""
    assert {"pyudev", "yaml", "nfd_worker.daemon", "nfd_worker.watch.uevents", "feature_rules.load"} <= resident.modules


def test_it_loads_nothing_that_a_child_or_nobody_needs(resident: Resident) -> None:
    """Only the publish child may speak to the API server, and only a mistake in a file needs its nearest word."""
    loaded = {name for name in resident.modules if name in FORBIDDEN or name.partition(".")[0] in FORBIDDEN}
    ours = resident.modules & FORBIDDEN_OF_OURS
    assert not loaded | ours


def test_it_is_small(resident: Resident, capsys: pytest.CaptureFixture[str]) -> None:
    """17 MiB in the image, of which the interpreter has 7.7."""
    with capsys.disabled():
        print(f" [nfd-worker resident: {resident.mib:.1f} MiB above the interpreter]", end="")
    assert resident.mib < MOST_MIB_ABOVE_THE_INTERPRETER


LOOK_AFTER_ONCE = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from nfd_worker.cli.main import run
assert run(json.loads(sys.argv[2]), {}) == 0
print(json.dumps(sorted(sys.modules)))
"""


def test_who_works_once_loads_only_what_that_takes(tmp_path: Path) -> None:
    """Each of these would be a tenth of its time, and more."""
    (tmp_path / "nfd-worker.conf").write_text("# as it comes\n")
    arguments = ["--oneshot", "--no-publish", "--root", str(live_tree(tmp_path / "root")),
                 "--config", str(tmp_path / "nfd-worker.conf")]  # fmt: skip
    path = [str(REPOSITORY), sysconfig.get_path("purelib")]
    command = [sys.executable, "-I", "-S", "-c", LOOK_AFTER_ONCE, json.dumps(path), json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    loaded = set(json.loads(done.stdout))
    assert "nfd_worker.cycle" in loaded
    unneeded = {"argparse", "datetime", "gzip", "pyudev", "socket", "yaml", "nfd_worker.telemetry",
                "file_watch.inotify", "nfd_worker.watch.uevents"}  # fmt: skip
    assert not loaded & unneeded
