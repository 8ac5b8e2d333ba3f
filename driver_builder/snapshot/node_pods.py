"""The pods of a node that is drained: what is known of each, whoever made it. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePod:
    """A pod that is bound to a node.

    ``resources`` are those that its containers request, ``node_selector`` the labels that its node must have.
    ``claims`` are its ResourceClaims, ``claim_drivers`` the drivers of devices that allocated them, as far as known.
    ``is_ours`` says that a DaemonSet or a DriverContainer that is known controls it: labels say nothing, anybody may
    write them. ``is_daemon`` says that a DaemonSet does, whose name is ``daemon_set``, ``is_mirror`` that a file on the
    node does, ``is_bare`` that nothing creates it again. ``has_local_data`` says that files of it are gone with it: it
    has an emptyDir volume that is not in memory. ``is_critical`` says that the cluster needs it: it has a priority
    class of Kubernetes' own.
    """

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: frozenset[str] = frozenset()
    claims: frozenset[str] = frozenset()
    claim_drivers: frozenset[str] = frozenset()
    node_selector: frozenset[str] = frozenset()
    is_ours: bool = False
    is_daemon: bool = False
    daemon_set: str = ""
    is_mirror: bool = False
    is_bare: bool = False
    has_local_data: bool = False
    is_critical: bool = False
    has_ended: bool = False
    deleting: bool = False

    def __str__(self) -> str:
        return f"pod {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePods:
    """All pods of a node; ``unread`` says why they could not be listed, ``unseen`` why their ResourceClaims are not."""

    pods: tuple[NodePod, ...] = ()
    unread: str = ""
    unseen: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionRefused:
    """What the API server answered to the last try to evict a pod, and when; ``is_forbidden`` for want of a right."""

    message: str
    at: float
    is_forbidden: bool = False
