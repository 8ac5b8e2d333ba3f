"""The device plugin by grpcio that device-agent is measured beside: its image, its pod, and what processes take."""

import importlib.resources
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import docker
import google.protobuf
import grpc
import typing_extensions
from grpc_tools import protoc

from tests.support.real_parts.device_agent import NAMESPACE, SECONDS, Place

DATA = Path(__file__).parents[2] / "data"
PROTO = DATA / "device_plugin.proto"
PLUGINS = "/var/lib/kubelet/device-plugins"
ROUNDS = 3
REST_SECONDS = 30.0

Shell = Callable[[str], str]
"""Runs a command on a node, and returns what it printed."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a process has taken by now: resident memory, and processor time of all its threads."""

    rss_mib: float
    cpu_seconds: float
    threads: int


def build(engine: docker.APIClient, registry: str, *, base_image: str) -> str:
    """Build the image with this Python's grpcio on top of an image with Debian's Python, and push it."""
    reference = f"{registry}/tests/reference-plugin:latest"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar, tempfile.TemporaryDirectory() as folder:
        _compile(folder)
        tar.add(Path(folder) / "device_plugin_pb2.py", "site/device_plugin_pb2.py")
        for path in sorted((DATA / "reference-plugin").iterdir()):
            tar.add(path, path.name)
        for name, path in _installed().items():
            tar.add(path, f"site/{name}", filter=lambda item: None if "__pycache__" in item.name else item)
    buffer.seek(0)
    stream = engine.build(
        fileobj=buffer, custom_context=True, tag=reference, rm=True, forcerm=True, decode=True,
        network_mode="host", buildargs={"BASE_IMAGE": base_image},
    )  # fmt: skip
    for item in (*stream, *engine.push(reference, stream=True, decode=True)):
        assert "error" not in item, item["error"]
    return reference


def start(folder: Path, resource: str, path: str, *, plugins: Path, socket: str) -> subprocess.Popen[bytes]:
    """Start it as a process of this machine, beside its kubelet.

    ``folder``: for compiled messages. ``path``: of the device node. ``plugins``: the kubelet's folder of sockets.
    """
    _compile(str(folder))
    command = [sys.executable, str(DATA / "reference-plugin/server.py"), resource, path, str(plugins), socket, ""]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(folder)})


def _compile(folder: str) -> None:
    """Compile the messages of the kubelet's API into a folder."""
    include = importlib.resources.files("grpc_tools") / "_proto"
    arguments = ["protoc", f"-I{PROTO.parent}", f"-I{include}", f"--python_out={folder}", PROTO.name]
    assert protoc.main(arguments) == 0


def _installed() -> dict[str, Path]:
    """Find what grpcio needs, as it is installed here, by the name below ``site/``."""
    packages = {"grpc": Path(grpc.__file__).parent, "google": Path(google.protobuf.__file__).parents[1]}
    return {**packages, "typing_extensions.py": Path(typing_extensions.__file__)}


def pod(image: str, *, name: str, node: str, resource: str, path: str) -> dict[str, Any]:
    """Make the pod that offers a device node as a resource, with what device-agent may do."""
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": [resource, path],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": "device-plugins", "mountPath": PLUGINS},
            {"name": "dev", "mountPath": "/host/dev", "readOnly": True},
        ],
    }
    spec = {
        "containers": [container],
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [{"operator": "Exists"}],
        "volumes": [
            {"name": "device-plugins", "hostPath": {"path": PLUGINS}},
            {"name": "dev", "hostPath": {"path": "/dev"}},
        ],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def taken(run: Shell, container: str) -> Taken:
    """Read what the processes of a container have taken on a node: each of these plugins is one."""
    folders = f"$(grep -l {container} /proc/[0-9]*/cgroup 2>/dev/null | xargs -n 1 dirname)"
    status = run(f"for one in {folders}; do grep -E '^(VmRSS|Threads)' $one/status; done").splitlines()
    spent = run(f"for one in {folders}; do cat $one/task/*/schedstat; done").splitlines()
    fields = [line.split() for line in status]
    return Taken(
        rss_mib=sum(int(item[1]) for item in fields if item[0] == "VmRSS:") / 1024,
        cpu_seconds=sum(int(line.split()[0]) for line in spent) / 1e9,
        threads=sum(int(item[1]) for item in fields if item[0] == "Threads:"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """Two plugins of one node that offer the same device: ``ours`` and the one by grpcio, with their containers.

    ``run`` runs a command on the node, ``take`` takes the device away and ``bring`` brings it back.
    """

    ours: Place
    theirs: Place
    containers: tuple[str, str]
    run: Shell
    take: Callable[[], object]
    bring: Callable[[], object]

    def measure(self) -> tuple[Taken, Taken]:
        """Print what both take and how fast they are, with ratios; returns what they have taken at the end."""
        before = [taken(self.run, container) for container in self.containers]
        time.sleep(REST_SECONDS)
        ours, theirs = (taken(self.run, container) for container in self.containers)
        rest = [
            1000 * (after.cpu_seconds - then.cpu_seconds) for after, then in zip((ours, theirs), before, strict=True)
        ]
        rounds = [(self._noticed(self.take, -1), self._noticed(self.bring, 1)) for _ in range(ROUNDS)]
        gone, back = ([median(found) for found in zip(*steps, strict=True)] for steps in zip(*rounds, strict=True))
        print("\n  device-agent, a device plugin by grpcio, ratio")
        for what, (one, two) in {
            "resident, MiB": (ours.rss_mib, theirs.rss_mib),
            "threads": (ours.threads, theirs.threads),
            f"ms of CPU in {REST_SECONDS:.0f} s at rest": rest,
            f"s until a device that is gone is not allocatable, median of {ROUNDS}": gone,
            f"s until a device that is back is allocatable, median of {ROUNDS}": back,
        }.items():
            print(f"  {what}: {one:.1f}, {two:.1f}, {one / two if two else 0:.2f}", flush=True)
        return ours, theirs

    def _noticed(self, do: Callable[[], object], change: int) -> tuple[float, float]:
        """Do something to the device; returns after how many seconds the node counts it, for each plugin."""
        both = (self.ours, self.theirs)
        wanted = {place.resource: str(int(place.count("allocatable") or 0) + change) for place in both}
        began = time.monotonic()
        do()
        seen: dict[str, float] = {}

        def check() -> bool | None:
            allocatable = self.ours.cluster.node(self.ours.node)["status"]["allocatable"]
            now = time.monotonic() - began
            for resource, amount in wanted.items():
                if allocatable.get(resource) == amount:
                    seen.setdefault(resource, now)
            return len(seen) == len(wanted) or None

        self.ours.cluster.wait(f"{wanted} are allocatable", check, timeout=SECONDS, seen=lambda: str(seen), every=0.1)
        return seen[self.ours.resource], seen[self.theirs.resource]


def container_of(pod: dict[str, Any]) -> str:
    """Return the id of the container of a pod."""
    found: str = pod["status"]["containerStatuses"][0]["containerID"]
    return found.rpartition("/")[2]
