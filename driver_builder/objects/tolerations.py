"""What every pod of ours tolerates, whatever its author says: our own taints. Pure.

A DaemonSet makes no pod on a node whose taint it does not tolerate, and we taint the nodes on which it has to.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from kube_api.names import PENDING_TAINT, UPGRADING_TAINT

Json = dict[str, Any]

OURS: tuple[Json, ...] = tuple({"key": key, "operator": "Exists"} for key in (PENDING_TAINT, UPGRADING_TAINT))


def with_ours(tolerations: Iterable[Mapping[str, Any]]) -> list[Json]:
    """Return the tolerations of a pod of ours."""
    given = [dict(item) for item in tolerations]
    return [*given, *(item for item in OURS if item not in given)]
