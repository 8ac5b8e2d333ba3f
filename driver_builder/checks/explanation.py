"""What ``explain`` answers: the checks from a DriverContainer to a ready node, each with a verdict. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.status import TargetStatus
from driver_builder.model.kernels import KernelTarget
from driver_builder.nodes.plan_view import DriverPlan, PlanSettings
from driver_builder.snapshot import pairs
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import DaemonSet, DriverPod, Snapshot
from driver_builder.targets.conflicts import Conflict
from driver_builder.targets.resource_conflicts import Kept

CHECKS = ("driver", "selector", "kernel", "mapping", "image", "build", "rollout", "pull", "load", "label")
"""Every check, in its order: each needs the one before."""


class Verdict(StrEnum):
    """A result: ``waiting`` resolves itself, ``broken`` needs a person, ``unknown`` could not be checked."""

    OK = "ok"
    BROKEN = "broken"
    WAITING = "waiting"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One check: a sentence with its result, and what to do if it does not hold."""

    name: str
    verdict: Verdict
    sentence: str
    next_step: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All checks for one node and one driver.

    ``serving`` is the version of the driver that is proven to work there meanwhile, empty for none; ``selected`` says
    whether the driver's selector picks the node (a driver that cannot be read picks none). ``coming`` says how far the
    driver is on the newest kernel of the node's repository, empty where it runs that or none is known.
    """

    node: str
    driver: str
    selected: bool
    serving: str
    steps: tuple[Step, ...]
    coming: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether all checks hold, up to the ready label; a check that could not be made does not count."""
        return self.first_broken is None and self.steps[-1].verdict is Verdict.OK

    @property
    def first_broken(self) -> Step | None:
        """The first check that is broken or waiting."""
        return next((step for step in self.steps if step.verdict in (Verdict.BROKEN, Verdict.WAITING)), None)

    @property
    def sentence(self) -> str:
        """The whole answer in one line."""
        step = self.first_broken
        if step is None:
            return "ready" if self.is_ready else "not known to be ready"
        meanwhile = f" (meanwhile version {self.serving} works there)" if self.serving else ""
        return f"not ready: {step.name}: {step.sentence}{meanwhile}"

    def as_document(self) -> Mapping[str, object]:
        """Return plain data, for programs."""
        first = self.first_broken
        return {
            "node": self.node,
            "driver": self.driver,
            "ready": self.is_ready,
            "selected": self.selected,
            "serving": self.serving,
            "firstBroken": first.name if first else None,
            "sentence": self.sentence,
            "coming": self.coming,
            "nextStep": first.next_step if first else "",
            "steps": [
                {
                    "name": step.name,
                    "verdict": step.verdict.value,
                    "sentence": step.sentence,
                    "nextStep": step.next_step,
                }
                for step in self.steps
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the checks of one driver on one node look at; ``decided`` is the plan for the driver.

    ``conflict`` is another driver's module that keeps the driver from the nodes of the target, ``resource_kept`` the
    driver that keeps the resource of this one's device plugin, by node.
    """

    snapshot: Snapshot
    settings: PlanSettings
    node: Node
    driver: DriverContainer
    spec: DriverSpec
    target: KernelTarget
    decided: DriverPlan
    conflict: Conflict | None = None
    resource_kept: Kept = field(default_factory=dict)

    @property
    def status(self) -> TargetStatus | None:
        """What the plan says of the node's target."""
        return next((entry for entry in self.decided.targets if entry.target == self.target.id), None)

    @property
    def daemon_sets(self) -> dict[str, DaemonSet]:
        """The driver's DaemonSets by target."""
        return pairs.by_target(item for item in self.snapshot.daemon_sets if item.driver == self.driver.key)

    @property
    def daemon_set(self) -> DaemonSet | None:
        """The DaemonSet of the node's target."""
        return self.daemon_sets.get(self.target.short_hash)

    @property
    def pods(self) -> tuple[DriverPod, ...]:
        """The driver's pods for the node's target, wherever they are; those that stay come first."""
        known = [pod for pod in self.snapshot.pods if pod.driver == self.driver.key]
        mine = [pod for pod in known if pod.target == self.target.short_hash]
        return tuple(sorted(mine, key=lambda pod: (pod.deleting, pod.name)))

    @property
    def pod(self) -> DriverPod | None:
        """The pod on the node."""
        return next((pod for pod in self.pods if pod.node == self.node.name), None)


def ok(name: str, sentence: str, next_step: str = "") -> Step:
    """Return a check that holds."""
    return Step(name=name, verdict=Verdict.OK, sentence=sentence, next_step=next_step)


def broken(name: str, sentence: str, next_step: str) -> Step:
    """Return a check that a person has to fix."""
    return Step(name=name, verdict=Verdict.BROKEN, sentence=sentence, next_step=next_step)


def waiting(name: str, sentence: str, next_step: str) -> Step:
    """Return a check that does not hold yet, and will without help."""
    return Step(name=name, verdict=Verdict.WAITING, sentence=sentence, next_step=next_step)


def unknown(name: str, sentence: str, next_step: str = "") -> Step:
    """Return a check that could not be made."""
    return Step(name=name, verdict=Verdict.UNKNOWN, sentence=sentence, next_step=next_step)
