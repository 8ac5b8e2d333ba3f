"""The resident process, run for real: what it loads, what it weighs, what wakes it, how it ends."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.nfd_worker.trees import HOSTS

FORBIDDEN = ("asyncio", "dataclasses", "http", "kubernetes", "pydantic", "requests", "ssl", "urllib3")
MOST_RESIDENT_MIB = 22
"""An editable installation adds 2 MiB to what a node sees; 25 MiB is the line."""

LOOK_AT_ITSELF = """
import json, os, signal, sys, threading

def look():
    with open("/proc/self/status") as status:
        size = next(line for line in status if line.startswith("VmRSS"))
    print(json.dumps([sorted(sys.modules), int(size.split()[1])]), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Timer(1.0, look).start()
from nfd_worker.cli import run
sys.exit(run(["run", "--no-publish", "--port", "0"], {}))
"""


class Worker:
    """A running worker whose log can be waited for."""

    def __init__(self, *flags: str, environment: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "nfd_worker", "run", "--log-level", "debug", *flags]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
        )
        self.lines: list[str] = []

    def wait_for(self, pattern: str) -> str:
        """Read the log up to a line in which the pattern is found."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if re.search(pattern, line):
                return line
        raise AssertionError(f"{pattern!r} did not come:\n{''.join(self.lines)}")

    def end(self, number: int = signal.SIGTERM) -> int:
        """Signal it and wait."""
        self.process.send_signal(number)
        self.process.communicate(timeout=20)
        return self.process.returncode


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    """Collect workers to end after the test."""
    made: list[Worker] = []
    yield made
    for worker in made:
        worker.process.kill()
        worker.process.communicate()


@pytest.fixture
def fleet(workers: list[Worker]) -> Any:
    """Start workers on a recorded host."""

    def start(*flags: str, environment: dict[str, str] | None = None) -> Worker:
        flags = ("--root", str(HOSTS / "intel-gpu-server"), *flags)
        workers.append(Worker(*flags, environment=environment))
        return workers[-1]

    return start


def test_the_resident_process_is_small_and_loads_nothing_of_the_client(capsys: pytest.CaptureFixture[str]) -> None:
    """Only the publish child may speak to the API server."""
    done = subprocess.run(
        [sys.executable, "-c", LOOK_AT_ITSELF], capture_output=True, text=True, check=True, timeout=60
    )
    modules, resident_kb = json.loads(done.stdout)
    with capsys.disabled():
        print(f" [nfd-worker resident: {resident_kb / 1024:.1f} MiB]", end="")
    assert "pyudev" in modules
    assert not {module.partition(".")[0] for module in modules}.intersection(FORBIDDEN)
    assert resident_kb / 1024 < MOST_RESIDENT_MIB


def test_sigterm_ends_it_at_once_with_success(fleet: Any) -> None:
    """Also between two cycles that are far apart."""
    worker = fleet("--no-publish", "--port", "0", "--sleep-interval", "1h")
    worker.wait_for("cycle: ")
    start = time.monotonic()
    assert worker.end() == 0
    assert time.monotonic() - start < 5


def test_sighup_and_a_changed_file_reload_it(fleet: Any, tmp_path: Path) -> None:
    """A broken file leaves the old settings in force."""
    file = tmp_path / "nfd-worker.conf"
    file.write_text("core: {labelWhiteList: pci}")
    worker = fleet("--no-publish", "--port", "0", "--config", str(file), "--sleep-interval", "0")
    worker.wait_for("cycle: 3 labels")
    file.write_text("core: {labelWhiteList: cstate}")
    worker.wait_for("cycle: 1 labels")
    file.write_text("core: {labelWhiteLust: cstate}")
    assert "did you mean core.labelWhiteList?" in worker.wait_for("not reloaded, the old settings stay in force")
    worker.process.send_signal(signal.SIGHUP)
    worker.wait_for("cycle: 1 labels")
    assert worker.end() == 0


def test_health_and_metrics_are_served(fleet: Any) -> None:
    """The probes of the DaemonSet ask for them."""
    worker = fleet("--no-publish", "--port", "38617")
    worker.wait_for("cycle: ")
    for path, expected in (("healthz", "ok"), ("metrics", "nfd_worker_labels 8")):
        with urllib.request.urlopen(f"http://127.0.0.1:38617/{path}", timeout=5) as response:
            assert expected in response.read().decode()
    assert worker.end() == 0


def test_without_an_api_server_it_goes_on_for_ever(fleet: Any, tmp_path: Path) -> None:
    """A failed publish never ends the worker, and SIGTERM does, also then."""
    worker = fleet("--port", "0", "--kubeconfig", str(tmp_path / "none"), environment={"NODE_NAME": "n"})
    worker.wait_for(r"trying again in \S+ s \(failure 2\)")
    assert worker.process.poll() is None
    assert worker.end() == 0


def test_sigterm_while_a_child_runs_leaves_no_child(fleet: Any, tmp_path: Path) -> None:
    """The child waits for an API server that accepts and never answers."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(
            f"{{apiVersion: v1, kind: Config, current-context: c, users: [{{name: u, user: {{token: t}}}}],"
            f" clusters: [{{name: k, cluster: {{server: 'http://127.0.0.1:{port}'}}}}],"
            " contexts: [{name: c, context: {cluster: k, user: u}}]}"
        )
        worker = fleet("--port", "0", "--kubeconfig", str(kubeconfig), "--node-name", "n")
        silent.settimeout(30)
        connection, _ = silent.accept()
        children = Path(f"/proc/{worker.process.pid}/task/{worker.process.pid}/children").read_text().split()
        assert len(children) == 1
        start = time.monotonic()
        assert worker.end() == 0
        assert time.monotonic() - start < 5
        assert not Path(f"/proc/{children[0]}").exists()
        connection.close()


def test_a_taken_port_ends_it_with_a_message(fleet: Any) -> None:
    """Two workers on one node cannot both be probed."""
    import socket

    with socket.create_server(("", 38618)):
        worker = fleet("--no-publish", "--port", "38618")
        worker.wait_for("choose another with --port, or 0 for none")
    assert worker.process.wait(20) == 2
