"""Rebuild annotations turned into build-key tokens, once per new value. Pure.

A request is a new value of ``driverwright.io/rebuild`` on the DriverContainer (all its targets) or on a node (that
node's target). Acknowledged requests and the tokens they made are kept in the DriverContainer's status, so that an old
value never rebuilds twice: not after a restart, not when the annotation is taken away, not when a node that still
carries one moves to another kernel. The token is derived from the one before, so a controller that is killed before it
wrote the status computes the same token again, hence the same key.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from driver_builder.model.kernels import KernelTarget
from driver_builder.planning.inventory import Node

ALL_TARGETS = "*"
DRIVER = "DriverContainer"
NODE = "Node/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilds:
    """``requests``: who (``DriverContainer``, ``Node/<name>``) asked last for which value; ``tokens``: by target id."""

    requests: Mapping[str, str]
    tokens: Mapping[str, str]

    def token(self, target: KernelTarget) -> str:
        """What goes into the build key of a target; empty when nobody ever asked."""
        parts = (self.tokens.get(ALL_TARGETS, ""), self.tokens.get(target.id, ""))
        return ".".join(parts) if any(parts) else ""

    def as_status(self) -> dict[str, dict[str, str]]:
        """Give the form that ``from_status`` reads."""
        return {"requests": dict(self.requests), "tokens": dict(self.tokens)}


def from_status(status: Mapping[str, Mapping[str, str]] | None) -> Rebuilds:
    """Read ``status.rebuild``."""
    status = status or {}
    return Rebuilds(requests=dict(status.get("requests") or {}), tokens=dict(status.get("tokens") or {}))


def acknowledge(
    known: Rebuilds, *, driver: str | None, targets: Mapping[KernelTarget, tuple[str, ...]], nodes: Iterable[Node]
) -> Rebuilds:
    """Take in the annotations as they are now; equal to ``known`` when there is no new value.

    What a node asked for that is no more is dropped, the tokens that it made are kept: they are in the images' keys.
    """
    by_name = {node.name: node for node in nodes}
    there = {DRIVER, *(f"{NODE}{name}" for name in by_name)}
    requests = {who: value for who, value in known.requests.items() if who in there}
    tokens = dict(known.tokens)
    wishes = [(DRIVER, ALL_TARGETS, driver)]
    wishes += [
        (f"{NODE}{name}", target.id, by_name[name].rebuild)
        for target, names in targets.items()
        for name in names
        if name in by_name
    ]
    for who, scope, value in wishes:
        if value is not None and requests.get(who) != value:
            requests[who] = value
            tokens[scope] = _next_token(tokens.get(scope, ""), who, value)
    return Rebuilds(requests=requests, tokens=tokens)


def _next_token(before: str, who: str, value: str) -> str:
    return hashlib.sha256("\0".join((before, who, value)).encode()).hexdigest()[:12]
