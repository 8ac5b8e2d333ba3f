"""Times as Kubernetes writes them."""

from datetime import UTC, datetime

LATEST = 1 << 33
"""The year 2242, in seconds since the epoch: a later time was written by nobody."""


def timestamp(seconds: float) -> str:
    """Write a time as Kubernetes does, to the second."""
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str | None) -> float | None:
    """Read what :func:`timestamp` wrote."""
    return datetime.fromisoformat(text).timestamp() if text else None
