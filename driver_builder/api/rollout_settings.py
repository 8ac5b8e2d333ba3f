"""``spec.rollout`` as rows and frozen values: how fast working drivers are replaced, and in which order.

Place in the flow: ``spec_parser`` makes :class:`RolloutSettings`, ``driver_builder.rollout`` decides by them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from driver_builder.api import spec_rules as rules
from driver_builder.api.spec_kinds import (
    Cel,
    Kind,
    choice,
    duration,
    flag,
    maybe,
    needed,
    objects,
    pairs,
    row,
    table,
    text,
    texts,
)
from driver_builder.api.spec_reader import Reader

MAX_NODES = 10000
"""Nodes that a field may name at most."""
MAX_WINDOWS = 16


class Strategy(StrEnum):
    """``strategy``: waves within a budget, or all nodes at once."""

    WAVES = "waves"
    IMMEDIATE = "immediate"


class Order(StrEnum):
    """``order``: which nodes may go next: all by their names, or those that an admin labels with the new version."""

    NODE_NAME = "nodeName"
    NODE_LABEL = "nodeLabel"


@dataclass(frozen=True, slots=True)
class Share:
    """A number of nodes, or a percentage of them."""

    value: int
    is_percent: bool = False

    def of(self, total: int) -> int:
        """Return the number of nodes; a percentage is rounded up, as ``maxUnavailable`` of a DaemonSet is."""
        return -(-total * self.value // 100) if self.is_percent else self.value

    def __str__(self) -> str:
        """Write it as in a manifest."""
        return f"{self.value}%" if self.is_percent else str(self.value)


def _share(low: int) -> Kind[Share | None]:
    """Return the kind of a share: a number within bounds, or a percentage."""

    def read(parent: Reader, name: str) -> Share | None:
        if isinstance(parent.raw(name), str):
            percentage = parent.text(name, rules.PERCENTAGE)
            return Share(int(percentage.removesuffix("%")), is_percent=True) if percentage else None
        value = parent.number(name, low=low, high=MAX_NODES)
        return None if value is None else Share(value)

    limits = {"minimum": low, "maximum": MAX_NODES, "pattern": rules.PERCENTAGE.schema()["pattern"]}
    return Kind(
        read, {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}], **limits}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """``windows[]``: from each time that ``cron`` names, in ``time_zone`` (IANA), for so many seconds."""

    cron: str = row(
        needed(rules.CRON),
        "Beginnings of the window in five fields, as for a CronJob, such as 0 22 * * 6.",
        more="[Windows](#windows).",
    )
    duration_seconds: float = row(
        duration("1m", "168h"),
        "How long the window is open, such as 4h.",
        name="duration",
        default=0.0,
        is_required=True,
    )
    time_zone: str = row(
        text(rules.TIME_ZONE),
        "Time zone of cron by its IANA name, such as Europe/Berlin.",
        default="UTC",
        is_filled=True,
    )


def _check_window(window: Reader, _read: object) -> None:
    if not window.has("duration"):
        window.wrong("is missing: write how long the window is open, such as 4h", "duration")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSettings:
    """``drain``: what leaves a node before its driver is replaced.

    Pods leave that request one of ``resources``, that have a ResourceClaim which one of ``dra_drivers`` allocated, or
    that ``pod_selector`` selects; those of ``wait_for`` end by themselves. An entry of ``resources`` may stand for
    several (:mod:`driver_builder.model.resource_claim`); the driver's own plugin may add one. ``pause_labels`` of the
    Node are changed, so that the DaemonSets leave that require them. Pods that nothing creates again leave with
    ``force``, and those with files of their own on the node with ``delete_empty_dir_data``, as with ``kubectl drain``.
    Where the driver's plugin is a DRA driver, ``plugin_leaves_last``: without it the kubelet ends no pod with a claim.
    """

    resources: tuple[str, ...] = row(
        texts(rules.RESOURCE_PATTERN),
        "Extended resources such as nvidia.com/gpu, or all names that begin alike such as nvidia.com/mig-*. Pods that "
        "request one are evicted.",
        more="With `stages.devicePlugin.nvidia` all of `nvidia.com/` as well.",
    )
    dra_drivers: tuple[str, ...] = row(
        texts(rules.DRA_DRIVER),
        "Drivers of devices (DRA) such as gpu.nvidia.com. Pods with a ResourceClaim that one of them allocated are "
        "evicted.",
        more="With `stages.devicePlugin.dra` pods with a claim of that driver as well.",
    )
    pod_selector: Mapping[str, str] = row(
        pairs(rules.LABEL_KEY, rules.LABEL_VALUE), "Labels of other pods that are evicted, in all namespaces."
    )
    wait_for: Mapping[str, str] = row(
        pairs(rules.LABEL_KEY, rules.LABEL_VALUE),
        "Labels of pods that are waited for and not evicted, such as those of Jobs.",
    )
    deadline_seconds: float = row(
        duration(),
        "After this time the node keeps its driver, and is tried again later. Default is 10m.",
        name="deadline",
        default=600.0,
    )
    force: bool = row(
        flag(),
        "Evict also pods that no controller creates again, as kubectl drain --force does. Otherwise the node waits for "
        "their end. Default is false.",
    )
    delete_empty_dir_data: bool = row(
        flag(),
        "Evict also pods with an emptyDir volume, whose files are lost, as kubectl drain --delete-emptydir-data does. "
        "A volume with medium Memory does not count. Default is false.",
    )
    pause_labels: tuple[str, ...] = row(
        texts(rules.PAUSED_LABEL),
        "Labels of the Node such as nvidia.com/gpu.deploy.device-plugin that are changed while its driver is replaced, "
        "so that the DaemonSets leave that require them.",
    )
    plugin_leaves_last: bool = False


def _check_drain(drain: Reader, _read: object) -> None:
    if not any(drain.given.get(name) for name in ("resources", "draDrivers", "podSelector", "pauseLabels")):
        drain.wrong("it does not say what has to leave: write resources, draDrivers, podSelector or pauseLabels")


_DRAIN = table(
    DrainSettings,
    checks=[_check_drain],
    rules=[
        Cel(
            "has(self.resources) && self.resources.size() > 0 || has(self.draDrivers) && self.draDrivers.size() > 0 || "
            "has(self.podSelector) && self.podSelector.size() > 0 || has(self.pauseLabels) && "
            "self.pauseLabels.size() > 0",
            "drain requires resources, draDrivers, podSelector or pauseLabels",
        )
    ],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSettings:
    """``spec.rollout``, with its defaults: one node at a time, and no more once one has failed."""

    strategy: Strategy = row(
        choice(Strategy),
        "waves replaces drivers within maxUnavailable and stops at maxFailed, immediate on all nodes at once.",
        default=Strategy.WAVES,
        is_filled=True,
    )
    order: Order = row(
        choice(Order),
        "Which nodes may go next. nodeName is all of them, by their names; nodeLabel only those that an admin labels "
        "with the new version.",
        default=Order.NODE_NAME,
        is_filled=True,
    )
    max_unavailable: Share = row(
        _share(1),
        "Nodes that may be without the driver at the same time, a number or a percentage such as 10%, of all targets "
        "together. Default is 1.",
        default=Share(1),
        more="A percentage is rounded up.",
    )
    canary: Share | None = row(
        _share(0),
        "Nodes that go first, alone; a number or a percentage such as 10%. Default is none.",
        more="A percentage is rounded up; `0` is none.",
    )
    canary_node_selector: Mapping[str, str] = row(
        pairs(rules.LABEL_KEY, rules.LABEL_VALUE),
        "Labels of the nodes that go first, alone.",
        more="Not together with `canary`.",
    )
    soak_seconds: float = row(
        duration("10s", "168h"),
        "How long the canary has to work before other nodes follow, such as 1h. Default is not to wait.",
        name="soak",
        default=0.0,
        more="Needs a canary.",
    )
    max_failed: Share = row(
        _share(0),
        "Nodes that may fail, a number or a percentage such as 10%; after one more, no further node is replaced. "
        "Default is 0.",
        default=Share(0),
        more="At most 1,000. They get the previous image again.",
    )
    windows: tuple[Window, ...] = row(
        objects(table(Window, checks=[_check_window]), MAX_WINDOWS),
        "When drivers may be replaced. Default is at any time.",
    )
    drain: DrainSettings | None = row(
        maybe(_DRAIN),
        "What leaves a node before its driver is replaced. Default is nothing.",
        more="[Draining](upgrades.md#draining).",
    )

    @property
    def has_canary(self) -> bool:
        """Return whether some nodes go first, alone."""
        return bool(self.canary_node_selector) or (self.canary is not None and self.canary.value > 0)


def _check_rollout(rollout: Reader, _read: object) -> None:
    canary, selector = rollout.given.get("canary"), rollout.given.get("canaryNodeSelector")
    if canary is not None and selector is not None:
        rollout.wrong("canary and canaryNodeSelector exclude each other: write one of them")
    if rollout.has("soak") and canary in (None, 0) and not selector:
        rollout.wrong("there is nothing to soak without canary or canaryNodeSelector: write one of them", "soak")


ROLLOUT = table(
    RolloutSettings,
    checks=[_check_rollout],
    rules=[
        Cel(
            "!(has(self.canary) && has(self.canaryNodeSelector))",
            "canary and canaryNodeSelector are mutually exclusive",
        ),
        Cel(
            "!has(self.soak) || has(self.canary) && (type(self.canary) == string || self.canary > 0) || "
            "has(self.canaryNodeSelector) && self.canaryNodeSelector.size() > 0",
            "soak requires canary or canaryNodeSelector",
        ),
    ],
)
