"""The lock of a node: who works on its devices now. Pure.

It is an annotation of the Node, and a contract between programs that change devices there (docs/upgrades.md)::

    driverwright.io/lock: {"holder":"device-agent","bootID":"6b0a...","renewTime":"2026-11-24T10:00:00Z"}

A lock is taken, renewed and released by a patch that contains the Node's resourceVersion. It expires ten minutes after
it was renewed.
"""

import json
from dataclasses import dataclass

from kube_api.names import LOCK_ANNOTATION
from kube_api.text import printable
from kube_api.timestamps import LATEST, parse_timestamp, timestamp

LOCK_SECONDS = 600.0
"""So long a lock is honoured after it was renewed."""
RENEW_SECONDS = LOCK_SECONDS / 2

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

    def is_due(self, boot_id: str, now: float) -> bool:
        """Return whether its holder has to renew it: half of its time is over, or the node has booted again."""
        return self.renewed is None or not self.renewed <= now < self.renewed + RENEW_SECONDS or self.boot_id != boot_id

    def __str__(self) -> str:
        """Say who holds it, and until when."""
        if self.renewed is None:
            return f"is locked by annotation {LOCK_ANNOTATION}, which cannot be read"
        return f"is locked by {self.holder} until {timestamp(self.renewed + LOCK_SECONDS)}"


def parse_lock(text: str) -> Lock:
    """Read a lock, whoever wrote it."""
    try:
        content = json.loads(text)
        renewed = parse_timestamp(content["renewTime"])
        holder = printable(str(content["holder"]), MAX_HOLDER)
        if not holder or renewed is None or not 0 <= renewed < LATEST:
            return Lock()
        return Lock(holder=holder, boot_id=printable(str(content.get("bootID") or ""), 64), renewed=renewed)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return Lock()


def render_lock(holder: str, boot_id: str, now: float) -> str:
    """Write a lock that is renewed now."""
    content = {"holder": holder, "bootID": boot_id, "renewTime": timestamp(now)}
    return json.dumps(content, separators=(",", ":"))
