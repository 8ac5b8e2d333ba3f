"""The Helm chart renders the manifests of ``deploy/``, and what has a value of its own."""

import re
import tomllib

import helm_python as helm
import pytest

from tests.contract.chart import (
    POLICIES,
    VALUES,
    Json,
    container,
    environment,
    objects,
    one,
    rendered,
)
from tests.support.yaml_files import read_documents, read_yaml
from tools import manifests
from tools.manifests import CHART, DEPLOY


def test_the_manifests_are_what_the_chart_renders() -> None:
    """``make manifests`` would change nothing."""
    old = [str(path) for path, text in manifests.files().items() if not path.exists() or path.read_text() != text]
    assert not old, "edit the template, or what the chart has a copy of, then: make manifests"


def test_every_manifest_is_rendered() -> None:
    """By hand are patches, definitions of others and the lists of kustomize alone; a command prints the policies."""
    by_hand = {
        "kustomization.yaml",
        *(path.name for part in ("patches", "crds", "admission") for path in (DEPLOY / part).iterdir()),
    } - {manifests.DEFINITION.name}
    found = {path for path in DEPLOY.rglob("*.yaml") if CHART not in path.parents and path.name not in by_hand}
    assert found == {path for path in manifests.files() if CHART not in path.parents}


def test_the_defaults_are_the_base_of_kustomize() -> None:
    """But for the namespace, in which Helm has its release, and the definitions, which are not Helm's to delete."""
    base = read_yaml((DEPLOY / "kustomization.yaml").read_text())["resources"]
    files = [name for name in base if not name.startswith(("namespace", "crds/"))]
    assert sorted(files) == sorted(name for name in manifests.render() if name.endswith(".yaml"))
    assert {path.name for path in (CHART / "crds").iterdir()} == {"drivercontainers.yaml"}


def test_the_chart_has_the_version_of_the_programs() -> None:
    """Chart and programs are released together."""
    version = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["version"]
    chart = read_yaml((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_helm_finds_nothing_wrong_with_the_chart() -> None:
    """Beside an icon that it recommends."""
    found = helm.lint(CHART, {}, strict=True)
    assert [item["error"] for item in found["messages"]] == ["icon is recommended"]


def test_toolchains_are_one_value() -> None:
    """On, whatever builds; a variable, which an overlay of the manifests replaces by its name."""
    variable = "DRIVER_BUILDER_TOOLCHAINS"
    assert [environment(rendered(of), "driver-builder")[variable] for of in ("defaults", "engine")] == ["true", "true"]
    assert environment(rendered("everything"), "driver-builder")[variable] == "false"


def test_a_controller_without_workers_distributes_no_rules() -> None:
    """Their ConfigMap and the Role for it are not there either."""
    found = rendered("controller only")
    assert container(found, "driver-builder")["args"] == ["run", "--no-feature-rules"]
    assert not [
        item
        for item in found
        if "feature-rules" in item["metadata"]["name"] or "nfd-worker" in item["metadata"]["name"]
    ]


def test_the_network_policy_selects_the_programs_pods_alone() -> None:
    """All of them, on the port that each names; a driver may have the name of a program, but not both labels."""
    found = rendered("everything")
    spec = one(found, "NetworkPolicy", "driverwright")["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    assert spec["ingress"] == [{"ports": [{"port": "http", "protocol": "TCP"}], "from": [{"namespaceSelector": {}}]}]
    (names,) = spec["podSelector"]["matchExpressions"]
    workloads = [item for item in found if item["kind"] in ("Deployment", "DaemonSet")]
    labels = [item["spec"]["template"]["metadata"]["labels"] for item in workloads]
    assert {item["app.kubernetes.io/name"] for item in labels} == set(names["values"])
    assert all(spec["podSelector"]["matchLabels"].items() <= item.items() for item in labels)
    assert all(container(found, item["metadata"]["name"])["ports"][0]["name"] == "http" for item in workloads)
    assert one(found, "PodMonitor", "driverwright")["spec"]["selector"] == spec["podSelector"]
    assert one(found, "PodMonitor", "driverwright")["metadata"]["labels"] == {"release": "prometheus"}


def test_the_rule_object_has_the_alerts_of_the_file() -> None:
    """As they are, Prometheus' own templates included; of programs that are not installed there are none."""
    groups = read_yaml((CHART / "alerts/driverwright.yaml").read_text())["groups"]
    found = one(rendered("everything"), "PrometheusRule", "driverwright")
    assert found["spec"]["groups"] == groups
    assert found["metadata"]["labels"] == {"release": "prometheus"}
    part = objects({"driverBuilder": {"enabled": False}, "prometheusRule": {"enabled": True}})
    assert [group["name"] for group in one(part, "PrometheusRule", "driverwright")["spec"]["groups"]] == ["nfd-worker"]


def test_how_long_an_alert_waits_is_a_value() -> None:
    """Of one alert; a name that no alert has is refused, with those that there are."""
    for_ = {"NodesWithoutDriver": "2h", "DriverWaveHalted": "5m"}
    rule = one(objects({"prometheusRule": {"enabled": True, "for": for_}}), "PrometheusRule", "driverwright")
    waits = {item["alert"]: item.get("for") for group in rule["spec"]["groups"] for item in group["rules"]}
    assert for_.items() <= waits.items()
    assert waits["DriverBlocked"] == "30m"
    with pytest.raises(helm.HelmError, match="no alert NodesWithoutDrivers; there are: NodesWithoutDriver, "):
        objects({"prometheusRule": {"enabled": True, "for": {"NodesWithoutDrivers": "2h"}}})


def test_the_dashboards_config_map_has_the_file() -> None:
    """With the label that the sidecar of Grafana's chart looks for by default."""
    found = one(rendered("everything"), "ConfigMap", "driverwright-dashboard")
    assert found["data"] == {"driverwright.json": (CHART / "dashboards/driverwright.json").read_text()}
    assert found["metadata"]["labels"] == {"grafana_dashboard": "1"}
    assert found["metadata"]["annotations"] == {"grafana_folder": "Nodes"}


def test_how_a_worker_logs_does_not_concern_its_admission_policy() -> None:
    """Other variables do: the policy of the chart is for default settings."""
    variables = {"NFD_WORKER_LOG_FORMAT": "json", "NFD_WORKER_LOG_LEVEL": "debug"}
    assert objects({"admissionPolicies": {"enabled": True}, "nfdWorker": {"env": variables}})
    with pytest.raises(helm.HelmError, match="Settings of yours: OTHER"):
        objects({"admissionPolicies": {"enabled": True}, "nfdWorker": {"env": {**variables, "OTHER": "x"}}})


def test_the_admission_policies_are_those_of_deploy() -> None:
    """For the accounts of the release's namespace."""
    default = [item for item in objects({"admissionPolicies": {"enabled": True}}) if "Admission" in item["kind"]]
    files = [read_documents((DEPLOY / f"admission/{name}.yaml").read_text()) for name in POLICIES]
    assert default == [*files[0], *files[1]]
    elsewhere = str(rendered("everything", "elsewhere"))
    assert all(f"system:serviceaccount:elsewhere:{name}" in elsewhere for name in POLICIES)
    assert "system:serviceaccount:driverwright:" not in elsewhere


@pytest.mark.parametrize(
    "worker",
    [
        {"args": ["--enable-taints"]},
        {"env": {"NFD_WORKER_EXTRA_LABEL_NS": "example.com"}},
        {"config": "core: {denyLabelNs: ['*']}"},
        {"config": "extraLabelNs: [example.com]"},
    ],
    ids=str,
)
def test_the_default_policy_is_not_for_workers_with_other_settings(worker: Json) -> None:
    """It would refuse all that they write: rendering fails and says what to do."""
    with pytest.raises(helm.HelmRenderError, match=r"set admissionPolicies\.nfdWorker"):
        manifests.render({"nfdWorker": worker, "admissionPolicies": {"enabled": True}})
    printed = (DEPLOY / "admission/nfd-worker.yaml").read_text()
    assert manifests.render({"nfdWorker": worker, "admissionPolicies": {"enabled": True, "nfdWorker": printed}})


def test_the_namespace_is_never_deleted() -> None:
    """Where it is rendered at all; all drivers would go with it."""
    namespace = one(rendered("everything"), "Namespace", "driverwright")
    assert namespace["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert not [item for of in VALUES for item in rendered(of) if item["kind"] == "CustomResourceDefinition"]


@pytest.mark.parametrize(
    ("program", "name"), [("nfdWorker", "nfd-worker-conf"), ("deviceAgent", "device-agent-config")]
)
def test_a_configuration_is_the_value_or_left_to_the_admin(program: str, name: str) -> None:
    """An empty value renders no ConfigMap; the pods mount the one of that name."""
    values = {"enabled": True, "config": "a: b\n"}
    (text,) = one(objects({program: values}), "ConfigMap", name)["data"].values()
    assert text == "a: b\n"
    found = objects({program: {**values, "config": ""}})
    assert not [item for item in found if item["metadata"]["name"] == name]


def test_each_value_is_in_the_schema_and_described() -> None:
    """The table of the README has a row for each, and no others."""
    rows = re.findall(r"^\| `([\w.]+)` \| (.+) \| .* \|$", (CHART / "README.md").read_text(), re.MULTILINE)
    values = read_yaml((CHART / "values.yaml").read_text())
    assert {name.partition(".")[0] for name, _ in rows} == set(values)
    described = {name for name, _ in rows}
    tops = {f"{top}.{name}" for top, part in values.items() if isinstance(part, dict) for name in part}
    assert all(any(row == top or row.startswith(f"{top}.") for row in described) for top in tops)
