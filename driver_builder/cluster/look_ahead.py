"""Whether a drain would wait for pods on the nodes that a wave takes next: asked node by node, and remembered a while.

No more nodes are asked than are needed to find some where it would not: of a fleet that is mostly one.
"""

import logging
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

from driver_builder.cluster.read_claims import with_claims
from driver_builder.cluster.read_node_pods import read_node_pods
from driver_builder.model.driver_key import DriverKey
from driver_builder.rollout.next_drains import NextDrains
from driver_builder.snapshot.snapshot import Snapshot
from kube_api.client import Collections
from kube_api.errors import KubeApiError

logger = logging.getLogger(__name__)

REMEMBERED_SECONDS = 60.0
"""How long an answer counts: pods come and go, and a wave is planned again with each of our own writes."""


class LookAhead:
    """Reads the pods of nodes that could be drained next."""

    def __init__(self, client: Collections) -> None:
        self._client = client
        self._known: dict[DriverKey, dict[str, tuple[float, bool]]] = {}
        """By driver and node, when its pods were read, and whether a drain would wait for some."""

    def drained_last(self, now: float) -> Mapping[DriverKey, frozenset[str]]:
        """Return by driver the nodes that are known to have pods that a drain would wait for."""
        self._known = {
            driver: kept
            for driver, nodes in self._known.items()
            if (kept := {node: it for node, it in nodes.items() if it[0] <= now < it[0] + REMEMBERED_SECONDS})
        }
        found = {
            driver: frozenset(node for node, it in nodes.items() if it[1]) for driver, nodes in self._known.items()
        }
        return {driver: nodes for driver, nodes in found.items() if nodes}

    def look(self, snapshot: Snapshot, drains: Iterable[NextDrains], ours: Set[tuple[str, str]]) -> Snapshot:
        """Return the snapshot with what is known then; the same one where that changes nothing.

        Where pods cannot be read, nodes go in the order that they have without.
        """
        try:
            for item in drains:
                self._ask(item, snapshot.now, ours)
        except KubeApiError as error:
            logger.info("nodes are drained in the order of their names: %s", error)
        found = self.drained_last(snapshot.now)
        return snapshot if found == snapshot.drained_last else replace(snapshot, drained_last=found)

    def _ask(self, item: NextDrains, now: float, ours: Set[tuple[str, str]]) -> None:
        known, free = self._known.setdefault(item.driver, {}), 0
        for node in item.nodes:
            if node not in known:
                found = read_node_pods(self._client, (node,), ours)
                found = with_claims(self._client, found, {node}) if item.settings.dra_drivers else found
                known[node] = (now, item.waits_on(found[node]))
            free += not known[node][1]
            if free >= item.number:
                return
