"""What the agent counts, in the Prometheus text format, version 0.0.4.

``prometheus_client`` would add 14 MiB to the resident process. The format:
https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from device_agent import __version__

if TYPE_CHECKING:
    from device_agent.profiles.verdict import Verdict

Labels = Mapping[str, str]
Sample = tuple[Labels, float]

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class ResourceCounts(NamedTuple):
    """What is counted of one resource; mappings are from a label's value to a number."""

    name: str
    is_registered: bool
    devices: Mapping[str, int]
    registrations: Mapping[str, int]
    allocations: Mapping[str, int]
    commands: Mapping[str, int]
    changes: int


class Counts(NamedTuple):
    """What is counted of the agent. ``profile``: what became of the node's profile; None without profiles.

    ``mig_waits``: whether a change of the MIG layout waits, or has failed; None where none is changed.
    """

    resources: tuple[ResourceCounts, ...]
    config_is_current: bool
    reloads: Mapping[str, int]
    profile: "Verdict | None" = None
    mig_waits: bool | None = None


Metric = tuple[str, str, str, Iterable[Sample]]
"""Name after ``device_agent_``, kind, description, and samples of whole numbers."""


def render(counts: Counts) -> str:
    """Write all metrics out."""
    return write(_metrics(counts))


def write(metrics: Iterable[Metric]) -> str:
    """Write metrics of the agent out."""
    return "".join(
        line
        for name, kind, description, samples in metrics
        for line in family(
            f"device_agent_{name}", kind, description, ((label_pairs(labels), int(value)) for labels, value in samples)
        )
    )


def label_pairs(labels: Labels) -> str:
    """Write labels as they stand between braces."""
    return ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items())


def family(name: str, kind: str, description: str, samples: Iterable[tuple[str, float]]) -> Iterator[str]:
    """Write a metric and its samples: labels as :func:`label_pairs` writes them, and a value."""
    yield f"# HELP {name} {description}\n# TYPE {name} {kind}\n"
    for pairs, value in samples:
        yield f"{name}{{{pairs}}} {_number(value)}\n" if pairs else f"{name} {_number(value)}\n"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _metrics(counts: Counts) -> Iterator[Metric]:
    every = counts.resources
    yield "build_info", "gauge", "Version of the agent.", [({"version": __version__}, 1)]
    yield (
        "devices", "gauge", "Devices of a resource on this node, by health; waiting: for a change of profile.",
        _by("health", {one.name: one.devices for one in every}),
    )  # fmt: skip
    yield (
        "health_changes_total", "counter", "Devices that became healthy or unhealthy.",
        [({"resource": one.name}, one.changes) for one in every],
    )  # fmt: skip
    yield (
        "registered", "gauge", "1 if the kubelet knows the resource and watches its devices.",
        [({"resource": one.name}, one.is_registered) for one in every],
    )  # fmt: skip
    yield (
        "registrations_total", "counter", "Attempts to register a resource.",
        _by("result", {one.name: one.registrations for one in every}),
    )  # fmt: skip
    yield (
        "allocations_total", "counter", "Containers that got devices, or were refused them.",
        _by("result", {one.name: one.allocations for one in every}),
    )  # fmt: skip
    yield (
        "health_commands_total", "counter", "Commands that examined a device.",
        _by("result", {one.name: one.commands for one in every}),
    )  # fmt: skip
    yield (
        "config_current", "gauge", "1 if the configuration file is in use, 0 if it is wrong and an earlier one is.",
        [({}, counts.config_is_current)],
    )  # fmt: skip
    yield (
        "config_reloads_total", "counter", "Times that the configuration file was read again.",
        [({"result": result}, number) for result, number in counts.reloads.items()],
    )  # fmt: skip
    profile = counts.profile
    yield (
        "profile_current", "gauge", "1 if the profile that is asked for is in force, 0 if it is refused.",
        [] if profile is None else [({}, not profile.has_failed)],
    )  # fmt: skip
    yield (
        "profile_waiting", "gauge", "GPUs and MIG instances that are not yet offered as the profile says.",
        [] if profile is None else [({}, profile.waiting)],
    )  # fmt: skip
    yield (
        "mig_waiting", "gauge", "1 while the node has not the MIG layout that is asked for.",
        [] if counts.mig_waits is None else [({}, counts.mig_waits)],
    )  # fmt: skip


def _by(label: str, values: Mapping[str, Mapping[str, int]]) -> list[Sample]:
    return [({"resource": name, label: key}, n) for name, numbers in values.items() for key, n in numbers.items()]
