"""The DaemonSet controller and the kubelets of a fleet, played on a clock of their own.

They look only at what was written: a node that gets a wave label, a DaemonSet that changes. A node needs so many
seconds from its label to its proof; it differs from node to node.
"""

import heapq
import json
import zlib
from collections.abc import Callable
from itertools import count
from typing import Any

from bench.rollout_parts.api_server import ApiServer
from bench.scale_parts.fleet import as_kept, path_of, suffix, uid
from driver_builder.objects import manifests
from driver_builder.tasks import pull_pod
from kube_api import names
from kube_api.resources import DAEMON_SETS, NODES, PODS
from kube_api.timestamps import timestamp
from tests.support.driver_builder.journal import is_for
from tests.support.driver_builder.model_world import pod_status

Json = dict[str, Any]

REACTION_SECONDS = 0.1
"""From a write to what the DaemonSet controller does about it."""
STARTING_SECONDS = 1.0
"""From a new pod to the kubelet's first word of it."""
PROBE_SECONDS = 1.0
"""From the loader's end to a pod that is ready."""
PULL_SECONDS = 8.0
"""From a pull pod to the end of its container: its image comes meanwhile."""

_NODES, _PODS, _DAEMON_SETS = map(path_of, (NODES, PODS, DAEMON_SETS))


class Cluster:
    """What happens at ``server`` by itself; ``now`` is the time of the last thing that did.

    ``proven`` has the time at which a pod of ours became ready, by node.
    """

    def __init__(self, server: ApiServer, *, node_seconds: float, spread: float, now: float) -> None:
        self.now = now
        self.proven: dict[str, float] = {}
        self._server = server
        self._node_seconds = node_seconds
        self._spread = spread
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = count()
        self._nodes: dict[str, Json] = {}
        self._daemon_sets: dict[str, Json] = {}
        self._pods: dict[tuple[str, str], str] = {}
        """The pod of each DaemonSet (by its uid) on each node."""
        server.wrote, server.deletes = self._wrote, self._deletes

    def learn(self, path: str, obj: Json) -> Json:
        """Know an object that is there from the start; gives it back."""
        if path == _NODES:
            self._nodes[obj["metadata"]["name"]] = _seen_of(obj, len(self._nodes))
        elif path == _DAEMON_SETS:
            self._daemon_sets[obj["metadata"]["uid"]] = obj
        elif path == _PODS:
            self._pods[_place_of(obj)] = obj["metadata"]["name"]
        return obj

    @property
    def next_at(self) -> float | None:
        """When something happens next, None if nothing is due."""
        return self._due[0][0] if self._due else None

    def step(self) -> None:
        """Let the next thing happen."""
        at, _, work = heapq.heappop(self._due)
        self.now = max(self.now, at)
        work()

    def _after(self, seconds: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + seconds, next(self._count), work))

    # ------------------------------------------------------------ the DaemonSet controller

    def _wrote(self, path: str, obj: Json) -> None:
        if path == _NODES:
            name = obj["metadata"]["name"]
            before = self._nodes[name]
            self._nodes[name] = _seen_of(obj, before["number"])
            if _wave_labels(before) != _wave_labels(obj):
                self._after(REACTION_SECONDS, lambda: self._sync(name))
        elif path == _DAEMON_SETS:
            self._daemon_sets[obj["metadata"]["uid"]] = obj
            self._after(REACTION_SECONDS, self._sync_all)
        elif path == _PODS and pull_pod.PULL.label in obj["metadata"]["labels"]:
            self._pods[_place_of(obj)] = obj["metadata"]["name"]
            self._after(STARTING_SECONDS, lambda: self._says(obj, {"phase": "Pending"}))
            self._after(PULL_SECONDS, lambda: self._says(obj, _pulled(obj, self.now)))

    def _deletes(self, path: str, obj: Json) -> None:
        if path == _DAEMON_SETS:
            owner = obj["metadata"]["uid"]
            self._daemon_sets.pop(owner, None)
            for place in [place for place in self._pods if place[0] == owner]:
                self._end(place, 1.0)
        elif path == _PODS:
            place = _place_of(obj)
            self._end(place, 1.0)
            self._after(REACTION_SECONDS, lambda: self._sync(place[1]))

    def _sync_all(self) -> None:
        for name in self._nodes:
            self._sync(name)

    def _sync(self, name: str) -> None:
        """Make and remove the pods of a node."""
        node = self._nodes[name]
        seconds = self._seconds_of(name)
        for owner, daemon_set in self._daemon_sets.items():
            is_wanted = is_for(daemon_set["spec"]["template"]["spec"], node)
            if (owner, name) in self._pods and not is_wanted:
                self._end((owner, name), seconds / 3)
            elif is_wanted and (owner, name) not in self._pods:
                self._begin(daemon_set, name, seconds)

    def _seconds_of(self, name: str) -> float:
        part = zlib.crc32(name.encode()) / (1 << 31) - 1
        return self._node_seconds * (1 + self._spread * part) - REACTION_SECONDS

    # ------------------------------------------------------------ the kubelets

    def _begin(self, daemon_set: Json, name: str, seconds: float) -> None:
        """Make a pod; its loader proves the driver, and then its probe."""
        pod = _pod_of(daemon_set, name, next(self._count))
        pod["metadata"]["creationTimestamp"] = timestamp(self.now)
        self._pods[_place_of(pod)] = pod["metadata"]["name"]
        self._server.put(_PODS, pod)
        verdict = {
            "result": "Loaded",
            "kernel": pod["metadata"]["annotations"][manifests.KERNEL_ANNOTATION],
            "bootID": self._nodes[name]["metadata"]["annotations"][names.BOOT_ID_ANNOTATION],
            "modules": [
                {"name": module, "srcversion": identity}
                for module, identity in json.loads(pod["metadata"]["annotations"][manifests.MODULES_ANNOTATION]).items()
            ],
        }
        pending = {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}]}
        self._after(STARTING_SECONDS, lambda: self._says(pod, pending))
        loaded = pod_status(verdict, ready=False)
        self._after(seconds - PROBE_SECONDS, lambda: self._says(pod, loaded))
        self._after(seconds, lambda: self._is_ready(pod))

    def _says(self, pod: Json, status: Json) -> None:
        if self._pods.get(_place_of(pod)) == pod["metadata"]["name"]:
            self._server.put(_PODS, {**pod, "status": status})

    def _is_ready(self, pod: Json) -> None:
        place = _place_of(pod)
        if self._pods.get(place) != pod["metadata"]["name"]:
            return
        known = self._server.get(_PODS, pod["metadata"]["name"])
        self._server.put(_PODS, as_kept(known, self._nodes[place[1]]["number"]))
        self.proven[place[1]] = self.now

    def _end(self, place: tuple[str, str], seconds: float) -> None:
        """Let a pod go within some seconds."""
        pod = self._server.get(_PODS, self._pods.pop(place))
        pod["metadata"] |= {"deletionTimestamp": timestamp(self.now), "deletionGracePeriodSeconds": 30}
        self._server.put(_PODS, pod)
        self._after(seconds, lambda: self._server.remove(_PODS, pod["metadata"]["name"]))


def _pulled(pod: Json, now: float) -> Json:
    """Return the status of a pull pod whose container has run."""
    ended = {"terminated": {"exitCode": 0, "finishedAt": timestamp(now)}}
    image = pod["spec"]["containers"][0]["image"]
    return {
        "phase": "Succeeded",
        "containerStatuses": [{"name": pull_pod.PULL.container, "image": image, "imageID": image, "state": ended}],
    }


def _seen_of(node: Json, number: int) -> Json:
    """Return what DaemonSets see of a Node."""
    metadata = node["metadata"]
    return {"number": number, "metadata": {"labels": metadata["labels"], "annotations": metadata["annotations"]}}


def _wave_labels(node: Json) -> Json:
    return {key: value for key, value in node["metadata"]["labels"].items() if key.endswith(".wave")}


def _place_of(pod: Json) -> tuple[str, str]:
    return (pod["metadata"]["ownerReferences"][0]["uid"], pod["spec"]["nodeName"])


def _pod_of(daemon_set: Json, node: str, number: int) -> Json:
    """Make a pod as the DaemonSet controller does."""
    template, metadata = json.loads(json.dumps(daemon_set["spec"]["template"])), daemon_set["metadata"]
    owner = {
        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": metadata["name"], "uid": metadata["uid"],
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    made = {
        **template["metadata"],
        "name": f"{metadata['name']}-{suffix(number)}",
        "generateName": f"{metadata['name']}-",
        "namespace": metadata["namespace"],
        "uid": uid(f"pod-{metadata['name']}-{node}-{number}"),
        "ownerReferences": [owner],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": {**template["spec"], "nodeName": node}}
