"""This machine as a node whose agent follows profiles: four cards to share, and a fifth one of another model.

Its kubelet has a cgroup for each pod, as on a node of a real cluster; the testbed's other tests do without.
"""

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from device_agent.users.checkpoint import read_checkpoint
from device_agent.users.pods import plain_uid
from kube_api.errors import NotFound
from kube_api.resources import PODS
from testbed.testbed import Testbed
from tests.nvml.gpu import FakeGpu
from tests.nvml.models import A100_40
from tests.support.real_parts.device_agent import NAMESPACE, SECONDS, Json, Place
from tests.support.real_parts.nvidia_node import COMMON, Node, node_with_cards

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
OTHER, OTHER_MODEL = 4, "nvidia.com/l4"
"""The fifth card, and its resource in the first profile; the others share it under another name."""

_CGROUPS = Path("/sys/fs/cgroup")
_HIERARCHIES = ("memory", "pids", "cpu", "systemd")
_AGENT = "stands-for-the-agent"


def profile(
    replicas: int = 1, *, renamed: bool = False, one_each: bool = False, policy: str = "", **entry: object
) -> str:
    """Write a profile: the four cards as so many shares each, and the fifth one shared. ``entry``: more of the former.

    ``renamed``, ``one_each``, ``policy``: its ``renameByDefault``, ``failRequestsGreaterThanOne`` and
    ``sharedDevicesAllocationPolicy``.
    """
    fifth = {"name": OTHER_MODEL, "replicas": 2, "rename": f"{OTHER_MODEL}.shared"}
    shares = [{"name": GPU, "replicas": replicas, **entry}] if replicas > 1 else []
    slicing = {"renameByDefault": renamed, "failRequestsGreaterThanOne": one_each, "resources": [fifth, *shares]}
    flags = {"flags": {"plugin": {"sharedDevicesAllocationPolicy": policy}}} if policy else {}
    return json.dumps({"version": "v1", **flags, "resources": _MODELS, "sharing": {"timeSlicing": slicing}})


_MODELS = {"gpus": [{"pattern": "NVIDIA L4*", "name": OTHER_MODEL}, {"pattern": "*", "name": GPU}]}
WHOLE = profile()
ALL_WHOLE = json.dumps({"version": "v1", "resources": _MODELS})
"""The fifth card as well."""


class SharedCards:
    """The node. ``gpu``, ``shared``, ``other``, ``other_shared``: its resources, and of each the pods."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.place = node.place
        self.gpu, self.other = node.place, self._resource(OTHER_MODEL)
        self.shared, self.other_shared = self._resource(SHARED), self._resource(f"{OTHER_MODEL}.shared")
        self.log = node.log = node.folder / "agent.log"
        self.log.touch()
        self.pod_resources = node.folder / "r"
        self.checkpoint = node.plugins / "kubelet_internal_checkpoint"
        self._profiles = node.folder / "profiles"
        self._profiles.mkdir()
        self._names: set[str] = set()
        node.flags = {"profiles": self._profiles, "pod-resources": self.pod_resources / "kubelet.sock"}
        node.machine.gpus.append(FakeGpu(OTHER, A100_40))
        node.machine.gpus[OTHER].facts["name"] = "NVIDIA L4"
        node.number(OTHER, OTHER)
        self.show_pod_resources()
        cgroups = node.folder / "sys/fs/cgroup"
        cgroups.mkdir(parents=True)
        for one in _HIERARCHIES:
            (cgroups / one).symlink_to(_CGROUPS / one / self.place.ground.folder.name)

    def _resource(self, name: str) -> Place:
        return Place(self.place.ground, self.place.node, name)

    # ------------------------------------------------------------ what is asked for

    def write(self, text: str) -> None:
        """Change the profile."""
        fresh = self.node.folder / "fresh"
        fresh.write_text(text)
        fresh.replace(self._profiles / "default")

    def show_pod_resources(self) -> None:
        """Have the kubelet's podresources where the agent looks for it."""
        self.node.link(self.pod_resources.name, "pod-resources")

    def hide_pod_resources(self) -> None:
        """Have it there no more."""
        self.pod_resources.unlink()

    def starts_with(self, text: str, *, but: Collection[str] = ()) -> None:
        """Delete the pods of the test before, and change the profile: each test has free cards. ``but``: these stay."""
        self.clear(but={_AGENT, *but})
        self.write(text)

    # ------------------------------------------------------------ what the kubelet has

    def shows(self, **counts: tuple[int, int]) -> float:
        """Wait until the node has these resources, capacity and allocatable; returns how many seconds it took."""
        began = time.monotonic()
        wanted = {name: tuple(map(str, count)) for name, count in counts.items()}

        def seen() -> dict[str, tuple[str, str]]:
            status = self.place.cluster.node(self.place.node)["status"]
            names = {name: getattr(self, name).resource for name in wanted}
            return {
                name: (status["capacity"].get(resource, "0"), status["allocatable"].get(resource, "0"))
                for name, resource in names.items()
            }

        self.place.cluster.wait(
            str(wanted), lambda: seen() == wanted or None, timeout=SECONDS, seen=lambda: str(seen()), every=0.2
        )
        took = time.monotonic() - began
        if self.checkpoint.is_file():
            self.check_ways()
        return took

    def check_ways(self) -> None:
        """Look at what the kubelet has given to pods that exist: each card in one way."""
        pods = {plain_uid(pod["metadata"]["uid"]) for pod in self.pods().values()}
        ways: dict[str, set[tuple[str, bool]]] = {}
        for one in read_checkpoint(str(self.node.plugins)):
            if one.pod in pods:
                card, _, share = one.id.partition("::")
                ways.setdefault(card, set()).add((one.resource, bool(share)))
        assert [card for card, its in ways.items() if len(its) > 1] == []

    @contextmanager
    def without_checkpoint(self) -> Iterator[None]:
        """Have what cannot be read in the place of the kubelet's checkpoint."""
        aside = self.checkpoint.with_name("aside")
        self.checkpoint.rename(aside)
        self.checkpoint.mkdir()
        try:
            yield
        finally:
            self.checkpoint.rmdir()
            aside.rename(self.checkpoint)

    def said(self) -> int:
        """Return how much the agent has logged."""
        return self.log.stat().st_size

    def logs(self, since: int, *words: str) -> None:
        """Wait until the agent has logged a line that has all of these words."""
        self._logs(since, f"{words}", lambda line: all(word in line for word in words))

    def logs_one_of(self, since: int, *words: str) -> None:
        """Wait until the agent has logged a line that has one of these words."""
        self._logs(since, f"one of {words}", lambda line: any(word in line for word in words))

    def _logs(self, since: int, what: str, is_it: Callable[[str], bool]) -> None:
        def text() -> str:
            return self.log.read_bytes()[since:].decode()

        self.place.cluster.wait(
            f"the agent logs {what}", lambda: any(map(is_it, text().splitlines())) or None, timeout=SECONDS, seen=text
        )

    def weights(self) -> dict[str, float]:
        """Return the MiB (PSS) of each process of the pod."""
        nvml = self.node.pid("nvml")
        (child,) = Path(f"/proc/{nvml}/task/{nvml}/children").read_text().split()
        pids = {"agent": self.node.pid("agent"), "nvml": nvml, "its child": int(child)}
        return {name: _pss_mib(pid) for name, pid in pids.items()}

    def allocated(self) -> float:
        """Return when a device was given last, in seconds of the clock that counts from the boot."""
        file = self.node.folder / "state/allocations.json"
        given = json.loads(file.read_text())["given"] if file.exists() else []
        return max((one.get("at") or 0.0 for one in given), default=0.0)

    # ------------------------------------------------------------ pods

    def pods(self) -> dict[str, Json]:
        """List the pods of these tests that have not ended, by name."""
        items = self.place.client.list(PODS.path(namespace=NAMESPACE)).items
        live = (one for one in items if one["status"].get("phase") not in ("Failed", "Succeeded"))
        return {one["metadata"]["name"]: one for one in live if one["metadata"]["name"] in self._names}

    def start_pods(self, place: Place, *names: str, count: int = 1, restart: str = "Never") -> None:
        """Start pods with so many units each."""
        self._names |= set(names)
        for name in names:
            self.node.start_pod(name, count, place=place, restart=restart)

    def run_pods(self, place: Place, *names: str, count: int = 1, restart: str = "Never") -> None:
        """Start them, and wait until their containers run."""
        self.start_pods(place, *names, count=count, restart=restart)
        self.runs(*names)

    def runs(self, *names: str) -> None:
        """Wait until containers of pods run."""
        self._wait(f"{', '.join(names)} run", lambda pods: all(_is_running(pods.get(name)) for name in names), names)

    def is_refused(self, name: str) -> None:
        """Wait until the scheduler finds no place for a pod, for want of devices."""
        self._wait(f"{name} is not scheduled", lambda pods: "Insufficient" in _unscheduled(pods.get(name)), (name,))

    def cards(self, *names: str) -> list[set[int]]:
        """Return which cards each of these pods has."""
        return [self.node.cards_of(name) for name in names]

    def has_other(self, name: str) -> bool:
        """Say whether a pod has the fifth card, and no other one."""
        nodes, uuids = self.node.seen_by(name)
        return (nodes, uuids) == ({*COMMON, f"nvidia{OTHER}"}, [self.node.machine.uuid(OTHER)])

    def failed(self, name: str) -> Json | None:
        """Return the status of a pod that has failed."""
        status: Json = self.place.pod(name)["status"]
        return status if status.get("phase") == "Failed" else None

    def start_with_init(self, name: str) -> str:
        """Start a pod whose init container alone has a card, and wait until that runs; returns its id."""
        gives = {"resources": {"limits": {GPU: "1"}}}
        self._create(name, initContainers=[self._container("init") | gives], containers=[self._container("main")])
        states = "initContainerStatuses"
        self._wait(f"{name} initialises", lambda pods: _is_running(pods.get(name), states), (name,))
        found: str = self.place.pod(name)["status"][states][0]["containerID"]
        return found.rpartition("/")[2]

    def stand_for_agent(self) -> None:
        """Have a pod without devices: on a node of a cluster there is always one, the agent's own."""
        self._create(_AGENT, containers=[self._container("main")])
        self._wait("a pod runs", lambda pods: _is_running(pods.get(_AGENT)), (_AGENT,))

    def start_containers(self, name: str, shares: Mapping[str, int], *, host_pid: bool = False) -> None:
        """Start a pod with these containers, each with so many shares, and wait until all of them run."""
        limits = {
            one: {"resources": {"limits": {SHARED: str(count)}}} if count else {} for one, count in shares.items()
        }
        self._create(name, containers=[self._container(one) | its for one, its in limits.items()], hostPID=host_pid)
        self._wait(f"{name} runs", lambda pods: _all_run(pods.get(name)), (name,))

    def clear(self, *, but: Collection[str] = ()) -> None:
        """Delete the pods of these tests, also those that have ended."""
        self.delete(*(name for name in self._names.difference(but) if self._exists(name)))

    def delete(self, *names: str) -> None:
        """Delete pods and wait until they are gone."""
        for name in names:
            self.place.client.delete(PODS.path(namespace=NAMESPACE, name=name))
        self._wait(f"{', '.join(names)} are gone", lambda _: not any(map(self._exists, names)), names)

    def _exists(self, name: str) -> bool:
        try:
            return bool(self.place.pod(name))
        except NotFound:
            return False

    def _container(self, name: str) -> Json:
        command = ["/bin/sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"]
        image = self.place.ground.small_image
        return {"name": name, "image": image, "imagePullPolicy": "IfNotPresent", "command": command}

    def _create(self, name: str, **more: object) -> None:
        self._names.add(name)
        spec = {
            **more,
            "hostNetwork": True,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": {"kubernetes.io/hostname": self.place.node},
            "tolerations": [{"operator": "Exists"}],
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
        self.place.client.create(PODS.path(namespace=NAMESPACE), body)

    def _wait(self, what: str, check: Callable[[Mapping[str, Json]], bool], names: Collection[str]) -> None:
        def seen() -> str:
            pods = self.pods()
            return "; ".join(f"{name}: {pods[name]['status']}" if name in pods else f"no {name}" for name in names)

        self.place.cluster.wait(what, lambda: check(self.pods()) or None, timeout=SECONDS, seen=seen)


def _pss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _is_running(pod: Json | None, states: str = "containerStatuses") -> bool:
    statuses = (pod or {}).get("status", {}).get(states) or ()
    return any("running" in one["state"] for one in statuses)


def _all_run(pod: Json | None) -> bool:
    statuses = (pod or {}).get("status", {}).get("containerStatuses") or ()
    return bool(statuses) and all("running" in one["state"] for one in statuses)


def _unscheduled(pod: Json | None) -> str:
    conditions = (pod or {}).get("status", {}).get("conditions") or ()
    return next((one.get("message", "") for one in conditions if one.get("reason") == "Unschedulable"), "")


@contextmanager
def shared_cards(ground: Testbed, folder: Path) -> Iterator[SharedCards]:
    """Have the node, on which nothing runs yet but a pod without devices. The folder's path is short."""
    _restart(ground, cgroups=True)
    try:
        with node_with_cards(ground, folder) as node:
            made = SharedCards(node)
            made.stand_for_agent()
            yield made
            made.clear()
    finally:
        _restart(ground, cgroups=False)


def _restart(ground: Testbed, *, cgroups: bool) -> None:
    ground.host_node.stop()
    ground.host_node.configure(cgroupsPerQOS=cgroups)
    ground.host_node.start()
