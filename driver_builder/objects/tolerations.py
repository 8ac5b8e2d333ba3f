"""What every pod of ours tolerates, whatever its author says: our own taints. Pure.

A DaemonSet makes no pod on a node whose taint it does not tolerate, and we taint the nodes on which it has to.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from kube_api.names import PENDING_TAINT, UPGRADING_TAINT, pending_taint

Json = dict[str, Any]

OURS: tuple[Json, ...] = tuple({"key": key, "operator": "Exists"} for key in (PENDING_TAINT, UPGRADING_TAINT))


def with_ours(tolerations: Iterable[Mapping[str, Any]]) -> list[Json]:
    """Return the tolerations of a pod of ours."""
    given = [dict(item) for item in tolerations]
    return [*given, *(item for item in OURS if item not in given)]


def of_pending(drivers: Iterable[DriverContainer]) -> tuple[Json, ...]:
    """Return what tolerates the taints of nodes where one of these drivers is not proven yet.

    Pods of all drivers have to: one that a driver depends on would not come to the node otherwise.
    """
    keys = (
        pending_taint(driver.namespace, driver.name)
        for driver in drivers
        if isinstance(driver.spec, DriverSpec) and driver.spec.validation.taint
    )
    return tuple({"key": key, "operator": "Exists"} for key in sorted(keys))
