"""What the API server can answer besides yes: the one map from HTTP status to class.

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


class KubeApiError(Exception):
    """The API server did not do what was asked: ``status`` (0 without an answer), ``reason``, ``message``."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def is_temporary(self) -> bool:
        """Whether the same request can succeed later without anybody changing it."""
        return isinstance(self, Unreachable | ServerUnavailable | TooManyRequests | Conflict)


class Unreachable(KubeApiError):
    """No HTTP answer: connection refused, timeout, TLS or name resolution."""


class Unauthorized(KubeApiError):
    """401: the credentials are not accepted."""


class Forbidden(KubeApiError):
    """403: the service account lacks a permission."""


class NotFound(KubeApiError):
    """404."""


class Conflict(KubeApiError):
    """409: changed by somebody else meanwhile, or it already exists."""


class Gone(KubeApiError):
    """410: the resourceVersion is too old to watch from."""


class Invalid(KubeApiError):
    """422: the object is not valid."""


class TooManyRequests(KubeApiError):
    """429: ask again after ``retry_after`` seconds."""


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

    ``request`` says what was attempted ("PATCH /api/v1/nodes/a"); ``body`` is a metav1.Status where the API server
    itself answered, and anything at all where a proxy did. ``retry_after`` is the header, in seconds.
    """
    reason, message = _reason_and_message(body)
    kind = _BY_STATUS.get(status, ServerUnavailable if status >= 500 else KubeApiError)
    seconds = float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else None
    return kind(
        f"{request}: {status} {reason or kind.__name__}: {message}", status=status, reason=reason, retry_after=seconds
    )


def _reason_and_message(body: str | bytes | None) -> tuple[str, str]:
    text = body.decode(errors="replace") if isinstance(body, bytes) else body or ""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return "", text[:300]
    if not isinstance(answer, dict):
        return "", text[:300]
    return str(answer.get("reason") or ""), str(answer.get("message") or text[:300])
