"""The keys that stand on a Node of one driver, by what they say. Pure.

They are made here and nowhere else: for what is written to Nodes, for what is read of them
(:mod:`driver_builder.snapshot.node_record`), and for the table (:mod:`driver_builder.objects.node_keys`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from driver_builder.model.driver_key import DriverKey
from driver_builder.objects import loaded, validated
from driver_builder.objects.stage_labels import Stage, stage_label
from kube_api import names

_KEPT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverKeys:
    """Labels, but for ``taint`` and the annotations ``tainted``, ``loaded`` and ``validated``.

    Beside ``ready`` and some of the ``stages`` stands an annotation of the same name.
    """

    ready: str
    wave: str
    yields: str
    wants: str
    taint: str
    tainted: str
    """For which boot the taint was added."""
    loaded: str
    validated: str
    stages: Mapping[Stage, str]


@lru_cache(maxsize=_KEPT)
def driver_keys(driver: DriverKey) -> DriverKeys:
    """Make the keys of a driver."""
    parts = driver.namespace, driver.name
    return DriverKeys(
        ready=names.ready_label(*parts),
        wave=names.wave_label(*parts),
        yields=names.yield_label(*parts),
        wants=names.wanted_version_label(*parts),
        taint=names.pending_taint(*parts),
        tainted=names.pending_record(*parts),
        loaded=loaded.annotation(driver),
        validated=validated.annotation(driver),
        stages={stage: stage_label(driver, stage) for stage in Stage},
    )
