"""How far a rollout is: a DriverContainer's status as a value, a sentence and a table. Pure.

Place in the flow: ``driver-builder rollout status`` prints it; the controller does not need it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, assert_never

from driver_builder.api.rollout_status import COUNTS, NodeCounts
from driver_builder.api.status import TargetStatus, previous_targets
from driver_builder.base.reasons import WITHOUT_DRIVER, TargetState
from driver_builder.cli import output
from driver_builder.model.driver_key import DriverKey, driver_key
from kube_api import names
from kube_api.text import printable

Json = dict[str, Any]

HALTED = "Halted"
"""The phase of a wave that ends by itself no more."""
_STUCK = (TargetState.FAILED, TargetState.BLOCKED)
_ORDER = (
    TargetState.FAILED, TargetState.BLOCKED, TargetState.PENDING, TargetState.BUILDING, TargetState.ROLLING_OUT,
    TargetState.READY, TargetState.SKIPPED, TargetState.NOT_APPLICABLE,
)  # fmt: skip
"""What needs a person comes first."""
_HEADERS = ("KERNEL", "OS", "READY", "STATE", "REASON", "MESSAGE")


class Outcome(StrEnum):
    """Whether a rollout has ended: ``stuck`` needs a person."""

    DONE = "done"
    UNDER_WAY = "under way"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveView(NodeCounts):
    """``status.rollout``: the wave that replaces the driver's pods, as it is shown."""

    phase: str
    message: str
    started: str
    canary_proven: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutView:
    """A rollout at one moment; ``is_observed`` says whether the status is that of the spec as it is now.

    ``note`` is the message of the condition Ready or Degraded, which says more where no target does.
    """

    driver: DriverKey
    version: str
    is_paused: bool
    is_observed: bool
    targets: tuple[TargetStatus, ...]
    wave: WaveView | None = None
    note: str = ""

    @property
    def wanted(self) -> tuple[TargetStatus, ...]:
        """The targets whose nodes are to have the driver."""
        return tuple(target for target in self.targets if target.nodes and target.state not in WITHOUT_DRIVER)

    @property
    def outcome(self) -> Outcome:
        """Whether it has ended; a paused one waits for a person to resume it."""
        if not self.is_observed:
            return Outcome.UNDER_WAY
        is_halted = self.wave is not None and self.wave.phase == HALTED
        if is_halted or any(target.state in _STUCK for target in self.wanted):
            return Outcome.UNDER_WAY if self.is_paused else Outcome.STUCK
        is_ready = bool(self.wanted) and all(target.state is TargetState.READY for target in self.wanted)
        return Outcome.DONE if is_ready and self.wave is None else Outcome.UNDER_WAY

    @property
    def headline(self) -> str:
        """How far it is, without the wave."""
        ready, nodes = sum(target.ready_nodes for target in self.wanted), sum(target.nodes for target in self.wanted)
        count, head = f"{ready} of {nodes} nodes ready", f"{self.driver} {self.version}"
        match self.outcome:
            case Outcome.DONE:
                return f"{head}: rolled out, {count}{', paused' if self.is_paused else ''}"
            case Outcome.STUCK:
                return f"{head}: not rolled out, {count}"
            case Outcome.UNDER_WAY if not self.is_observed:
                return f"{head}: the controller has not observed this version of the spec yet"
            case Outcome.UNDER_WAY:
                words = "paused" if self.is_paused else "rolling out"
                return f"{head}: {words}, {count}" + ("" if self.wanted or not self.note else f"; {self.note}")
            case _ as never:
                assert_never(never)

    @property
    def sentence(self) -> str:
        """How far it is, and what it waits for or is stuck at, in one line."""
        stuck = [target for target in self.wanted if target.state in _STUCK]
        if self.outcome is Outcome.STUCK and stuck and not (self.wave and self.wave.phase == HALTED):
            return f"{self.headline}; {stuck[0].kernel}: {stuck[0].state.value}, {stuck[0].reason}"
        if self.wave is None or not self.is_observed:
            return self.headline
        return f"{self.headline}; {_sentence(self.wave)}"

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons of targets that need a person, for their remedies."""
        return tuple(
            target.reason for target in self.wanted if target.state in _STUCK or target.state is TargetState.PENDING
        )

    def as_document(self) -> Mapping[str, Any]:
        """Return plain data, for programs."""
        return {
            "driver": self.driver,
            "outcome": self.outcome.value,
            "paused": self.is_paused,
            "message": self.sentence,
        }


def parse(obj: Json) -> RolloutView:
    """Read a DriverContainer as the API server returns it."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    conditions = {item.get("type"): item for item in status.get("conditions") or ()}
    degraded, ready = (conditions.get(kind) or {} for kind in ("Degraded", "Ready"))
    said = degraded if degraded.get("status") == "True" else ready
    annotations = metadata.get("annotations") or {}
    targets = previous_targets(status).values()
    return RolloutView(
        driver=driver_key(metadata["namespace"], metadata["name"]),
        version=printable(str((obj.get("spec") or {}).get("version", "?")), 63),
        is_paused=annotations.get(names.PAUSE_ANNOTATION) == "true",
        is_observed=int(status.get("observedGeneration") or 0) >= int(metadata.get("generation") or 1),
        targets=tuple(sorted(targets, key=lambda target: (_ORDER.index(target.state), target.kernel, target.target))),
        wave=_wave(status.get("rollout")),
        note=printable(str(said.get("message") or "")),
    )


def lines(view: RolloutView, *, bars: str = "", rows: int | None = None) -> list[str]:
    """Write sentence, wave and targets; ``bars`` are the characters of a full and of an empty part of a bar, if any.

    Only so many ``rows`` of targets are shown; the others are counted.
    """
    shown = view.targets if rows is None else view.targets[:rows]
    cells = [
        (
            target.kernel, f"{target.os}/{target.architecture}", output.counted(target.ready_nodes, target.nodes, bars),
            target.state.value, target.reason or "-", printable(target.message),
        )
        for target in shown
    ]  # fmt: skip
    made = [view.headline]
    if view.wave is not None:
        made += _wave_lines(view.wave, bars)
    if cells:
        made += ["", *output.table(_HEADERS, cells).splitlines()]
    more = len(view.targets) - len(shown)
    return [*made, *([f"and {more} more"] if more else [])]


def _wave(entry: Any) -> WaveView | None:
    """Read ``status.rollout``, whatever a later version adds to it; there is none while no wave is under way."""
    if not isinstance(entry, dict) or not entry.get("phase"):
        return None
    return WaveView(
        phase=printable(str(entry["phase"]), 63),
        message=printable(str(entry.get("message") or "")),
        **{name: _number(entry, key) for name, key in COUNTS.items()},
        started=printable(str(entry.get("startTime") or ""), 63),
        canary_proven=printable(str(entry.get("canaryProvenTime") or ""), 63),
    )


def _number(entry: Json, name: str) -> int:
    value = entry.get(name)
    return value if isinstance(value, int) else 0


def _sentence(wave: WaveView) -> str:
    message = f": {wave.message}" if wave.message else ""
    return f"wave {wave.phase}, {wave.updated} of {wave.nodes} nodes updated{message}"


def _wave_lines(wave: WaveView, bars: str) -> list[str]:
    counts = [
        f"{output.counted(wave.updated, wave.nodes, bars)} nodes updated",
        f"{wave.unavailable} unavailable (at most {wave.max_unavailable})",
        f"{wave.failed} failed",
        *([f"{wave.left_out} left out"] if wave.left_out else []),
    ]
    times = [f"started {wave.started}"] if wave.started else []
    times += [f"canary proven {wave.canary_proven}"] if wave.canary_proven else []
    return [
        f"  {wave.phase}: {', '.join(counts)}",
        *([f"  {wave.message}"] if wave.message else []),
        *([f"  {', '.join(times)}"] if times else []),
    ]
