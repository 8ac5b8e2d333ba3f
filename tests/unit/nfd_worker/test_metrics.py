"""What is counted, and that the text is what Prometheus reads."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from feature_rules.model import RuleProblem, Taint
from nfd_worker import __version__
from nfd_worker.config.config import Settings
from nfd_worker.cycle import CycleReport, run_cycle
from nfd_worker.labels.node_content import NodeContent, Refusal
from nfd_worker.metrics import BUCKETS, Metrics
from nfd_worker.publish.wire import PublishAnswer
from tests.support.nfd_worker.trees import recorded

DISCOVERY = "nfd_worker_feature_discovery_duration_seconds"


@pytest.fixture(scope="module")
def report() -> CycleReport:
    """Give the report of a cycle."""
    return run_cycle(recorded("arm64-cloud"), Settings(), {})


def read(metrics: Metrics, *, is_published: bool = False) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Read the text as Prometheus does."""
    families = list(text_string_to_metric_families(metrics.render(is_published=is_published)))
    assert all(family.documentation and family.type != "unknown" for family in families)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """Give one sample; None where it is not there."""
    return read(metrics).get((name, frozenset(labels.items())))


def refusal(key: str, **changes: Any) -> Refusal:
    """Give a refused label."""
    return Refusal("rule a/b", "label", key, "v", "invalid-key", "because")._replace(**changes)


def test_the_version_is_reported() -> None:
    """The version is a metric with upstream's name."""
    assert value(Metrics("n"), "nfd_worker_build_info", version=__version__) == 1


def test_the_histogram_of_cycles_is_upstreams(report: CycleReport) -> None:
    """Name, label and buckets; each bucket holds those below it."""
    metrics = Metrics("node-1")
    for seconds in (0.02, 3.0):
        metrics.saw_cycle(report._replace(seconds=seconds), ["interval"])
    counts = [value(metrics, f"{DISCOVERY}_bucket", node="node-1", le=f"{bound:g}") for bound in BUCKETS]
    assert counts == [0, 1, 1, 1, 1, 1, 1]
    assert value(metrics, f"{DISCOVERY}_bucket", node="node-1", le="+Inf") == 2
    assert value(metrics, f"{DISCOVERY}_count", node="node-1") == 2
    assert value(metrics, f"{DISCOVERY}_sum", node="node-1") == pytest.approx(3.02)


def test_cycles_are_counted_by_what_asked_for_them(report: CycleReport) -> None:
    """A cycle with several triggers is counted for each of them."""
    metrics = Metrics("n")
    metrics.saw_cycle(report, ["file", "device"])
    metrics.saw_cycle(report, ["device"])
    found = {
        trigger: value(metrics, "nfd_worker_cycles_total", trigger=trigger) for trigger in ("device", "file", "gpu")
    }
    assert found == {"device": 2, "file": 1, "gpu": 0}


def test_what_the_node_should_carry_is_counted(report: CycleReport) -> None:
    """The number of labels and others of the last cycle is a gauge by kind."""
    metrics = Metrics("n")
    metrics.saw_cycle(report, ["start"])
    content = NodeContent(
        {"a": "1", "b": "2"}, {"c": "3"}, {"e.x/f": "1", "e.x/g": "2", "e.x/h": "3"}, (Taint("t"),) * 4
    )
    metrics.saw_cycle(report._replace(content=content), ["interval"])
    names = ("labels", "annotations", "extended_resources", "taints")
    assert [value(metrics, f"nfd_worker_{name}") for name in names] == [2, 1, 3, 4]


def test_failed_sources_are_reported_and_forgotten(report: CycleReport) -> None:
    """An alert needs both: that it fails, and that it does not any more."""
    metrics = Metrics("n")
    metrics.saw_cycle(report._replace(failed={"pci": "why"}), ["interval"])
    assert value(metrics, "nfd_worker_source_failed", source="pci") == 1
    metrics.saw_cycle(report._replace(failed={}), ["interval"])
    assert value(metrics, "nfd_worker_source_failed", source="pci") == 0


def test_the_seconds_of_each_source_are_reported(report: CycleReport) -> None:
    """Each source has a gauge with the seconds of its last read."""
    metrics = Metrics("n")
    metrics.saw_cycle(report._replace(source_seconds={"pci": 0.25, "cpu": 0.5}), ["start"])
    metrics.saw_cycle(report._replace(source_seconds={"pci": 0.125}), ["interval"])
    assert value(metrics, "nfd_worker_source_duration_seconds", source="pci") == 0.125
    assert value(metrics, "nfd_worker_source_duration_seconds", source="cpu") == 0.5


def test_a_refusal_counts_when_it_appears(report: CycleReport) -> None:
    """One that stands counts once, and again when it went and came back."""
    metrics = Metrics("n")
    for refusals in ((refusal("a"),), (refusal("a"), refusal("b")), (refusal("b", value="w"),), (), (refusal("a"),)):
        metrics.saw_cycle(report._replace(refusals=refusals), ["interval"])
    assert value(metrics, "nfd_worker_refused_total", kind="label", reason="invalid-key") == 3


def test_rule_errors_are_those_of_now(report: CycleReport) -> None:
    """The gauge counts rules that fail now: it falls when a rule is fixed."""
    metrics = Metrics("n")
    for problems in ((RuleProblem("r", "", "bad"),) * 2, ()):
        metrics.saw_cycle(report._replace(problems=problems), ["file"])
        assert value(metrics, "nfd_worker_rule_errors") == len(problems)


def test_publishing_is_counted_by_how_it_went() -> None:
    """The time of the last success is that of the answer."""
    metrics = Metrics("n")
    assert value(metrics, "nfd_worker_last_success_timestamp_seconds") == 0
    metrics.saw_answer(PublishAnswer(), 100, 1750000000.5)
    metrics.saw_answer(PublishAnswer("no", "Forbidden"), 20, 1750000001.0)
    assert value(metrics, "nfd_worker_publish_total", result="success", error="") == 1
    assert value(metrics, "nfd_worker_publish_total", result="failure", error="Forbidden") == 1
    assert value(metrics, "nfd_worker_publish_bytes_total") == 120
    assert value(metrics, "nfd_worker_last_success_timestamp_seconds") == 1750000000.5


def test_checks_of_the_node_are_counted_by_what_they_found() -> None:
    """A label that comes back again and again shows two programs that want different things."""
    metrics = Metrics("n")
    for answer in (PublishAnswer(), PublishAnswer(lost=("x",)), PublishAnswer(), PublishAnswer("no", "Unreachable"),
                   PublishAnswer("no", "NotFound", lost=("x",))):  # fmt: skip
        metrics.saw_check(answer, 1750000000.0)
    counts = [
        value(metrics, "nfd_worker_node_checks_total", result=result) for result in ("unchanged", "restored", "failure")
    ]
    assert counts == [2, 1, 2]
    assert value(metrics, "nfd_worker_last_success_timestamp_seconds") == 1750000000


def test_a_check_that_fails_is_no_success() -> None:
    """Nothing is known of the Node then."""
    metrics = Metrics("n")
    metrics.saw_check(PublishAnswer("no", "Unreachable"), 1750000000.0)
    assert value(metrics, "nfd_worker_last_success_timestamp_seconds") == 0


def test_whether_the_node_has_what_was_found_is_shown() -> None:
    """What an alert needs: it depends on no interval."""
    series = ("nfd_worker_published", frozenset[tuple[str, str]]())
    assert [read(Metrics("n"), is_published=known)[series] for known in (False, True)] == [0, 1]


@given(st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"])))
def test_any_text_can_be_a_label_value(text: str) -> None:
    """Names of sources and errors come from elsewhere: quotes, backslashes and newlines are escaped."""
    metrics = Metrics(text)
    assert ("nfd_worker_feature_discovery_duration_seconds_count", frozenset({("node", text)})) in read(metrics)
