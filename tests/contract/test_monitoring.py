"""Dashboard and alerts ask for what the programs say, and the documentation has each alert.

``tests/api/test_monitoring.py`` asks a real Prometheus.
"""

import re
from collections.abc import Iterator

import pytest

from driver_builder.controller.jobs import JOBS, Parts
from driver_builder.model.defaults import Waits
from tests.contract.test_docs import ROOT, anchors
from tests.support import monitoring
from tests.support.monitoring import DEVICE_ALERTS, DEVICE_DASHBOARD, Exposed, Json
from tests.support.yaml_files import read_yaml

PAGE = ROOT / "docs" / "monitoring.md"
OF_PROMETHEUS = {"job", "instance", "le"}
ASKED = monitoring.queries() | {rule["alert"]: rule["expr"] for rule in monitoring.alerts()}


def grouping_labels(expr: str, words: str) -> set[str]:
    """Return the labels in the parentheses after one of these words of PromQL."""
    return {label for found in re.findall(rf"\b(?:{words}) \(([^)]*)\)", expr) for label in found.split(", ")}


@pytest.fixture(scope="module")
def exposed() -> Iterator[dict[str, Exposed]]:
    """Return what the programs have to say in trouble."""
    with monitoring.trouble() as made:
        yield monitoring.exposed(made.texts())


@pytest.mark.parametrize("name", ASKED)
def test_metrics_that_are_asked_for_exist(name: str, exposed: dict[str, Exposed]) -> None:
    """With the labels of the query: a misspelt one would be a panel without data, or an alert that never fires."""
    expr = ASKED[name]
    metrics = monitoring.metric_names(expr)
    assert metrics
    assert metrics <= exposed.keys()
    for metric, matchers in re.findall(r"(\w+)\{([^}]*)\}", expr):
        assert set(re.findall(r"(\w+)(?:=|!=|=~|!~)\"", matchers)) <= exposed[metric].labels
    made = re.findall(r'label_replace\(\w+, "(\w+)"', expr)
    known = OF_PROMETHEUS.union(*(exposed[metric].labels for metric in metrics), made)
    assert grouping_labels(expr, "by|on|group_left") <= known


@pytest.mark.parametrize("name", ASKED)
def test_counters_are_asked_for_their_rate(name: str, exposed: dict[str, Exposed]) -> None:
    """And nothing else is; what a counter has counted since the start of a process says nothing."""
    expr = ASKED[name]
    rated = {
        metric
        for words in re.findall(r"(?:rate|increase)\(([^\[]*)\[", expr)
        for metric in monitoring.metric_names(words)
    }
    counting = {metric for metric in monitoring.metric_names(expr) if exposed[metric].kind in ("counter", "histogram")}
    standing = {"nfd_worker_refused_total", "nfd_worker_feature_discovery_duration_seconds_count"}
    assert rated <= counting
    assert counting - rated <= standing


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        *(pytest.param(rule, "by|group_left", id=rule["alert"]) for rule in monitoring.alerts()),
        *(pytest.param(rule, "by", id=rule["alert"]) for rule in monitoring.rules(DEVICE_ALERTS) if "alert" in rule),
    ],
)
def test_an_alert_says_what_to_do(rule: Json, words: str) -> None:
    """In its annotations and in its part of the page; what it names of a series, the series has."""
    assert rule["labels"] == {"severity": "warning"}
    assert rule["annotations"].keys() == {"summary", "description", "runbook"}
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert (ROOT / page, anchor) == (PAGE, rule["alert"].lower())
    assert anchor in anchors(PAGE)
    named = {word for text in rule["annotations"].values() for word in re.findall(r"\$labels\.(\w+)", text)}
    assert named <= grouping_labels(rule["expr"], words)


def test_the_page_has_each_job_with_its_interval() -> None:
    """A row for each, in the order of the table; what the plan starts says so."""
    text = (ROOT / "docs" / "operations.md").read_text().partition("## Jobs of the controller")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w-]+)` \| (.+?) \|", text, re.MULTILINE)
    words = {60.0: "every minute", 300.0: "every 5 minutes", 600.0: "every 10 minutes"}
    known = Parts(
        resync_seconds=Waits().resync, **dict.fromkeys(set(Parts.__slots__) - {"resync_seconds"}, lambda: None)
    )
    assert [name for name, _ in rows] == [job.name for job in JOBS]
    for (_, when), job in zip(rows, JOBS, strict=True):
        assert when == words[job.seconds(known)] if job.seconds is not None else "plan" in when


def test_each_alert_has_a_case_in_which_it_fires() -> None:
    """For promtool."""
    cases = (ROOT / "tests" / "data" / "alerts" / "test.yaml").read_text()
    fires = set(re.findall(r'ALERTS\{alertname="(\w+)", alertstate="firing"', cases))
    assert fires == {rule["alert"] for rule in monitoring.alerts()}


def test_the_rule_file_says_where_the_cases_find_it() -> None:
    """Promtool would test nothing without it."""
    cases = ROOT / "tests" / "data" / "alerts" / "test.yaml"
    (file,) = read_yaml(cases.read_text())["rule_files"]
    assert (cases.parent / file).resolve() == monitoring.ALERTS


# ---------------------------------------------------------------- the dashboard, as far as is seen without Grafana


def test_no_panel_covers_another_one() -> None:
    """Each lies on the 24 columns that there are; ids are given once."""
    every = monitoring.dashboard()["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    taken: set[tuple[int, int]] = set()
    for panel in every:
        place = panel["gridPos"]
        cells = {(place["x"] + column, place["y"] + line) for column in range(place["w"]) for line in range(place["h"])}
        assert place["x"] + place["w"] <= 24
        assert not cells & taken
        taken |= cells


@pytest.mark.parametrize(
    "panel",
    [*monitoring.panels(), *monitoring.panels(DEVICE_DASHBOARD)],
    ids=lambda panel: f"{panel['id']}-{panel['title']}",
)
def test_a_panel_explains_itself_and_asks_the_chosen_prometheus(panel: Json) -> None:
    """By the variable, so that the file can be imported anywhere; a legend names labels that the query keeps."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert panel["description"].endswith((".", ")"))
    assert panel["datasource"] == source
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    for target in panel["targets"]:
        assert target["datasource"] == source
        named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert named <= grouping_labels(target["expr"], "by")


def test_the_variables_are_those_that_queries_use() -> None:
    """The data source and the driver."""
    variables = {item["name"]: item for item in monitoring.dashboard()["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", monitoring.DASHBOARD.read_text())) - {"__rate_interval", "__all"}
    assert variables.keys() == used == {"datasource", "driver"}
    assert variables["datasource"]["type"] == "datasource"
    (metric,) = monitoring.metric_names(variables["driver"]["definition"])
    assert f"label_values({metric}, driver)" == variables["driver"]["query"]["query"]
