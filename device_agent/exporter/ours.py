"""The series that no other exporter has: of any vendor's cards, and of the exporter itself. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from device_agent.exporter.labels import Family, Host, Labelled, Sample, lasting_pairs, owner_pairs, pods_of_cards
from device_agent.gpu_state.use import XidCount
from device_agent.metrics import label_pairs
from device_agent.usage.attribution import Allocated, Owner

REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
)
"""Of NVML's ``nvmlClocksEventReason*``, the lowest bit first."""
_OTHER = "other"
_PERCENT = 100.0


class Health(NamedTuple):
    """How far the exporter can be believed.

    ``age``: of what was said of use, in seconds; None: nothing was. ``is_fresh``: it counts still.
    ``knows_holders``: the kubelet says who has devices. ``knows_processes``: processes can be said to be of pods; None
    where that is not asked for. ``dropped``: series that were left out.
    """

    age: float | None
    is_fresh: bool
    knows_holders: bool
    knows_processes: bool | None
    dropped: int


def card_families(cards: Sequence[Labelled]) -> Iterator[Family]:
    """Make what is known of the cards of any vendor."""
    used = [(one.own, one.card.values["memory_used"]) for one in cards if "memory_used" in one.card.values]
    used += [(pairs, pod.memory) for pairs, pod in pods_of_cards(cards) if pod.memory is not None]
    total = [(one.own, one.card.values["memory_total"]) for one in cards if "memory_total" in one.card.values]
    busy = [(one.own, one.card.values["busy_percent"]) for one in cards if "busy_percent" in one.card.values]
    busy += [(pairs, pod.busy) for pairs, pod in pods_of_cards(cards) if pod.busy is not None]
    ratio = [(pairs, percent / _PERCENT) for pairs, percent in busy]
    yield Family("device_agent_gpu_memory_used_bytes", "gauge",
                 "Used memory of a card; of a shared one also of each pod.", used)  # fmt: skip
    yield Family("device_agent_gpu_memory_total_bytes", "gauge", "Memory of a card.", total)
    yield Family("device_agent_gpu_busy_ratio", "gauge",
                 "Time in which a card was busy, 0 to 1; of a shared one also of each pod.", ratio)  # fmt: skip


def event_families(cards: Sequence[Labelled], xids: Iterable[XidCount], host: Host) -> Iterator[Family]:
    """Make what happens to NVIDIA's cards, by labels that do not change with who has them."""
    throttled = [sample for one in cards if not one.card.parent for sample in _throttle(one)]
    yield Family("device_agent_gpu_throttle", "gauge", "1 if the clocks of a card are low for this reason.", throttled)
    lasting = {one.card.id: one.lasting for one in cards}
    counts = []
    for one in xids:
        pairs = lasting.get(one.uuid) or lasting_pairs("", one.uuid, host)
        counts.append((f"{pairs},{label_pairs({'xid': str(one.xid)})}", one.count))
    yield Family("device_agent_gpu_xid_total", "counter",
                 "Xid errors of a card since the container nvml started.", counts)  # fmt: skip


def allocated_family(held: Iterable[Allocated], host: Host) -> Family:
    """Make which container has which device, of all resources of the agent."""
    samples = []
    for one in held:
        device = label_pairs({"resource": one.resource, "device": one.device, host.label: host.name})
        samples.append((f"{device},{owner_pairs(Owner(*one.holder))}", 1.0))
    return Family("device_agent_device_allocated", "gauge",
                  "Always 1: a container has this device of the agent's resource.", samples)  # fmt: skip


def health_families(health: Health) -> Iterator[Family]:
    """Make what says how far the other series can be believed."""
    ages = [] if health.age is None else [("", round(health.age, 3))]
    processes = [] if health.knows_processes is None else [("", float(health.knows_processes))]
    yield Family("device_agent_use_current", "gauge",
                 "1 if what is known of the cards' use is at most 5 seconds old.", [("", health.is_fresh)])  # fmt: skip
    yield Family("device_agent_use_age_seconds", "gauge", "Age of what is known of the cards' use.", ages)
    yield Family("device_agent_pod_resources_current", "gauge",
                 "1 if the kubelet says which pod has which device.", [("", health.knows_holders)])  # fmt: skip
    yield Family("device_agent_processes_known", "gauge",
                 "1 if processes can be said to be of pods.", processes)  # fmt: skip
    yield Family("device_agent_exporter_dropped_series", "gauge",
                 "Series that were left out because there are too many.", [("", health.dropped)])  # fmt: skip


def _throttle(one: Labelled) -> Iterator[Sample]:
    if "throttle" not in one.card.values:
        return
    mask = int(one.card.values["throttle"])
    bits = {reason: mask >> bit & 1 for bit, reason in enumerate(REASONS)}
    for reason, is_set in {**bits, _OTHER: int(mask >> len(REASONS) > 0)}.items():
        yield f"{one.lasting},{label_pairs({'reason': reason})}", is_set
