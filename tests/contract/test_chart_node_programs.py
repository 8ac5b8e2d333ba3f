"""Values of the programs on nodes: the worker and the device agent, and NVIDIA's library beside them."""

import json

import helm_python as helm
import pytest

from device_resources.exporter import exporter_schema
from device_resources.memory_limits import memory_schema
from device_resources.nvidia import MigStrategy, NvidiaSettings, nvidia_schema, parse_nvidia
from driver_builder.model.driver_key import DriverKey
from driver_builder.objects.stage_labels import Stage, stage_label
from nfd_worker.sources.gpu import SHARING_FILE
from tests.contract.chart import (
    AGENT,
    Json,
    container,
    environment,
    objects,
    one,
    pod,
    rendered,
)
from tests.support.yaml_files import read_yaml
from tools.manifests import CHART


def test_every_node_has_one_worker() -> None:
    """Nodes with the label of GPUs have the variant, and the others the plain one."""
    for of in ("everything", "runtime class"):
        plain, variant = pod(rendered(of), "nfd-worker"), pod(rendered(of), "nfd-worker-gpu")
        assert variant["nodeSelector"]["gpu"] == "true"
        (term,) = plain["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        assert term == {"matchExpressions": [{"key": "gpu", "operator": "NotIn", "values": ["true"]}]}
        assert "affinity" not in variant
        selectors = [
            one(rendered(of), "DaemonSet", name)["spec"]["selector"]["matchLabels"]
            for name in ("nfd-worker", "nfd-worker-gpu")
        ]
        assert selectors == [{"app.kubernetes.io/name": name} for name in ("nfd-worker", "nfd-worker-gpu")]


def test_a_worker_with_nvidias_runtime_has_no_privileges() -> None:
    """The runtime gives it device nodes and library; otherwise it sees the node's own."""
    by_runtime, by_mounts = (
        pod(rendered("runtime class"), "nfd-worker-gpu"),
        pod(rendered("everything"), "nfd-worker-gpu"),
    )
    assert by_runtime["runtimeClassName"] == "nvidia"
    assert environment(rendered("runtime class"), "nfd-worker-gpu")["NVIDIA_DRIVER_CAPABILITIES"] == "utility"
    assert "runtimeClassName" not in by_mounts
    paths = [
        {volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
        for spec in (by_runtime, by_mounts)
    ]
    assert paths[1] - paths[0] == {"/dev"}
    assert {"/run/nvidia", "/run/driverwright-agent"} <= paths[0]
    for spec in (by_runtime, by_mounts):
        (report,) = (
            item for item in spec["volumes"] if item.get("hostPath", {}).get("path") == "/run/driverwright-agent"
        )
        assert report["hostPath"]["type"] == "DirectoryOrCreate", "a node without the agent has a worker all the same"
        (mount,) = (item for item in spec["containers"][0]["volumeMounts"] if item["name"] == report["name"])
        assert (mount["mountPath"], mount["readOnly"]) == (f"/host/{SHARING_FILE.rpartition('/')[0]}", True)


def test_nvidias_library_is_in_a_container_of_its_own() -> None:
    """Privileged, with the node's own /dev; the agent beside it is as without, and neither has a token."""
    spec, plain = pod(rendered("nvidia"), "device-agent"), pod(objects({"deviceAgent": AGENT}), "device-agent")
    agent, nvml = spec["containers"]
    (alone,) = plain["containers"]
    assert agent.keys() == alone.keys()
    assert {key for key in alone if agent[key] != alone[key]} == {"env", "volumeMounts"}
    assert spec["automountServiceAccountToken"] is False
    assert nvml["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True}
    assert nvml["resources"]["limits"]["memory"]
    assert not nvml["terminationMessagePath"].startswith("/dev")
    assert (nvml["image"], nvml["args"][0]) == (agent["image"], "nvml")
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    seen = {
        mount["mountPath"]: (paths.get(mount["name"]), mount.get("readOnly", False)) for mount in nvml["volumeMounts"]
    }
    assert seen == {
        "/dev": ("/dev", False),
        "/host/sys": ("/sys", True),
        "/host/run/nvidia": ("/run/nvidia", True),
        "/run/device-agent": (None, False),
    }


def test_the_agent_and_nvidias_library_meet_at_a_socket() -> None:
    """In a folder that is the pod's; what the agent remembers outlives the pod."""
    spec = pod(rendered("nvidia"), "device-agent")
    agent, nvml = spec["containers"]
    folder = nvml["args"][1].removeprefix("--socket=").rpartition("/")[0]
    (volume,) = {
        mount["name"] for part in (agent, nvml) for mount in part["volumeMounts"] if mount["mountPath"] == folder
    }
    assert {"name": volume, "emptyDir": {}} in spec["volumes"]
    mounts = {mount["mountPath"]: mount for mount in agent["volumeMounts"]}
    assert "readOnly" not in mounts["/var/lib/driverwright-agent"]
    assert mounts["/host/run/nvidia"]["mountPropagation"] == "HostToContainer"


def test_the_agent_leaves_before_the_driver_of_its_devices_is_replaced() -> None:
    """By the label of stages; without a driver it is on every node."""
    selected = [pod(rendered(of), "device-agent").get("nodeSelector") for of in ("nvidia", "nvidia of the nodes")]
    assert selected == [{stage_label(DriverKey("gpus/nvidia"), Stage.RUN): "true", "e": "f"}, None]


@pytest.mark.parametrize(
    "folder", ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu/nvidia/current", "/usr/lib64", "/usr/lib"]
)
def test_nvml_sees_the_library_of_a_nodes_distribution(folder: str) -> None:
    """Wherever NVML's library is looked for below the host's root, if no driver of ours brings it."""
    spec = pod(rendered("nvidia of the nodes"), "device-agent")
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    mounts = spec["containers"][1]["volumeMounts"]
    assert [mount["readOnly"] for mount in mounts if is_seen(folder, paths.get(mount["name"]), mount)] == [True]


def is_seen(folder: str, path: str | None, mount: Json) -> bool:
    """Return whether a mount shows a folder of the node at its place below the host's root."""
    return path is not None and f"{folder}/".startswith(f"{path}/") and mount["mountPath"] == f"/host{path}"


def test_the_agents_configuration_has_nvidias_devices() -> None:
    """Beside the resources, whatever form these are written in; health checks are variables, as of NVIDIA's plugin."""
    config = read_yaml(one(rendered("nvidia"), "ConfigMap", "device-agent-config")["data"]["config.yaml"])
    assert config["resources"] == []
    assert parse_nvidia(config["nvidia"]) == NvidiaSettings(
        mig_strategy=MigStrategy.MIXED, libraries="/run/nvidia/driver"
    )
    assert environment(rendered("nvidia"), "device-agent") == {"C": "3", "DP_DISABLE_HEALTHCHECKS": "13, 31"}
    of_nodes = read_yaml(
        one(rendered("nvidia of the nodes"), "ConfigMap", "device-agent-config")["data"]["config.yaml"]
    )
    assert parse_nvidia(of_nodes["nvidia"]) == NvidiaSettings()
    for text in ("{resources: [], nvidia: {}}", "- resources"):
        with pytest.raises(helm.HelmRenderError, match=r"written from deviceAgent\.nvidia"):
            objects({"deviceAgent": {"enabled": True, "config": text, "nvidia": {"enabled": True}}})


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/run/nvidia/driver", set()),
        ("/run/driverwright/gpus.nvidia", set()),
        ("/opt/nvidia/driver", {"/host/opt/nvidia"}),
    ],
)
def test_the_agent_sees_the_folder_above_the_libraries(path: str, more: set[str]) -> None:
    """An upgrade replaces them by a link: a mount of the link itself would stay with the old ones."""
    values = {"deviceAgent": {"enabled": True, "nvidia": {"enabled": True, "libraries": {"path": path}}}}
    seen = [
        {mount["mountPath"] for mount in container(found, "device-agent")["volumeMounts"]}
        for found in (objects(values), rendered("nvidia of the nodes"))
    ]
    assert seen[0] - seen[1] == more


def test_the_values_of_the_devices_use_are_those_of_the_configuration() -> None:
    """Field by field; the chart has a Service and a PodMonitor besides, and its agent has a port of its own."""
    agent = json.loads((CHART / "values.schema.json").read_text())["properties"]["deviceAgent"]["properties"]
    exporter = _without_words(agent["exporter"]["properties"])
    assert exporter.pop("service")
    assert exporter.pop("podMonitor")
    assert exporter["port"].pop("not") == {"const": 8080}
    assert exporter == exporter_schema()["properties"]
    assert _of_a_definition(_without_words(agent["memory"]["properties"])) == memory_schema()["properties"]


def _without_words(part: Json) -> Json:
    return {name: {word: item[word] for word in item if word != "description"} for name, item in part.items()}


def _of_a_definition(memory: Json) -> Json:
    """Write what a chart's schema says as a definition does, which has words of its own for values of two types."""
    either = memory["limits"]["additionalProperties"]
    assert either.pop("type") == ["string", "integer"]
    either.update({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]})
    memory["mode"]["x-kubernetes-preserve-unknown-fields"] = True
    memory["default"]["type"] = "string"
    return memory


def test_the_values_of_nvidias_devices_are_those_of_the_configuration() -> None:
    """Field by field: the chart refuses what the agent would refuse."""
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["deviceAgent"]["properties"]["nvidia"]
    known, given = nvidia_schema()["properties"], schema["properties"]
    for name in ("migStrategy", "sharedDevicesAllocationPolicy"):
        assert given[name]["enum"] == known[name]["enum"]
    hold = given["health"]["properties"]["holdSeconds"]
    wanted = known["health"]["properties"]["holdSeconds"]
    assert {key: hold[key] for key in wanted} == wanted
    pattern = given["libraries"]["properties"]["path"]["pattern"]
    assert pattern == f"^{known['libraries']['properties']['path']['pattern'][1:-1]}?$"
    mig = _without_words(given["mig"]["properties"])
    assert {name: mig.pop(name) for name in known["mig"]["properties"]} == known["mig"]["properties"]
    assert mig.keys() == {"configMap", "tokenWithoutPolicy"}
