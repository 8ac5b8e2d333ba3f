"""Times as Kubernetes writes them."""

from datetime import UTC, datetime


def timestamp(seconds: float) -> str:
    """Write a time as Kubernetes does, to the second."""
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str | None) -> float | None:
    """Read what :func:`timestamp` wrote."""
    return datetime.fromisoformat(text).timestamp() if text else None
