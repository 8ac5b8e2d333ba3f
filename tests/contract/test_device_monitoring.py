"""Rules and dashboard of devices ask for what docs/gpu-metrics.md says there is, and each alert has its part of a page.

``tests/api/test_monitoring.py`` lets promtool try the rules.
"""

import re
from collections.abc import Iterator

import pytest

from device_agent.sources.nvidia.health import RESET_XIDS
from tests.contract.test_docs import ROOT
from tests.contract.test_monitoring import grouping_labels
from tests.support import monitoring
from tests.support.monitoring import DEVICE_ALERTS, DEVICE_DASHBOARD
from tests.support.yaml_files import read_yaml

PAGE, RUNBOOKS = ROOT / "docs" / "gpu-metrics.md", ROOT / "docs" / "monitoring.md"
LIMITS = ROOT / "docs" / "gpu-memory.md"
"""All of its metrics have the labels ``UUID``, ``namespace`` and ``pod``."""
CASES = ROOT / "tests" / "data" / "alerts" / "devices.yaml"
USERS = {"namespace", "pod", "container"}
STABLE = {"gpu", "UUID", "Hostname", *USERS}
GROUPS = {
    "*card*": {*STABLE, "pci_bus_id", "device", "modelName", "GPU_I_ID", "GPU_I_PROFILE"},
    "*pods*": set(),
    "*stable*": STABLE,
}
"""What the page's table of labels calls so."""
RULES = monitoring.rules(DEVICE_ALERTS)
ALERTS = [rule for rule in RULES if "alert" in rule]
NAME = re.compile(r"\b(?:(?:\w+:)?device_agent_\w+(?::\w+)?|DCGM_\w+)")


def documented() -> dict[str, set[str]]:
    """Return the metrics of the page's tables with their labels, and what is recorded of them."""
    rows = re.findall(r"^\| `(\w+)` \| (?:gauge|counter) \|(.*?)\| .+ \|$", PAGE.read_text(), re.MULTILINE)
    found = {name: labels_of(words) for name, words in rows}
    recorded = {rule["record"]: grouping_labels(rule["expr"], "by") for rule in RULES if "record" in rule}
    limits = re.findall(r"^\| `(device_agent_memory_\w+)` \|", LIMITS.read_text(), re.MULTILINE)
    return {**found, **{name: {"UUID", "namespace", "pod"} for name in limits}, **recorded}


def labels_of(words: str) -> set[str]:
    """Return the labels of a row: each by its name, or many by a word."""
    return set().union(*(GROUPS.get(word, {word.strip("`")}) for word in words.strip().split(", ") if word))


def queries() -> Iterator[tuple[str, str]]:
    """Return what is asked for, by who asks."""
    for rule in RULES:
        yield rule.get("alert") or rule["record"], rule["expr"]
    for panel in monitoring.panels(DEVICE_DASHBOARD):
        for target in panel["targets"]:
            yield f"{panel['title']} {target['refId']}", target["expr"]
    for variable in monitoring.dashboard(DEVICE_DASHBOARD)["templating"]["list"][1:]:
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
        yield f"variable {variable['name']}", f"count by ({label}) ({metric})"


ASKED = dict(queries())


@pytest.mark.parametrize("name", ASKED)
def test_metrics_that_are_asked_for_exist(name: str) -> None:
    """With the labels of the query: a misspelt one would be a panel without data, or an alert that never fires."""
    expr, known = ASKED[name], documented()
    metrics = set(NAME.findall(expr))
    assert metrics
    assert metrics <= known.keys()
    for metric, matchers in re.findall(rf"({NAME.pattern})\{{([^}}]*)\}}", expr):
        assert set(re.findall(r"(\w+)(?:=|!=|=~|!~)\"", matchers)) <= known[metric], metric
    made = re.findall(r'label_replace\(.*?\},\s+"(\w+)"', expr)
    assert grouping_labels(expr, "by|on") <= {"instance"}.union(*(known[metric] for metric in metrics), made)


def test_each_alert_has_a_case_in_which_it_fires() -> None:
    """For promtool, which finds the file of rules; each recording rule has its case too."""
    cases = CASES.read_text()
    fires = set(re.findall(r'ALERTS\{alertname="(\w+)", alertstate="firing"', cases))
    assert fires == {rule["alert"] for rule in ALERTS}
    assert all(f"- expr: {rule['record']}\n" in cases for rule in RULES if "record" in rule)
    (file,) = read_yaml(cases)["rule_files"]
    assert (CASES.parent / file).resolve() == DEVICE_ALERTS


def test_the_errors_that_want_a_reset_are_those_of_the_agent() -> None:
    """In the rule and on its page: an alert on an error that changes no health would be one about nothing."""
    (rule,) = [rule for rule in ALERTS if rule["alert"] == "GpuXidWantsReset"]
    asked = {frozenset(map(int, words.split("|"))) for words in re.findall(r'xid=~"([^"]*)"', rule["expr"])}
    assert asked == {RESET_XIDS}
    part = RUNBOOKS.read_text().partition("### GpuXidWantsReset\n")[2].partition("\n#")[0]
    assert ", ".join(map(str, sorted(RESET_XIDS)[:-1])) in part


def test_what_is_recorded_is_documented() -> None:
    """By its name, on the page of monitoring."""
    page = RUNBOOKS.read_text()
    assert all(f"| `{rule['record']}` |" in page for rule in RULES if "record" in rule)


def test_no_panel_covers_another_one() -> None:
    """Each lies on the 24 columns that there are; ids are given once."""
    every = monitoring.dashboard(DEVICE_DASHBOARD)["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    cells = [
        (place["x"] + column, place["y"] + line)
        for place in (panel["gridPos"] for panel in every)
        for column in range(place["w"])
        for line in range(place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(column for column, _ in cells) == 23


def test_the_variables_are_those_that_queries_use() -> None:
    """The data source, nodes and namespaces."""
    variables = {item["name"] for item in monitoring.dashboard(DEVICE_DASHBOARD)["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", DEVICE_DASHBOARD.read_text())) - {"__all"}
    assert variables == used == {"datasource", "node", "namespace"}
