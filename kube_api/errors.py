"""Errors of the API server: the one map from HTTP status to class.

::

    KubeApiError
    ├── Unreachable          no HTTP answer at all: refused, timed out, TLS, DNS
    ├── Unauthorized   401
    ├── Forbidden      403
    ├── NotFound       404
    ├── Conflict       409
    ├── Gone           410   a resourceVersion that is too old: list again
    ├── Invalid        422
    ├── TooManyRequests 429  ``retry_after`` in seconds
    └── ServerUnavailable 5xx
"""

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kube_api.text import MAX_TOKEN, printable

# The authorizer's own words: 'User "x" cannot patch resource "nodes" in ...'; an admission policy's name is free text.
_RBAC_REFUSAL = re.compile(r'is forbidden: User ".*?" cannot [a-z*]+ (?:resource|path) "')

# The API server's words of a field that another manager owns; behind them stand a version and a time.
_CONFLICT_WITH = re.compile(r'conflict with "([^"]+)"')

MAX_FIELDS = 1000
"""Fields of an apply, each with its owner, that are read from a refusal."""
MAX_RETRY_AFTER = 600.0
MAX_MESSAGE = 1000
"""Characters of a response that are kept: an admission webhook may return anything."""


class KubeApiError(Exception):
    """The API server refused or failed: ``status`` (0 without a response), ``reason``, ``message``."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def is_temporary(self) -> bool:
        """Whether the same request can succeed later without a change."""
        return isinstance(self, Unreachable | ServerUnavailable | TooManyRequests | Conflict)


class Unreachable(KubeApiError):
    """No HTTP answer: connection refused, timeout, TLS or name resolution."""


class Unauthorized(KubeApiError):
    """401: the credentials are not accepted."""


class Forbidden(KubeApiError):
    """403: the service account lacks a permission, or an admission policy or webhook denies the request."""

    @property
    def lacks_permission(self) -> bool:
        """Whether RBAC refused the request; otherwise the message is that of a policy or webhook."""
        return _RBAC_REFUSAL.search(self.message) is not None


class NotFound(KubeApiError):
    """404."""


class Conflict(KubeApiError):
    """409: changed by another client meanwhile, or it already exists.

    ``owners``: of an apply without force, the fields that others own (``.metadata.labels.KEY``), and who.
    """

    owners: Mapping[str, str] = MappingProxyType({})


class Gone(KubeApiError):
    """410: the resourceVersion is too old to watch from."""


class Invalid(KubeApiError):
    """422: the object is not valid."""


class TooManyRequests(KubeApiError):
    """429: retry after ``retry_after`` seconds."""


class ServerUnavailable(KubeApiError):
    """5xx: the server or something in front of it failed."""


_BY_STATUS: dict[int, type[KubeApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def from_response(request: str, status: int, body: str | bytes | None, retry_after: str | None = None) -> KubeApiError:
    """Make the error for an HTTP answer.

    ``request`` says what was attempted ("PATCH /api/v1/nodes/a"); ``body`` is a metav1.Status from the API server
    itself, and anything at all from a proxy. ``retry_after`` is the header, in seconds.
    """
    text = body.decode(errors="replace") if isinstance(body, bytes) else body or ""
    answer = _status_of(text)
    reason, message = _reason_and_message(answer, text)
    kind = _kind_of(status)
    error = kind(
        f"{request}: {status} {reason or kind.__name__}: {message}",
        status=status,
        reason=reason,
        retry_after=_seconds(retry_after),
    )
    if isinstance(error, Conflict) and answer is not None:
        error.owners = _owners(answer)
    return error


def of_status(status: int, message: str) -> KubeApiError:
    """Make the error that an API server answered with before."""
    return _kind_of(status)(message, status=status)


def _kind_of(status: int) -> type[KubeApiError]:
    return _BY_STATUS.get(status, ServerUnavailable if status >= 500 else KubeApiError)


def _seconds(retry_after: str | None) -> float | None:
    """Read the header Retry-After if it is a number, at most ``MAX_RETRY_AFTER``."""
    if not retry_after or not retry_after.isascii() or not retry_after.isdigit():
        return None
    return min(float(retry_after), MAX_RETRY_AFTER)


def _status_of(text: str) -> dict[str, Any] | None:
    """Read a metav1.Status; None for anything else."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _reason_and_message(answer: dict[str, Any] | None, text: str) -> tuple[str, str]:
    if answer is None:
        return "", printable(text, 300)
    message = printable(" ".join([str(answer.get("message") or text[:300]), *_budgets(answer)]), MAX_MESSAGE)
    return printable(str(answer.get("reason") or ""), MAX_TOKEN), message


def _causes(answer: dict[str, Any], reason: str) -> list[dict[str, Any]]:
    details = answer.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    found = [item for item in causes if isinstance(item, dict)] if isinstance(causes, list) else []
    return [item for item in found if item.get("reason") == reason]


def _budgets(answer: dict[str, Any]) -> list[str]:
    """Return which PodDisruptionBudgets refuse an eviction: the message itself does not name them."""
    return [str(item.get("message")) for item in _causes(answer, "DisruptionBudget")[:3]]


def _owners(answer: dict[str, Any]) -> dict[str, str]:
    """Return which fields of an apply other managers own."""
    found = {
        str(item.get("field")): _CONFLICT_WITH.search(str(item.get("message")))
        for item in _causes(answer, "FieldManagerConflict")[:MAX_FIELDS]
    }
    return {field: printable(match[1], 2 * MAX_TOKEN) for field, match in found.items() if match is not None}
