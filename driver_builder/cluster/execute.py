"""Performs the actions of a plan: the only writer. Names are deterministic, so repeating an action changes nothing."""

import logging
from dataclasses import dataclass
from typing import assert_never

from driver_builder.building.builds import BuildQueue
from driver_builder.building.look_up_queue import LookUpQueue
from driver_builder.planning.actions import (
    Action,
    ApplyDaemonSet,
    CancelBuild,
    DeleteDaemonSet,
    LabelNode,
    LookUpKernels,
    ReplacePod,
    SetFinalizer,
    StartBuild,
)
from driver_builder.spec.driver_container import FINALIZER
from kube_api.client import Client
from kube_api.errors import Conflict, KubeApiError, NotFound
from kube_api.resources import DAEMON_SETS, DRIVER_CONTAINERS, NODES, PODS

FIELD_MANAGER = "driver-builder"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAction:
    """An action that the API server did not carry out, and what it answered."""

    action: Action
    error: KubeApiError

    def __str__(self) -> str:
        return f"{self.action}: {self.error}"


class Executor:
    """Carries out actions against one cluster and one build queue."""

    def __init__(self, client: Client, builds: BuildQueue, look_ups: LookUpQueue | None = None) -> None:
        self._client = client
        self._builds = builds
        self._look_ups = look_ups

    def perform(self, actions: tuple[Action, ...]) -> tuple[FailedAction, ...]:
        """Perform each action; one that fails does not stop the others. Gives those that failed."""
        failed: list[FailedAction] = []
        for action in actions:
            try:
                self._perform(action)
            except (NotFound, Conflict) as error:
                # The world moved on since the snapshot; the next pass sees it.
                logger.info("%s: overtaken: %s", action, error)
            except KubeApiError as error:
                failed.append(FailedAction(action=action, error=error))
                logger.warning("%s", failed[-1])
        return tuple(failed)

    def _perform(self, action: Action) -> None:
        if not isinstance(action, StartBuild):
            logger.info("%s", action)
        match action:
            case StartBuild():
                self._builds.submit(action)
            case CancelBuild():
                self._builds.cancel(action.key)
            case LookUpKernels():
                if self._look_ups is not None:
                    self._look_ups.submit(action)
            case ApplyDaemonSet():
                path = DAEMON_SETS.path(namespace=action.namespace, name=action.name)
                self._client.apply(path, action.manifest, field_manager=FIELD_MANAGER)
            case DeleteDaemonSet():
                path = DAEMON_SETS.path(namespace=action.namespace, name=action.name)
                self._client.delete(path, uid=action.uid)
            case ReplacePod():
                self._client.delete(PODS.path(namespace=action.namespace, name=action.name), uid=action.uid)
            case LabelNode():
                # A merge patch, not an apply: a forged ready label has another owner and must go all the same.
                labels = {action.label: action.version}
                self._client.patch(NODES.path(name=action.node), {"metadata": {"labels": labels}})
            case SetFinalizer():
                self._set_finalizer(action)
            case _ as never:
                assert_never(never)

    def _set_finalizer(self, action: SetFinalizer) -> None:
        path = DRIVER_CONTAINERS.path(namespace=action.namespace, name=action.name)
        metadata = self._client.get(path)["metadata"]
        finalizers = [item for item in metadata.get("finalizers") or [] if item != FINALIZER]
        if action.present:
            finalizers.append(FINALIZER)
        # With the resourceVersion, because the list is shared with other controllers.
        version = metadata["resourceVersion"]
        self._client.patch(path, {"metadata": {"finalizers": finalizers, "resourceVersion": version}})
