"""What the worker counts, in the Prometheus text format, version 0.0.4.

From :mod:`nfd_worker.daemon`, which reports cycles and answers, to :mod:`nfd_worker.telemetry`, which serves the text.
``prometheus_client`` would add 14 MiB to the resident process. The format:
https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from collections.abc import Iterable, Iterator, Mapping

from nfd_worker import __version__
from nfd_worker.cycle import CycleReport
from nfd_worker.labels.node_content import NodeContent, Refusal
from nfd_worker.publish.wire import PublishAnswer
from nfd_worker.watch.schedule import TRIGGERS

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Upper bounds in seconds of the discovery histogram; those of Node Feature Discovery."""

Sample = tuple[str, Mapping[str, str], float]
"""Suffix of the metric's name, labels, value."""

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Metrics:
    """Counts, and writes out what was counted."""

    def __init__(self, node_name: str) -> None:
        self._node_name = node_name
        self._buckets = [0] * len(BUCKETS)
        self._cycles = 0
        self._seconds = 0.0
        self._triggers = dict.fromkeys(TRIGGERS, 0)
        self._content = NodeContent()
        self._source_seconds: dict[str, float] = {}
        self._failed: frozenset[str] = frozenset()
        self._rule_errors = 0
        self._refused: dict[tuple[str, str], int] = {}
        self._refused_now: frozenset[tuple[str, str, str, str]] = frozenset()
        self._attempts: dict[tuple[str, str], int] = {("failure", ""): 0, ("success", ""): 0}
        self._bytes = 0
        self._checks = dict.fromkeys(("failure", "restored", "unchanged"), 0)
        self._last_success = 0.0

    def saw_cycle(self, report: CycleReport, triggers: Iterable[str]) -> None:
        """Count a discovery cycle and what asked for it."""
        self._cycles += 1
        self._seconds += report.seconds
        for number, bound in enumerate(BUCKETS):
            self._buckets[number] += report.seconds <= bound
        for trigger in triggers:
            self._triggers[trigger] += 1
        self._content = report.content
        self._source_seconds |= report.source_seconds
        self._failed = frozenset(report.failed)
        self._rule_errors = len(report.problems)
        self._saw_refusals(report.refusals)

    def _saw_refusals(self, refusals: Iterable[Refusal]) -> None:
        """Count what is refused now and was not in the cycle before: a refusal that stands is one, not one a minute."""
        now = frozenset((refusal.origin, refusal.kind, refusal.key, refusal.reason) for refusal in refusals)
        for _origin, kind, _key, reason in now - self._refused_now:
            self._refused[kind, reason] = self._refused.get((kind, reason), 0) + 1
        self._refused_now = now

    def saw_answer(self, answer: PublishAnswer, request_bytes: int, timestamp: float) -> None:
        """Count an attempt to publish that ended at ``timestamp``, seconds since 1970."""
        outcome = ("success", "") if answer.is_published else ("failure", answer.kind)
        self._attempts[outcome] = self._attempts.get(outcome, 0) + 1
        self._bytes += request_bytes
        if answer.is_published:
            self._last_success = timestamp

    def saw_check(self, answer: PublishAnswer, timestamp: float) -> None:
        """Count a check of the Node that ended at ``timestamp``."""
        found = "restored" if answer.lost else "unchanged"
        self._checks[found if answer.is_published else "failure"] += 1
        if answer.is_published:
            self._last_success = timestamp

    def render(self, *, is_published: bool) -> str:
        """Write all metrics out; ``is_published``: whether the Node carries what was found last."""
        return "".join(
            line
            for name, kind, description, samples in self._metrics(is_published)
            for line in _metric(f"nfd_worker_{name}", kind, description, samples)
        )

    def _metrics(self, is_published: bool) -> Iterator[tuple[str, str, str, Iterable[Sample]]]:
        yield "build_info", "gauge", "Version of the worker.", [("", {"version": __version__}, 1)]
        yield (
            "feature_discovery_duration_seconds", "histogram", "How long a discovery cycle took.", self._histogram()
        )  # fmt: skip
        yield "cycles_total", "counter", "Discovery cycles, by trigger.", _by("trigger", self._triggers)
        yield (
            "source_duration_seconds", "gauge", "How long the last read of a feature source took.",
            _by("source", self._source_seconds),
        )  # fmt: skip
        yield (
            "source_failed", "gauge", "1 if a feature source could not be read; its last good features stay in use.",
            _by("source", {name: name in self._failed for name in sorted({*self._source_seconds, *self._failed})}),
        )  # fmt: skip
        for field, amount in self._content._asdict().items():
            yield field, "gauge", f"How many {field.replace('_', ' ')} the Node should carry.", [("", {}, len(amount))]
        yield (
            "refused_total", "counter", "Rejected outputs of rules, files and sources, counted when each appears.",
            [("", {"kind": kind, "reason": why}, count) for (kind, why), count in sorted(self._refused.items())],
        )  # fmt: skip
        yield "rule_errors", "gauge", "Current problems with rules and rule files.", [("", {}, self._rule_errors)]
        yield (
            "publish_total", "counter", "Attempts to publish; error is the class of error.",
            [("", {"result": result, "error": error}, n) for (result, error), n in sorted(self._attempts.items())],
        )  # fmt: skip
        yield "publish_bytes_total", "counter", "Bytes of all publish requests.", [("", {}, self._bytes)]
        yield (
            "node_checks_total", "counter", "Checks that the Node still has what was published.",
            _by("result", self._checks),
        )  # fmt: skip
        yield (
            "published", "gauge", "1 if the Node carries what was found last, 0 while it could not be published.",
            [("", {}, is_published)],
        )  # fmt: skip
        yield (
            "last_success_timestamp_seconds", "gauge",
            "When the Node was last published, or found unchanged; 0 for never.", [("", {}, self._last_success)],
        )  # fmt: skip

    def _histogram(self) -> Iterator[Sample]:
        node = {"node": self._node_name}
        for bound, count in zip(BUCKETS, self._buckets, strict=True):
            yield "_bucket", {**node, "le": f"{bound:g}"}, count
        yield "_bucket", {**node, "le": "+Inf"}, self._cycles
        yield "_sum", node, self._seconds
        yield "_count", node, self._cycles


def _by(label: str, values: Mapping[str, float]) -> list[Sample]:
    return [("", {label: name}, value) for name, value in values.items()]


def _metric(name: str, kind: str, description: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {name} {description}\n# TYPE {name} {kind}\n"
    for suffix, labels, value in samples:
        pairs = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items())
        yield f"{name}{suffix}{{{pairs}}} {_number(value)}\n" if pairs else f"{name}{suffix} {_number(value)}\n"


def _number(value: float) -> str:
    """Write a whole number whole, and any other to the microsecond."""
    return str(int(value)) if value == int(value) else f"{value:.6f}"
