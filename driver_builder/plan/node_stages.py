"""What the labels of stages are to say of one node, by what its driver, plugin and kubelet prove. Pure.

While the same modules are live, a pod that is replaced and an answer that is missing move no label. Contrary evidence
does: the ready label goes, a plugin that runs has no resource on the node, or its validation fails.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from driver_builder.api.stage_settings import DevicePluginSettings
from driver_builder.base.reasons import Reason
from driver_builder.model import resource_claim
from driver_builder.nodes.changes import Change, PatchNode, patch_node
from driver_builder.nodes.evidence import ValidationState
from driver_builder.objects.plugin import PluginPod
from driver_builder.objects.stage_labels import TRUE, Stage
from driver_builder.plan import plugin_validation
from driver_builder.plan.partitioning import partitioned_until
from driver_builder.plan.plugin_offer import Offer, offer_of
from driver_builder.plan.stage_view import StageView, read_time
from driver_builder.snapshot.inventory import Node
from driver_builder.targets import resource_conflicts
from driver_builder.tasks.node_task import Next

REGISTER_SECONDS = 60.0
"""So long after its plugin started a node may be without the resource, or with that of an earlier plugin: the kubelet
reports a change within ten seconds, and removes slices of a plugin that is gone within half a minute."""

MISSING_SECONDS = 60.0
"""So long a resource may be missing that was there: a kubelet that starts reports none until its plugins are back."""

NO_LABELS: Mapping[Stage, bool] = dict.fromkeys(Stage, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of a driver on a node: it ``is_valid`` there, and ``works`` if a pod proves it now.

    ``leaves`` says that it is not to come back.
    """

    is_valid: bool = False
    works: bool = False
    leaves: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStages:
    """What the labels are to say, what is done besides, and why the last stage is not reached; with a reason if wrong.

    ``starts`` is the subject of a validation of the plugin that is next, ``missing_since`` when the kubelet was found
    to have none of the resource, though it had.
    """

    labels: Mapping[Stage, bool]
    actions: tuple[Change, ...] = ()
    why: str = ""
    reason: Reason | None = None
    starts: str = ""
    missing_since: str | None = None
    due_at: float | None = None
    leaves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plugin:
    is_there: bool
    why: str = ""
    reason: Reason | None = None
    due_at: float | None = None
    missing_since: str | None = None
    is_held: bool = False


def of_node(stages: StageView, node: Node, standing: Standing) -> NodeStages:
    """Decide on one node.

    Where another driver keeps the resource nothing of the stages comes. A kubelet that has had both plugins is left as
    it is: which of them registered last is not known.
    """
    kept = _kept(stages, node) if standing.is_valid else ""
    if kept and not (stages.has_label(node, Stage.PLUG) and _has_offered(stages)):
        return NodeStages(
            labels={**NO_LABELS, Stage.VALID: True},
            actions=plugin_validation.forget(stages, node, kept),
            why=kept,
            reason=Reason.RESOURCE_CONFLICT,
            leaves=True,
        )
    found = _decide(stages, node, standing)
    return replace(found, why=kept, reason=Reason.RESOURCE_CONFLICT) if kept and found.reason is None else found


def _has_offered(stages: StageView) -> bool:
    """Return whether the plugin that is there may have offered the resource that is wanted."""
    known, settings = stages.plugin_set, stages.settings
    claim = settings.device_plugin.claim if settings and settings.device_plugin else ""
    return known is None or not known.resource or resource_claim.overlap(known.resource, claim)


def _kept(stages: StageView, node: Node) -> str:
    """Say which other driver keeps the resource on a node; empty where there is none."""
    other = stages.kept.get(node.name)
    offered = stages.settings.device_plugin if stages.settings is not None else None
    if other is None or offered is None:
        return ""
    return resource_conflicts.words(stages.driver.key, other, offered.claim)


def _decide(stages: StageView, node: Node, standing: Standing) -> NodeStages:
    settings = stages.settings
    if settings is None or not standing.is_valid:
        why = standing.why or "the driver is not proven there"
        actions = plugin_validation.forget(stages, node, why)
        return NodeStages(labels=NO_LABELS, actions=actions, why=why, leaves=standing.leaves or settings is None)
    runs = stages.has_label(node, Stage.RUN) or standing.works
    labels = {**NO_LABELS, Stage.VALID: True, Stage.RUN: runs}
    if settings.device_plugin is None or not runs:
        actions = plugin_validation.forget(stages, node, "it has no device plugin")
        return NodeStages(labels=labels, actions=actions, why="" if runs else standing.why)
    plugin = _partitioned(stages, node, _plugin(stages, node, settings.device_plugin))
    labels[Stage.PLUG] = plugin.is_there
    if settings.plugin_validation is None or not plugin.is_there:
        keeps_record = settings.plugin_validation is not None
        actions = stages.delete(node.name) if keeps_record else plugin_validation.forget(stages, node, "not validated")
        return NodeStages(labels=labels, actions=actions, why=plugin.why, reason=plugin.reason, due_at=plugin.due_at,
                          missing_since=plugin.missing_since)  # fmt: skip
    found = plugin_validation.of_node(stages, node)
    if found is None:
        return NodeStages(labels=labels, why="its record of what is loaded is missing", due_at=plugin.due_at,
                          missing_since=plugin.missing_since)  # fmt: skip
    is_known = found.state is not ValidationState.UNDECIDED
    was = stages.has_label(node, Stage.PLGOK)
    labels[Stage.PLGOK] = found.state is ValidationState.VALIDATED if is_known else was
    # The pod is for a plugin that a label has said is there: it would wait for it otherwise.
    has_resource = plugin.missing_since is None and not plugin.is_held
    may_start = found.step.next is Next.START and stages.has_label(node, Stage.PLUG) and has_resource
    times = [time for time in (plugin.due_at, found.step.at) if time is not None]
    return NodeStages(
        labels=labels,
        actions=plugin_validation.record_on(stages, node).go_on(found, "its pod ended"),
        why=found.why or plugin.why,
        missing_since=plugin.missing_since,
        reason=Reason.PLUGIN_VALIDATION_FAILED if found.state is ValidationState.FAILED else plugin.reason,
        starts=found.record.subject if may_start else "",
        due_at=min(times, default=None),
    )


def _partitioned(stages: StageView, node: Node, found: _Plugin) -> _Plugin:
    """Let the label stay while the device agent of a node partitions its GPUs.

    What is missing then counts as missing from the end of that.
    """
    is_there = found.is_there and found.missing_since is None
    until = partitioned_until(node, stages.now) if stages.has_label(node, Stage.PLUG) and not is_there else None
    if until is None:
        return found
    return _Plugin(is_there=True, why=f"its GPUs are being partitioned: {found.why}", due_at=until, is_held=True)


def _plugin(stages: StageView, node: Node, settings: DevicePluginSettings) -> _Plugin:
    """Return whether the plugin is ready on a node, and the node has something of what it offers."""
    was, daemon_set = stages.has_label(node, Stage.PLUG), stages.plugin_set
    pods = [
        pod
        for pod in stages.pods.get(node.name, ())
        if daemon_set is not None and pod.owner == daemon_set.uid and not pod.deleting
    ]
    ready = [pod for pod in pods if pod.ready_since is not None]
    offer = offer_of(stages, node, settings, ready)
    trouble = next((pod.message for pod in pods if pod.message), "") if not ready else ""
    if trouble:
        is_there = was and (offer.has or offer.is_used or stages.slices_unread is not None)
        return _Plugin(is_there=is_there, why=trouble, reason=Reason.DEVICE_PLUGIN_FAILED)
    if (unread := stages.slices_unread) is not None:
        # Nobody knows what its DRA driver offers: it is what it was.
        reason = Reason.DRA_NOT_SERVED if unread.is_unserved else Reason.RESOURCE_SLICES_NOT_READ
        return _Plugin(is_there=was, why=unread.message, reason=reason)
    return _registered(stages, node, offer, ready, was=was)


def _registered(stages: StageView, node: Node, offer: Offer, ready: Sequence[PluginPod], *, was: bool) -> _Plugin:
    """Return whether a plugin that is not in trouble offers something; ``ready`` are its pods that are."""
    if was and (offer.has or offer.is_used):
        # That its pods end is seen as they are listed again, with each observation.
        return _Plugin(is_there=True, why="" if offer.has else f"it has no {offer.name} to give, and pods use it")
    if not ready:
        return _Plugin(is_there=was, why="its device plugin is not ready yet")
    since = max(pod.ready_since or 0.0 for pod in ready)
    late = since + REGISTER_SECONDS
    is_early = since <= stages.now < late
    # What was there before is of the plugin that was there before this one.
    if offer.has and not (is_early and offer.is_stale):
        return _Plugin(is_there=True)
    if is_early:
        return _Plugin(is_there=was, why=offer.stale if offer.has else f"it has no {offer.name} yet", due_at=late)
    return _without_resource(stages, node, offer.name, was=was)


def _without_resource(stages: StageView, node: Node, resource: str, *, was: bool) -> _Plugin:
    """Return what a node is whose plugin runs, and whose kubelet has none of the resource."""
    missing = _Plugin(is_there=False, why=f"it has no {resource}", reason=Reason.RESOURCE_MISSING)
    if not was:
        return missing
    since = read_time(stages.on(node).record(Stage.PLUG))
    # A time that has not come yet is of another clock.
    since = stages.now if since is None or since > stages.now else since
    if stages.now >= since + MISSING_SECONDS:
        return missing
    why = f"it has no {resource} at the moment"
    return _Plugin(is_there=True, why=why, due_at=since + MISSING_SECONDS, missing_since=str(int(since)))


def labels_of(stages: StageView, node: Node, found: NodeStages) -> tuple[PatchNode, ...]:
    """Bring the labels of a node to what they are to say."""
    made: list[PatchNode] = []
    for stage, is_wanted in found.labels.items():
        key = stages.labels[stage]
        annotations = _annotations(stages, node, found, stage)
        if is_wanted is not stages.has_label(node, stage) or annotations:
            why = found.why or ("" if is_wanted else "the stage before it is not there")
            label = {key: TRUE if is_wanted else None}
            made.append(patch_node(stages.on(node), why, labels=label, annotations=annotations))
    return tuple(made)


def _annotations(stages: StageView, node: Node, found: NodeStages, stage: Stage) -> dict[str, str | None]:
    """Return what changes of the record that stands beside a label."""
    if stage is Stage.RUN:
        return _run_record(stages, node, found)
    key = stages.labels[Stage.PLUG]
    is_changed = stage is Stage.PLUG and stages.on(node).record(stage) != found.missing_since
    return {key: found.missing_since} if is_changed else {}


def _run_record(stages: StageView, node: Node, found: NodeStages) -> dict[str, str | None]:
    """Record since when nothing may run on a node, until something may again, or the driver is gone."""
    key, is_recorded = stages.labels[Stage.RUN], stages.on(node).record(Stage.RUN) is not None
    if found.labels[Stage.RUN]:
        return {key: None} if is_recorded else {}
    is_used = stages.has_label(node, Stage.RUN) or bool(stages.users(node.name))
    if not is_recorded:
        return {key: str(int(stages.now))} if is_used else {}
    return {key: None} if found.leaves and not is_used else {}
