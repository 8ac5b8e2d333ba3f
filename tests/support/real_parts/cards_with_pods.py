"""This machine as a node with cards and pods, whose agent is told by the kubelet who has them.

The kubelet has a cgroup for each pod, as on a node of a real cluster; the testbed's other tests do without.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kube_api.errors import NotFound
from kube_api.resources import PODS
from testbed.testbed import Testbed
from tests.support.real_parts.device_agent import NAMESPACE, SECONDS, Json, Place
from tests.support.real_parts.nvidia_node import Node

AGENT_POD = "stands-for-the-agent"

_CGROUPS = Path("/sys/fs/cgroup")
_HIERARCHIES = ("memory", "pids", "cpu", "systemd")


class CardsWithPods:
    """The node, what its agent logs, and its pods."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.place = node.place
        self.log = node.log = node.folder / "agent.log"
        self.log.touch()
        self.pod_resources = node.folder / "r"
        self.checkpoint = node.plugins / "kubelet_internal_checkpoint"
        self._names: set[str] = set()
        node.flags["pod-resources"] = self.pod_resources / "kubelet.sock"
        self.show_pod_resources()
        cgroups = node.folder / "sys/fs/cgroup"
        cgroups.mkdir(parents=True)
        for one in _HIERARCHIES:
            (cgroups / one).symlink_to(_CGROUPS / one / self.place.ground.folder.name)

    def resource(self, name: str) -> Place:
        """Return the node with another resource."""
        return Place(self.place.ground, self.place.node, name)

    def show_pod_resources(self) -> None:
        """Have the kubelet's podresources where the agent looks for it."""
        self.node.link(self.pod_resources.name, "pod-resources")

    def hide_pod_resources(self) -> None:
        """Have it there no more."""
        self.pod_resources.unlink()

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
        self._wait(f"{', '.join(names)} run", lambda pods: all(is_running(pods.get(name)) for name in names), names)

    def failed(self, name: str) -> Json | None:
        """Return the status of a pod that has failed."""
        status: Json = self.place.pod(name)["status"]
        return status if status.get("phase") == "Failed" else None

    def runs_or_failed(self, name: str) -> Json | None:
        """Wait until the containers of a pod run, or it has failed; returns its status if so."""
        self._wait(f"{name} runs or fails", lambda pods: is_running(pods.get(name)) or bool(self.failed(name)), (name,))
        return self.failed(name)

    def is_refused(self, name: str) -> None:
        """Wait until the scheduler finds no place for a pod, for want of devices."""
        self._wait(f"{name} is not scheduled", lambda pods: "Insufficient" in _unscheduled(pods.get(name)), (name,))

    def cards(self, *names: str) -> list[set[int]]:
        """Return which cards each of these pods has."""
        return [self.node.cards_of(name) for name in names]

    def stand_for_agent(self) -> None:
        """Have a pod without devices: on a node of a cluster there is always one, the agent's own."""
        self._create(AGENT_POD, containers=[self._container("main")])
        self._wait("a pod runs", lambda pods: is_running(pods.get(AGENT_POD)), (AGENT_POD,))

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


def is_running(pod: Json | None, states: str = "containerStatuses") -> bool:
    """Say whether a container of a pod runs."""
    statuses = (pod or {}).get("status", {}).get(states) or ()
    return any("running" in one["state"] for one in statuses)


def _unscheduled(pod: Json | None) -> str:
    conditions = (pod or {}).get("status", {}).get("conditions") or ()
    return next((one.get("message", "") for one in conditions if one.get("reason") == "Unschedulable"), "")


@contextmanager
def kubelet_with_cgroups(ground: Testbed) -> Iterator[None]:
    """Have a cgroup for each pod."""
    _restart(ground, cgroups=True)
    try:
        yield
    finally:
        _restart(ground, cgroups=False)


def _restart(ground: Testbed, *, cgroups: bool) -> None:
    ground.host_node.stop()
    ground.host_node.configure(cgroupsPerQOS=cgroups)
    ground.host_node.start()
