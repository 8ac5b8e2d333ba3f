"""What tests of publishing share: a Node as others leave it, what is published to it, and what is read of it."""

from typing import Any

from feature_rules.model import Taint
from kube_api.client import Client
from kube_api.resources import NODES
from nfd_worker.labels.node_content import NodeContent, Unknown
from nfd_worker.publish.tracking import EXTENDED_RESOURCES, TAINTS
from nfd_worker.publish.wire import PublishAnswer, PublishRequest, Seen
from tests.support.real_parts.cluster_setup import Json

NAMESPACE = "driverwright"
FEATURE = "feature.node.kubernetes.io"
NFD = "nfd.node.kubernetes.io"
GPU, OLD, SLOTS, CARDS = (f"{FEATURE}/{name}" for name in ("gpu", "old", "slots", "cards"))
TAINT = Taint(GPU, "true", "NoSchedule")
THEIRS: Json = {"key": "example.io/theirs", "value": "1", "effect": "PreferNoSchedule"}
FULL = NodeContent({GPU: "true"}, {f"{FEATURE}/note": "hello"}, {SLOTS: "2"}, (TAINT,))
BARE: Json = {
    "labels": {"example.io/rack": "r1"},
    "annotations": {"example.io/owner": "me"},
    "capacity": {"cpu": "4"},
    "allocatable": {"cpu": "4"},
    "taints": [THEIRS],
}
PUBLISHED: Json = {
    "labels": {"example.io/rack": "r1", GPU: "true"},
    "annotations": {
        "example.io/owner": "me",
        f"{FEATURE}/note": "hello",
        **dict.fromkeys(EXTENDED_RESOURCES, "slots"),
        **dict.fromkeys(TAINTS, f"{GPU}=true:NoSchedule"),
    },
    "capacity": {"cpu": "4", SLOTS: "2"},
    "allocatable": {"cpu": "4", SLOTS: "2"},
    "taints": [THEIRS, {"key": GPU, "value": "true", "effect": "NoSchedule"}],
}


def node_object(name: str) -> Json:
    """Make a Node as others leave it."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": BARE["labels"], "annotations": BARE["annotations"]},
        "spec": {"taints": BARE["taints"]},
        "status": {"capacity": BARE["capacity"], "allocatable": BARE["allocatable"]},
    }


def request(name: str, content: NodeContent = FULL, unknown: Unknown | None = None, **others: Any) -> PublishRequest:
    """Make a request."""
    return PublishRequest(name, content, unknown, **others)


def read(root: Client, name: str) -> Json:
    """Read the Node."""
    return root.get(NODES.path(name=name))


def carried(root: Client, name: str) -> Json:
    """Return all that publishing can change; what the cluster's own controllers write is left out."""
    found = read(root, name)
    metadata, status = found["metadata"], found["status"]
    return {
        "labels": _ours_or_theirs(metadata.get("labels", {})),
        "annotations": _ours_or_theirs(metadata.get("annotations", {})),
        "capacity": status.get("capacity", {}),
        "allocatable": status.get("allocatable", {}),
        "taints": [t for t in found["spec"].get("taints", []) if not t["key"].startswith("node.kubernetes.io/")],
    }


def _ours_or_theirs(values: Json) -> Json:
    known = (FEATURE, NFD, "example.io/", "vendor.example/", "driverwright.io/")
    return {key: value for key, value in values.items() if key.startswith(known) or f".{NFD}/" in key}


def version(root: Client, name: str) -> str:
    """Return what is written of the Node by which managers: changes of controllers elsewhere do not count."""
    ours = [e for e in read(root, name)["metadata"]["managedFields"] if e["manager"].startswith("nfd-")]
    return repr(sorted((e["manager"], e["operation"], e.get("time")) for e in ours))


def without_seen(answer: PublishAnswer | None) -> PublishAnswer | None:
    """Leave out of an answer the Node that it was about, which differs each time."""
    return answer and answer._replace(seen=Seen())
