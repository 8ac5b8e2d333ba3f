"""Nodes of a cluster of the user's, as its API server shows them: plain values."""

from collections.abc import Mapping
from dataclasses import dataclass

from demo.cluster import Json
from kube_api import names
from nfd_worker.publish.node_state import NodeState

ARCHITECTURE = "amd64"
"""What our images are built for."""


@dataclass(frozen=True, slots=True)
class RunningKernel:
    """The kernel that a kubelet reports."""

    release: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnNode:
    """A node as the cluster shows it."""

    name: str
    kernel: RunningKernel
    os: str
    platform: str
    runtime: str
    is_ready: bool
    labels: Mapping[str, str]
    described_kernel: str
    """The kernel that nfd-worker's labels are about."""
    worker_labels: int
    """How many labels are nfd-worker's."""

    @classmethod
    def of(cls, node: Json) -> "OwnNode":
        """Read a Node."""
        info, status = node["status"]["nodeInfo"], node["status"]
        return cls(
            name=node["metadata"]["name"],
            kernel=RunningKernel(info["kernelVersion"]),
            os=info["osImage"],
            platform=f"{info['operatingSystem']}/{info['architecture']}",
            runtime=info["containerRuntimeVersion"],
            is_ready=any(
                item["type"] == "Ready" and item["status"] == "True" for item in status.get("conditions") or ()
            ),
            labels=node["metadata"].get("labels") or {},
            described_kernel=(node["metadata"].get("annotations") or {}).get(names.KERNEL_VERSION_ANNOTATION, ""),
            worker_labels=len(NodeState.from_dict({"kind": "Node", **node}).applied("labels")),
        )

    @property
    def state(self) -> str:
        """How kubectl would put it."""
        return "Ready" if self.is_ready else "NotReady"

    @property
    def can_run_us(self) -> bool:
        """Whether our programs can run there."""
        return self.is_ready and self.platform == f"linux/{ARCHITECTURE}"

    @property
    def is_labelled(self) -> bool:
        """Whether nfd-worker's labels are about the kernel that runs there."""
        return self.described_kernel == self.kernel.release


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What was found before anything was done."""

    server: str
    engine: str
    registry: str
    nodes: tuple[OwnNode, ...]
