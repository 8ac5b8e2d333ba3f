"""The lock of a node: who works on its devices now. Pure.

It is an annotation of the Node, and a contract with other programs that change devices there, such as one that
partitions a GPU (docs/upgrades.md)::

    driverwright.io/lock: {"holder":"gpu-partitioner","bootID":"6b0a...","renewTime":"2026-11-24T10:00:00Z"}

The holder of ours is the key of a driver, ``namespace/name``. A lock is taken, renewed and released by a patch that
contains the Node's resourceVersion. It expires ten minutes after it was renewed, and where that time has not come yet,
ten minutes after it was first seen as it is.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from driver_builder.observed.inventory import Node
from driver_builder.status.status import parse_timestamp, timestamp
from kube_api import names
from kube_api.text import printable

LOCK_SECONDS = 600.0
"""So long a lock is honoured after it was renewed."""
RENEW_SECONDS = LOCK_SECONDS / 2

_LATEST = 1 << 33
"""Seconds since the epoch: the year 2242."""
MAX_HOLDER = 317
"""Characters of a namespace and a name, with a slash between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """A lock as it is written. One that cannot be read has no holder and no time: it does not expire."""

    holder: str = ""
    boot_id: str = ""
    renewed: float | None = None

    def is_expired(self, now: float) -> bool:
        """Return whether nobody has to honour it any more."""
        return self.renewed is not None and now >= self.renewed + LOCK_SECONDS

    def is_due(self, node: Node, now: float) -> bool:
        """Return whether its holder has to renew it: half of its time is over, or the node has booted again."""
        return (
            self.renewed is None
            or not self.renewed <= now < self.renewed + RENEW_SECONDS
            or self.boot_id != (node.boot_id or "")
        )

    def __str__(self) -> str:
        """Say who holds it, and until when."""
        if self.renewed is None:
            return f"is locked by annotation {names.LOCK_ANNOTATION}, which cannot be read"
        return f"is locked by {self.holder} until {timestamp(self.renewed + LOCK_SECONDS)}"


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


def parse_lock(text: str) -> Lock:
    """Read a lock, whoever wrote it."""
    try:
        content = json.loads(text)
        renewed = parse_timestamp(content["renewTime"])
        holder = printable(str(content["holder"]), MAX_HOLDER)
        if not holder or renewed is None or not 0 <= renewed < _LATEST:
            return Lock()
        return Lock(holder=holder, boot_id=printable(str(content.get("bootID") or ""), 64), renewed=renewed)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return Lock()


def render_lock(holder: str, node: Node, now: float) -> str:
    """Write a lock that is renewed now."""
    content = {"holder": holder, "bootID": node.boot_id or "", "renewTime": timestamp(now)}
    return json.dumps(content, separators=(",", ":"))
