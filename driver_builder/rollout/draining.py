"""The record of a node that is prepared for another driver: how far it is, and what has to be restored. Pure.

It is an annotation of the Node, written in the same patch as what it records: the taint and the labels of others that
keep their DaemonSets away. So whatever happens to the controller, the next one knows what was there before.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from driver_builder.snapshot.inventory import Node
from kube_api import names
from kube_api.text import printable
from kube_api.timestamps import LATEST

PAUSED = "paused-for-driver-upgrade"
"""The value of a label that keeps a DaemonSet away; NVIDIA's driver manager uses the same one."""

MAX_LABELS = 64
MAX_BEHIND = 4096
"""Characters of the record of another driver: its reason has 500 at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draining:
    """What is recorded on a node, for ``driver``; a record that cannot be read is nobody's.

    ``labels`` are the values that paused labels had. ``is_drained`` says that nothing uses the driver any more,
    ``note`` what was left out. After the deadline ``failed`` says why, and until ``retry_at`` the node is left alone:
    then nothing of ours is there but this record. ``dependent`` is the driver that could not be unloaded there, if that
    was why. ``behind`` is the record of a driver that leaves the node alone, while it is drained for its agent.
    """

    driver: str = ""
    since: int = 0
    is_drained: bool = False
    note: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    failed: str = ""
    retry_at: int = 0
    dependent: str = ""
    behind: str = ""

    @property
    def is_lost(self) -> bool:
        """Return whether the record of a node on which something of ours is left cannot be read."""
        return not self.driver

    def is_resting(self, now: float) -> bool:
        """Return whether the node is left alone because its drain has failed."""
        return bool(self.failed) and now < self.retry_at


def draining_of(node: Node) -> Draining | None:
    """Read the record of a node, None where there is neither a record nor our taint."""
    text = node.annotations.get(names.DRAINING_ANNOTATION)
    if text is not None:
        return parse_draining(text)
    return Draining() if node.has_taint(names.UPGRADING_TAINT) else None


def parse_draining(text: str) -> Draining:
    """Read a record."""
    try:
        content = json.loads(text)
        labels = content.get("labels") or {}
        return Draining(
            driver=printable(str(content["driver"]), 317),
            since=_time(content.get("since")),
            is_drained=content.get("drained") is True,
            note=printable(str(content.get("note") or "")),
            labels={str(key): str(value) for key, value in list(labels.items())[:MAX_LABELS]},
            failed=printable(str(content.get("failed") or "")),
            retry_at=_time(content.get("retryAt")),
            dependent=printable(str(content.get("dependent") or ""), 317),
            behind=str(content.get("behind") or "")[:MAX_BEHIND],
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return Draining()


def _time(value: Any) -> int:
    seconds = int(value or 0)
    if not 0 <= seconds < LATEST:
        raise ValueError("no time")
    return seconds


def render_draining(record: Draining) -> str:
    """Write a record; it is read again the same."""
    content = {
        "driver": record.driver,
        "since": record.since,
        "drained": record.is_drained,
        "note": record.note,
        "labels": dict(sorted(record.labels.items())),
        "failed": record.failed,
        "retryAt": record.retry_at,
        "dependent": record.dependent,
        "behind": record.behind,
    }
    return json.dumps({key: value for key, value in content.items() if value}, separators=(",", ":"))
