"""What comes next on a node that a driver leaves, after its label and DaemonSet: the unload pod. Pure.

Place in the flow: :mod:`driver_builder.plan.removal` asks for each node. The Node's annotation says what is to be
unloaded and since when; the unload pod reports the result.
"""

from dataclasses import dataclass, replace

from driver_builder.base.retry import Retry
from driver_builder.nodes.changes import Change, PatchNode, RunTask, delete_tasks, patch_node
from driver_builder.nodes.plan_view import DriverView
from driver_builder.objects import loaded
from driver_builder.objects.loaded import Load, Loaded
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.node_record import NodeRecord
from driver_builder.snapshot.snapshot import DriverPod
from driver_builder.tasks import unload_pod
from driver_builder.tasks.node_task import Limits, Next, NodeTask, Wanted, task_step
from driver_builder.tasks.task_kind import State
from driver_builder.tasks.unload_pod import UNLOAD

UNSEEN_SECONDS = 60.0
"""Seconds after which a pod bound to a node and not seen by its kubelet means that the node does not answer."""

_LOOK_SECONDS = 15.0
_RETRY = Retry(10.0, 120.0)

WAITING, IN_USE, STAYS = "waiting", "in_use", "stays"

TERMINATING = "the namespace is being deleted, no pod can run in it"
UNSEEN = "the node does not answer"
POD_STAYS = "its driver pod does not terminate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What comes next on one node; ``state`` is a field of :class:`Unloading`, empty if the driver is gone there."""

    actions: tuple[Change, ...] = ()
    state: str = ""
    words: str = ""
    requeue_at: float | None = None


def pods_on(view: DriverView, node: Node) -> list[DriverPod]:
    """Return the driver's pods on a node, the one that stays last."""
    return list(reversed(view.pods_on(node.name)))


def step(view: DriverView, node: Node) -> Step:  # noqa: PLR0911  # one for each state
    """Return what comes next on a node that is prepared."""
    known, pods = view.on(node).loaded, view.tasks_of(UNLOAD).get(node.name, ())
    if known is None:
        if _is_in_the_way(view, node):
            return Step(state=WAITING)
        return Step(actions=delete_tasks(pods), state=WAITING if pods else "")
    now = known.on_boot(node.boot_id)
    if now != known:
        return _remembering(view, node, now, "it has rebooted")
    if known.given_up == POD_STAYS and not known.loads and not _is_in_the_way(view, node):
        return _remembering(view, node, None, "its driver pod has terminated")
    if known.given_up:
        return Step(actions=delete_tasks(pods), state=STAYS, words=known.given_up)
    if known.loads and view.driver.namespace in view.snapshot.terminating_namespaces:
        return _give_up(view, node, known, TERMINATING)
    deadline = (known.unload_since or 0) + view.settings.unload_deadline_seconds
    if _is_in_the_way(view, node):
        late = view.snapshot.now >= deadline
        return _give_up(view, node, known, POD_STAYS) if late else _wait(view, known, deadline)
    old = [pod for pod in pods if pod.subject not in {load.target for load in known.loads}]
    if old:
        return Step(actions=delete_tasks(old), state=WAITING)
    if not known.loads:
        return _remembering(view, node, None, "nothing is left to unload")
    return _unload(view, node, known, deadline)


def _unload(view: DriverView, node: Node, known: Loaded, deadline: float) -> Step:
    """Unload what was loaded last, with the existing unload pod or a new one."""
    load, now = known.loads[0], view.snapshot.now

    def retry_at(failed: NodeTask) -> float:
        return failed.over_at + _RETRY.by_elapsed(failed.over_at - (known.unload_since or 0))

    limits = Limits(retry_at=retry_at, until=deadline, unseen=UNSEEN_SECONDS)
    tasks = [task for task in view.tasks_of(UNLOAD).get(node.name, ()) if task.subject == load.target]
    found = task_step(tasks, Wanted(subject=load.target), now, limits)
    task = found.task
    if task is None or task.deleting:
        if found.next is Next.GIVE_UP:
            return _give_up(view, node, known, known.held or "no unload pod ran before the deadline")
        return _wait(view, known, deadline, *((start(view, node, load),) if found.next is Next.START else ()))
    if found.next is Next.TAKE:
        left = known.without(load.target)
        return _remembering(view, node, left if left.loads else None, "it is unloaded")
    why = loaded.words(task.message)
    if found.next is Next.GIVE_UP:
        return _give_up(view, node, known, UNSEEN if task.state is State.PENDING else why or known.held)
    if not task.has_ended:
        return _wait(view, known, deadline)
    actions: tuple[Change, ...] = delete_tasks(found.gone)
    if known.held != why:
        actions = (remember(view, node, replace(known, held=why), why), *actions)
    return Step(actions=actions, state=IN_USE, words=why, requeue_at=min(max(found.at or 0.0, now + 1), deadline))


def _wait(view: DriverView, known: Loaded, deadline: float, *actions: Change) -> Step:
    """Look again soon; the previous reason why modules stay is reported until a new one is known."""
    again = min(deadline, view.snapshot.now + _LOOK_SECONDS)
    return Step(actions=actions, state=IN_USE if known.held else WAITING, words=known.held, requeue_at=again)


def start(view: DriverView, node: Node, load: Load) -> RunTask:
    """Make the action that removes a load from a node, except what another driver has there as well."""
    manifest = unload_pod.manifest(
        view.driver.key,
        _without_shared(view, node, load),
        node=node.name,
        boot_id=load.boot_id,
        image=view.settings.loader_image,
        privileges=view.settings.loader_privileges,
        owner=view.driver,
    )
    return RunTask(kind=UNLOAD, driver=view.driver.key, manifest=manifest)


def _without_shared(view: DriverView, node: Node, load: Load) -> Load:
    """Leave the modules that another driver has loaded too, and firmware if that driver has some for them."""
    others = [item for item in _loads_of_others(view, node) if set(_plain(load)) & set(_plain(item))]
    shared = {module for item in others for module in _plain(item)}
    kept = (module for module, key in zip(load.modules, _plain(load), strict=True) if key not in shared)
    return replace(
        load,
        modules=tuple(kept),
        firmware=load.firmware and not any(item.firmware for item in others),
        var_firmware=load.var_firmware and not any(item.var_firmware for item in others),
    )


def _loads_of_others(view: DriverView, node: Node) -> list[Load]:
    """Return what other drivers, which do not leave the node, have loaded there in this boot."""
    own = view.keys.loaded
    texts = [text for key, text in node.annotations.items() if key.startswith(loaded.PREFIX) and key != own]
    known = [item for text in texts if (item := loaded.parse(text)) is not None and item.unload_since is None]
    return [load for item in known for load in item.on_boot(node.boot_id).loads]


def _plain(load: Load) -> list[tuple[str, str]]:
    return [(loaded.plain(name), identity) for name, identity in load.modules]


def _give_up(view: DriverView, node: Node, known: Loaded, why: str) -> Step:
    """Report that the modules stay, once and for this boot."""
    why = loaded.words(why) or "it cannot be unloaded"
    action = remember(view, node, replace(known, given_up=why), f"it stays loaded until the node reboots: {why}")
    return Step(actions=(action,), state=STAYS, words=why)


def _remembering(view: DriverView, node: Node, known: Loaded | None, why: str) -> Step:
    left = None if known is None or not (known.loads or known.given_up or known.unload_since) else known
    return Step(actions=(remember(view, node, left, why),), state=WAITING)


def _is_in_the_way(view: DriverView, node: Node) -> bool:
    """Return whether a driver pod is still on the node, which might load again what an unload pod has removed."""
    return node.name in view.orphans or bool(pods_on(view, node))


def remember(view: DriverView, node: Node, known: Loaded | None, why: str) -> PatchNode:
    """Make the action that records what is known of a node now."""
    return remembering(view.on(node), None if known is None else loaded.render(known), why)


def remembering(on: NodeRecord, text: str | None, why: str) -> PatchNode:
    """Make the action that writes this record on a node, or removes it."""
    return patch_node(on, why, annotations={on.keys.loaded: text}, record=f"what {on.driver} has loaded")
