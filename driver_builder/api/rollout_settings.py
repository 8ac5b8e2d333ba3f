"""``spec.rollout`` as frozen values: how fast working drivers are replaced, and in which order.

Place in the flow: ``spec_parser`` makes :class:`RolloutSettings`, ``driver_builder.rollout`` decides by them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

PAUSE_LABEL = r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/([A-Za-z0-9_.-]*[.])?deploy[.][A-Za-z0-9_.-]*[A-Za-z0-9]"
"""Keys of labels by which operators deploy their DaemonSets to a node, such as ``nvidia.com/gpu.deploy.device-plugin``.

Who writes a DriverContainer may change no other label of a Node: the admission policy has the same expression.
"""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """``windows[]``: from each time that ``cron`` names, in ``time_zone`` (IANA), for so many seconds."""

    cron: str
    duration_seconds: float
    time_zone: str = "UTC"


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

    resources: tuple[str, ...] = ()
    dra_drivers: tuple[str, ...] = ()
    pod_selector: Mapping[str, str] = field(default_factory=dict)
    wait_for: Mapping[str, str] = field(default_factory=dict)
    deadline_seconds: float = 600.0
    force: bool = False
    delete_empty_dir_data: bool = False
    pause_labels: tuple[str, ...] = ()
    plugin_leaves_last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSettings:
    """``spec.rollout``, with its defaults: one node at a time, and no more once one has failed."""

    strategy: Strategy = Strategy.WAVES
    order: Order = Order.NODE_NAME
    canary: Share | None = None
    canary_node_selector: Mapping[str, str] = field(default_factory=dict)
    soak_seconds: float = 0.0
    max_unavailable: Share = Share(1)
    max_failed: Share = Share(0)
    windows: tuple[Window, ...] = ()
    drain: DrainSettings | None = None

    @property
    def has_canary(self) -> bool:
        """Return whether some nodes go first, alone."""
        return bool(self.canary_node_selector) or (self.canary is not None and self.canary.value > 0)
