"""Whether the device agent of a node partitions its GPUs now: what it has to offer comes and goes meanwhile. Pure."""

from driver_builder.rollout.node_lock import lock_of
from driver_builder.snapshot.inventory import Node
from kube_api import names
from kube_api.drain_contract import HOLDER
from kube_api.node_lock import LOCK_SECONDS

_UNDER_WAY = ("pending", "rebooting")
"""States of a change of the layout."""


def partitioned_until(node: Node, now: float) -> float | None:
    """Return when the lock of an agent ends that partitions GPUs, None where none does.

    Both have to say so: the label alone stays where an agent is gone, and the lock is taken for other work as well.
    """
    lock = lock_of(node)
    if lock is None or lock.holder != HOLDER or lock.renewed is None:
        return None
    if node.labels.get(names.MIG_STATE_LABEL) not in _UNDER_WAY:
        return None
    # A time that has not come yet is of another clock.
    return lock.renewed + LOCK_SECONDS if abs(now - lock.renewed) < LOCK_SECONDS else None
