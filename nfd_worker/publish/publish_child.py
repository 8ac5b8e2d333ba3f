"""The publish child: a short-lived process, and the only one that speaks to the API server.

An HTTP client with TLS would more than double the resident process, so that never imports one: it spawns this module
with a request on standard input, and gets one line of JSON on standard output. Exit status: 0 published, 1 not.

Three writes, each skipped when it would change nothing, so that a Node without taints and extended resources costs one
request:

1. Labels and annotations by server-side apply: what our field manager applied last time and does not name now is
   removed by the API server, and what others wrote is not touched. The answer is the whole Node: it decides the rest.
2. Extended resources: a merge patch of ``nodes/status`` (:mod:`nfd_worker.publish.extended_resources`).
3. Taints, and the end of an upstream Node Feature Discovery: a merge patch of the Node
(:mod:`nfd_worker.publish.node_taints`,
   :mod:`nfd_worker.publish.take_over`).

A check reads the Node's metadata and writes only if something is lost (:mod:`nfd_worker.publish.node_check`).

Whatever interrupts it, the next run finds in the Node what is missing. Writes 2 and 3 name the ``resourceVersion`` they
were decided on; if the Node has changed meanwhile it is read again. Applying to a Node that does not exist would create
it; the worker's ClusterRole has no ``create``, so that is refused.
"""

import os
import select
import time
from collections.abc import Callable
from typing import TypeVar

from kube_api.client import Client
from kube_api.errors import Conflict, Forbidden, KubeApiError, NotFound
from kube_api.resources import NODES
from nfd_worker.labels.node_content import NodeContent, Origins, Unknown
from nfd_worker.publish.extended_resources import resources_patch
from nfd_worker.publish.node_check import lost_elsewhere, lost_metadata, lost_record, needs_full_read
from nfd_worker.publish.node_state import Json, NodeState
from nfd_worker.publish.node_taints import taints_patch
from nfd_worker.publish.ownership import (
    ORIGINS_ANNOTATION,
    applied_fields,
    content_of_ours,
    kept_for,
    parse_origins,
    with_kept,
    with_kept_origins,
)
from nfd_worker.publish.publish_errors import explain
from nfd_worker.publish.take_over import Leftovers, hand_back_patch, leftovers, take_over_patch
from nfd_worker.publish.tracking import tracked_on
from nfd_worker.publish.wire import CHECK, FIELD_MANAGER, UNPUBLISH, PublishAnswer, PublishRequest, Seen

Written = TypeVar("Written")

ATTEMPTS = 5
"""How often a Node that others change at the same moment is read again, before the worker backs off."""

_PAUSE_SECONDS = 0.05


def main() -> int:
    """Carry out the request on standard input; the answer goes to standard output."""
    with os.fdopen(0, "rb") as stdin:
        request = PublishRequest.from_bytes(stdin.read())
    if _is_orphan():
        return 1
    try:
        answer = carry_out(request, Client.from_environment(request.kubeconfig, once=True))
    except KubeApiError as error:
        answer = _failure(error, request.node_name)
    os.write(1, answer.to_line().encode())
    return 0 if answer.is_published else 1


def _failure(error: KubeApiError, node_name: str) -> PublishAnswer:
    return PublishAnswer(explain(error, node_name), type(error).__name__, error.retry_after)


def _is_orphan() -> bool:
    """Return whether the answer has no reader: the worker was killed, and the next one may publish something else."""
    poll = select.poll()
    poll.register(1, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def carry_out(request: PublishRequest, client: Client) -> PublishAnswer:
    """Publish, check or unpublish.

    Raises:
        KubeApiError: whatever the API server said, or that it did not answer.
    """
    if request.action == UNPUBLISH:
        return unpublish(request.node_name, client)
    return check(request, client) if request.action == CHECK else publish(request, client)


def publish(request: PublishRequest, client: Client) -> PublishAnswer:
    """Bring the Node in line; it is read first only when something of ours has to be kept.

    Raises:
        KubeApiError: as :func:`carry_out`; NotFound when there is no such Node.
    """
    path = NODES.path(name=request.node_name)
    content, origins = request.content, request.origins
    try:
        if request.unknown is not None:
            content, origins = _with_what_stays(request, request.unknown, NodeState.from_dict(client.get(path)))
        node = _apply(client, request.node_name, content, origins)
    except Forbidden:
        # An apply to a Node that is missing is refused as well, since it would create one. NotFound says so.
        client.get(path)
        raise
    return _settle(client, node, content, take_over=request.take_over)


def check(request: PublishRequest, client: Client) -> PublishAnswer:
    """Publish again if the Node has lost something; its metadata is read, and the whole only where it must be.

    What is lost and could not be published again is in the answer, too, with the error.

    Raises:
        KubeApiError: as :func:`carry_out`, while it is not known whether anything is lost; not NotFound.
    """
    path, seen = NODES.path(name=request.node_name), request.seen
    try:
        node = NodeState.from_dict(client.get_metadata(path))
        lost = lost_metadata(node, request)
        if not lost and needs_full_read(node, request):
            node = NodeState.from_dict(client.get(path))
            seen = seen._replace(version=node.resource_version)
            lost = _lost_elsewhere(node, request)
    except NotFound as error:
        return _failure(error, request.node_name)._replace(lost=("the Node object was deleted",))
    if not lost:
        return PublishAnswer(seen=seen)
    try:
        _repeated(client, node, lambda node: _patch(client, node, lost_record(node, seen)))
        return publish(request, client)._replace(lost=lost)
    except KubeApiError as error:
        return _failure(error, request.node_name)._replace(lost=lost)


def _lost_elsewhere(node: NodeState, request: PublishRequest) -> tuple[str, ...]:
    content = request.content
    if request.unknown is not None:
        content, _ = _with_what_stays(request, request.unknown, node)
    return lost_elsewhere(node, content, take_over=request.take_over)


def _with_what_stays(request: PublishRequest, unknown: Unknown, node: NodeState) -> tuple[NodeContent, Origins]:
    """Add to what is wanted whatever of ours on the Node stays because its origin could not be read."""
    ours = content_of_ours(node, take_over=request.take_over)
    recorded = parse_origins(node.annotations.get(ORIGINS_ANNOTATION))
    kept = kept_for(unknown, recorded, ours, request.origins)
    return with_kept(request.content, ours, kept), with_kept_origins(request.origins, kept)


def unpublish(node_name: str, client: Client) -> PublishAnswer:
    """Remove everything that is ours from the Node, but for what upstream tracks; a Node that is gone needs nothing.

    Raises:
        KubeApiError: as :func:`carry_out`, but not NotFound.
    """
    try:
        node = NodeState.from_dict(client.get(NODES.path(name=node_name)))
        _repeated(client, node, lambda node: _patch(client, node, hand_back_patch(node)))
        node = _apply(client, node_name, NodeContent(), {})
        return _settle(client, node, NodeContent(), take_over=False)
    except NotFound:
        return PublishAnswer(notes=(f"node {node_name} does not exist: there is nothing to remove",))


def _apply(client: Client, node_name: str, content: NodeContent, origins: Origins) -> NodeState:
    # An empty map would be owned, too: an entry of managedFields that says nothing.
    fields = {name: values for name, values in applied_fields(content, origins).items() if values}
    metadata = {"name": node_name, **fields}
    body = {"apiVersion": NODES.api_version, "kind": NODES.kind, "metadata": metadata}
    return NodeState.from_dict(client.apply(NODES.path(name=node_name), body, field_manager=FIELD_MANAGER))


def _settle(client: Client, node: NodeState, content: NodeContent, *, take_over: bool) -> PublishAnswer:
    """Write what server-side apply does not cover."""
    took_over = leftovers(node) if take_over else Leftovers()
    left, notes = _repeated(client, node, lambda node: _write(client, node, content, take_over=take_over))
    seen = Seen(left.uid, left.resource_version, tracked_on(left))
    return PublishAnswer(notes=notes, took_over=str(took_over) if took_over.bookkeeping else "", seen=seen)


def _repeated(client: Client, node: NodeState, write: Callable[[NodeState], Written]) -> Written:
    """Write what was decided on a Node; on a newer one if others change it at the same moment."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return write(node)
        except Conflict:
            if attempt == ATTEMPTS:
                raise
            time.sleep(_PAUSE_SECONDS * attempt)
            node = NodeState.from_dict(client.get(NODES.path(name=node.name)))
    raise AssertionError("the last attempt returns or raises")


def _write(
    client: Client, node: NodeState, content: NodeContent, *, take_over: bool
) -> tuple[NodeState, tuple[str, ...]]:
    upstream = leftovers(node) if take_over else Leftovers()
    resources = resources_patch(node, content.extended_resources, upstream.extended_resources)
    node = _patch(client, node, resources, subresource="status")
    taints = taints_patch(node, content.taints, take_over=take_over)
    ending = take_over_patch(node, upstream, content) if take_over else {}
    return _patch(client, node, merged(taints.body, ending)), taints.notes


def _patch(client: Client, node: NodeState, body: Json, *, subresource: str | None = None) -> NodeState:
    """Patch the Node that was read, and no newer one; does nothing for an empty patch."""
    if not body:
        return node
    path = NODES.path(name=node.name, subresource=subresource) + f"?fieldManager={FIELD_MANAGER}"
    guarded = merged(body, {"metadata": {"resourceVersion": node.resource_version}})
    return NodeState.from_dict(client.patch(path, guarded))


def merged(one: Json, other: Json) -> Json:
    """Merge two merge patches that do not contradict each other."""
    both = {key: merged(one[key], other[key]) for key in one.keys() & other.keys() if isinstance(one[key], dict)}
    return {**one, **other, **both}
