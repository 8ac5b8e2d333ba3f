"""The stages of one driver: objects of its plugin, labels of nodes, validations, and what the status says. Pure.

Place in the flow: ``plan`` adds this once every target of the driver is decided; nodes from which the driver is taken
are found later, for all drivers together (:mod:`driver_builder.plan.leave`).
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from itertools import islice

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.stage_settings import StageSettings
from driver_builder.api.stage_status import StageStatus
from driver_builder.api.status import MAX_LISTED, Trouble
from driver_builder.base.reasons import Reason
from driver_builder.nodes.changes import ApplyObject, Change, DeleteObject, PatchNode, delete_daemon_set, sets_label
from driver_builder.nodes.evidence import NodeEvidence
from driver_builder.nodes.plan_view import DriverView
from driver_builder.objects import plugin
from driver_builder.objects.plugin import PluginConfig
from driver_builder.objects.stage_labels import Stage
from driver_builder.plan import node_stages, plugin_validation
from driver_builder.plan.blocked_plugin import blocked
from driver_builder.plan.node_stages import NodeStages, Standing
from driver_builder.plan.plugin_account import NO_ACCOUNT, PluginAccount, plugin_account
from driver_builder.plan.stage_view import LOOK_SECONDS, StageView
from driver_builder.snapshot.inventory import Node
from driver_builder.targets import permissions
from driver_builder.tasks.validation_pod import PLUGIN_VALIDATION
from kube_api.resources import CONFIG_MAPS, DAEMON_SETS
from kube_api.text import first_few


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Changes for now, what the status says, and when to look again."""

    actions: tuple[Change, ...] = ()
    status: StageStatus | None = None
    requeue_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Objects:
    """What is done to the objects of the plugin, and what is wrong with them, or with what the pods may have."""

    actions: tuple[Change, ...] = ()
    trouble: Trouble | None = None
    account: PluginAccount = NO_ACCOUNT


def plan_stages(
    view: DriverView,
    spec: DriverSpec,
    known: Mapping[str, NodeEvidence],
    relabelled: Iterable[Change],
    leaving: Set[str],
) -> Staged:
    """Decide on all nodes of a driver.

    ``known`` is the evidence of those that are not ordinary, ``relabelled`` what becomes of ready labels; the driver
    is ``leaving`` some.
    """
    stages = StageView.of(view.snapshot, view.driver, view.resource_kept)
    objects = _objects(stages, view, spec)
    if stages.settings is None:
        left = [node for node in view.others if stages.has_traces(node) or node.name in stages.validations]
        every = {node.name: node_stages.of_node(stages, node, Standing(why="it has no stages")) for node in left}
        return Staged(actions=(*objects.actions, *_on_nodes(stages, view, every)))
    label = view.keys.ready
    ready = {action.node: action.labels[label] for action in relabelled if sets_label(action, label)}
    every = _look(stages, view, known, ready, leaving)
    is_allowed = not permissions.of_stages(spec, view.settings.template_versions.permissions)
    starting = _starts(stages, view, every) if is_allowed else ()
    waits = any(item.starts for item in every.values())
    times = [item.due_at for item in every.values() if item.due_at is not None]
    times += [stages.now + LOOK_SECONDS] if waits and is_allowed else []
    return Staged(
        # First the labels: on a node that another driver keeps they stand for what the plugin has offered before.
        actions=(*_on_nodes(stages, view, every), *objects.actions, *starting),
        status=_status(stages, stages.settings, view, every, objects),
        requeue_at=min(times, default=None),
    )


def _look(
    stages: StageView,
    view: DriverView,
    known: Mapping[str, NodeEvidence],
    ready: Mapping[str, str | None],
    leaving: Set[str],
) -> dict[str, NodeStages]:
    """Decide on the nodes that are not settled, in the order of their names."""
    settled, others = view.settled, {node.name for node in view.others}
    uid = stages.plugin_set.uid if stages.plugin_set is not None else None
    face = (stages.settings, uid, stages.is_answering, stages.slices_unread)
    names = settled.begin(face, view.nodes, stages.pods, stages.validations, stages.kept, stages.slices)
    names |= ready.keys() | leaving | (settled.done & others)
    every: dict[str, NodeStages] = {}
    done, without = [], []
    for name in sorted(names & view.nodes.keys()):
        node = view.nodes[name]
        standing = _standing(view, node, known.get(name), ready, leaving, is_ordinary=name not in others)
        if not (standing.is_valid or stages.has_traces(node) or name in stages.validations):
            without.append(name)
            continue
        found = every[name] = node_stages.of_node(stages, node, standing)
        if name not in others and _is_done(stages, node, found):
            done.append(name)
    settled.end(names, done, without)
    return every


def _is_done(stages: StageView, node: Node, found: NodeStages) -> bool:
    """Return whether a node has every stage, and nothing is to be done or waited for."""
    is_settled = not (found.actions or found.reason or found.starts or found.why) and found.due_at is None
    has_all = stages.settings is not None and found.labels[_last(stages.settings)]
    return is_settled and has_all and not node_stages.labels_of(stages, node, found)


def remove(view: DriverView) -> tuple[Change, ...]:
    """Take labels, pods and objects of the stages away: the driver is being deleted."""
    stages = StageView.of(view.snapshot, view.driver)
    gone = Standing(why="the driver leaves the node")
    left = [node for node in view.nodes.values() if stages.has_traces(node) or node.name in stages.validations]
    every = {node.name: node_stages.of_node(replace(stages, settings=None), node, gone) for node in left}
    return (*_gone(stages, view), *_on_nodes(stages, view, every))


def unlabel(view: DriverView, ready: Iterable[PatchNode]) -> tuple[PatchNode, ...]:
    """Remove the labels of the stages where a ready label goes, though nothing else is decided for the driver."""
    stages = StageView.of(view.snapshot, view.driver)
    return tuple(
        made
        for action in ready
        for made in node_stages.labels_of(
            stages, view.nodes[action.node], NodeStages(labels=node_stages.NO_LABELS, why=action.why)
        )
    )


def _standing(
    view: DriverView,
    node: Node,
    found: NodeEvidence | None,
    ready: Mapping[str, str | None],
    leaving: Set[str],
    *,
    is_ordinary: bool,
) -> Standing:
    version = ready.get(node.name, view.on(node).ready)
    if node.name in leaving:
        return Standing(leaves=True, why="the driver leaves the node")
    works = is_ordinary or (found is not None and found.works)
    return Standing(is_valid=version is not None, works=works, why=found.why if found is not None else "")


def _objects(stages: StageView, view: DriverView, spec: DriverSpec) -> _Objects:
    """Bring DaemonSet and ConfigMap of the plugin to what is wanted."""
    settings = stages.settings.device_plugin if stages.settings is not None else None
    if settings is None:
        return _Objects(actions=_gone(stages, view))
    known, stray = stages.plugin_set, view.snapshot.plugin_strays.get(view.driver.key)
    account = plugin_account(view, known)
    if (found := blocked(stages, view, spec, settings, account)) is not None:
        return _Objects(trouble=found)
    name, config = plugin.name_of(view.driver), view.snapshot.plugin_configs.get(view.driver.key)
    actions: list[Change] = []
    is_same = config is not None and config.digest == plugin.config_digest(plugin.config_text(settings))
    if config is not None and not (settings.is_of_agent and is_same):
        # Made anew by the next reconcile: no right to change ConfigMaps is needed.
        actions.append(_delete_config(view, config))
    if config is None and settings.is_of_agent:
        actions.append(
            ApplyObject(
                resource=CONFIG_MAPS,
                namespace=view.driver.namespace,
                name=name,
                manifest=plugin.config_map(view.driver, settings),
                created=True,
                why=f"configure the device plugin of {view.driver.key}",
            )
        )
    manifest = plugin.daemon_set(
        view.driver, spec, settings, agent_image=view.settings.device_agent_image, has_token=account.has_token
    )
    manifest = manifest if known is None else plugin.replacing(known, manifest)
    if known is None or not plugin.is_as_wanted(known, manifest):
        uid = known.uid if known is not None else stray.uid if stray is not None else ""
        has_additions = known is not None and plugin.has_additions(known, manifest)
        actions.append(
            ApplyObject(
                resource=DAEMON_SETS,
                namespace=view.driver.namespace,
                name=name,
                manifest=manifest,
                undo=plugin.without_additions(known, manifest) if known is not None and has_additions else {},
                uid=uid,
                # The fields of a DaemonSet that somebody else has just made are a conflict.
                force=bool(uid),
                why=f"roll out the device plugin of {view.driver.key}",
            )
        )
    return _Objects(actions=tuple(actions), account=account)


def _gone(stages: StageView, view: DriverView) -> tuple[Change, ...]:
    """Delete the objects of the plugin; first the ConfigMap, which is looked for while there is a DaemonSet."""
    known, config = stages.plugin_set, view.snapshot.plugin_configs.get(view.driver.key)
    actions: list[Change] = []
    if config is not None and config.is_own:
        actions.append(_delete_config(view, config))
    if known is not None:
        actions.append(delete_daemon_set(known))
    return tuple(actions)


def _delete_config(view: DriverView, config: PluginConfig) -> DeleteObject:
    return DeleteObject(
        resource=CONFIG_MAPS,
        namespace=view.driver.namespace,
        name=plugin.name_of(view.driver),
        uid=config.uid,
        why="the device plugin has none, or another one",
    )


def _on_nodes(stages: StageView, view: DriverView, every: Mapping[str, NodeStages]) -> tuple[Change, ...]:
    return tuple(
        action
        for name, found in every.items()
        for action in (*node_stages.labels_of(stages, view.nodes[name], found), *found.actions)
    )


def _starts(stages: StageView, view: DriverView, every: Mapping[str, NodeStages]) -> tuple[Change, ...]:
    """Start the validations that are next, within their limit."""
    users = view.snapshot.resource_users
    due = [name for name, found in every.items() if found.starts and name in users]
    made: list[Change] = []
    for name in islice(due, view.room(PLUGIN_VALIDATION)):
        made += plugin_validation.start(stages, view.nodes[name], every[name].starts, users)
    return tuple(made)


def _status(
    stages: StageView, settings: StageSettings, view: DriverView, every: Mapping[str, NodeStages], objects: _Objects
) -> StageStatus:
    last, rest = _last(settings), [view.nodes[name] for name in every if name not in view.settled.done]
    settled = len(view.settled.done)
    counts = {stage: settled * (stage in _until(last)) + sum(stages.has_label(node, stage) for node in rest)
              for stage in Stage}  # fmt: skip
    made = StageStatus(
        valid=counts[Stage.VALID], run=counts[Stage.RUN], plug=counts[Stage.PLUG], plgok=counts[Stage.PLGOK]
    )
    if (trouble := objects.trouble) is not None:
        return replace(made, reason=trouble.reason, message=trouble.message)
    wrong = {name: found for name, found in every.items() if found.reason is not None}
    if wrong:
        first = next(iter(wrong.values()))
        same = [name for name, found in wrong.items() if found.reason is first.reason]
        words = f"{first_few(same, MAX_LISTED)}: {first.why.removeprefix(f'{first.reason}: ')}"
        return replace(made, reason=first.reason or Reason.WAITING_FOR_STAGE, message=words)
    if (trouble := objects.account.trouble) is not None:
        return replace(made, reason=trouble.reason, message=trouble.message)
    valid = [node.name for node in rest if every[node.name].labels[Stage.VALID]]
    late = [name for name in valid if not (every[name].labels[last] and stages.has_label(view.nodes[name], last))]
    count = settled + len(valid)
    words = f"{count - len(late)} of {count} nodes with the driver have label {stages.labels[last]}"
    if not late:
        return replace(made, message=words)
    why = f"; {late[0]}: {every[late[0]].why}" if every[late[0]].why else ""
    return replace(made, reason=Reason.WAITING_FOR_STAGE, message=words + why)


def _until(last: Stage) -> tuple[Stage, ...]:
    """Return the stages up to the last one."""
    order = tuple(Stage)
    return order[: order.index(last) + 1]


def _last(settings: StageSettings) -> Stage:
    if settings.plugin_validation is not None:
        return Stage.PLGOK
    return Stage.PLUG if settings.device_plugin is not None else Stage.RUN
