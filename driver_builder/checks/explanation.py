"""What ``explain`` answers: the checks from a DriverContainer to a ready node, each with a verdict. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.status import TargetStatus
from driver_builder.base.check_result import CheckResult, Status
from driver_builder.model.kernels import KernelTarget
from driver_builder.nodes.plan_view import DriverPlan, PlanSettings
from driver_builder.snapshot import pairs
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import DaemonSet, DriverPod, Snapshot
from driver_builder.targets.conflicts import Conflict
from driver_builder.targets.resource_conflicts import Kept

CHECKS = ("driver", "selector", "kernel", "mapping", "image", "build", "rollout", "pull", "load", "label")
"""Every check, in its order: each needs the one before."""
_NAMES = {"check": "name", "status": "verdict", "message": "sentence", "remedy": "nextStep"}


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
    steps: tuple[CheckResult, ...]
    coming: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether all checks hold, up to the ready label; a check that could not be made does not count."""
        return self.first_broken is None and self.steps[-1].is_ok

    @property
    def first_broken(self) -> CheckResult | None:
        """The first check that is broken or waiting."""
        return next((step for step in self.steps if step.status in (Status.FAILED, Status.WAITING)), None)

    @property
    def sentence(self) -> str:
        """The whole answer in one line."""
        step = self.first_broken
        if step is None:
            return "ready" if self.is_ready else "not known to be ready"
        meanwhile = f" (meanwhile version {self.serving} works there)" if self.serving else ""
        return f"not ready: {step.check}: {step.message}{meanwhile}"

    def as_document(self) -> Mapping[str, object]:
        """Return plain data, for programs."""
        first = self.first_broken
        return {
            "node": self.node,
            "driver": self.driver,
            "ready": self.is_ready,
            "selected": self.selected,
            "serving": self.serving,
            "firstBroken": first.check if first else None,
            "sentence": self.sentence,
            "coming": self.coming,
            "nextStep": first.remedy if first else "",
            "steps": [step.as_document(_NAMES, "broken") for step in self.steps],
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
