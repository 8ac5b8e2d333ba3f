"""``status.rollout``: the wave that replaces a driver's pods, as a value and as the object's status. Pure.

It is there while a wave is under way. A controller that restarts continues with what it says: which images the wave
brings, since when its canary is proven, and which nodes had no working driver when it began.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kube_api.text import bounded_message
from kube_api.timestamps import LATEST, parse_timestamp, timestamp

Json = dict[str, Any]

MAX_TARGETS = 1000
MAX_FAILED_ON = 1000
MAX_FAILED_BEFORE = 5000
MAX_REACHED = 5000
MAX_WHY = 200


class Phase(StrEnum):
    """What a wave does."""

    CANARY = "Canary"
    """The first nodes get the new image; it is not proven on all of them yet."""
    SOAKING = "Soaking"
    """It is proven on them, and is watched for a while."""
    ROLLING = "Rolling"
    """The other nodes get it."""
    WAITING = "Waiting"
    """Something else has to come first: a maintenance window, or an admin's label."""
    HALTED = "Halted"
    """It failed on more nodes than may fail."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The wave label of a node, and the first characters of the boot id on which it had it: a status is small."""

    label: str
    boot: str

    @classmethod
    def of(cls, label: str, boot_id: str) -> "Reached":
        """Take the label of a node that is on a boot."""
        return cls(label, boot_id[:_BOOT_CHARACTERS])

    @classmethod
    def parse(cls, text: str) -> "Reached":
        """Read what :meth:`__str__` wrote."""
        label, _, boot = text.partition(" ")
        return cls(label, boot)

    def __str__(self) -> str:
        """Write it as the status has it."""
        return f"{self.label} {self.boot}"

    def is_on(self, boot_id: str) -> bool:
        """Return whether it is of this boot."""
        return boot_id[:_BOOT_CHARACTERS] == self.boot


_BOOT_CHARACTERS = 13


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCounts:
    """How many nodes of a wave are in which state; at most ``max_unavailable`` may be unavailable."""

    nodes: int = 0
    updated: int = 0
    unavailable: int = 0
    failed: int = 0
    left_out: int = 0
    max_unavailable: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave(NodeCounts):
    """A wave. Times are seconds since the epoch.

    ``targets`` are the fingerprints that it brings, by target. ``failed_before`` are nodes where the driver did not
    work when it began: they do not count as failed.
    """

    phase: Phase
    message: str = ""
    started: float
    canary_proven: float | None = None
    targets: Mapping[str, str] = field(default_factory=dict)
    failed_before: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    """By target, why no further node gets what the wave brings."""
    returned: tuple[str, ...] = ()
    """Nodes where it failed, which have the image of before again."""
    failed_on: Mapping[str, str] = field(default_factory=dict)
    """Those of them that are allowed to fail, and why they did: the wave goes on, and does not come to them again."""
    reached: Mapping[str, Reached] = field(default_factory=dict)
    """Nodes that have the label of the wave: a Node that is registered anew has lost it."""


def previous_wave(status: Mapping[str, Any]) -> Wave | None:
    """Read ``status.rollout``; one of another shape is given up: the wave begins anew."""
    entry = status.get("rollout")
    if not entry:
        return None
    try:
        return Wave(
            phase=Phase(entry["phase"]),
            message=str(entry.get("message", "")),
            started=_time(entry["startTime"]) or 0.0,
            canary_proven=_time(entry.get("canaryProvenTime")),
            **{name: int(entry.get(key, 0)) for name, key in COUNTS.items()},
            targets={str(target): str(value) for target, value in entry["targets"].items()},
            failed_before=tuple(str(node) for node in entry.get("failedBefore") or ()),
            refused={str(target): str(why) for target, why in (entry.get("refused") or {}).items()},
            returned=tuple(str(node) for node in entry.get("returned") or ()),
            failed_on={str(node): str(why) for node, why in (entry.get("failedOn") or {}).items()},
            reached={str(node): Reached.parse(str(it)) for node, it in (entry.get("reached") or {}).items()},
        )
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError):
        return None


def _time(text: str | None) -> float | None:
    seconds = parse_timestamp(text)
    if seconds is not None and not 0 <= seconds < LATEST:
        raise ValueError("no time")
    return seconds


COUNTS = {
    "nodes": "nodes",
    "updated": "updatedNodes",
    "unavailable": "unavailableNodes",
    "failed": "failedNodes",
    "left_out": "leftOutNodes",
    "max_unavailable": "maxUnavailable",
}
"""The fields of :class:`NodeCounts`, as the status has them."""


def _bounded(whys: Mapping[str, str], most: int) -> Json:
    return {name: bounded_message(why)[:MAX_WHY] for name, why in sorted(whys.items())[:most]}


def _reached(wave: Wave) -> Json:
    return {name: str(found) for name, found in sorted(wave.reached.items())[:MAX_REACHED]}


def render_wave(wave: Wave) -> Json:
    """Write ``status.rollout``."""
    canary = {"canaryProvenTime": timestamp(wave.canary_proven)} if wave.canary_proven is not None else {}
    return {
        "phase": wave.phase.value,
        "message": bounded_message(wave.message),
        "startTime": timestamp(wave.started),
        **canary,
        **{key: getattr(wave, name) for name, key in COUNTS.items()},
        "targets": dict(sorted(wave.targets.items())[:MAX_TARGETS]),
        **({"failedBefore": sorted(wave.failed_before)[:MAX_FAILED_BEFORE]} if wave.failed_before else {}),
        **({"refused": _bounded(wave.refused, MAX_TARGETS)} if wave.refused else {}),
        **({"returned": sorted(wave.returned)[:MAX_FAILED_BEFORE]} if wave.returned else {}),
        **({"failedOn": _bounded(wave.failed_on, MAX_FAILED_ON)} if wave.failed_on else {}),
        **({"reached": _reached(wave)} if wave.reached else {}),
    }
