"""Status of kernels that a driver's nodes can move to: ``status.ahead``, a condition, Events. Pure.

One entry for each node pool: the newest kernel of its repository, when that was found, and the state of the driver's
image for it is. Nothing else is kept of a kernel discovery: with it a controller that restarts does not ask again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driver_builder.api.status import Event, TargetStatus, advised, advising, parse_target, readable, render_target
from driver_builder.api.status import condition as made
from driver_builder.base.reasons import Reason, TargetState
from kube_api.text import bounded_message
from kube_api.timestamps import parse_timestamp, timestamp

Json = dict[str, Any]

CONDITION = "ReadyForNewestKernel"

_NEWS = {TargetState.BUILDING: Reason.BUILD_STARTED, TargetState.READY: Reason.READY_FOR_KERNEL}
_QUIET = (TargetState.SKIPPED, TargetState.NOT_APPLICABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AheadStatus:
    """One pool of nodes: those of a distribution's release and architecture whose kernels are of one ``stream``.

    ``target`` is the newest kernel (its text is empty while none is known), with the number of nodes that do not run it
    yet. ``base_image`` is that of the repository that was asked at ``looked_up``; ``error`` is of a later, failed try.
    """

    stream: str
    base_image: str
    target: TargetStatus
    looked_up: float | None = None
    error: str = ""
    error_at: float | None = None

    @property
    def pool(self) -> tuple[str, str, str]:
        """What identifies the pool among others of the driver."""
        return (self.target.os, self.target.architecture, self.stream)

    @property
    def is_ready(self) -> bool:
        """Whether nodes of the pool may move, for this driver; ``gate`` says the same."""
        unwanted = self.target.reason in (Reason.SKIPPED_BY_MAPPING, Reason.NO_NODES)
        return self.target.state is TargetState.READY or unwanted


def previous_ahead(status: Mapping[str, Any]) -> dict[tuple[str, str, str], AheadStatus]:
    """Read ``status.ahead`` by pool."""
    return {found.pool: found for found in readable(status.get("ahead"), _parse)}


def _parse(entry: Json) -> AheadStatus:
    return AheadStatus(
        stream=entry["stream"],
        base_image=entry["baseImage"],
        target=parse_target({**entry, "readyNodes": 0}),
        looked_up=parse_timestamp(entry.get("lookedUpTime")),
        error=entry.get("lookUpError", ""),
        error_at=parse_timestamp(entry.get("lookUpErrorTime")),
    )


def render_ahead(entries: Iterable[AheadStatus]) -> list[Json]:
    """Write ``status.ahead``."""
    return [_render(entry) for entry in entries]


def _render(entry: AheadStatus) -> Json:
    made = render_target(entry.target)
    del made["readyNodes"]
    made |= {"stream": entry.stream, "baseImage": entry.base_image}
    if entry.looked_up is not None:
        made["lookedUpTime"] = timestamp(entry.looked_up)
    if entry.error_at is not None:
        made |= {"lookUpError": bounded_message(entry.error), "lookUpErrorTime": timestamp(entry.error_at)}
    return made


def condition(entries: Sequence[AheadStatus]) -> Json:
    """Return one condition: whether every pool may move to its newest kernel, and the first that may not."""
    behind = [entry for entry in entries if not entry.is_ready]
    unknown = [entry for entry in behind if not entry.target.kernel]
    if not entries:
        words = "no selected node runs a kernel of its distribution's packages"
        return made(CONDITION, None, Reason.NO_NODES, words)
    if not behind:
        kernels = ", ".join(sorted({entry.target.kernel for entry in entries}))
        if all(entry.target.reason == Reason.NEWEST_KERNEL_RUNS for entry in entries):
            return made(CONDITION, True, Reason.NEWEST_KERNEL_RUNS, f"no node is on an older kernel than {kernels}")
        return made(CONDITION, True, Reason.BUILT_AHEAD, f"a verified image exists, or none is needed: {kernels}")
    if len(unknown) == len(behind):
        found = unknown[0]
        return advising(CONDITION, None, found.target.reason, f"{found.stream}: {found.target.message}")
    first = next(entry for entry in behind if entry.target.kernel).target
    return advising(CONDITION, False, first.reason, f"{first.kernel}: {first.message}")


def news(before: Mapping[tuple[str, str, str], AheadStatus], after: Iterable[AheadStatus]) -> tuple[Event, ...]:
    """Report changes for kernels that some node can move to: one Event for each change of state or reason."""
    found: list[Event] = []
    for entry in after:
        old, now = before.get(entry.pool), entry.target
        known = old.target if old is not None else None
        if known is not None and (known.kernel, known.state, known.reason, known.key) == (
            now.kernel, now.state, now.reason, now.key,
        ):  # fmt: skip
            continue
        if not now.kernel or not now.nodes or now.state in _QUIET or now.reason == Reason.BUILDS_SUSPENDED:
            continue
        reason = _NEWS.get(now.state, now.reason)
        kind = "Normal" if now.state in _NEWS else "Warning"
        found.append(
            Event(kind=kind, reason=str(reason), message=advised(reason, f"{now.target} (prebuild): {now.message}"))
        )
    return tuple(found)
