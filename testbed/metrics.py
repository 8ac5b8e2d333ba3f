"""What a process on this machine tells Prometheus."""

from __future__ import annotations

import re

import requests

_SECONDS = 60


def read(port: int, name: str) -> float:
    """Return the sum of a metric over all its labels; 0 while nobody listens, or where the process ends meanwhile.

    Raises:
        requests.Timeout: somebody listens, and does not answer.
    """
    try:
        return total(requests.get(f"http://127.0.0.1:{port}/metrics", timeout=_SECONDS).text, name)
    except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
        return 0.0


def total(text: str, name: str) -> float:
    """Return the sum of a metric over all its labels, of what Prometheus reads."""
    found = re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
    return sum(map(float, found))
