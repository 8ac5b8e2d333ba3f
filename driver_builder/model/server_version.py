"""The version of the API server: what it knows decides which fields a Job has. Pure."""

import re
from collections.abc import Mapping
from typing import Any


def minor_of(version: Mapping[str, Any]) -> int | None:
    """Read the minor version of Kubernetes 1 from ``/version``; providers write ``21+``."""
    match = re.match(r"[0-9]{1,4}", str(version.get("minor", "")))
    return int(match[0]) if match and str(version.get("major")) == "1" else None
