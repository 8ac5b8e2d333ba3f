"""What a testbed looked like when a test failed: written to files, its most telling lines returned for the report.

Nothing is collected while all is well. A guest is asked through its serial port; of one that no longer answers, the
logs are read from its disk. Whatever cannot be had is named in its file's place, and nothing here raises.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import docker
import requests

from testbed.api import ApiError
from testbed.command import run, tail
from testbed.errors import TestbedError
from testbed.guest.guest import Guest
from testbed.supervisor import private_folder
from testbed.testbed import Testbed

_FOLDER = Path(__file__).parents[1] / "build" / "artefacts"
_FOLDERS_KEPT = 40
_LOG_BYTES = 400_000
_SAID_LINES = 12
_GUEST_SECONDS = 20.0
_TROUBLE = (
    *(OSError, ValueError, KeyError),
    *(ApiError, TestbedError, docker.errors.DockerException, requests.RequestException),
)

Json = dict[str, Any]

_GUEST_FILES = {"kubelet.log": "/var/log/kubelet.log", "containerd.log": "/var/log/containerd.log"}
_GUEST_COMMANDS = {
    # Blocked tasks first, so that their stacks stand at the end of what the kernel says.
    "dmesg.txt": "echo w >/proc/sysrq-trigger; dmesg",
    "processes.txt": "ps -o pid,ppid,stat,etime,args; cat /proc/meminfo; df; cat /proc/mounts",
    **{name: f"tail -c {_LOG_BYTES} {path}" for name, path in _GUEST_FILES.items()},
    "pod-logs.txt": 'for log in /var/log/pods/*/*/*.log; do echo "== $log"; tail -n 40 "$log"; done',
}
_API_LISTS = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "events": "/api/v1/events",
    "daemonsets": "/apis/apps/v1/daemonsets",
    "jobs": "/apis/batch/v1/jobs",
    "leases": "/apis/coordination.k8s.io/v1/leases",
    "drivercontainers": "/apis/driverwright.io/v1alpha1/drivercontainers",
}


def write(ground: Testbed, test: str) -> str:
    """Write all that can be had of a testbed; return where, and the lines to read first."""
    folder = _new_folder(test)
    said = [f"everything is in {folder}"]
    for name, collect in _collectors(ground):
        try:
            said += collect(folder)
        except _TROUBLE as error:
            said.append(f"{name}: {type(error).__name__}: {error}")
    text = "\n".join(said)
    (folder / "summary.txt").write_text(text)
    return text


def _new_folder(test: str) -> Path:
    root = Path(os.environ.get("DRIVERWRIGHT_ARTEFACTS") or _FOLDER)
    root.mkdir(parents=True, exist_ok=True)
    for old in sorted(root.iterdir(), key=lambda path: path.stat().st_mtime)[:-_FOLDERS_KEPT]:
        run(["rm", "-rf", old], check=False)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", test.rpartition("/")[2])[:100]
    folder = root / f"{time.strftime('%H%M%S')}-{name}"
    folder.mkdir(exist_ok=True)
    return folder


def _collectors(ground: Testbed) -> Iterator[tuple[str, Callable[[Path], list[str]]]]:
    yield "processes", partial(_processes, ground)
    if ground.has_kubernetes:
        yield "API server", partial(_objects, ground)
    for name in ground.guests.names() if ground.has_guests else ():
        yield name, partial(_guest, ground, ground.guest(name))
    if ground.has_engine:
        yield "containers", partial(_containers, ground)
    yield "pods of this machine", partial(_pods, ground)


def _processes(ground: Testbed, folder: Path) -> list[str]:
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)
    for path in ground.logs.glob("*.log"):
        (logs / path.name).write_text(tail(path, _LOG_BYTES))
    load = Path("/proc/loadavg").read_text().split()[0]
    ended = [f"{name} {state}" for name, state in ground.processes.states().items() if state != "running"]
    return [f"load of the machine: {load}; ended processes: {', '.join(ended) or 'none'}"]


# ---------------------------------------------------------------- the cluster


def _objects(ground: Testbed, folder: Path) -> list[str]:
    found: dict[str, list[Json]] = {}
    for name, path in _API_LISTS.items():
        found[name] = list((ground.api.get(path) or {}).get("items", []))
        (folder / f"{name}.json").write_text(json.dumps(found[name], indent=1))
    events = sorted(found["events"], key=lambda event: str(event.get("lastTimestamp")))
    return [
        *map(node_line, found["nodes"]),
        *map(pod_line, found["pods"]),
        *map(event_line, events[-_SAID_LINES:]),
    ]


def node_line(node: Json) -> str:
    """Describe a Node by its conditions that are not as they should be."""
    conditions = node.get("status", {}).get("conditions") or []
    wrong = [
        f"{item['type']}={item['status']} ({item.get('reason')}, heard of {item.get('lastHeartbeatTime')})"
        for item in conditions
        if (item["status"] == "True") != (item["type"] == "Ready")
    ]
    return f"node {node['metadata']['name']}: {', '.join(wrong) or ('in order' if conditions else 'no conditions')}"


def pod_line(pod: Json) -> str:
    """Describe a pod: where it is, how far, and what its containers wait for or ended with."""
    metadata, status = pod["metadata"], pod.get("status", {})
    words = [f"pod {metadata['namespace']}/{metadata['name']}", pod["spec"].get("nodeName") or "on no node"]
    words.append(str(status.get("phase", "?")))
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        ((state, details),) = (container.get("state") or {"unknown": {}}).items()
        code = f" {details['exitCode']}" if "exitCode" in details else ""
        words.append(f"{container['name']}: {details.get('reason') or state}{code}")
    if "deletionTimestamp" in metadata:
        words.append(f"to be gone at {metadata['deletionTimestamp']}")
    return ", ".join(words)


def event_line(event: Json) -> str:
    """Describe an Event."""
    on = event["involvedObject"]
    return (
        f"event {event.get('lastTimestamp')} {on['kind']}/{on.get('name')} {event['reason']}: {event['message'][:200]}"
    )


# ---------------------------------------------------------------- guests


def _guest(ground: Testbed, guest: Guest, folder: Path) -> list[str]:
    own = folder / guest.name
    own.mkdir(exist_ok=True)
    (own / "console.log").write_text(tail(guest.console_log, _LOG_BYTES))
    answers = guest.is_running() and _answers(guest)
    if answers:
        _ask(guest, own)
    else:
        _read_disk(guest, own)
    _kubelet_stacks(ground, guest, own)
    state = "answers" if answers else "runs, and does not answer" if guest.is_running() else "does not run"
    said = [f"guest {guest.name} {state}"]
    for name in ("console.log", "dmesg.txt", *_GUEST_FILES):
        path = own / name
        lines = path.read_text(errors="replace").splitlines()[-_SAID_LINES:] if path.exists() else []
        said += [f"-- {guest.name}: the end of {name}", *lines]
    return said


def _answers(guest: Guest) -> bool:
    try:
        guest.run("true", timeout=_GUEST_SECONDS)
    except TestbedError:
        return False
    return True


def _ask(guest: Guest, folder: Path) -> None:
    for name, command in _GUEST_COMMANDS.items():
        (folder / name).write_text(_or_error(partial(_output, guest, command)))


def _output(guest: Guest, command: str) -> str:
    return guest.run(command, timeout=_GUEST_SECONDS)[1]


def _read_disk(guest: Guest, folder: Path) -> None:
    for name, path in _GUEST_FILES.items():
        argv: list[str | Path] = ["debugfs", "-c", "-R", f"cat {path}", guest.root_disk]
        (folder / name).write_text(_or_error(partial(run, argv, check=False))[-_LOG_BYTES:])


def _kubelet_stacks(ground: Testbed, guest: Guest, folder: Path) -> None:
    """What each part of a kubelet waits for."""
    path = f"/api/v1/nodes/{guest.name}/proxy/debug/pprof/goroutine?debug=2"
    (folder / "kubelet-stacks.txt").write_text(_or_error(partial(ground.api.text, path)))


def _or_error(read: Callable[[], str]) -> str:
    try:
        return read()
    except _TROUBLE as error:
        return f"{type(error).__name__}: {error}\n"


# ---------------------------------------------------------------- containers of this machine


def _containers(ground: Testbed, folder: Path) -> list[str]:
    client = ground.engine.client(timeout=30)
    try:
        found: list[Mapping[str, Any]] = client.containers(all=True)
        (folder / "containers.json").write_text(json.dumps(found, indent=1))
        for container in found:
            name = container["Names"][0].strip("/")
            if not name.startswith("k8s_POD"):
                text = client.logs(container["Id"], tail=2000).decode(errors="replace")
                (folder / "logs" / f"container-{name[:120]}.log").write_text(text)
    finally:
        client.close()
    return [f"container {item['Names'][0].strip('/')}: {item['Status']}" for item in found if item["State"] != "exited"]


def _pods(ground: Testbed, folder: Path) -> list[str]:
    """What pods of this machine's node wrote; with the engine as its runtime they are links to the logs above."""
    for path in private_folder(ground.folder, "/var/log/pods").glob("*/*/*.log"):
        if not path.is_symlink():
            name = "-".join(path.parts[-3:])
            (folder / "logs" / f"pod-{name[-120:]}").write_text(tail(path, _LOG_BYTES))
    return []
