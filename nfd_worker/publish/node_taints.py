"""Taints of a Node: which list it should carry, with those of others left as they are. Pure.

The list of taints is one value for the API server, so it is read, merged and written whole. The patch names the
``resourceVersion`` that was read: when anybody changed the Node meanwhile it is refused with 409, and the patch is made
again. (A JSON patch with ``test`` would be refused with 422, the same as a taint that is not valid.) The tracking
annotation travels in the same patch, so there is never a taint of ours that nothing tracks.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from feature_rules.model import Taint
from nfd_worker.publish.node_state import Change, Json, NodeState
from nfd_worker.publish.tracking import TAINTS, format_taints, parse_taints


class MergedTaints(NamedTuple):
    """``taints``: the whole list; ``ours``: those to track; ``held``: wanted ones that somebody else set otherwise."""

    taints: tuple[Json, ...]
    ours: tuple[Taint, ...]
    held: tuple[Taint, ...]


def merge_taints(current: Sequence[Json], ours_before: Iterable[Taint], wanted: Iterable[Taint]) -> MergedTaints:
    """Make the list of taints.

    A taint is known by key and effect. One that is not in ``ours_before`` belongs to somebody else: it stays, and is
    not ours even if we want the same. One of ours that is no longer wanted goes, unless somebody changed its value.
    Of two wanted ones with the same key and effect the later one counts.
    """
    before = {_identity(taint): taint for taint in ours_before}
    target = {_identity(taint): taint for taint in wanted}
    there = {_identity(taint): taint for taint in map(_taint, current)}
    foreign = there.keys() - before.keys()
    ours = tuple(taint for identity, taint in target.items() if identity not in foreign)
    held = tuple(target[identity] for identity in target if identity in foreign and there[identity] != target[identity])
    merged: list[Json] = []
    for each in current:
        found = _taint(each)
        identity = _identity(found)
        if (
            identity in foreign
            or target.get(identity) == found
            or (identity not in target and before[identity] != found)
        ):
            merged.append(each)
        elif identity in target:
            merged.append(_as_json(target[identity]))
    set_already = {_identity(_taint(each)) for each in merged}
    merged += [_as_json(taint) for taint in ours if _identity(taint) not in set_already]
    return MergedTaints(tuple(merged), ours, held)


def taints_patch(node: NodeState, wanted: Sequence[Taint], *, take_over: bool) -> Change:
    """Compute what has to change on the Node."""
    merged = merge_taints(node.taints, parse_taints(TAINTS.text(node, take_over=take_over)), wanted)
    annotations = TAINTS.patch(node, format_taints(merged.ours), take_over=take_over)
    body: Json = {"metadata": {"annotations": annotations}} if annotations else {}
    if merged.taints != node.taints:
        body["spec"] = {"taints": list(merged.taints) or None}
    notes = (f"taint {taint} is left unchanged: another client set it on node {node.name}" for taint in merged.held)
    return Change(body, tuple(notes))


def taints_of_ours(node: NodeState, *, take_over: bool) -> tuple[Taint, ...]:
    """Name the taints that are ours and still as we set them."""
    there = {_taint(each) for each in node.taints}
    tracked = dict.fromkeys(parse_taints(TAINTS.text(node, take_over=take_over)))
    return tuple(taint for taint in tracked if taint in there)


def _identity(taint: Taint) -> tuple[str, str]:
    return taint.key, taint.effect


def _taint(taint: Json) -> Taint:
    return Taint(taint.get("key", ""), taint.get("value") or "", taint.get("effect", ""))


def _as_json(taint: Taint) -> Json:
    return {"key": taint.key, "effect": taint.effect} | ({"value": taint.value} if taint.value else {})
