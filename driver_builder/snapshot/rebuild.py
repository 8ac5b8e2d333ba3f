"""Rebuild annotations turned into build-key tokens, once per new value. Pure.

A request is a new value of ``driverwright.io/rebuild``: on the DriverContainer it is for all its targets and all their
pods, on a node for that node's target, and only the pod of that node is replaced. Acknowledged requests and the tokens
they made are kept in the DriverContainer's status, so that an old value never rebuilds twice: not after a restart, not
when the annotation is taken away, not when a node that still carries one moves to another kernel. The token is derived
from the one before, so a controller that is killed before it wrote the status computes the same token again, hence the
same key.

A node can annotate itself, and values are of any length. So a value is kept as its digest, and the nodes of one target
are heard once in a while: all that ask by then are served by one build.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from driver_builder.api.rebuild_status import ALL_TARGETS, DRIVER, NODE, Rebuilds, kept
from driver_builder.model.kernels import KernelTarget
from driver_builder.snapshot import inventory
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import DriverPod

NODES_HEARD_SECONDS = 600.0
"""So often nodes can have their target built anew."""
MAX_TOKENS = 200
"""So many tokens of targets that no node is of are kept, those that were made last."""


def acknowledge(
    known: Rebuilds,
    *,
    driver: str | None,
    targets: Mapping[KernelTarget, tuple[str, ...]],
    nodes: Sequence[Node],
    pods: Callable[[], Mapping[str, str]] = dict,
    now: float = 0.0,
) -> Rebuilds:
    """Take in the annotations as they are now; equal to ``known`` when there is no new value.

    ``pods`` gives the uids of the driver's pods by node. What a node asked for that is no more is dropped, the tokens
    that it made are kept: they are in the images' keys.
    """
    by_name, asking = inventory.by_name(nodes), inventory.asking(nodes)
    requests = {
        who: value
        for who, value in known.requests.items()
        if who == DRIVER or (who.startswith(NODE) and who.removeprefix(NODE) in by_name)
    }
    tokens, times = dict(known.tokens), dict(known.times)
    served = {name for names in targets.values() for name in names} if known.pending else set()
    pending = {name: uid for name, uid in known.pending.items() if name in served}
    if driver is not None and requests.get(DRIVER) != kept(driver):
        requests[DRIVER] = kept(driver)
        tokens[ALL_TARGETS] = _next_token(tokens.get(ALL_TARGETS, ""), DRIVER, driver)
    waits: list[float] = []
    for target, names in targets.items():
        requested = {name: asking[name] for name in names if name in asking} if asking else {}
        new = {name: value for name, value in requested.items() if value and requests.get(NODE + name) != kept(value)}
        heard_at = min(times.get(target.id, now - NODES_HEARD_SECONDS), now) + NODES_HEARD_SECONDS
        if not new:
            continue
        if heard_at > now:
            waits.append(heard_at)
            continue
        uids = pods()
        times[target.id] = float(int(now))
        for name, value in new.items():
            requests[NODE + name] = kept(value)
            tokens[target.id] = _next_token(tokens.get(target.id, ""), NODE + name, value)
            pending[name] = uids.get(name, "")
    tokens = _pruned(tokens, times, {target.id for target in targets})
    return Rebuilds(
        requests=requests,
        tokens=tokens,
        pending=pending,
        times={target: at for target, at in times.items() if target in tokens},
        heard_at=min(waits, default=None),
    )


def _pruned(tokens: Mapping[str, str], times: Mapping[str, float], current: set[str]) -> dict[str, str]:
    """Drop tokens of targets that no node is of, the oldest first, where there are too many."""
    others = sorted((target for target in tokens if target not in (ALL_TARGETS, *current)), key=lambda target: (
        times.get(target, 0.0), target,
    ))  # fmt: skip
    dropped = set(others[: max(0, len(others) - MAX_TOKENS)])
    return {target: token for target, token in tokens.items() if target not in dropped}


def _next_token(before: str, who: str, value: str) -> str:
    return hashlib.sha256("\0".join((before, who, value)).encode(errors="replace")).hexdigest()[:12]


def is_due(pod: DriverPod, rebuilds: Rebuilds, image: str) -> bool:
    """Return whether a pod is older than its node's request: the pod of that time, or one with another image."""
    uid = rebuilds.pending.get(pod.node)
    return uid is not None and (pod.uid == uid or pod.image != image)


def served(pods: Iterable[DriverPod], rebuilds: Rebuilds, image: str) -> frozenset[str]:
    """Return the nodes whose requests are served."""
    there = {pod.node: pod for pod in pods if not pod.deleting and pod.node in rebuilds.pending}
    return frozenset(node for node, pod in there.items() if not is_due(pod, rebuilds, image))
