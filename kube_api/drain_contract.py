"""What a device agent asks driver-builder to drain, and what it is answered: two annotations of its Node. Pure.

The agent writes a request with its lock (:mod:`kube_api.node_lock`). An answer names the request that it is for by a
digest of its text, so that none is taken for the answer to a later one (docs/upgrades.md)::

    driverwright.io/drain-request: {"pods":["apps/train-0"],"resources":["nvidia.com/gpu"],"deadline":"30m"}
    driverwright.io/drain-state: {"state":"draining","message":"pod apps/train-0 ...","request":"9f86d081884c7d65"}

Standard library only: the device agent imports this.
"""

import json
from dataclasses import dataclass
from enum import StrEnum

from kube_api.text import printable

HOLDER = "device-agent"
"""Whose lock a request comes with: the holder that device agents write."""

MAX_REQUEST = 1 << 16
"""Characters of a request; a longer one is refused."""
MAX_PODS = 256
"""As many as the largest kubelets run."""
MAX_RESOURCES = 64
_DIGITS = 16


class DrainState(StrEnum):
    """How far a drain is that was asked for."""

    DRAINING = "draining"
    DRAINED = "drained"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainAnswer:
    """What is answered to the ``request`` with a digest."""

    state: DrainState
    message: str
    request: str


def digest_of(text: str) -> str:
    """Return by what an answer names a request, whose annotation has this text.

    Both programs have to agree also where one of them has cut the text at its bound, or has made it encodable.
    """
    import hashlib  # noqa: PLC0415 - OpenSSL would cost the agent's resident process memory, and few nodes are drained

    return hashlib.sha256(text[:MAX_REQUEST].encode(errors="replace")).hexdigest()[:_DIGITS]


def parse_answer(text: str | None) -> DrainAnswer | None:
    """Read an answer; None where there is none, or none of ours."""
    try:
        content = json.loads(text or "")
        return DrainAnswer(
            state=DrainState(content["state"]),
            message=printable(str(content.get("message") or "")),
            request=printable(str(content["request"]), _DIGITS),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def render_answer(answer: DrainAnswer) -> str:
    """Write an answer; it is read again the same."""
    content = {"state": answer.state.value, "message": answer.message, "request": answer.request}
    return json.dumps(content, separators=(",", ":"))
