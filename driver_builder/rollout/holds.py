"""Who works on which nodes, by what is written there. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from driver_builder.model.driver_key import DriverKey
from driver_builder.rollout.draining import Draining, draining_of
from driver_builder.rollout.node_lock import lock_of
from driver_builder.snapshot.inventory import Node
from kube_api.node_lock import Lock
from kube_api.timestamps import timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """``locks`` and ``records`` are those of nodes, by their names, as they are ``now``.

    The nodes in ``pressed`` have too little disk space: an image could be removed before its pod is there.
    """

    locks: Mapping[str, Lock] = field(default_factory=dict)
    records: Mapping[str, Draining] = field(default_factory=dict)
    pressed: frozenset[str] = frozenset()
    now: float = 0.0

    @classmethod
    def of(
        cls,
        nodes: Iterable[Node],
        now: float,
        pressed: frozenset[str] = frozenset(),
        first_seen: Mapping[str, float] = MappingProxyType({}),
    ) -> "Holds":
        """Read them from nodes; a lock that has expired is none."""
        nodes = tuple(nodes)
        locks = {node.name: lock for node in nodes if (lock := lock_of(node, first_seen)) is not None}
        return cls(
            locks={name: lock for name, lock in locks.items() if not lock.is_expired(now)},
            records={node.name: record for node in nodes if (record := draining_of(node)) is not None},
            pressed=pressed,
            now=now,
        )

    def obstacle(self, node: str, driver: DriverKey) -> str:
        """Return why a driver may not be replaced on a node now; empty if it may."""
        lock, record = self.locks.get(node), self.records.get(node)
        if lock is not None and lock.holder != driver:
            return f"node {node} {lock}"
        if node in self.pressed:
            return f"node {node} has DiskPressure: its kubelet removes images and refuses pods"
        if record is not None and record.driver == driver and record.is_resting(self.now):
            return f"node {node} keeps its driver, and is tried again at {timestamp(record.retry_at)}: {record.failed}"
        return ""

    def is_begun(self, node: str, driver: DriverKey) -> bool:
        """Return whether a driver has locked a node."""
        return node in self.locks and self.locks[node].holder == driver

    def begun(self, driver: DriverKey) -> tuple[str, ...]:
        """Return the nodes that a driver has locked."""
        return tuple(node for node in self.locks if self.is_begun(node, driver))
