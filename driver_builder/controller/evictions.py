"""Evicts pods by the version of the API that the server has, and remembers what was refused.

A refusal is no failure of a reconcile: a PodDisruptionBudget refuses until other pods are ready. The next plan reads
it, names it, and tries again. It is in memory alone: after a restart the next try is answered the same.
"""

import logging

from driver_builder.nodes.changes import EvictPod
from driver_builder.snapshot.node_pods import EvictionRefused
from kube_api.client import Writer
from kube_api.errors import Conflict, Forbidden, KubeApiError, NotFound, Unreachable
from kube_api.resources import PODS

logger = logging.getLogger(__name__)

_NEWEST = "policy/v1"
"""Since Kubernetes 1.22; servers before that have ``policy/v1beta1``, which 1.25 has no more."""


class Evictions:
    """Evictions of one cluster; ``refused`` are the last refusals by the uid of the pod."""

    def __init__(self, client: Writer, refused: dict[str, EvictionRefused]) -> None:
        self._client = client
        self._refused = refused
        self._version = ""

    def evict(self, action: EvictPod) -> None:
        """Evict a pod, if it is still the same.

        Raises:
            KubeApiError: it is gone, is another pod by now, or there was no answer.
        """
        body = {
            "apiVersion": self._api_version(),
            "kind": "Eviction",
            "metadata": {"namespace": action.namespace, "name": action.name},
            "deleteOptions": {"preconditions": {"uid": action.uid}},
        }
        path = PODS.path(namespace=action.namespace, name=action.name, subresource="eviction")
        try:
            self._client.create(path, body)
        except (NotFound, Conflict, Unreachable):
            raise
        except KubeApiError as error:
            logger.info("%s: refused: %s", action, error)
            # Without the request, which names the pod once more.
            words = error.message.partition(f": {error.status} ")[2] or error.message
            self._refused[action.uid] = EvictionRefused(
                message=words, at=action.at, is_forbidden=isinstance(error, Forbidden)
            )
        else:
            self._refused.pop(action.uid, None)

    def _api_version(self) -> str:
        """Return the version of Eviction that the server says it has."""
        if not self._version:
            try:
                found = self._client.get("/api/v1").get("resources") or []
            except Unreachable:
                raise
            except KubeApiError as error:
                logger.info("which version of evictions the server has is unknown: %s", error)
                return _NEWEST
            kinds = [item for item in found if item.get("name") == "pods/eviction"]
            self._version = next((f"{item['group']}/{item['version']}" for item in kinds if item.get("group")), _NEWEST)
        return self._version
