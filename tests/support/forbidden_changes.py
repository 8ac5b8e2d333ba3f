"""Changes of Nodes that somebody with a program's token would try, which RBAC lets through and the policies refuse.

``tests/contract/test_admission_policies.py`` evaluates the policies of ``deploy/admission`` on them; docs/security.md
lists them.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NamedTuple

Json = dict[str, Any]

PRESSURE = "node.kubernetes.io/disk-pressure"
FEATURE = "feature.node.kubernetes.io"
GUARDED = "nvidia.com/mig.config"
OWN_NODE = {"authentication.kubernetes.io/node-name": ["node-a"]}

NODE: Json = {
    "metadata": {
        "name": "node-a",
        "uid": "1",
        "labels": {
            "kubernetes.io/hostname": "node-a", "topology.kubernetes.io/zone": "z1", "pool": "web",
            f"{FEATURE}/kernel-version.full": "6.1.0-1", "driverwright.io/ns.gpu.ready": "1", GUARDED: "all-disabled",
        },
        "annotations": {
            "node.alpha.kubernetes.io/ttl": "0", "driverwright.io/boot-id": "b",
            "loaded.driverwright.io/ns.gpu": "{}",
        },
        "managedFields": [{"manager": "kubelet", "operation": "Update"}],
    },
    "spec": {
        "taints": [{"key": PRESSURE, "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}],
    },
    "status": {
        "capacity": {"cpu": "4", "memory": "1Gi"},
        "allocatable": {"cpu": "4", "memory": "1Gi"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "nodeInfo": {"kubeletVersion": "v1.36.2"},
        "runtimeHandlers": [{"name": "runc"}],
    },
}  # fmt: skip
"""A Node as kubelet, controllers and both programs leave it."""


class Act(NamedTuple):
    """A change of a Node: ``patch`` is merged into it, ``words`` stand in the refusal.

    ``extra``: what the token says of itself. ``name``: which Node is asked for. ``node``: as it is before.
    """

    patch: Json
    words: str
    subresource: str = ""
    name: str = "node-a"
    extra: Mapping[str, list[str]] | None = OWN_NODE
    is_new: bool = False
    node: Json = NODE

    @property
    def before(self) -> Json | None:
        """The Node before the change; None when the act creates it."""
        return None if self.is_new else self.node

    @property
    def after(self) -> Json:
        """The Node that the API server would store."""
        return merged(self.node, self.patch)


def merged(target: Json, patch: Json) -> Json:
    """Merge as RFC 7386 says."""
    made = deepcopy(target)
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merged(made.get(key, {}), value) if isinstance(value, dict) else value
    return made


def label(key: str, value: str | None = "true") -> Json:
    """Make the patch of a label."""
    return {"metadata": {"labels": {key: value}}}


def annotation(key: str, value: str | None = "x") -> Json:
    """Make the patch of an annotation."""
    return {"metadata": {"annotations": {key: value}}}


def taint(key: str, effect: str = "NoExecute", **others: str) -> Json:
    """Make the patch that adds a taint."""
    return {"spec": {"taints": [*NODE["spec"]["taints"], {"key": key, "effect": effect, **others}]}}


def owned(kind: str) -> Json:
    """Make the patch of an owner that does not exist; since 1.20 one with a namespace has no Node collected."""
    owner = {"apiVersion": "v1", "kind": kind, "name": "gone", "uid": "no-such-uid"}
    return {"metadata": {"ownerReferences": [owner]}}


def resource(part: str, key: str, value: str | None) -> Json:
    """Make the patch of a resource."""
    return {"status": {part: {key: value}}}


def _of_both(more: str) -> dict[str, Act]:
    """Make the acts that neither program's policy lets through; ``more``: the refusal of other fields."""
    labels, annotations = "these labels: ", "these annotations: "
    return {
        "have a node deleted, by an owner that does not exist": Act(owned("Namespace"), more),
        "have a node deleted, by a node that does not exist": Act(owned("Node"), more),
        "give a node an owner with a namespace": Act(owned("Pod"), more),
        "keep a node from being deleted, by a finalizer": Act({"metadata": {"finalizers": ["x/y"]}}, more),
        "cordon a node": Act({"spec": {"unschedulable": True}}, more),
        "give a node a pod network": Act({"spec": {"podCIDR": "10.1.0.0/24"}}, more),
        "make a node another machine of the cloud": Act({"spec": {"providerID": "cloud://2"}}, more),
        "move a node to another zone": Act(
            label("topology.kubernetes.io/zone", "z2"), f"{labels}topology.kubernetes.io/zone"
        ),
        "take a node's host name": Act(label("kubernetes.io/hostname", None), f"{labels}kubernetes.io/hostname"),
        "make a node one of the control plane": Act(
            label("node-role.kubernetes.io/control-plane", ""), f"{labels}node-role.kubernetes.io/control-plane"
        ),
        "move a node to another pool": Act(label("pool", "secrets"), f"{labels}pool"),
        "let nodes into a restricted pool": Act(
            label("node-restriction.kubernetes.io/a", "b"), f"{labels}node-restriction.kubernetes.io/a"
        ),
        "change how a node's GPUs are partitioned": Act(label(GUARDED, "all-1g"), f"{labels}{GUARDED}"),
        "select how a node's GPUs are shared": Act(
            label("nvidia.com/device-plugin.config", "x"), f"{labels}nvidia.com/device-plugin.config"
        ),
        "request a rebuild": Act(annotation("driverwright.io/rebuild", "1"), f"{annotations}driverwright.io/rebuild"),
        "change what the kubelet annotates": Act(
            annotation("node.alpha.kubernetes.io/ttl", "9"), f"{annotations}node.alpha.kubernetes.io/ttl"
        ),
        "move a node's volumes": Act(
            annotation("csi.volume.kubernetes.io/nodeid", "{}"), f"{annotations}csi.volume.kubernetes.io/nodeid"
        ),
    }  # fmt: skip


_STATUS = "status of a Node"
_ONLY = "may change labels, annotations and taints of a Node, and nothing else"
_TAINTS, _RESOURCES = "may not change these taints: ", "may not change these resources: "
_READY = "driverwright.io/ns.gpu.ready"

_OF_STATUS = {
    "declare a node dead": Act({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, _STATUS, "status"),
    "move a node's address": Act({"status": {"addresses": []}}, _STATUS, "status"),
    "forge a kubelet's version": Act({"status": {"nodeInfo": {"kubeletVersion": "v1"}}}, _STATUS, "status"),
    "drop fields of later releases": Act({"status": {"runtimeHandlers": None}}, _STATUS, "status"),
}

WORKER_POLICY: dict[str, Act] = {
    "label another node": Act(
        label(f"{FEATURE}/x"), "nfd-worker on node node-a may not change node node-b", name="node-b"
    ),
    "set another node's extended resources": Act(
        resource("capacity", f"{FEATURE}/x", "1"), "may not change node node-b", "status", name="node-b"
    ),
    "write with a token of no pod": Act(label(f"{FEATURE}/x"), "this token names no node", extra={}),
    "write with a token from before 1.30": Act(label(f"{FEATURE}/x"), "this token names no node", extra=None),
    "say that a driver is proven": Act(label(_READY, "2"), f"may not change these labels: {_READY}"),
    "say that a driver is not proven": Act(label(_READY, None), f"may not change these labels: {_READY}"),
    "say that a node may boot a kernel": Act(
        label("driverwright.io/ready-for.6.2"), "may not change these labels: driverwright.io/ready-for.6.2"
    ),
    "forge what is loaded on a node": Act(
        annotation("loaded.driverwright.io/ns.gpu"), "these annotations: loaded.driverwright.io/ns.gpu"
    ),
    "taint a node, with taints off": Act(taint(f"{FEATURE}/x"), f"{_TAINTS}{FEATURE}/x"),
    "have a node's pods evicted": Act(
        taint("node.kubernetes.io/out-of-service"), f"{_TAINTS}node.kubernetes.io/out-of-service"
    ),
    "take a taint of the kubelet": Act({"spec": {"taints": None}}, f"{_TAINTS}{PRESSURE}"),
    "weaken a taint of the kubelet": Act(
        {"spec": {"taints": [{"key": PRESSURE, "effect": "PreferNoSchedule"}]}},
        f"{_TAINTS}{PRESSURE}",
    ),
    "give a node more CPUs": Act(resource("capacity", "cpu", "400"), f"{_RESOURCES}cpu", "status"),
    "take a node's memory": Act(resource("allocatable", "memory", None), f"{_RESOURCES}memory", "status"),
    **_OF_STATUS,
    **_of_both("may change labels, annotations, taints and extended resources of a Node, and nothing else"),
}
"""Acts with the token of nfd-worker that only its policy refuses, with the settings of ``deploy/``."""

BUILDER_POLICY: dict[str, Act] = {
    "move a node to another kernel": Act(
        label(f"{FEATURE}/kernel-version.full", "6.2"), f"may not change these labels: {FEATURE}/kernel-version.full"
    ),
    "forge a node's boot": Act(annotation("driverwright.io/boot-id"), "these annotations: driverwright.io/boot-id"),
    "allow a kernel without Secure Boot": Act(
        label("driverwright.io/secure-boot", "false"), "these labels: driverwright.io/secure-boot"
    ),
    "say where the controller runs": Act(label("driverwright.io/builder"), "these labels: driverwright.io/builder"),
    "taint a node": Act(taint("vendor.io/x"), f"{_TAINTS}vendor.io/x"),
    "take a taint of the kubelet": Act({"spec": {"taints": None}}, f"{_TAINTS}{PRESSURE}"),
    "taint a node under a key like ours": Act(
        taint("driverwright.io/upgradings"), f"{_TAINTS}driverwright.io/upgradings"
    ),
    "move a node to another operating system": Act(
        label(f"{FEATURE}/system-os_release.ID", "x"), f"these labels: {FEATURE}/system-os_release.ID"
    ),
    "label a node without a namespace": Act(label("gpu"), "these labels: gpu"),
    "hide which kernel a node runs": Act(
        label(f"{FEATURE}/kernel-version.full", None), f"these labels: {FEATURE}/kernel-version.full"
    ),
    "forge a node's kernel": Act(
        annotation("driverwright.io/kernel-version"), "these annotations: driverwright.io/kernel-version"
    ),
    "ask for a drain": Act(
        annotation("driverwright.io/drain-request"), "these annotations: driverwright.io/drain-request"
    ),
    **_of_both(_ONLY),
}
"""Acts with the token of driver-builder that only its policy refuses."""

AGENT_POLICY: dict[str, Act] = {
    "label its node": Act(label("vendor.io/x"), "these labels: vendor.io/x"),
    "annotate its node": Act(annotation("vendor.io/x"), "these annotations: vendor.io/x"),
    "taint its node": Act(taint("vendor.io/x"), "may not change a Node"),
    "offer a resource without the kubelet": Act(resource("capacity", "vendor.io/x", "1"), _STATUS, "status"),
    **_OF_STATUS,
    **_of_both("may not change a Node"),
}
"""Acts with a token of device-agent's account, which has no role: its policy refuses them whatever it is given."""

ALSO_BY_RBAC: dict[str, dict[str, Act]] = {
    "nfd-worker": {"create a node by applying": Act({}, "and nothing else", is_new=True)},
    "driver-builder": {"create a node by applying": Act({}, _ONLY, is_new=True), **_OF_STATUS},
}
"""Acts that RBAC refuses as well, by program."""
