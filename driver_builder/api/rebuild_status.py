"""``status.rebuild``: which requests to rebuild are acknowledged, and the tokens of build keys that they made. Pure.

Place in the flow: :mod:`driver_builder.snapshot.rebuild` reads requests of the annotations into it.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from driver_builder.model.kernels import KernelTarget
from kube_api.text import bounded_token

ALL_TARGETS = "*"
DRIVER = "DriverContainer"
NODE = "Node/"

MAX_NODES_TOLD = 200
"""How many nodes' requests the pods of a target get, in one variable of their environment."""

_DIGEST = "sha256:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilds:
    """``requests``: who (``DriverContainer``, ``Node/<name>``) asked last for which value, as its digest.

    ``tokens`` are by target id, as are ``times``: when nodes of the target were heard last, in seconds since the epoch.
    ``pending`` are nodes whose request is not served yet, with the pod (its uid) that each had when it asked.
    ``heard_at`` is when requests that are too early will be acknowledged; it is not kept.
    """

    requests: Mapping[str, str]
    tokens: Mapping[str, str]
    pending: Mapping[str, str] = field(default_factory=dict)
    times: Mapping[str, float] = field(default_factory=dict)
    heard_at: float | None = None

    def token(self, target: KernelTarget | None = None) -> str:
        """The part of a build key; empty if no rebuild was requested. Without a target: the part that all have."""
        parts = (self.of_driver, self.tokens.get(target.id, "") if target is not None else "")
        return ".".join(parts) if any(parts) else ""

    def without(self, served: Iterable[str]) -> "Rebuilds":
        """Drop the requests of nodes that are served."""
        done = frozenset(served)
        return replace(self, pending={node: uid for node, uid in self.pending.items() if node not in done})

    def has_heard(self, node: str, value: str) -> bool:
        """Return whether a node's request is acknowledged: it makes nothing new any more, wherever the node moves."""
        return self.requests.get(NODE + node) == kept(value)

    @property
    def of_driver(self) -> str:
        """The part of every token that a request on the DriverContainer made; empty when it never had one."""
        return self.tokens.get(ALL_TARGETS, "")

    def of_nodes(self, nodes: Iterable[str]) -> dict[str, str]:
        """Give the tokens of single nodes' requests, for their pods to load anew; of many nodes not all."""
        if not self.requests:
            return {}
        asked = [name for name in nodes if NODE + name in self.requests]
        chosen = sorted(asked, key=lambda name: (name not in self.pending, name))[:MAX_NODES_TOLD]
        return {name: self.requests[NODE + name].removeprefix(_DIGEST) for name in sorted(chosen)}

    def as_status(self) -> dict[str, dict[str, Any]]:
        """Give the form that ``from_status`` reads."""
        return {
            "requests": dict(self.requests),
            "tokens": dict(self.tokens),
            "pending": dict(self.pending),
            "times": {target: int(at) for target, at in self.times.items()},
        }


def from_status(status: Mapping[str, Mapping[str, Any]] | None) -> Rebuilds:
    """Read ``status.rebuild``; values that an earlier release kept as they are become digests."""
    status = status or {}
    return Rebuilds(
        requests={who: kept(bounded_token(str(value))) for who, value in (status.get("requests") or {}).items()},
        tokens={target: str(token) for target, token in (status.get("tokens") or {}).items()},
        pending={node: str(uid) for node, uid in (status.get("pending") or {}).items()},
        times={target: float(at) for target, at in (status.get("times") or {}).items() if isinstance(at, int)},
    )


def kept(value: str) -> str:
    """Give what is kept of a value: its digest. What is one already stays."""
    is_digest = value.startswith(_DIGEST) and len(value) == len(_DIGEST) + 16
    return value if is_digest else _DIGEST + hashlib.sha256(value.encode(errors="replace")).hexdigest()[:16]
