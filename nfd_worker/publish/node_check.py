"""What a Node has lost since it was published, although nothing changed on the node itself. Pure.

The Node object was made anew, a label was removed by hand, another program replaced the object, etcd was restored, a
kubelet set an extended resource to 0. The metadata alone shows most of it, and is a fraction of a Node. Taints and
extended resources need the whole Node, which is read only where there are some of ours, and the Node has changed.
"""

from collections.abc import Collection, Iterator, Mapping

from nfd_worker.labels.node_content import NodeContent
from nfd_worker.publish.extended_resources import names_of_ours, resources_patch
from nfd_worker.publish.node_state import Json, NodeState
from nfd_worker.publish.node_taints import taints_patch
from nfd_worker.publish.ownership import ORIGINS_ANNOTATION, applied_fields
from nfd_worker.publish.take_over import leftovers
from nfd_worker.publish.tracking import TAINTS
from nfd_worker.publish.wire import PublishRequest, Seen

_MOST_NAMED = 5


def lost_metadata(node: NodeState, request: PublishRequest) -> tuple[str, ...]:
    """Say what of the Node's metadata is not as it was published, a part of a sentence each."""
    return tuple(_lost_metadata(node, request))


def _lost_metadata(node: NodeState, request: PublishRequest) -> Iterator[str]:
    is_new = bool(request.seen.uid) and node.uid != request.seen.uid
    if is_new:
        yield "the Node object was created anew"
    fields = applied_fields(request.content, request.origins)
    if request.unknown is not None:
        # What else is ours was read from the Node then, and its record with it.
        fields["annotations"].pop(ORIGINS_ANNOTATION, None)
    for field, wanted in fields.items():
        present: Mapping[str, str] = getattr(node, field)
        if changed := [key for key, value in wanted.items() if present.get(key) != value]:
            yield f"{field} were removed or changed: {_named(changed)}"
        # Without any entry somebody on the way hides them.
        owned = node.applied(field) if node.managers else wanted.keys()
        if freed := wanted.keys() - owned - set(changed):
            yield f"{field} were no longer owned by nfd-worker: {_named(freed)}"
        if request.unknown is None and (returned := owned - wanted.keys()):
            yield f"{field} that nfd-worker had removed were there again: {_named(returned)}"
    if not is_new and lost_record(node, request.seen):
        yield "the record of taints or extended resources was removed or changed"
    if request.take_over and leftovers(node).bookkeeping:
        yield "an upstream Node Feature Discovery has written to it"


def needs_full_read(node: NodeState, request: PublishRequest) -> bool:
    """Return whether taints and extended resources have to be looked at: some are ours, and the Node has changed."""
    has_some = request.content.taints or request.content.extended_resources or request.seen.tracked
    is_tracked = bool(names_of_ours(node) or node.annotations.get(TAINTS.own))
    return request.is_full and bool(has_some or is_tracked) and node.resource_version != request.seen.version


def lost_elsewhere(node: NodeState, content: NodeContent, *, take_over: bool) -> tuple[str, ...]:
    """Say what of the whole Node is not as it was published, besides labels and annotations."""
    upstream = leftovers(node).extended_resources if take_over else {}
    found = {
        "extended resources": resources_patch(node, content.extended_resources, upstream),
        "taints": taints_patch(node, content.taints, take_over=take_over).body,
    }
    return tuple(f"{what} were removed or changed" for what, patch in found.items() if patch)


def lost_record(node: NodeState, seen: Seen) -> Json:
    """Compute the patch that says again which taints and extended resources of this Node are ours; empty for none.

    Without it they would be somebody else's. On a Node that was created anew nothing is ours yet.
    """
    if node.uid != seen.uid:
        return {}
    lost = {key: text for key, text in seen.tracked.items() if node.annotations.get(key) != text}
    return {"metadata": {"annotations": lost}} if lost else {}


def _named(keys: Collection[str]) -> str:
    shown = ", ".join(sorted(keys)[:_MOST_NAMED])
    return f"{shown} and {len(keys) - _MOST_NAMED} more" if len(keys) > _MOST_NAMED else shown
