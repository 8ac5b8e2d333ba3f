"""Keeps third parties' labels on the nodes in line with their NodeFeature objects, in a thread of its own.

Apart from the reconciler, as the rules of the workers are: neither can hold up the other. It reads the nodes that the
reconciler follows, and looks at those alone of which a label, an owner of labels or an object changed.

Labels are applied (server-side) with a field manager of their own and without force. What the API server refuses, since
another manager owns it, is left out, and the others of the node are applied. RBAC gives no ``create`` for Nodes: an
apply to one that is gone must not make it anew.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from driver_builder.api.status import Event
from driver_builder.base.boundary import contained
from driver_builder.base.persistent import Pieces, changes, cut
from driver_builder.base.reasons import Reason
from driver_builder.base.retry import Retry
from driver_builder.cluster.cluster_cache import ClusterCache
from driver_builder.cluster.kept_writes import KeptWrites
from driver_builder.controller import events
from driver_builder.controller.sync_loop import keep_in_line
from driver_builder.model.third_party_labels import FIELD_MANAGER
from driver_builder.node_features.allowed_namespace import AllowedNamespace
from driver_builder.node_features.node_feature import NodeFeature
from driver_builder.node_features.wanted_labels import Decision, Refusal, View, applied, decide
from driver_builder.snapshot.inventory import Node
from kube_api.client import Client
from kube_api.errors import Conflict, KubeApiError, ServerUnavailable, TooManyRequests, Unauthorized, Unreachable
from kube_api.resources import NODE_FEATURES, NODES

SETTLE_SECONDS = 1.0
"""Changes come in bursts. A node is written once for one: so often at most, whatever an object does."""
LOOK_SECONDS = 0.5
AGAIN_SECONDS = 30.0
"""After what may pass: an API server that failed, a namespace that could not be read."""
REPEAT_SECONDS = 300.0
"""After what a person has to correct: a policy that denies the write of a node."""
EVENT_SECONDS = 60.0
"""An object gets an Event at most so often."""
EVENTS_OF_A_PASS = 50
STRIKES = 3
"""So many nodes that cannot be written for now, one after the other: the rest has to wait as well."""
FREE_WRITES = 5
"""Writes of a node in a row that do not wait: each further one waits twice as long, since somebody undoes them."""
QUIET_SECONDS = 600.0
"""After so long without a write of a node, the next one is the first of a row; more than any of them waits."""
ATTEMPTS = 5
"""How often a node is written without what the API server refused."""

_RETRY = Retry(SETTLE_SECONDS, REPEAT_SECONDS)
_LABELS = ".metadata.labels."

logger = logging.getLogger(__name__)


class NodeFeaturesSync:
    """Applies labels whenever something changed, until ``stop`` is set.

    ``cache`` is the one whose nodes another thread follows. ``namespaces`` are the allowed ones in their order; without
    any, all labels that were applied before are removed. ``written`` is called when nodes were changed: no watch says
    so. ``clock`` counts seconds since the epoch.
    """

    name = "node-features"

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        *,
        namespaces: Iterable[str],
        stop: threading.Event,
        written: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.wake = threading.Event()
        """Set to look at everything although nothing changed."""
        self.namespaces = tuple(AllowedNamespace(client, namespace) for namespace in dict.fromkeys(namespaces))
        self._client = client
        self._writes = KeptWrites(client, cache)
        self._followed = cache.nodes
        self._stopping = stop
        self._written = written
        self._clock = clock
        self._monotonic = monotonic
        self._values: object = ()
        self._seen: Pieces[Node] = cut(())
        self._nodes: dict[str, Node] = {}
        self._dirty: set[str] = set()
        """The nodes that are to be looked at."""
        self._later: dict[str, float] = {}
        """Those that are to be looked at again, and when."""
        self._written_in_a_row: dict[str, tuple[int, float]] = {}
        """By name of a node: how often it was written in a row, and when last."""
        self._reported: dict[str, tuple[str, float]] = {}
        """By uid of an object: what was said of it last, and when an Event was posted."""

    def run(self) -> None:
        """Work until stopped, with back-off while the API server is away."""
        keep_in_line("node features", self.sync, self._wait, stopping=self._stopping, logger=logger)

    def sync(self) -> None:
        """Look at what changed, once.

        Raises:
            KubeApiError: when nodes cannot be read, or several in a row not be written for now. What could not be done
                is left for the next time.
        """
        self._take_changes()
        before = self._writes.changes
        try:
            self._settle_all()
        finally:
            if self._writes.changes != before:
                self._written()

    def _wait(self) -> None:
        is_known = all(item.is_known for item in self.namespaces)
        again = math.inf if is_known else self._monotonic() + AGAIN_SECONDS
        until = min((again, *self._later.values()))
        while not self._stopping.wait(LOOK_SECONDS):
            if self._has_news() or self.wake.is_set() or self._monotonic() >= until:
                self._stopping.wait(SETTLE_SECONDS)
                self.wake.clear()
                return

    def _has_news(self) -> bool:
        is_other = self._followed.collection.values() is not self._values
        return is_other or any(item.has_news() for item in self.namespaces)

    def _take_changes(self) -> None:
        now = self._monotonic()
        self._followed.repair()
        for item in self.namespaces:
            was_known = item.is_known
            item.refresh(now)
            gone, came = item.take()
            self._dirty.update(feature.node for feature in (*gone, *came))
            for uid in {feature.uid for feature in gone} - {feature.uid for feature in came}:
                self._reported.pop(uid, None)
            if item.is_known and not was_known:
                # What was kept because it was not known may go.
                self._dirty.update(item.nodes)
                self._dirty.update(name for name, node in self._nodes.items() if applied(node))
        self._values = values = self._followed.collection.values()
        nodes = cut(values)
        gone_nodes, came_nodes = changes(self._seen, nodes)
        self._seen = nodes
        for node in gone_nodes:
            self._nodes.pop(node.name, None)
        for node in came_nodes:
            self._nodes[node.name] = node
        for name in {node.name for node in gone_nodes} - {node.name for node in came_nodes}:
            self._written_in_a_row.pop(name, None)
        self._dirty.update(node.name for node in (*gone_nodes, *came_nodes))
        due = {name for name, at in self._later.items() if at <= now}
        self._dirty |= due
        for name in due:
            del self._later[name]

    def _settle_all(self) -> None:
        strikes, events_left = 0, EVENTS_OF_A_PASS
        for name in sorted(self._dirty):
            if self._stopping.is_set():
                return
            node = self._nodes.get(name)
            views = [item.view(name) for item in self.namespaces]
            error = None
            if node is not None and (any(views) or applied(node)):
                decision, error = self._applied(node, views)
                if decision is not None and error is None:
                    events_left, error = self._report(node, views, decision, events_left)
            self._dirty.discard(name)
            if error is None:
                strikes = 0
                continue
            # What is refused of this node alone says nothing about the others.
            strikes += isinstance(error, Unauthorized | Unreachable | ServerUnavailable)
            self._again(name, AGAIN_SECONDS if error.is_temporary else REPEAT_SECONDS)
            if strikes >= STRIKES or isinstance(error, TooManyRequests):
                raise error
            logger.warning("node features: node %s: %s", name, error)

    def _applied(self, node: Node, views: Sequence[View]) -> tuple[Decision | None, KubeApiError | None]:
        """Decide, and apply what is not applied yet; returns the decision, or why it could not be applied."""
        taken: dict[str, str] = {}
        for attempt in range(ATTEMPTS):
            made = contained("NodeFeature", node.name, partial(decide, node, views, taken), lambda _error: None)
            if made is None or made.labels == applied(node):
                return made, None
            if attempt == 0 and not self._may_write(node.name):
                return made, None
            try:
                self._apply(node, made)
            except Conflict as error:
                found = _labels_of_others(error)
                if not found:
                    return None, error
                # The Node changed since it was read.
                taken |= found
            except KubeApiError as error:
                return None, error
            else:
                self._count_write(node.name)
                return made, None
        self._count_write(node.name)
        return None, Conflict(f"node {node.name}: others change its labels at each attempt to apply ours", status=409)

    def _may_write(self, name: str) -> bool:
        """Return whether a node may be written; one that has to wait is looked at again then."""
        count, last = self._writes_in_a_row(name)
        pause = _RETRY.by_attempt(count - FREE_WRITES + 1) if count >= FREE_WRITES else 0.0
        wait = last + pause - self._monotonic()
        if wait > 0:
            self._again(name, wait)
        return wait <= 0

    def _count_write(self, name: str) -> None:
        count, _ = self._writes_in_a_row(name)
        self._written_in_a_row[name] = (count + 1, self._monotonic())

    def _writes_in_a_row(self, name: str) -> tuple[int, float]:
        now = self._monotonic()
        count, last = self._written_in_a_row.get(name, (0, now))
        return (count, last) if now - last < QUIET_SECONDS else (0, now)

    def _apply(self, node: Node, decision: Decision) -> None:
        # An empty map would be owned, too.
        labels = {"labels": dict(decision.labels)} if decision.labels else {}
        body = {"apiVersion": NODES.api_version, "kind": NODES.kind, "metadata": {"name": node.name, **labels}}
        self._writes.apply(NODES.path(name=node.name), body, field_manager=FIELD_MANAGER, force=False)
        before, now = applied(node), decision.labels
        logger.info(
            "node features: node %s: %d labels set, %d removed, %d in all",
            node.name, len(dict(now.items() - before.items())), len(before.keys() - now.keys()), len(now),
        )  # fmt: skip

    def _report(
        self, node: Node, views: Iterable[View], decision: Decision, events_left: int
    ) -> tuple[int, KubeApiError | None]:
        """Post an Event on each object of which something is refused, unless it was said; returns how many are left."""
        refused: dict[str, list[Refusal]] = {}
        for refusal in decision.refusals:
            refused.setdefault(refusal.feature.uid, []).append(refusal)
        now = self._monotonic()
        for feature in (feature for view in views for feature in view or ()):
            text = _message(node.name, refused.get(feature.uid, ()))
            said, at = self._reported.get(feature.uid, ("", now - EVENT_SECONDS))
            if text and text != said:
                if now - at < EVENT_SECONDS or not events_left:
                    self._again(node.name, EVENT_SECONDS)
                    continue
                events_left, at = events_left - 1, now
                try:
                    self._post(feature, text)
                except KubeApiError as error:
                    if error.is_temporary:
                        return events_left, error
                    logger.warning("node features: no Event on %s: %s", feature, error)
            self._reported[feature.uid] = (text, at)
        return events_left, None

    def _post(self, feature: NodeFeature, message: str) -> None:
        subject = events.Subject(
            resource=NODE_FEATURES, namespace=feature.namespace, name=feature.name, uid=feature.uid
        )
        event = Event(kind="Warning", reason=Reason.LABEL_REFUSED, message=message)
        events.post(self._client, subject, event, now=self._clock())

    def _again(self, name: str, seconds: float) -> None:
        at = self._monotonic() + seconds
        self._later[name] = min(at, self._later.get(name, at))


def _labels_of_others(error: Conflict) -> dict[str, str]:
    fields = (
        (field.removeprefix(_LABELS), owner) for field, owner in error.owners.items() if field.startswith(_LABELS)
    )
    return dict(fields)


def _message(node: str, refusals: Sequence[Refusal]) -> str:
    if not refusals:
        return ""
    more = f" (and {len(refusals) - 1} more)" if len(refusals) > 1 else ""
    return f"not set on node {node}: {refusals[0]}{more}"
