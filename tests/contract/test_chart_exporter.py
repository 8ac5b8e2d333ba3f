"""The exporter and limits of memory in the chart: what the agent's pods get for them, and who finds them."""

import json
from typing import Any

import helm_python as helm
import pytest

from device_agent.nvml_container.settings import build_settings, read_flags
from device_resources.exporter import ExporterSettings, parse_exporter
from device_resources.memory_limits import MemoryMode, parse_memory
from device_resources.nvidia import parse_nvidia
from driver_builder.objects.device_use import EXPORTER_LABEL, EXPORTER_PORT
from kube_api.credentials import SERVICE_ACCOUNT
from tests.contract.chart import AGENT, NVIDIA, VALUES, container, objects, one, pod, rendered
from tests.contract.test_chart_profiles import mounts
from tests.support import monitoring
from tests.support.yaml_files import read_yaml

Json = dict[str, Any]

OFF: Json = {"exporter": {"enabled": False, "perPod": True, "port": 1}, "memory": {"mode": "off", "dryRun": True}}
SEEING = {"exporter by pods", "exporter and limits"}
NODE = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}


def config(of: str) -> Json:
    """Return the configuration of the agent."""
    found: Json = read_yaml(one(rendered(of), "ConfigMap", "device-agent-config")["data"]["config.yaml"])
    return found


# ---------------------------------------------------------------- nothing, unless it is asked for


@pytest.mark.parametrize("agent", [AGENT, {**AGENT, "nvidia": NVIDIA}], ids=["files", "nvidia"])
@pytest.mark.parametrize("mode", ["off", False], ids=["off", "a bare off"])
def test_what_is_off_changes_nothing(agent: Json, mode: object) -> None:
    """Whatever else is set of it."""
    off = {**OFF, "memory": {**OFF["memory"], "mode": mode}}
    assert objects({"deviceAgent": {**agent, **off}}) == objects({"deviceAgent": agent})


@pytest.mark.parametrize("of", VALUES)
def test_the_nodes_processes_are_seen_only_where_that_is_asked_for(of: str) -> None:
    """By ``perPod`` or a mode of memory; no other pod has the node's ids, nor the folder of logs."""
    for item in rendered(of):
        if item["kind"] in ("Deployment", "DaemonSet"):
            is_seeing = of in SEEING and item["metadata"]["name"] == "device-agent"
            assert item["spec"]["template"]["spec"].get("hostPID", False) is is_seeing
            assert ("/var/log/pods" in json.dumps(item)) is is_seeing


# ---------------------------------------------------------------- the pod


def test_the_exporter_has_a_port_and_knows_its_node() -> None:
    """And sees who has which device; there is no second container, and no right more."""
    spec = pod(rendered("exporter"), "device-agent")
    (agent,) = spec["containers"]
    before = pod(objects({"deviceAgent": AGENT}), "device-agent")
    (alone,) = before["containers"]
    assert agent["ports"] == [*alone["ports"], {"name": EXPORTER_PORT, "containerPort": 9401}]
    assert agent["env"] == [NODE, *alone["env"]]
    assert {key for key in agent if agent[key] != alone[key]} == {"ports", "env", "volumeMounts"}
    assert {key for key in spec if spec[key] != before.get(key)} == {"containers", "volumes"}
    users = "/var/lib/kubelet/pod-resources"
    found = mounts(rendered("exporter"))
    assert found.keys() - mounts(objects({"deviceAgent": AGENT})).keys() == {users}
    assert found[users]["readOnly"] is True
    assert found[users]["volume"] == {"hostPath": {"path": users, "type": "Directory"}}


def test_a_name_is_given_once() -> None:
    """Profiles need the node's name and the folder of podresources as well."""
    spec = pod(rendered("exporter and limits"), "device-agent")
    names = [[item["name"] for item in spec["containers"][0][part]] for part in ("env", "volumeMounts", "ports")]
    for found in (*names, [item["name"] for item in spec["volumes"]]):
        assert len(set(found)) == len(found)


def test_without_nvidias_devices_nvml_has_nothing_of_their_driver() -> None:
    """It is privileged for the files about open cards alone: it has neither the node's /dev nor a library."""
    found = rendered("exporter by pods")
    spec = pod(found, "device-agent")
    assert [item["name"] for item in spec["containers"]] == ["device-agent", "nvml"]
    seen = {path: (mount["volume"], mount.get("readOnly", False)) for path, mount in mounts(found, 1).items()}
    assert seen == {
        "/host/sys": ({"hostPath": {"path": "/sys"}}, True),
        "/host/var/log/pods": ({"hostPath": {"path": "/var/log/pods", "type": "Directory"}}, True),
        "/run/device-agent": ({"emptyDir": {}}, False),
    }
    assert mounts(found)["/run/device-agent"]["volume"] == {"emptyDir": {}}
    assert not [path for path in mounts(found) if "nvidia" in path or "driverwright-agent" in path]


def test_the_agent_itself_gets_no_right_for_it() -> None:
    """Its container is as before but for folders that it reads, and its pod has no token."""
    found = rendered("exporter by pods")
    agent, before = (container(item, "device-agent") for item in (found, objects({"deviceAgent": {"enabled": True}})))
    assert agent["securityContext"] == before["securityContext"]
    more = mounts(found).keys() - mounts(objects({"deviceAgent": {"enabled": True}})).keys()
    assert more == {"/run/device-agent", "/var/lib/kubelet/pod-resources"}
    assert pod(found, "device-agent")["automountServiceAccountToken"] is False


def test_limits_of_memory_come_with_a_token_that_writes_events_and_nothing_else() -> None:
    """In the namespaces of all pods; the account is that of profiles where there are some, and nvml has no token."""
    found = objects({"deviceAgent": {"enabled": True, "memory": {"mode": "watch"}}})
    spec = pod(found, "device-agent")
    assert spec["automountServiceAccountToken"] is False
    assert [SERVICE_ACCOUNT in mounts(found, number) for number in (0, 1)] == [True, False]
    assert mounts(found)[SERVICE_ACCOUNT] == mounts(rendered("profiles"))[SERVICE_ACCOUNT]
    assert container(found, "device-agent")["env"] == [NODE]
    role = one(found, "ClusterRole", "driverwright-device-agent-events")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}]
    for item, account in ((found, "device-agent"), (rendered("exporter and limits"), "device-agent-profiles")):
        bindings = [one(item, "ClusterRoleBinding", role["metadata"]["name"])]
        bindings += (
            []
            if account != "device-agent"
            else [
                other
                for other in item
                if other["kind"] == "RoleBinding" and "device-agent" in other["metadata"]["name"]
            ]
        )
        assert [subject["name"] for binding in bindings for subject in binding["subjects"]] == [account]
        assert pod(item, "device-agent")["serviceAccountName"] == account


@pytest.mark.parametrize(
    ("agent", "is_there"),
    [
        pytest.param({}, False, id="nothing"),
        pytest.param({"exporter": {"enabled": True}}, False, id="an exporter"),
        pytest.param({"memory": {"mode": "watch"}}, True, id="limits"),
        pytest.param({"memory": {"mode": "watch", "dryRun": True}}, True, id="limits that are tried"),
        pytest.param({"nvidia": {"enabled": True}}, True, id="NVIDIA's devices"),
    ],
)
def test_what_was_given_is_kept_where_somebody_needs_it(agent: Json, is_there: bool) -> None:
    """By the agent alone; without NVIDIA's devices for limits, which are a share of the card as it was given."""
    found = objects({"deviceAgent": {"enabled": True, **agent}})
    folder = "/var/lib/driverwright-agent"
    assert (folder in mounts(found)) is is_there
    assert (folder in json.dumps(pod(found, "device-agent")["volumes"])) is is_there
    if "nvml" in [item["name"] for item in pod(found, "device-agent")["containers"]]:
        assert folder not in mounts(found, 1)


def test_cgroups_are_writable_for_limits_of_the_driver_alone() -> None:
    """At their place below the host's root; nothing else of the node that nvml did not have before."""
    path, found = "/host/sys/fs/cgroup", mounts(rendered("exporter and limits"), 1)
    assert found[path]["volume"] == {"hostPath": {"path": "/sys/fs/cgroup", "type": "Directory"}}
    assert "readOnly" not in found[path]
    assert found.keys() - mounts(rendered("profiles"), 1).keys() == {path, "/host/var/log/pods"}
    watch = objects({"deviceAgent": {"enabled": True, "memory": {"mode": "watch"}}})
    assert path not in mounts(watch, 1)


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        pytest.param({"exporter": {"enabled": True, "perPod": True}}, False, id="seen by pods"),
        pytest.param({"memory": {"mode": "watch"}}, True, id="watched"),
        pytest.param({"memory": {"mode": "driver"}}, True, id="by the driver, or watched"),
        pytest.param({"memory": {"mode": "watch", "dryRun": True}}, False, id="a dry run"),
    ],
)
def test_processes_are_ended_only_for_limits_that_are_kept(values: Json, ends: bool) -> None:
    """Elsewhere nvml refuses: it reads its arguments as they are rendered."""
    found = pod(objects({"deviceAgent": {"enabled": True, **values}}), "device-agent")["containers"][1]
    flags = read_flags(found["args"][1:])
    assert flags is not None
    assert build_settings(flags, {}).ends_processes is ends


# ---------------------------------------------------------------- the configuration


def test_the_agents_configuration_has_what_is_switched_on() -> None:
    """As the agent reads it, beside the resources and NVIDIA's devices; ports and folders are the chart's affair."""
    assert parse_exporter(config("exporter")["exporter"]) == ExporterSettings(
        enabled=True, port=9401, hostname_label="node"
    )
    assert config("exporter").keys() == {"resources", "exporter"}
    found = config("exporter and limits")
    assert found.keys() == {"resources", "nvidia", "exporter", "memory"}
    assert parse_nvidia(found["nvidia"]).libraries == "/run/nvidia/driver"
    memory = parse_memory(found["memory"])
    assert memory.mode is MemoryMode.DRIVER
    assert memory.limits == {"nvidia.com/gpu": 10 << 30, "example.com/a": 10 << 30}


@pytest.mark.parametrize(
    ("name", "values"),
    [("exporter", {"exporter": {"enabled": True}}), ("memory", {"memory": {"mode": "watch"}})],
    ids=["exporter", "memory"],
)
def test_a_configuration_that_has_it_already_is_refused(name: str, values: Json) -> None:
    """With what to remove: two places that say different things would be a riddle."""
    text = f"{{resources: [], {name}: {{}}}}"
    with pytest.raises(helm.HelmRenderError, match=f"write it in the value deviceAgent.{name}"):
        objects({"deviceAgent": {"enabled": True, "config": text, **values}})


@pytest.mark.parametrize("name", ["exporter", "memory"])
@pytest.mark.parametrize("agent", [AGENT, {**AGENT, "nvidia": NVIDIA}], ids=["files", "nvidia"])
def test_a_configuration_that_has_what_the_pods_need_more_for_is_refused(name: str, agent: Json) -> None:
    """Neither port nor process ids nor token would be there; the message names the value that has it."""
    text = f"{{resources: [], {name}: {{}}}}"
    words = rf"deviceAgent.config: remove {name} .* in the value deviceAgent.{name}:"
    with pytest.raises(helm.HelmRenderError, match=words):
        objects({"deviceAgent": {**agent, "config": text}})


# ---------------------------------------------------------------- who finds it


def test_one_label_selects_all_exporters_and_no_other_pod() -> None:
    """Of the chart's agent here; drivers' have the same. No selector of a workload, which cannot change, has it."""
    found = rendered("exporter")
    agent = one(found, "DaemonSet", "device-agent")["spec"]
    assert agent["template"]["metadata"]["labels"][EXPORTER_LABEL] == "true"
    assert EXPORTER_LABEL not in agent["selector"]["matchLabels"]
    service = one(found, "Service", "device-agent-exporter")
    assert service["spec"]["selector"] == {EXPORTER_LABEL: "true"}
    monitor = one(found, "PodMonitor", "driverwright-exporter")["spec"]
    assert monitor["selector"] == {"matchLabels": {EXPORTER_LABEL: "true"}}
    labelled = [item for item in found if EXPORTER_LABEL in json.dumps(item.get("spec", {}).get("template", {}))]
    assert [item["metadata"]["name"] for item in labelled] == ["device-agent"]


def test_the_service_has_the_addresses_of_the_pods() -> None:
    """Its port has the name that dcgm-exporter's has; whatever port the pods of a driver have, it is theirs."""
    service = one(rendered("exporter"), "Service", "device-agent-exporter")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["ports"] == [{"name": "metrics", "port": 9401, "targetPort": EXPORTER_PORT}]
    assert service["metadata"]["annotations"] == {"a": "b"}
    without = {"deviceAgent": {"enabled": True, "exporter": {"enabled": True, "service": {"enabled": False}}}}
    assert not [item for item in objects(without) if item["kind"] == "Service"]


@pytest.mark.parametrize(
    ("of", "namespaces"), [("exporter", ["driverwright", "team"]), ("exporters of drivers", ["driverwright"])]
)
def test_prometheus_keeps_the_labels_of_who_uses_a_device(of: str, namespaces: list[str]) -> None:
    """In all namespaces with drivers, also where the chart has no agent; the programs' own metrics stay as they are."""
    monitor = one(rendered(of), "PodMonitor", "driverwright-exporter")["spec"]
    assert monitor["podMetricsEndpoints"] == [{"port": EXPORTER_PORT, "interval": "15s", "honorLabels": True}]
    assert monitor["namespaceSelector"] == {"matchNames": namespaces}
    assert [item["metadata"]["name"] for item in rendered(of) if item["kind"] == "PodMonitor"] == [
        "driverwright-exporter"
    ]


def test_the_network_policy_lets_the_same_peers_reach_the_exporter() -> None:
    """Its port as well, and no other; without an exporter the policy is as before."""
    (rule,) = one(rendered("exporter"), "NetworkPolicy", "driverwright")["spec"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == ["http", EXPORTER_PORT]


# ---------------------------------------------------------------- rules and dashboard


def test_rules_on_devices_come_with_an_exporter() -> None:
    """Of the chart or of drivers; the label of the node's name is the one that the exporters have."""
    groups = read_yaml(monitoring.DEVICE_ALERTS.read_text())["groups"]
    values = {"prometheusRule": {"enabled": True}}
    of_drivers = objects({**VALUES["exporters of drivers"], **values})
    assert one(of_drivers, "PrometheusRule", "driverwright")["spec"]["groups"][-1:] == groups
    assert "devices" not in json.dumps(
        [group["name"] for group in one(objects(values), "PrometheusRule", "driverwright")["spec"]["groups"]]
    )
    renamed = one(rendered("exporter"), "PrometheusRule", "driverwright")["spec"]["groups"][-1]
    assert renamed == json.loads(json.dumps(groups[0]).replace("Hostname", "node"))


def test_limits_of_memory_alone_bring_rules_and_dashboard() -> None:
    """They are in the agent's own metrics; neither Service nor PodMonitor looks for an exporter that is not there."""
    values = {"prometheusRule": {"enabled": True}, "dashboard": {"enabled": True}, "podMonitor": {"enabled": True}}
    found = objects({"deviceAgent": {"enabled": True, "memory": {"mode": "watch"}}, **values})
    assert one(found, "PrometheusRule", "driverwright")["spec"]["groups"][-1]["name"] == "devices"
    assert one(found, "ConfigMap", "driverwright-devices-dashboard")["data"].keys() == {"devices.json"}
    assert [item["metadata"]["name"] for item in found if item["kind"] in ("Service", "PodMonitor")] == ["driverwright"]


def test_how_long_an_alert_on_devices_waits_is_a_value() -> None:
    """As of the others; recording rules have no such time."""
    values = {"prometheusRule": {"enabled": True, "for": {"GpuMemoryFull": "1d"}}}
    rules = one(objects({**VALUES["exporters of drivers"], **values}), "PrometheusRule", "driverwright")
    (rule,) = [item for item in rules["spec"]["groups"][-1]["rules"] if item.get("alert") == "GpuMemoryFull"]
    assert rule["for"] == "1d"


def test_the_dashboard_of_devices_comes_with_an_exporter() -> None:
    """As the file is, with the label of the node's name."""
    name, text = "driverwright-devices-dashboard", monitoring.DEVICE_DASHBOARD.read_text()
    found = one(rendered("exporter"), "ConfigMap", name)
    assert found["data"] == {"devices.json": text.replace("Hostname", "node")}
    assert found["metadata"]["labels"] == {"grafana_dashboard": "1"}
    assert not [item for item in rendered("everything") if item["metadata"]["name"] == name]
