"""The locks of the nodes that are known (:mod:`kube_api.node_lock`), whose holder of ours is the key of a driver. Pure.

Where the time of a renewal has not come yet, a lock expires ten minutes after it was first seen as it is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from driver_builder.snapshot.inventory import Node
from kube_api import names
from kube_api.node_lock import Lock, parse_lock


def lock_of(node: Node, first_seen: Mapping[str, float] = MappingProxyType({})) -> Lock | None:
    """Read the lock of a node, None where there is none.

    ``first_seen`` says by node since when a lock is there whose time has not come yet: a clock was wrong, and it counts
    from then on.
    """
    text = node.annotations.get(names.LOCK_ANNOTATION)
    lock = None if text is None else parse_lock(text)
    seen = first_seen.get(node.name)
    if lock is None or lock.renewed is None or seen is None:
        return lock
    return replace(lock, renewed=min(lock.renewed, seen))


def is_locked_by(driver: str, node: Node, now: float) -> bool:
    """Return whether a driver has the lock of a node."""
    lock = lock_of(node)
    return lock is not None and lock.holder == driver and not lock.is_expired(now)


def from_the_future(nodes: Iterable[Node], before: dict[str, tuple[str, float]], now: float) -> dict[str, float]:
    """Return since when locks are there that were renewed after ``now``; ``before`` remembers it for the next time."""
    found: dict[str, tuple[str, float]] = {}
    for node in nodes:
        lock, text = lock_of(node), node.annotations.get(names.LOCK_ANNOTATION, "")
        if lock is not None and lock.renewed is not None and lock.renewed > now:
            known, at = before.get(node.name, ("", now))
            found[node.name] = (text, min(at, now) if known == text else now)
    before.clear()
    before.update(found)
    return {name: at for name, (_, at) in found.items()}
