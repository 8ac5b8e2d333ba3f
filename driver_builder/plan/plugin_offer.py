"""What a plugin offers on a node, as the kubelet or the API server says: resources, or ResourceSlices. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from driver_builder.api.stage_settings import DevicePluginSettings
from driver_builder.model import resource_claim
from driver_builder.objects.plugin import PluginPod
from driver_builder.plan.stage_view import StageView
from driver_builder.snapshot.inventory import Node
from kube_api.text import first_few

_MAX_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Whether a node ``has`` something of what its plugin offers; ``name`` says of what.

    ``is_stale`` says that a plugin before this one may have left it: then ``stale`` are the words for that.
    ``is_used``: pods have all of it, and none can be given.
    """

    has: bool
    name: str
    is_stale: bool
    stale: str
    is_used: bool = False


def offer_of(stages: StageView, node: Node, plugin: DevicePluginSettings, pods: Sequence[PluginPod]) -> Offer:
    """Return what a node has of its plugin, whose ready ``pods`` are there."""
    return _slices(stages, node, plugin.dra.driver, pods) if plugin.dra else _resources(stages, node, plugin, pods)


def _resources(stages: StageView, node: Node, plugin: DevicePluginSettings, pods: Sequence[PluginPod]) -> Offer:
    """Where the plugin says what it offers, one of that counts, also if all of it is in use and none can be given."""
    claim, offered = plugin.claim, stages.offered(node)
    name = first_few(offered, _MAX_NAMED) if offered else resource_claim.words(claim)
    since = max((pod.ready_since for pod in pods if pod.ready_since is not None), default=0.0)
    return Offer(
        has=not node.allocatable.isdisjoint(offered) if offered else resource_claim.covers_any(claim, node.allocatable),
        name=name,
        is_stale=node.reported_at < since,
        stale=f"its kubelet has not reported {name} anew yet",
        is_used=stages.asks_for_users(node) and stages.may_be_used(node),
    )


def _slices(stages: StageView, node: Node, driver: str, pods: Sequence[PluginPod]) -> Offer:
    """A slice without a device offers nothing; one that is older than the pod may be what an earlier one has left.

    The kubelet removes it half a minute after that one went, unless this one has registered.
    """
    found = [item for item in stages.slices.get(node.name, ()) if item.has_devices]
    started = max((pod.started_at for pod in pods if pod.started_at is not None), default=0.0)
    name = f"ResourceSlice of {driver} with a device"
    return Offer(
        has=bool(found),
        name=name,
        is_stale=all(item.created_at < started for item in found),
        stale=f"its {name} is older than its plugin's pod",
    )
