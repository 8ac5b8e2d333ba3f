"""The real controller in a process of its own, as in its pod: with the files and rights of its service account.

They lie where the kubelet mounts them, in a mount namespace of the process; nothing of it stays.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from bench.scale_parts.process import cpu_seconds
from kube_api.client import Client
from kube_api.resources import SERVICE_ACCOUNTS
from testbed import metrics
from testbed.ports import free_ports
from tests.support.driver_builder.factories import NAMESPACE

REPOSITORY = Path(__file__).parents[2]
STARTED = re.compile(r"^(?P<at>\S+ \S+) .*build [0-9a-f]{20}: starting \S+ for", re.MULTILINE)

_IN_A_POD = """\
set -e
mount -t tmpfs none /run
mkdir -p /run/secrets/kubernetes.io
cp -r "$1" /run/secrets/kubernetes.io/serviceaccount
shift
exec "$@"
"""
_QUIET, _LOOK = 3, 0.25
"""Looks in a row in which a process at rest uses no more than a tick of CPU, and seconds between them."""


def account(client: Client, folder: Path, ca_file: Path) -> Path:
    """Write the files of the controller's service account, with a token that the API server issues."""
    path = SERVICE_ACCOUNTS.path(namespace=NAMESPACE, name="driver-builder", subresource="token")
    request = {
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": [], "expirationSeconds": 24 * 3600},
    }  # fmt: skip
    folder.mkdir()
    (folder / "token").write_text(client.create(path, request)["status"]["token"])
    (folder / "ca.crt").write_bytes(ca_file.read_bytes())
    return folder


class Process:
    """A running controller; ``port`` has its metrics, ``log`` is what it says."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
        self._process = process
        self.port = port
        self._log = log
        self.pid = process.pid

    @property
    def log(self) -> str:
        """All that it said."""
        return self._log.read_text()

    def metric(self, name: str) -> float:
        """Give the sum of a metric; 0 while nobody listens."""
        return metrics.read(self.port, name)

    def settle(self, longest: float = 1200.0, quiet: int = _QUIET) -> None:
        """Wait until it has nothing to do: some looks in a row find that it used no CPU."""
        end, known, rest = time.monotonic() + longest, cpu_seconds(self.pid), 0
        while rest < quiet:
            assert self._process.poll() is None, f"the controller has ended: {self.log[-3000:]}"
            assert time.monotonic() < end, f"the controller did not come to rest in {longest:.0f} s"
            time.sleep(_LOOK)
            now = cpu_seconds(self.pid)
            rest = rest + 1 if now - known < 0.015 else 0
            known = now

    def until(self, what: str, reached: Callable[[], bool], *, every: float = 0.01, longest: float = 1200.0) -> float:
        """Wait for something, looking ``every`` so many seconds; gives the monotonic time at which it was so."""
        end = time.monotonic() + longest
        while not reached():
            assert self._process.poll() is None, f"the controller has ended: {self.log[-3000:]}"
            assert time.monotonic() < end, f"not reached in {longest:.0f} s: {what}: {self.log[-3000:]}"
            time.sleep(every)
        return time.monotonic()


def first_build(log: str) -> float:
    """Give when the controller started its first build, in seconds since the epoch."""
    found = STARTED.search(log)
    assert found, "no build was started"
    return datetime.strptime(found["at"], "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp()


@contextmanager
def running(folder: Path, files: Path, environment: Mapping[str, str], *flags: str) -> Iterator[Process]:
    """Run the controller with the service account in ``files`` and the environment of its container."""
    (port,) = free_ports(1)
    log = folder / "controller.log"
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _IN_A_POD, "sh", str(files)]
    command += [sys.executable, "-m", "driver_builder", "run", "--port", str(port), *flags]
    base = {"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(REPOSITORY)}
    with log.open("wb") as output:
        started = subprocess.Popen(
            command, cwd=folder, env={**base, **environment}, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield Process(started, port, log)
    finally:
        started.terminate()
        try:
            started.wait(60)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()
