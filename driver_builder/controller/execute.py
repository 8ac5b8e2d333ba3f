"""Performs the actions of a plan: the only writer. Names are deterministic, so repeating an action changes nothing."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from driver_builder.api.driver_container import FINALIZER
from driver_builder.base.boundary import contained
from driver_builder.base.errors import InternalError
from driver_builder.builds.build_queue import BuildQueue
from driver_builder.controller.evictions import Evictions
from driver_builder.controller.silence import Silence
from driver_builder.nodes.actions import (
    Action,
    ApplyDaemonSet,
    ApplyPlugin,
    CancelBuild,
    DeleteConfigMap,
    DeleteDaemonSet,
    DeletePod,
    DiscoverKernels,
    EvictPod,
    HoldNode,
    LabelNode,
    MakeConfigMap,
    MoveNode,
    PlaceDaemonSet,
    RememberLoaded,
    ReplacePod,
    SetFinalizer,
    StartBuild,
    StartPod,
    TaintNode,
    TakeNode,
    WidenDaemonSet,
)
from driver_builder.objects import manifests, slots
from driver_builder.prebuild.discovery_queue import DiscoveryQueue
from driver_builder.snapshot.node_pods import EvictionRefused
from kube_api import names
from kube_api.client import STRATEGIC_MERGE_PATCH, Object, Writer
from kube_api.errors import Conflict, KubeApiError, NotFound, Unreachable
from kube_api.resources import CONFIG_MAPS, DAEMON_SETS, DRIVER_CONTAINERS, NODES, PODS

_OfDaemonSet = ApplyDaemonSet | WidenDaemonSet | PlaceDaemonSet | DeleteDaemonSet
_Write = _OfDaemonSet | ReplacePod | StartPod | DeletePod | EvictPod | SetFinalizer
_OnNode = LabelNode | MoveNode | RememberLoaded | HoldNode | TaintNode

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAction:
    """An action that the API server did not carry out, and what it answered."""

    action: Action
    error: KubeApiError | InternalError

    def __str__(self) -> str:
        return f"{self.action}: {self.error}"


def batches(
    actions: Iterable[Action], apart: Callable[[Action], str] = lambda _action: ""
) -> tuple[tuple[Action, ...], ...]:
    """Put what is written on one Node together, where the first of it was: it is one request, of whichever drivers.

    ``apart`` names the driver of an action that is written for that driver alone.
    """
    found: dict[object, list[Action]] = {}
    for action in actions:
        place = (action.node, apart(action)) if isinstance(action, _OnNode) else id(action)
        found.setdefault(place, []).append(action)
    return tuple(tuple(batch) for batch in found.values())


def _is_later(action: Action) -> bool:
    """Return whether an action comes after those that remove labels."""
    return not (isinstance(action, LabelNode) and action.version is None)


def _tainted(taints: list[Object], actions: Iterable[HoldNode | TaintNode]) -> list[Object] | None:
    """Return the taints of a Node with or without ours, as asked; None where nothing changes."""
    asked: dict[str, Object | None] = {}
    for action in actions:
        if isinstance(action, TaintNode):
            made = {"key": action.key, "value": names.PENDING, "effect": "NoSchedule"}
            asked[action.key] = made if action.is_wanted else None
        elif action.taint is not None:
            made = {"key": names.UPGRADING_TAINT, "effect": "NoSchedule"}
            asked[names.UPGRADING_TAINT] = made if action.taint else None
    there = {item.get("key") for item in taints}
    changed = {key: taint for key, taint in asked.items() if (taint is not None) is not (key in there)}
    if not changed:
        return None
    others = [item for item in taints if item.get("key") not in changed]
    return [*others, *(taint for taint in changed.values() if taint is not None)]


class Executor:
    """Carries out actions against one cluster and one build queue, until ``is_stopping``.

    ``refused_evictions`` are those that the API server refused, by the uid of the pod: the next reconcile reads them.
    """

    def __init__(
        self,
        client: Writer,
        builds: BuildQueue,
        discoveries: DiscoveryQueue | None = None,
        *,
        is_stopping: Callable[[], bool] = lambda: False,
        refused_evictions: dict[str, EvictionRefused] | None = None,
    ) -> None:
        self._client = client
        self._evictions = Evictions(client, {} if refused_evictions is None else refused_evictions)
        self._builds = builds
        self._discoveries = discoveries
        self._is_stopping = is_stopping
        self._silence = Silence()

    def perform(
        self, actions: tuple[Action, ...], owner_of: Callable[[Action], str] = lambda _action: ""
    ) -> tuple[FailedAction, ...]:
        """Perform each action; one that fails does not stop the others. Returns those that failed.

        An action without an answer ends those of its driver, which ``owner_of`` names; the next time they come last. At
        the second driver without an answer the rest is left to the next reconcile, because each action would wait as
        long. The same holds when the controller is to stop, because another one may act already.

        A pod is replaced after the label that its node loses is removed, and after its node is locked. Where the label
        was not written for now the pod stays: it may be the only evidence. So it does where the lock was not taken.
        """
        failed: list[FailedAction] = []
        unwritten: set[tuple[str, str]] = set()
        strikes = self._silence.begin()
        ordered = self._silence.last(sorted(actions, key=_is_later), owner_of)
        for batch in batches(ordered, self._apart(owner_of)):
            waiting = tuple(
                action
                for action in batch
                if owner_of(action) not in strikes.unanswered
                and not (isinstance(action, TakeNode | EvictPod) and (owner_of(action), action.node) in unwritten)
            )
            if not waiting:
                continue
            if self._is_stopping():
                break
            outcomes = self._outcomes(waiting)
            for action, error in outcomes:
                if isinstance(action, HoldNode) and error is not None:
                    unwritten.add((owner_of(action), action.node))
                if error is not None and not isinstance(error, Conflict | NotFound):
                    failed.append(FailedAction(action=action, error=error))
                    logger.warning("%s", failed[-1])
                    if isinstance(action, LabelNode) and isinstance(error, KubeApiError) and error.is_temporary:
                        unwritten.add((owner_of(action), action.node))
            strikes.saw(None, *(owner_of(action) for action, error in outcomes if not isinstance(error, Unreachable)))
            silent = {owner_of(action): error for action, error in outcomes if isinstance(error, Unreachable)}
            if silent:
                strikes.saw(next(iter(silent.values())), *silent)
            if strikes.is_out:
                break
        return tuple(failed)

    def _apart(self, owner_of: Callable[[Action], str]) -> Callable[[Action], str]:
        """Return a function that names the driver of an action if what it writes may get no answer again."""

        def apart(action: Action) -> str:
            owner = owner_of(action)
            return owner if self._silence.is_silent(owner) else ""

        return apart

    def _outcomes(self, batch: tuple[Action, ...]) -> list[tuple[Action, KubeApiError | InternalError | None]]:
        """Perform a batch; one that is refused is tried action by action: one driver's mistake stops no other's."""
        error = contained("action", str(batch[0]), partial(self._try, batch), lambda error: error)
        # Of a lock that was lost: what else is written on the Node does not depend on it.
        is_temporary = isinstance(error, KubeApiError) and error.is_temporary and not isinstance(error, Conflict)
        if error is None or is_temporary or len(batch) == 1:
            return [(action, error) for action in batch]
        outcomes: list[tuple[Action, KubeApiError | InternalError | None]] = []
        locked_out: set[str] = set()
        for action in sorted(batch, key=lambda item: not isinstance(item, HoldNode)):
            if isinstance(action, MoveNode) and action.driver in locked_out:
                continue
            found = contained("action", str(action), partial(self._try, (action,)), lambda error: error)
            outcomes.append((action, found))
            if isinstance(action, HoldNode) and found is not None:
                locked_out.add(action.driver)
        return outcomes

    def _try(self, batch: tuple[Action, ...]) -> KubeApiError | InternalError | None:
        """Perform actions that are one write; returns the API server's error, if there is one."""
        try:
            self._perform(batch)
        except (NotFound, Conflict) as error:
            # The cluster changed since the snapshot; the next reconcile sees it.
            logger.info("%s: conflict: %s", batch[0], error)
            return error if any(isinstance(action, HoldNode | TaintNode) for action in batch) else None
        except KubeApiError as error:
            return error
        return None

    def _perform(self, batch: tuple[Action, ...]) -> None:
        for action in batch:
            if not isinstance(action, StartBuild):
                logger.info("%s", action)
        action = batch[0]
        match action:
            case StartBuild():
                self._builds.submit(action)
            case CancelBuild():
                self._builds.cancel(action.key)
            case DiscoverKernels():
                if self._discoveries is not None:
                    self._discoveries.submit(action)
            case LabelNode() | MoveNode() | RememberLoaded() | HoldNode() | TaintNode():
                self._patch_node(action.node, batch)
            case MakeConfigMap():
                self._client.create(CONFIG_MAPS.path(namespace=action.namespace), action.manifest)
            case DeleteConfigMap():
                self._client.delete(CONFIG_MAPS.path(namespace=action.namespace, name=action.name), uid=action.uid)
            case _:
                self._write(action)

    def _patch_node(self, node: str, actions: Iterable[Action]) -> None:
        """Write all labels and annotations of a Node at once."""
        # A merge patch, not an apply: a forged ready label has another owner and must go all the same.
        labels: dict[str, str | None] = {}
        annotations: dict[str, str | None] = {}
        holds: list[HoldNode | TaintNode] = []
        for action in actions:
            if isinstance(action, LabelNode):
                labels[action.label] = action.version
                annotations |= action.annotations
            elif isinstance(action, MoveNode):
                labels |= {action.label: action.value, **({action.lets_in: None} if action.lets_in else {})}
            elif isinstance(action, RememberLoaded):
                annotations[action.annotation] = action.value
            elif isinstance(action, HoldNode):
                holds.append(action)
                labels |= action.labels
                annotations |= action.annotations
            elif isinstance(action, TaintNode):
                holds.append(action)
                annotations[action.annotation] = action.boot_id
        metadata = {name: values for name, values in (("labels", labels), ("annotations", annotations)) if values}
        self._client.patch(NODES.path(name=node), self._held(holds, metadata) if holds else {"metadata": metadata})

    def _held(self, holds: Iterable[HoldNode | TaintNode], metadata: Object) -> Object:
        """Return a patch that is refused where the Node is another one than these actions expect.

        Raises:
            NotFound: the Node is gone.
            Conflict: somebody else has its lock now.
        """
        (first, *_) = holds = list(holds)
        node = self._node(first.node)
        known: Object = node["metadata"]
        taints = _tainted((node.get("spec") or {}).get("taints") or [], holds)
        lock = (known.get("annotations") or {}).get(names.LOCK_ANNOTATION)
        if any(hold.seen != lock for hold in holds if isinstance(hold, HoldNode)):
            raise Conflict(f"the lock of Node {first.node} is {lock!r} now", status=409)
        patch: Object = {"metadata": {**metadata, "resourceVersion": known["resourceVersion"]}}
        return patch if taints is None else {**patch, "spec": {"taints": taints or None}}

    def _node(self, name: str) -> Object:
        """Read a Node as it is now.

        Raises:
            NotFound: it is gone.
        """
        # By a list: to read a single Node would need another permission.
        found = self._client.list(NODES.path(), field_selector=f"metadata.name={name}").items
        if not found:
            raise NotFound(f"Node {name} is gone", status=404)
        return found[0]

    def _evict(self, action: EvictPod) -> None:
        """Evict a pod, if its Node still says what it said.

        Raises:
            Conflict: it says something else, such as that who asked for the eviction has given the node back.
        """
        if action.seen:
            known = self._node(action.node)["metadata"].get("annotations") or {}
            changed = [key for key, value in action.seen.items() if known.get(key) != value]
            if changed:
                raise Conflict(f"annotation {changed[0]} of Node {action.node} is another one now", status=409)
        self._evictions.evict(action)

    def _write(self, action: _Write) -> None:
        match action:
            case ApplyDaemonSet():
                self._apply(action)
            case WidenDaemonSet():
                selector = {"nodeSelector": {names.OS_VERSION_LABEL: None}}
                recorded = {manifests.OS_VERSION_ANNOTATION: action.os_version}
                body: Object = {
                    # The uid makes a conflict of a younger DaemonSet of the same name.
                    "metadata": {"uid": action.uid, "annotations": recorded},
                    "spec": {"template": {"spec": selector}},
                }
                self._client.patch(DAEMON_SETS.path(namespace=action.namespace, name=action.name), body)
            case PlaceDaemonSet():
                spec: Object = {"affinity": slots.affinity(action.label, action.named, action.place, action.yields)}
                if action.node_selector:
                    spec["nodeSelector"] = dict(action.node_selector)
                if action.tolerations is not None:
                    spec["tolerations"] = list(action.tolerations)
                if action.sees_programs is not None:
                    spec["hostPID"] = action.sees_programs or None
                body = {"metadata": {"uid": action.uid}, "spec": {"template": {"spec": spec}}}
                self._client.patch(DAEMON_SETS.path(namespace=action.namespace, name=action.name), body)
            case DeleteDaemonSet():
                path = DAEMON_SETS.path(namespace=action.namespace, name=action.name)
                self._client.delete(path, uid=action.uid)
            case ReplacePod() | DeletePod():
                self._client.delete(PODS.path(namespace=action.namespace, name=action.name), uid=action.uid)
            case EvictPod():
                self._evict(action)
            case StartPod():
                path = PODS.path(namespace=action.manifest["metadata"]["namespace"])
                self._client.create(path, action.manifest)
            case SetFinalizer():
                self._set_finalizer(action)
            case _ as never:
                assert_never(never)

    def _apply(self, action: ApplyDaemonSet) -> None:
        path = DAEMON_SETS.path(namespace=action.namespace, name=action.name)
        if action.hooks:
            # An apply leaves an empty hook of one that it takes away, which the API server refuses.
            pod = {"containers": [{"name": name, "lifecycle": None} for name in action.hooks]}
            self._client.patch(path, {"spec": {"template": {"spec": pod}}}, content_type=STRATEGIC_MERGE_PATCH)
        if isinstance(action, ApplyPlugin):
            self._apply_plugin(path, action)
        else:
            self._client.apply(path, action.manifest, field_manager=manifests.FIELD_MANAGER)

    def _apply_plugin(self, path: str, action: ApplyPlugin) -> None:
        if not action.uid:
            # Without force: the fields of a DaemonSet that somebody else has just made are a conflict.
            self._client.apply(path, action.manifest, field_manager=manifests.FIELD_MANAGER, force=False)
            return
        if action.undo:
            self._client.patch(path, action.undo)
        body = {**action.manifest, "metadata": {**action.manifest["metadata"], "uid": action.uid}}
        self._client.apply(path, body, field_manager=manifests.FIELD_MANAGER)

    def _set_finalizer(self, action: SetFinalizer) -> None:
        path = DRIVER_CONTAINERS.path(namespace=action.namespace, name=action.name)
        metadata = self._client.get(path)["metadata"]
        finalizers = [item for item in metadata.get("finalizers") or [] if item != FINALIZER]
        if action.present:
            finalizers.append(FINALIZER)
        # With the resourceVersion, because the list is shared with other controllers.
        version = metadata["resourceVersion"]
        self._client.patch(path, {"metadata": {"finalizers": finalizers, "resourceVersion": version}})
