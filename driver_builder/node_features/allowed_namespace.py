"""The NodeFeature objects of one allowed namespace, followed: by node, and whether it is known which there are.

Place in the flow: ``sync`` takes from here which nodes are to be looked at. What is not known removes nothing from any
node: a namespace that may not be read, a list that was cut off, a kind that is not defined (any more).
"""

import logging
from collections.abc import Iterator
from functools import partial

from driver_builder.base.boundary import contained
from driver_builder.base.persistent import Pieces, changes, cut
from driver_builder.cluster.collection import Json
from driver_builder.cluster.follower import UNKNOWN_KIND_SECONDS, Follower, Source
from driver_builder.cluster.read_metadata import place
from driver_builder.node_features.node_feature import NODE_NAME_LABEL, NodeFeature, read_node_feature
from driver_builder.node_features.wanted_labels import View
from kube_api.client import Client
from kube_api.errors import KubeApiError, NotFound
from kube_api.resources import NODE_FEATURES

OBJECTS_OF_A_PAGE = 20
"""An object may have 130 kB, most of it features, which are dropped as it is decoded."""

logger = logging.getLogger(__name__)


class AllowedNamespace:
    """One namespace: ``follower`` is run by another thread."""

    def __init__(self, client: Client, namespace: str) -> None:
        source = Source(
            resource=NODE_FEATURES, namespace=namespace, label_selector=NODE_NAME_LABEL, page=OBJECTS_OF_A_PAGE
        )
        self.follower: Follower[NodeFeature] = Follower(client, source, _read)
        self.is_known = False
        """Whether what was taken is what the namespace has, or had while the kind was defined."""
        self._values: object = ()
        self._seen: Pieces[NodeFeature] = cut(())
        self._of_node: dict[str, dict[str, NodeFeature]] = {}
        self._was_listed = False
        self._ask_again_at = 0.0
        self._why_unknown = ""

    @property
    def nodes(self) -> Iterator[str]:
        """Name the nodes that have objects here."""
        return iter(tuple(self._of_node))

    def has_news(self) -> bool:
        """Return whether something changed since :meth:`take`."""
        return self.follower.collection.values() is not self._values

    def view(self, node: str) -> View:
        """Return the objects for a node; None while it is not known which there are."""
        return tuple(self._of_node.get(node, {}).values()) if self.is_known else None

    def refresh(self, now: float) -> None:
        """Make sure that what is known is to be trusted, or find out that it is not; ``now`` counts seconds."""
        if not self.follower.is_trusted and now < self._ask_again_at:
            return
        try:
            self.follower.repair()
            self.is_known = self._was_listed = True
            self._why_unknown = ""
        except NotFound:
            # Objects go before their definition does: what the watch saw go is gone, and nothing else.
            why = "this cluster has no NodeFeature definition"
            self._unknown(now, why, logging.INFO, is_known=self._was_listed)
        except KubeApiError as error:
            self._unknown(now, str(error), logging.WARNING, is_known=False)

    def _unknown(self, now: float, why: str, level: int, *, is_known: bool) -> None:
        self.is_known = is_known
        self._ask_again_at = now + UNKNOWN_KIND_SECONDS
        logger.log(
            logging.DEBUG if why == self._why_unknown else level,
            "node features: namespace %s: nothing is removed from nodes: %s", self.follower.source.namespace, why,
        )  # fmt: skip
        self._why_unknown = why

    def take(self) -> tuple[list[NodeFeature], list[NodeFeature]]:
        """Take what changed: the objects that are gone, or are others now, and those that came."""
        self._values = values = self.follower.collection.values()
        now = cut(values)
        gone, came = changes(self._seen, now)
        self._seen = now
        for feature in gone:
            left = self._of_node[feature.node]
            del left[feature.uid]
            if not left:
                del self._of_node[feature.node]
        for feature in came:
            self._of_node.setdefault(feature.node, {})[feature.uid] = feature
        return gone, came


def _read(obj: Json) -> NodeFeature | None:
    return contained("NodeFeature", place(obj), partial(read_node_feature, obj), lambda _error: None)
