"""One discovery cycle as numbered steps: read the host, make labels, say what could not be read.

Pure but for the reads: the same host, settings and last good features give the same report.
"""

import time
from collections.abc import Mapping
from typing import NamedTuple

from kube_api.names import BOOT_ID_ANNOTATION, KERNEL_VERSION_ANNOTATION
from nfd_worker.config import Settings
from nfd_worker.errors import HostReadError
from nfd_worker.features import Failed, Features, merge
from nfd_worker.host import BOOT_ID, OS_RELEASE, Host
from nfd_worker.labels import LabelWarning, make_labels
from nfd_worker.sources import SOURCES, discover

_ANNOTATED = {BOOT_ID_ANNOTATION: BOOT_ID, KERNEL_VERSION_ANNOTATION: OS_RELEASE}


class CycleReport(NamedTuple):
    """What one cycle found.

    ``labels``, ``annotations``: what the Node should carry, full keys, sorted.
    ``features``: of all sources, merged.
    ``failed``: source -> why it could not be read.
    ``unknown``: the failed sources that were never read before: what the Node says about them must stay.
    ``warnings``: labels that were left out.
    ``last_good``: source -> features of its last good read; goes into the next cycle.
    ``seconds``: how long the cycle took.
    """

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    features: Features
    failed: Mapping[str, str]
    unknown: tuple[str, ...]
    warnings: tuple[LabelWarning, ...]
    last_good: Mapping[str, Features]
    seconds: float


def run_cycle(host: Host, settings: Settings, last_good: Mapping[str, Features]) -> CycleReport:
    """Run one cycle."""
    start = time.perf_counter()
    # 1. Read every source.
    outcomes = {name: discover(name, host, settings.sources) for name in settings.feature_sources}
    failed = {name: outcome.reason for name, outcome in outcomes.items() if isinstance(outcome, Failed)}
    # 2. A failed read is not an absent feature: the last good one stands in for it.
    stood_in = {name: last_good[name] for name in failed if name in last_good}
    found = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Features)}
    known = {name: (found | stood_in)[name] for name in settings.feature_sources if name in found or name in stood_in}
    # 3. Let each source say which of it is worth a label.
    wanted = {
        name: SOURCES[name].labels(features, settings.sources)
        for name, features in known.items()
        if name in settings.label_sources
    }
    # 4. Name and check the labels.
    labels, warnings = make_labels(wanted, settings.label_whitelist)
    # 5. Report.
    return CycleReport(
        labels=labels,
        annotations=_annotations(host),
        features=merge(known.values()),
        failed=failed,
        unknown=tuple(name for name in failed if name not in known and name in settings.label_sources),
        warnings=warnings,
        last_good={**last_good, **found},
        seconds=time.perf_counter() - start,
    )


def _annotations(host: Host) -> dict[str, str]:
    """Say which boot and which kernel release, to the letter, the labels describe; what cannot be read is not said."""
    found = {key: _find(host, path) for key, path in _ANNOTATED.items()}
    return {key: value for key, value in found.items() if value}


def _find(host: Host, path: str) -> str:
    try:
        return (host.find(path) or "").strip()
    except HostReadError:
        return ""
