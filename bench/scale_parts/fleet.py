"""A fleet at rest, as its API server has it: full Nodes, driver pods, DaemonSets and DriverContainers.

A model of the cluster with one node for each kernel is brought to rest by the product itself
(``tests.support.driver_builder.model_world``). What it then has is multiplied: each node of the fleet, with its pods,
is a copy of the node with its kernel, filled up with what a kubelet, the DaemonSet controller and nfd-worker write. So
the objects are what this version of the controller wants, and a reconcile of the fleet has nothing to do.
"""

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from bench.scale_parts.cells import Cell
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.objects import manifests
from kube_api.resources import CONFIG_MAPS, DAEMON_SETS, DRIVER_CONTAINERS, NODES, PODS, Resource
from tests.support.driver_builder.factories import NAMESPACE, SETTINGS
from tests.support.driver_builder.model_parts import ModelRegistries
from tests.support.driver_builder.model_world import World

Json = dict[str, Any]

SOURCE = "edu-source"
REGISTRY = "registry.example.com:5000"
NODE_LABELS = 110
CREATED = "2023-11-14T22:13:20Z"

_UID = re.compile(r"uid-[0-9a-z-]+")
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_FEATURES_OF_A_NODE = 50


class Making(NamedTuple):
    """How a fleet's drivers are made: the controller's settings, the files of their source, and each one's spec."""

    settings: PlanSettings = SETTINGS
    source: Mapping[str, str] = MappingProxyType({"edudrv.c": "int x;"})
    spec: Callable[[int], Json] = lambda number: {"image": f"{REGISTRY}/drivers/{driver_name(number)}"}


class Fleet:
    """The objects of a cell; ``registries`` say what was built for it and pushed."""

    def __init__(self, cell: Cell, making: Making | None = None, registries: ModelRegistries | None = None) -> None:
        self.cell = cell
        making = making or Making()
        world = World(making.settings)
        world.registries = self.registries = registries or world.registries
        source = {"metadata": {"name": SOURCE}, "data": dict(making.source)}
        world.client.create(CONFIG_MAPS.path(namespace=NAMESPACE), source)
        for number in range(cell.kernels):
            world.add_node(_seed(number), kernel(number))
        for number in range(cell.drivers):
            world.add_driver(driver_name(number), **making.spec(number))
        world.settle()
        self._objects: dict[str, list[Json]] = {}
        for path, obj in world.client.objects.items():
            self._objects.setdefault(path.split("/")[-2], []).append(json.loads(_real_uids(json.dumps(obj))))
        self._seed_pods: dict[str, list[Json]] = {}
        for pod in self._objects["pods"]:
            self._seed_pods.setdefault(pod["spec"]["nodeName"], []).append(pod)
        self._seed_nodes = {node["metadata"]["name"]: node for node in self._objects["nodes"]}

    def objects(self, resource: Resource) -> Iterator[Json]:
        """Make the objects of a resource, one at a time, in the order of the API server."""
        if resource == NODES:
            yield from map(self.node, range(self.cell.nodes))
        elif resource == PODS:
            found = ((pod["metadata"]["name"], pod) for number in range(self.cell.nodes) for pod in self.pods(number))
            yield from (pod for _, pod in found)
        else:
            for obj in self._objects.get(resource.plural, ()):
                yield _with_kind(resource, obj)

    def node(self, number: int) -> Json:
        """Make a Node of 8 to 15 kB, and half a kB for each of its drivers."""
        seed = _seed(number % self.cell.kernels)
        node = _renamed(self._seed_nodes[seed], seed, node_name(number))
        metadata = node["metadata"]
        labels: dict[str, str] = metadata["labels"] | _host_labels(number)
        metadata["labels"] = labels | _more_labels(NODE_LABELS - len(labels))
        metadata["annotations"] |= _node_annotations(labels)
        metadata["uid"] = uid(f"node-{number}")
        metadata["managedFields"] = _node_fields(metadata)
        node["spec"] = {"podCIDR": f"10.{number >> 8}.{number & 255}.0/24", "providerID": f"aws:///a/i-{number:017x}"}
        node["status"] = _node_status(node_name(number), kernel(number % self.cell.kernels), images=number % 30)
        return _with_kind(NODES, node)

    def pods(self, number: int) -> Iterator[Json]:
        """Make the driver pods of a node, of about 7 kB each."""
        seed = _seed(number % self.cell.kernels)
        for index, pod in enumerate(self._seed_pods[seed]):
            made = _renamed(pod, seed, node_name(number))
            place = number * self.cell.drivers + index
            made["metadata"]["uid"] = uid(f"pod-{place}")
            owner = made["metadata"]["ownerReferences"][0]
            daemon_set = pod["metadata"]["name"].removesuffix(f"-{seed}")
            made["metadata"]["name"] = f"{daemon_set}-{suffix(place)}"
            made["metadata"]["generateName"] = f"{daemon_set}-"
            owner |= {"apiVersion": "apps/v1", "name": daemon_set, "blockOwnerDeletion": True}
            yield _with_kind(PODS, as_kept(made, number))


def kernel(number: int) -> str:
    """Name a kernel of a fleet."""
    return f"6.1.0-{100 + number}-cloud-amd64"


def driver_name(number: int) -> str:
    """Name a driver of a fleet."""
    return f"driver-{number:02}"


def node_name(number: int) -> str:
    """Name a node as a cloud does."""
    return f"ip-10-{number >> 16}-{number >> 8 & 255}-{number & 255}.eu-central-1.compute.internal"


def uid(text: str) -> str:
    """Make a uid that is the same in each run."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, text))


def path_of(resource: Resource) -> str:
    """Name the collection of a resource in which the fleet's objects are."""
    return resource.path(namespace=NAMESPACE if resource.namespaced else None)


RESOURCES = (NODES, DRIVER_CONTAINERS, DAEMON_SETS, PODS, CONFIG_MAPS)


def _seed(number: int) -> str:
    """Name the model's node of a kernel; it is in texts, too, and is the part of no other word."""
    return f"seed{number:03}seed"


def _real_uids(text: str) -> str:
    return _UID.sub(lambda found: uid(found[0]), text)


def _renamed(obj: Json, seed: str, name: str) -> Json:
    made: Json = json.loads(json.dumps(obj).replace(seed, name))
    return made


def _with_kind(resource: Resource, obj: Json) -> Json:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **obj}


def suffix(number: int) -> str:
    """Make the end of a pod's name."""
    letters = ""
    for _ in range(5):
        number, digit = divmod(number, len(_SUFFIX))
        letters += _SUFFIX[digit]
    return letters


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# --- what others write into a Node ------------------------------------------------------------------------------------


def _host_labels(number: int) -> dict[str, str]:
    host = node_name(number)
    return {
        "kubernetes.io/hostname": host,
        "kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": ("m6i.4xlarge", "g5.12xlarge", "p4d.24xlarge")[number % 3],
        "topology.kubernetes.io/region": "eu-central-1",
        "topology.kubernetes.io/zone": f"eu-central-1{'abc'[number % 3]}",
        "eks.amazonaws.com/nodegroup": f"pool-{number % 7}",
        "alpha.example.com/node-id": f"i-{number:017x}",
    }


def _more_labels(count: int) -> dict[str, str]:
    """Make labels as nfd-worker and admins do."""
    ours = min(count, _FEATURES_OF_A_NODE)
    features = {f"feature.node.kubernetes.io/cpu-cpuid.F{index:02}": "true" for index in range(ours)}
    return features | {f"example.com/fact-{index:02}": "true" for index in range(count - ours)}


def _node_annotations(labels: dict[str, str]) -> dict[str, str]:
    return {
        "node.alpha.kubernetes.io/ttl": "300",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
        "csi.volume.kubernetes.io/nodeid": '{"ebs.csi.aws.com":"i-0123456789abcdef0"}',
        "nfd.node.kubernetes.io/feature-labels": ",".join(label for label in labels if label.startswith("feature.")),
    }


def _fields(manager: str, operation: str, fields: Json) -> Json:
    return {
        "manager": manager, "operation": operation, "apiVersion": "v1", "time": CREATED, "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }  # fmt: skip


def _node_fields(metadata: Json) -> list[Json]:
    """What server-side apply remembers: nfd-worker owns each of its labels."""
    owned: Json = {f"f:{label}": {} for label in metadata["labels"] if label.startswith("feature.")}
    host: Json = {f"f:{label}": {} for label in metadata["labels"] if not label.startswith("feature.")}
    conditions: Json = {f'k:{{"type":"{kind}"}}': {"f:lastHeartbeatTime": {}, "f:status": {}} for kind in _CONDITIONS}
    return [
        _fields("kubelet", "Update", {"f:metadata": {"f:labels": host}, "f:status": {"f:conditions": conditions}}),
        _fields("nfd-worker", "Apply", {"f:metadata": {"f:labels": owned}}),
    ]


_CONDITIONS = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    "Ready": ("True", "KubeletReady", "kubelet is posting ready status"),
}


def _node_status(name: str, kernel_version: str, *, images: int) -> Json:
    size = {
        "cpu": "16",
        "memory": "64979648Ki",
        "pods": "234",
        "ephemeral-storage": "104845292Ki",
        "hugepages-2Mi": "0",
    }
    return {
        "capacity": size,
        "allocatable": {**size, "cpu": "15890m", "memory": "61893312Ki"},
        "conditions": [
            {
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": CREATED, "lastTransitionTime": CREATED,
            }
            for kind, (status, reason, message) in _CONDITIONS.items()
        ],
        "addresses": [{"type": kind, "address": name} for kind in ("InternalDNS", "Hostname", "InternalIP")],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "machineID": _digest(name)[:32], "systemUUID": uid(name), "bootID": uid(f"boot {name}"),
            "kernelVersion": kernel_version, "osImage": "Debian GNU/Linux 12 (bookworm)", "operatingSystem": "linux",
            "containerRuntimeVersion": "containerd://1.7.22", "kubeletVersion": "v1.30.4",
            "kubeProxyVersion": "v1.30.4", "architecture": "amd64",
        },
        "images": [_image(number) for number in range(images)],
    }  # fmt: skip


def _image(number: int) -> Json:
    name = f"registry.example.com:5000/team-{number % 9}/service-{number:02}"
    return {"names": [f"{name}@sha256:{_digest(name)}", f"{name}:v1.{number}.0"], "sizeBytes": 90_000_000 + number}


# --- what others write into a pod -------------------------------------------------------------------------------------

_TOLERATED = (
    ("not-ready", "NoExecute"), ("unreachable", "NoExecute"), ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"), ("pid-pressure", "NoSchedule"), ("unschedulable", "NoSchedule"),
)  # fmt: skip


def as_kept(pod: Json, number: int) -> Json:
    """Fill a pod up with what the DaemonSet controller, the scheduler and the kubelet write."""
    spec, status, metadata = pod["spec"], pod["status"], pod["metadata"]
    matches = [{"key": "metadata.name", "operator": "In", "values": [spec["nodeName"]]}]
    required = {"nodeSelectorTerms": [{"matchFields": matches}]}
    spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    spec["tolerations"] = [*spec.get("tolerations", ()), *map(_toleration, _TOLERATED)]
    spec |= {
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "preemptionPolicy": "PreemptLowerPriority",
    }
    for container in (*status["initContainerStatuses"], *status["containerStatuses"]):
        _as_reported(container, spec)
    address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
    status |= {"hostIP": address, "podIP": address, "podIPs": [{"ip": address}], "qosClass": "Burstable"}
    status["startTime"] = CREATED
    status["conditions"] = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": CREATED}
        for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    metadata["creationTimestamp"] = CREATED
    metadata["managedFields"] = _pod_fields(pod)
    return pod


def _toleration(wanted: tuple[str, str]) -> Json:
    return {"key": f"node.kubernetes.io/{wanted[0]}", "operator": "Exists", "effect": wanted[1]}


def _as_reported(container: Json, spec: Json) -> None:
    """Write into a container's status what a kubelet does."""
    own = next(item for item in (*spec["initContainers"], *spec["containers"]) if item["name"] == container["name"])
    container_id = f"containerd://{_digest(spec['nodeName'] + own['image'])}"
    container |= {"image": own["image"], "imageID": own["image"], "containerID": container_id, "restartCount": 0}
    container["ready"] = True
    for state in container["state"].values():
        state["startedAt"] = CREATED
    if "terminated" in container["state"]:
        container["state"]["terminated"] |= {"finishedAt": CREATED, "containerID": container_id, "reason": "Completed"}
    if container["name"] == manifests.HOLD_CONTAINER:
        container["started"] = True


def _pod_fields(pod: Json) -> list[Json]:
    """Remember, as the API server does, which fields the DaemonSet controller and the kubelet wrote."""
    spec: Json = {f"f:{field}": {} for field in pod["spec"]}
    for kind in ("initContainers", "containers"):
        spec[f"f:{kind}"] = {f'k:{{"name":"{item["name"]}"}}': {".": {}, "f:image": {}} for item in pod["spec"][kind]}
    metadata: Json = {
        f"f:{kind}": {".": {}, **{f"f:{key}": {} for key in pod["metadata"].get(kind) or ()}}
        for kind in ("labels", "annotations")
    }
    status: Json = {f"f:{field}": {} for field in pod["status"]}
    return [
        _fields("kube-controller-manager", "Update", {"f:metadata": metadata, "f:spec": spec}),
        _fields("kubelet", "Update", {"f:status": status}),
    ]
