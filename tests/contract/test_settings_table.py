"""The table of driver-builder's settings: whole, in the documentation, and what the chart sets of it."""

import argparse
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from driver_builder.cli.common import plan_settings
from driver_builder.config import SETTINGS, Settings, settings
from driver_builder.model.agent_drains import AgentDrains
from driver_builder.model.defaults import Waits
from driver_builder.model.loader_privileges import LoaderPrivileges
from driver_builder.model.permissions import Permissions
from driver_builder.model.setting import ENVIRONMENT_PREFIX, RETIRED_SINCE, Setting
from tests.contract.chart import VALUES, container, rendered
from tests.settings_page import PAGE, page
from tools.manifests import CHART

ROOT = Path(__file__).parents[2]
SHOWN = {row.variable for row in SETTINGS if row.is_shown}
OF_PLANS: dict[str, Any] = {
    "permissions": Permissions(node_labels=()),
    "loader_image": "r.io/loader:2",
    "device_agent_image": "r.io/agent:2",
    "device_agent_accounts": frozenset({"gpu/agent"}),
    "agent_drains": AgentDrains(resources=("nvidia.com/gpu",)),
    "dra_driver_accounts": frozenset({"gpu/dra"}),
    "loader_privileges": LoaderPrivileges.LEAST,
    "build_deadline_seconds": 60.0,
    "max_build_deadline_seconds": 60.0,
    "unload_deadline_seconds": 60.0,
    "max_unavailable_nodes": 1,
    "waits": Waits(retry_min=1.0),
}
"""What plans depend on, with another value of each."""
NOT_OF_PLANS = {
    "how and when the controller works, not what it decides": (
        "log_level", "log_format", "identity", "lease_name", "port", "max_builds",
    ),
    "where the cluster and registries are read from": (
        "kubeconfig", "namespaces", "registry_ca_file", "registry_reach", "registry_plain_http_passwords",
    ),
    "how an image is built, which is the same image": (
        "builder", "docker_host", "docker_cert_path", "build_network", "job_image", "hand_over_image",
        "job_node_selector", "job_tolerations", "job_host_network", "job_work_size", "job_output_size", "toolchains",
    ),
    "plans get the versions of its templates": ("templates",),
    "the texts of permissions": ("permission_texts",),
    "of the labels of nodes, which no plan of drivers has": (
        "feature_rules", "feature_rules_namespace", "node_feature_namespaces",
    ),
    "of the removal of images, a command of its own": ("gc_repositories", "keep_days", "registry_config"),
}  # fmt: skip


def texts() -> Iterator[tuple[str, str]]:
    """Return what users read and apply now."""
    for path in (
        ROOT / "README.md",
        *(path for name in ("deploy", "docs", "examples") for path in (ROOT / name).rglob("*")),
    ):
        if path.is_file() and "decisions" not in path.parts and path != PAGE:
            yield str(path.relative_to(ROOT)), path.read_text(errors="replace")


def given_by_chart() -> set[str]:
    """Return the variables of the settings that the chart sets, by a flag or a variable, in any case."""
    by_flag = {row.flag: row.variable for row in SETTINGS}
    found = set()
    for of in VALUES:
        if of == "worker only":
            continue
        given = container(rendered(of), "driver-builder")
        own = VALUES[of].get("driverBuilder", {})
        found |= {by_flag[word.partition("=")[0]] for word in given["args"][1:] if word not in own.get("args", [])}
        names = {item["name"] for item in given["env"]} - own.get("env", {}).keys()
        found |= {name if name != "DOCKER_HOST" else f"{ENVIRONMENT_PREFIX}{name}" for name in names}
    return {name for name in found if name.startswith(ENVIRONMENT_PREFIX)}


def test_every_row_is_there_once() -> None:
    """By flag and by variable."""
    assert [name for name, count in Counter(row.variable for row in SETTINGS).items() if count > 1] == []


def test_the_page_is_made_of_the_table() -> None:
    """docs/settings.md equals the output of `make docs`."""
    assert PAGE.read_text() == page()
    assert set(re.findall(r"^\|.*?\| `(DRIVER_BUILDER_\w+)` \|", page(), re.MULTILINE)) == SHOWN


@pytest.mark.parametrize("row", [row for row in SETTINGS if row.is_shown], ids=lambda row: row.flag)
def test_words_are_fit_for_help_and_a_table(row: Setting) -> None:
    """No end of a cell, nothing that argparse replaces; the default is the one that applies."""
    assert not set(row.help + row.metavar) & set("|%\n")
    if isinstance(row.default, int | float):
        assert f"default {row.default:g}" in row.help
    elif isinstance(row.default, str) and row.default not in ("", "none"):
        assert f"default {row.default}" in row.help


def test_no_page_and_no_manifest_names_a_variable_that_is_not_shown() -> None:
    """Neither a retired one nor one that never was; `DRIVER_BUILDER_...` stands for all."""
    assert {
        (path, name) for path, text in texts() for name in re.findall(r"DRIVER_BUILDER_[A-Z][A-Z_]+", text)
        if name not in SHOWN
    } == set()  # fmt: skip


def test_nothing_recommends_a_retired_flag() -> None:
    """Neither a page or a manifest nor a message of the program."""
    retired = "|".join(row.flag for row in SETTINGS if row.retired)
    code = [path for path in (ROOT / "driver_builder").rglob("*.py") if path.name != "config.py"]
    every = (*texts(), *((str(path), path.read_text()) for path in code))
    assert [(path, found) for path, text in every for found in re.findall(rf"({retired})\b", text)] == []


def test_a_retired_setting_is_accepted_by_one_version_alone() -> None:
    """The one that CHANGELOG.md names; a later one has no row for it."""
    assert f"{RETIRED_SINCE} accepts their flags and variables" in (ROOT / "CHANGELOG.md").read_text()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    numbers = [tuple(map(int, text.split(".")[:2])) for text in (version, RETIRED_SINCE)]
    assert numbers[0] <= numbers[1] or not any(row.retired for row in SETTINGS)


def test_the_chart_sets_what_the_table_says() -> None:
    """A row with the path of a value is set from it, and no other is; the value is there."""
    assert given_by_chart() == {row.variable for row in SETTINGS if row.chart}
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for row in SETTINGS:
        found = values
        for part in row.chart.split(".") if row.chart else ():
            assert part in found, row.chart
            found = found[part]


def test_each_setting_is_of_plans_or_not_for_a_reason() -> None:
    """A new setting is looked at here."""
    assert sorted((*OF_PLANS, *sum(NOT_OF_PLANS.values(), ()))) == sorted(item.name for item in fields(Settings))


@pytest.mark.parametrize("name", OF_PLANS)
def test_plans_get_what_they_depend_on(name: str) -> None:
    """A setting that were not handed on would have no effect."""
    given = settings(argparse.Namespace(), {})
    assert plan_settings(replace(given, **{name: OF_PLANS[name]})) != plan_settings(given)
