"""Makes the changes of a plan: the only writer. Names are deterministic, so repeating a change changes nothing."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeGuard, assert_never

from driver_builder.base.boundary import contained
from driver_builder.base.errors import InternalError
from driver_builder.builds.build_queue import BuildQueue
from driver_builder.controller.evictions import Evictions
from driver_builder.controller.silence import Silence
from driver_builder.nodes.changes import (
    ApplyObject,
    CancelBuild,
    Change,
    DeleteObject,
    DiscoverKernels,
    EvictPod,
    PatchNode,
    PatchObject,
    RunTask,
    StartBuild,
    batches,
)
from driver_builder.objects import manifests
from driver_builder.prebuild.discovery_queue import DiscoveryQueue
from driver_builder.snapshot.node_pods import EvictionRefused
from kube_api.client import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Object, Writer
from kube_api.errors import Conflict, KubeApiError, NotFound, Unreachable
from kube_api.resources import NODES, PODS

Unwritten = KubeApiError | InternalError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedChange:
    """A change that the API server did not make, whose it is, and what it answered."""

    change: Change
    owner: str = ""
    error: Unwritten

    def __str__(self) -> str:
        return f"{self.change}: {self.error}"


_Outcome = tuple[Change, str, Unwritten | None]
"""A change with its owner and the error."""


def _is_later(change: Change) -> bool:
    """Return whether a change comes after those that remove labels."""
    return not (_is_label(change) and None in change.labels.values())


def _is_label(change: Change) -> TypeGuard[PatchNode]:
    """Return whether a change says by a label what is known of a node: nothing locks the node for it."""
    return isinstance(change, PatchNode) and bool(change.labels) and not (change.seen or change.takes)


def _split(batch: tuple[Change, ...]) -> list[tuple[Change, ...]]:
    """Split what is written on a Node: by drivers, or one by one where it is one driver's; what has a lock first."""
    by_driver: dict[str, tuple[Change, ...]] = {}
    for change in batch:
        driver = change.driver if isinstance(change, PatchNode) else ""
        by_driver[driver] = (*by_driver.get(driver, ()), change)
    parts = [*by_driver.values()] if len(by_driver) > 1 else [(change,) for change in batch]
    return sorted(parts, key=lambda part: not any(map(_is_lock, part)))


def _tainted(taints: list[Object], patches: Iterable[PatchNode]) -> list[Object] | None:
    """Return the taints of a Node with or without ours, as asked; None where nothing changes."""
    asked = {key: taint for patch in patches for key, taint in patch.taints.items()}
    there = {item.get("key") for item in taints}
    changed = {key: taint for key, taint in asked.items() if (taint is not None) is not (key in there)}
    if not changed:
        return None
    others = [item for item in taints if item.get("key") not in changed]
    return [*others, *(taint for taint in changed.values() if taint is not None)]


class Executor:
    """Makes changes in one cluster and one build queue, until ``is_stopping``.

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
        self, changes: tuple[Change, ...], owner_of: Callable[[Change], str] = lambda _change: ""
    ) -> tuple[FailedChange, ...]:
        """Make each change; one that fails does not stop the others. Returns those that failed.

        A change without an answer ends those of its driver, which ``owner_of`` names; the next time they come last. At
        the second driver without an answer the rest is left to the next reconcile, because each change would wait as
        long. The same holds when the controller is to stop, because another one may act already.

        A pod is replaced after the label that its node loses is removed, and after its node is locked. Where the label
        was not written for now the pod stays: it may be the only evidence. So it does where the lock was not taken.
        """
        failed: list[FailedChange] = []
        unwritten: set[tuple[str, str]] = set()
        strikes = self._silence.begin()
        ordered = self._silence.last(sorted(changes, key=_is_later), owner_of)
        for batch in batches(ordered, self._apart(owner_of)):
            waiting = tuple(
                change
                for change in batch
                if owner_of(change) not in strikes.unanswered
                and not (_takes_pod(change) and (owner_of(change), change.node) in unwritten)
            )
            if not waiting:
                continue
            if self._is_stopping():
                break
            outcomes = self._outcomes(waiting, owner_of)
            for change, owner, error in outcomes:
                if error is None:
                    continue
                if not isinstance(error, Conflict | NotFound):
                    failed.append(FailedChange(change=change, owner=owner, error=error))
                    logger.warning("%s", failed[-1])
                if isinstance(change, PatchNode) and _keeps_pod(change, error):
                    unwritten.add((owner, change.node))
            strikes.saw(None, *(owner for _, owner, error in outcomes if not isinstance(error, Unreachable)))
            silent = {owner: error for _, owner, error in outcomes if isinstance(error, Unreachable)}
            if silent:
                strikes.saw(next(iter(silent.values())), *silent)
            if strikes.is_out:
                break
        return tuple(failed)

    def _apart(self, owner_of: Callable[[Change], str]) -> Callable[[Change], str]:
        """Return a function that names the driver of a change if what it writes may get no answer again."""

        def apart(change: Change) -> str:
            owner = owner_of(change)
            return owner if self._silence.is_silent(owner) else ""

        return apart

    def _outcomes(self, batch: tuple[Change, ...], owner_of: Callable[[Change], str]) -> list[_Outcome]:
        """Write a batch at once; one that is refused is written driver by driver, and then change by change."""
        error = self._try(batch)
        # Of a lock that was lost: what else is written on the Node does not depend on it.
        is_temporary = isinstance(error, KubeApiError) and error.is_temporary and not isinstance(error, Conflict)
        if error is None or is_temporary or len(batch) == 1:
            return [(change, owner_of(change), error) for change in batch]
        outcomes: list[_Outcome] = []
        unlocked: set[str] = set()
        for part in _split(batch):
            if not any(isinstance(change, PatchNode) and change.takes and change.driver in unlocked for change in part):
                found = self._outcomes(part, owner_of)
                unlocked |= {change.driver for change, _, error in found if _is_lock(change) and error is not None}
                outcomes += found
        return outcomes

    def _try(self, batch: tuple[Change, ...]) -> Unwritten | None:
        """Make changes that are one request; returns the error, if there is one."""
        return contained("action", str(batch[0]), partial(self._answer, batch), lambda error: error)

    def _answer(self, batch: tuple[Change, ...]) -> KubeApiError | None:
        for change in batch:
            if not isinstance(change, StartBuild):
                logger.info("%s", change)
        try:
            self._perform(batch)
        except (NotFound, Conflict) as error:
            # The cluster changed since the snapshot; the next reconcile sees it.
            logger.info("%s: conflict: %s", batch[0], error)
            return error if any(isinstance(change, PatchNode) and _is_tested(change) for change in batch) else None
        except KubeApiError as error:
            return error
        return None

    def _perform(self, batch: tuple[Change, ...]) -> None:
        change = batch[0]
        match change:
            case PatchNode():
                self._patch_node(change.node, [item for item in batch if isinstance(item, PatchNode)])
            case ApplyObject():
                self._apply(change)
            case PatchObject():
                self._patch(change)
            case DeleteObject():
                path = change.resource.path(namespace=change.namespace, name=change.name)
                self._client.delete(path, uid=change.uid)
            case RunTask():
                path = PODS.path(namespace=change.manifest["metadata"]["namespace"])
                self._client.create(path, change.manifest)
            case EvictPod():
                self._evict(change)
            case StartBuild():
                self._builds.submit(change)
            case CancelBuild():
                self._builds.cancel(change.key)
            case DiscoverKernels():
                if self._discoveries is not None:
                    self._discoveries.submit(change)
            case _ as never:
                assert_never(never)

    def _patch_node(self, name: str, patches: Iterable[PatchNode]) -> None:
        """Write all that drivers have to say on a Node at once; what is tested, with the version that was read.

        Raises:
            NotFound: the Node is gone.
            Conflict: somebody else has its lock now.
        """
        # A merge patch, not an apply: a forged ready label has another owner and must go all the same.
        labels = {key: value for patch in patches for key, value in patch.labels.items()}
        annotations = {key: value for patch in patches for key, value in patch.annotations.items()}
        metadata: Object = {key: values for key, values in (("labels", labels), ("annotations", annotations)) if values}
        body: Object = {"metadata": metadata}
        if tested := [patch for patch in patches if _is_tested(patch)]:
            node = self._node(name)
            for patch in tested:
                _check(node, patch.seen)
            metadata["resourceVersion"] = node["metadata"]["resourceVersion"]
            taints = _tainted((node.get("spec") or {}).get("taints") or [], tested)
            body |= {} if taints is None else {"spec": {"taints": taints or None}}
        self._client.patch(NODES.path(name=name), body)

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

    def _evict(self, change: EvictPod) -> None:
        """Evict a pod, if its Node still says what it said: who asked for it may have given the node back."""
        if change.seen:
            _check(self._node(change.node), change.seen)
        self._evictions.evict(change)

    def _apply(self, change: ApplyObject) -> None:
        if change.created:
            self._client.create(change.resource.path(namespace=change.namespace), change.manifest)
            return
        path, body = change.resource.path(namespace=change.namespace, name=change.name), change.manifest
        if change.undo:
            content_type = STRATEGIC_MERGE_PATCH if change.undoes_by_name else MERGE_PATCH
            self._client.patch(path, change.undo, content_type=content_type)
        if change.uid:
            body = {**body, "metadata": {**body["metadata"], "uid": change.uid}}
        self._client.apply(path, body, field_manager=manifests.FIELD_MANAGER, force=change.force)

    def _patch(self, change: PatchObject) -> None:
        path = change.resource.path(namespace=change.namespace, name=change.name)
        metadata = {**({"uid": change.uid} if change.uid else {}), **change.body.get("metadata", {})}
        if change.finalizers:
            known = self._client.get(path)["metadata"]
            others = [item for item in known.get("finalizers") or [] if item not in change.finalizers]
            metadata["finalizers"] = [*others, *(item for item, is_wanted in change.finalizers.items() if is_wanted)]
            # The list is shared with other controllers.
            metadata["resourceVersion"] = known["resourceVersion"]
        self._client.patch(path, {**change.body, "metadata": metadata})


def _takes_pod(change: Change) -> TypeGuard[DeleteObject | EvictPod]:
    """Return whether a change ends a pod that waits for what is written on its node."""
    return isinstance(change, EvictPod) or (isinstance(change, DeleteObject) and change.takes)


def _is_lock(change: Change) -> TypeGuard[PatchNode]:
    return isinstance(change, PatchNode) and bool(change.seen)


def _is_tested(patch: PatchNode) -> bool:
    """Return whether a patch is written only onto the version of a Node that was read."""
    return bool(patch.seen or patch.taints)


def _keeps_pod(patch: PatchNode, error: Unwritten) -> bool:
    """Return whether a driver's pod stays on a node where a patch was not written."""
    is_temporary = isinstance(error, KubeApiError) and error.is_temporary and not isinstance(error, Conflict | NotFound)
    return _is_lock(patch) or (is_temporary and _is_label(patch))


def _check(node: Object, seen: Mapping[str, str | None]) -> None:
    """Check that the annotations of a Node are as they were seen.

    Raises:
        Conflict: one is another one now.
    """
    metadata: Object = node["metadata"]
    known = metadata.get("annotations") or {}
    for key, value in seen.items():
        if known.get(key) != value:
            raise Conflict(f"annotation {key} of Node {metadata['name']} is {known.get(key)!r} now", status=409)
