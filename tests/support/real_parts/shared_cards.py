"""This machine as a node whose agent follows profiles: four cards to share, and a fifth one of another model."""

import json
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from device_agent.users.checkpoint import read_checkpoint
from device_agent.users.pods import plain_uid
from testbed.testbed import Testbed
from tests.nvml.gpu import FakeGpu
from tests.nvml.models import A100_40
from tests.support.real_parts.cards_with_pods import AGENT_POD, CardsWithPods, is_running, kubelet_with_cgroups
from tests.support.real_parts.device_agent import SECONDS, Json
from tests.support.real_parts.nvidia_node import COMMON, Node, node_with_cards

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
OTHER, OTHER_MODEL = 4, "nvidia.com/l4"
"""The fifth card, and its resource in the first profile; the others share it under another name."""


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


class SharedCards(CardsWithPods):
    """The node. ``gpu``, ``shared``, ``other``, ``other_shared``: its resources, and of each the pods."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.gpu, self.other = node.place, self.resource(OTHER_MODEL)
        self.shared, self.other_shared = self.resource(SHARED), self.resource(f"{OTHER_MODEL}.shared")
        self._profiles = node.folder / "profiles"
        self._profiles.mkdir()
        node.flags["profiles"] = self._profiles
        node.machine.gpus.append(FakeGpu(OTHER, A100_40))
        node.machine.gpus[OTHER].facts["name"] = "NVIDIA L4"
        node.number(OTHER, OTHER)

    def write(self, text: str) -> None:
        """Change the profile."""
        fresh = self.node.folder / "fresh"
        fresh.write_text(text)
        fresh.replace(self._profiles / "default")

    def starts_with(self, text: str, *, but: Collection[str] = ()) -> None:
        """Delete the pods of the test before, and change the profile: each test has free cards. ``but``: these stay."""
        self.clear(but={AGENT_POD, *but})
        self.write(text)

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

    def has_other(self, name: str) -> bool:
        """Say whether a pod has the fifth card, and no other one."""
        nodes, uuids = self.node.seen_by(name)
        return (nodes, uuids) == ({*COMMON, f"nvidia{OTHER}"}, [self.node.machine.uuid(OTHER)])

    def start_with_init(self, name: str) -> str:
        """Start a pod whose init container alone has a card, and wait until that runs; returns its id."""
        gives = {"resources": {"limits": {GPU: "1"}}}
        self._create(name, initContainers=[self._container("init") | gives], containers=[self._container("main")])
        states = "initContainerStatuses"
        self._wait(f"{name} initialises", lambda pods: is_running(pods.get(name), states), (name,))
        found: str = self.place.pod(name)["status"][states][0]["containerID"]
        return found.rpartition("/")[2]

    def start_containers(self, name: str, shares: Mapping[str, int], *, host_pid: bool = False) -> None:
        """Start a pod with these containers, each with so many shares, and wait until all of them run."""
        limits = {
            one: {"resources": {"limits": {SHARED: str(count)}}} if count else {} for one, count in shares.items()
        }
        self._create(name, containers=[self._container(one) | its for one, its in limits.items()], hostPID=host_pid)
        self._wait(f"{name} runs", lambda pods: _all_run(pods.get(name)), (name,))


def _pss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _all_run(pod: Json | None) -> bool:
    statuses = (pod or {}).get("status", {}).get("containerStatuses") or ()
    return bool(statuses) and all("running" in one["state"] for one in statuses)


@contextmanager
def shared_cards(ground: Testbed, folder: Path) -> Iterator[SharedCards]:
    """Have the node, on which nothing runs yet but a pod without devices. The folder's path is short."""
    with kubelet_with_cgroups(ground), node_with_cards(ground, folder) as node:
        made = SharedCards(node)
        made.stand_for_agent()
        yield made
        made.clear()
