"""A kind of task: what its pods are called, how many may run, and what the end of one means. Pure."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from driver_builder.model.driver_key import DriverKey
from driver_builder.objects.load_report import LoadReport
from driver_builder.objects.pod_status import container_of, time_of, trouble_of
from kube_api import names

Json = dict[str, Any]


class State(StrEnum):
    """Where a task stands; one that was ``LOST`` has ended without having run."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    LOST = "Lost"


class Outcome(NamedTuple):
    """What a task's pod says: ``message`` is why it does not run, or has failed."""

    state: State
    message: str = ""
    report: LoadReport | None = None


class PodEnd:
    """The status of a task's pod, and how its container ended: ``ended`` is empty where that is not known."""

    def __init__(self, pod: Json, container: str) -> None:
        self.status: Json = pod.get("status") or {}
        self.container = container_of(self.status.get("containerStatuses"), container)
        self.ended: Json = (self.container.get("state") or {}).get("terminated") or {}
        self.report: str = self.ended.get("message") or ""
        self.message, self.reason = (str(self.status.get(key) or "") for key in ("message", "reason"))
        self.trouble = trouble_of(self.status)
        self.is_over = self.status.get("phase") in ("Succeeded", "Failed")
        self.has_ended = bool(self.ended) or self.is_over
        self.created_at = time_of(pod["metadata"].get("creationTimestamp")) or 0.0
        self.ended_at = time_of(self.ended.get("finishedAt"))
        self.under_way = State.RUNNING if "startTime" in self.status else State.PENDING

    def failure(self, who: str) -> str:
        """Return how a container ended that says nothing itself."""
        code, message = self.ended.get("exitCode") or 0, str(self.ended.get("message") or "").strip()
        return f"{who} failed ({code}): {message}".removesuffix(": ") if code else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskKind:
    """A row of :data:`driver_builder.tasks.kinds.KINDS`.

    ``verb`` is in the names of its pods, after at most ``longest`` characters of the driver's name. ``most`` of them
    run at once for a driver. ``does`` is a start in words; ``group`` is what plan counts it as.
    """

    name: str
    verb: str
    container: str
    outcome: Callable[[PodEnd], Outcome]
    does: str
    group: str
    word: str = ""
    """What one of its pods is called, if not by ``name``."""
    most: int = 100
    longest: int = 46
    subject: Callable[[Json], str] | None = None
    """Reads from a pod what it is about, where that is not the label's value."""
    stays: bool = False
    """Whether its pods stay on nodes where all is as it should be."""
    counts_running: bool = True
    """Whether ``most`` is of all that run; else it is of those that start at once."""

    @property
    def label(self) -> str:
        """The label of its pods, which no other pod has: what each of them is about."""
        return f"{names.GROUP}/{self.name}"

    @property
    def called(self) -> str:
        """What one of its pods is called."""
        return self.word or self.name

    def name_of(self, driver: DriverKey, node: str, *parts: str) -> str:
        """Return the name of a driver's pod for a node, and what else: always the same."""
        digest = hashlib.sha256("\0".join((driver, node, *parts)).encode()).hexdigest()[:10]
        return f"{driver.name[: self.longest].rstrip('-.')}-{self.verb}-{digest}"
