"""A driver's plugin is what the device agent reads, and may do no more than ``deploy/device-agent``."""

from dataclasses import replace
from typing import Any

import pytest
import yaml

from device_agent.cli.arguments import parse
from device_agent.config.config_file import Description, parse_description
from device_agent.config.options import DEFAULT_FILE, DEFAULT_PLUGIN_DIR, build_settings, run_flags
from device_resources import gpu_sharing
from device_resources.exporter import parse_exporter
from device_resources.nvidia import MigStrategy, NvidiaSettings
from device_resources.resource import PathType
from device_resources.resource_parser import parse_resource
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.images import ImageRef
from driver_builder.nodes.changes import ApplyObject
from driver_builder.objects import manifests, plugin
from driver_builder.objects.stage_labels import Stage, stage_label
from driver_builder.plan.plan import plan
from tests.support.driver_builder.changes import applied
from tests.support.driver_builder.factories import DIGEST, SETTINGS, driver, node, ready_snapshot, spec_of, target
from tools import manifests as manifests_of_chart
from tools.product_images import REPOSITORY

IMAGE = ImageRef("r.io", "edu", DIGEST)
EXAMPLE = yaml.safe_load((REPOSITORY / "examples/edu-driver/stages.yaml").read_text())["spec"]["stages"]
RESOURCE = EXAMPLE["devicePlugin"]["resource"]


NVIDIA: dict[str, Any] = {"nvidia": {"migStrategy": "single", "libraries": {"path": "/run/nvidia/driver"}}}


def _made(plugged: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the pod's spec and the ConfigMap for a plugin, that of the example without one."""
    stages = {"devicePlugin": plugged or {"resource": RESOURCE}}
    snapshot = ready_snapshot(node(), driver=driver(spec_changes={"stages": stages}))
    actions = plan(snapshot, replace(SETTINGS, device_agent_image="r.io/agent:1")).actions
    (plugin,) = applied(actions)
    (config,) = [action for action in actions if isinstance(action, ApplyObject) and action.created]
    return plugin.manifest["spec"]["template"]["spec"], config.manifest


def _of_chart(agent: dict[str, Any]) -> dict[str, Any]:
    """Return the pod's spec that the chart has for values of its agent."""
    found = manifests_of_chart.render({"deviceAgent": {"enabled": True, **agent}})
    spec: dict[str, Any] = yaml.safe_load(found["device-agent/daemonset.yaml"])["spec"]["template"]["spec"]
    return spec


def _deployed() -> dict[str, Any]:
    """Return the pod's spec of ``deploy/device-agent``."""
    text = (REPOSITORY / "deploy/device-agent/daemonset.yaml").read_text()
    spec: dict[str, Any] = yaml.safe_load(text)["spec"]["template"]["spec"]
    return spec


def _folders(pod: dict[str, Any]) -> dict[str, tuple[str, bool]]:
    """Return where a pod's first container has which folder of the node, and whether it may write there."""
    paths = {item["name"]: item["hostPath"]["path"] for item in pod["volumes"] if "hostPath" in item}
    mounts = pod["containers"][0]["volumeMounts"]
    return {
        item["mountPath"]: (paths[item["name"]], item.get("readOnly", False))
        for item in mounts
        if item["name"] in paths
    }


def test_the_agent_reads_its_flags_and_its_configuration() -> None:
    """The short way of reading flags takes them; the file is where it is looked for, and has one resource."""
    pod, config = _made()
    (container,) = pod["containers"]
    flags = run_flags(container["args"])
    assert flags is not None
    settings = build_settings(flags, {"HOST_ROOT": "/host"})
    assert (settings.port, settings.config_file, settings.plugin_dir) == (0, DEFAULT_FILE, DEFAULT_PLUGIN_DIR)
    (resource,) = parse_description(config["data"][plugin.CONFIG_KEY], DEFAULT_FILE).resources
    assert resource.name == RESOURCE["name"]
    (mount,) = [item for item in container["volumeMounts"] if item["name"] == "config"]
    assert f"{mount['mountPath']}/{plugin.CONFIG_KEY}" == DEFAULT_FILE


def test_its_probes_ask_where_it_listens() -> None:
    """Ready means registered, as with the deployed agent; it has no port, which would be one of the node."""
    pod, _ = _made()
    (container,) = pod["containers"]
    environment = {item["name"]: item["value"] for item in container["env"]}
    flags = run_flags(container["args"])
    assert flags is not None
    folder, _, name = build_settings(flags, environment).socket.rpartition("/")
    (volume,) = [item["name"] for item in container["volumeMounts"] if item["mountPath"] == folder]
    assert {"name": volume, "emptyDir": {}} in pod["volumes"]
    assert name
    asked = {probe: container[probe]["exec"]["command"] for probe in ("startupProbe", "livenessProbe")}
    for probe, page in (("startupProbe", "/readyz"), ("livenessProbe", "/healthz")):
        assert parse(asked[probe][1:]).page == page


def test_the_examples_select_labels_and_resources_that_there_are() -> None:
    """The DaemonSet that follows the plugin, and the workload that requests a device."""
    folder = REPOSITORY / "examples/edu-driver"
    follower, workload = (
        yaml.safe_load((folder / name).read_text()) for name in ("monitoring.yaml", "workload-with-plugin.yaml")
    )
    labels = {stage_label(DriverKey("driverwright/edu"), stage) for stage in (Stage.RUN, Stage.PLGOK)}
    assert follower["spec"]["template"]["spec"]["nodeSelector"] == dict.fromkeys(labels, "true")
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"][RESOURCE["name"]] == 1


def test_it_has_the_folders_of_the_deployed_agent() -> None:
    """The kubelet's, to write; those of devices below /host, to read. /run is there where a file in it is mounted."""
    deployed = _folders(_deployed())
    del deployed["/host/run/driverwright"]
    assert _folders(_made()[0]) == deployed


def test_it_may_do_no_more_than_the_deployed_agent() -> None:
    """Each restriction of the deployed pod and its container is one of this container."""
    pod, deployed = _made()[0], _deployed()
    wanted = {**deployed["securityContext"], **deployed["containers"][0]["securityContext"]}
    context = pod["containers"][0]["securityContext"]
    assert {key: context.get(key) for key in wanted} == wanted
    assert pod["automountServiceAccountToken"] is False
    assert pod["containers"][0]["resources"] == deployed["containers"][0]["resources"]


def test_beside_nvidias_library_the_agent_may_do_no_more() -> None:
    """It has three folders more: the driver's, to read, one to remember what containers were given, one to report."""
    alone, beside = _made()[0], _made(NVIDIA)[0]
    assert beside["containers"][0]["securityContext"] == alone["containers"][0]["securityContext"]
    more = {
        "/host/run/nvidia": ("/run/nvidia", True),
        "/var/lib/driverwright-agent": ("/var/lib/driverwright-agent", False),
        "/run/driverwright-agent": ("/run/driverwright-agent", False),
    }
    assert _folders(beside) == {**_folders(alone), **more}


def test_nvidias_library_has_no_token_and_no_folder_of_the_kubelet() -> None:
    """It is what the chart deploys: privileged, with /dev, and with what it reads of the node below /host."""
    pod = _made(NVIDIA)[0]
    assert pod["automountServiceAccountToken"] is False
    assert {"hostPID", "hostIPC", "shareProcessNamespace"}.isdisjoint(pod)
    nvml = {**pod, "containers": pod["containers"][1:]}
    deployed = _of_chart({"nvidia": {"enabled": True, "driver": "a/b"}})
    assert _folders(nvml) == _folders({**deployed, "containers": deployed["containers"][1:]})
    assert _folders(nvml) == {
        "/dev": ("/dev", False),
        "/host/sys": ("/sys", True),
        "/host/run/nvidia": ("/run/nvidia", True),
    }
    ours, theirs = (item["containers"][1] for item in (pod, deployed))
    for word in ("name", "args", "terminationMessagePath", "resources"):
        assert ours[word] == theirs[word]


def test_the_agent_reads_the_flags_of_profiles() -> None:
    """They are where they are mounted, and the socket that says who uses what is where it is looked for."""
    nvidia = {"profiles": {"configMap": "p"}, "defaultProfile": "whole", "serviceAccountName": "gpu"}
    pod, config = _made({"nvidia": nvidia})
    flags = run_flags(pod["containers"][0]["args"])
    assert flags is not None
    settings = build_settings(flags, {"HOST_ROOT": "/host"})
    mounts = {item["mountPath"]: item["name"] for item in pod["containers"][0]["volumeMounts"]}
    (volume,) = [item for item in pod["volumes"] if item["name"] == mounts[settings.profiles]]
    assert volume["configMap"]["name"] == "p"
    assert (settings.default_profile, settings.port) == ("whole", 0)
    for file in (settings.pod_resources, gpu_sharing.FILE):
        folder = file.rpartition("/")[0]
        assert _folders(pod)[folder] == (folder, file == settings.pod_resources)
    assert parse_description(config["data"][plugin.CONFIG_KEY], DEFAULT_FILE) == Description(nvidia=NvidiaSettings())


def test_the_agent_reads_the_settings_of_nvidias_devices() -> None:
    """They are what the spec says, by the same table of fields."""
    read = parse_description(_made(NVIDIA)[1]["data"][plugin.CONFIG_KEY], DEFAULT_FILE)
    settings = NvidiaSettings(mig_strategy=MigStrategy.SINGLE, libraries="/run/nvidia/driver")
    assert read == Description(nvidia=settings)


_STATE = "/var/lib/driverwright-agent"
PER_POD: dict[str, Any] = {"exporter": {"enabled": True, "perPod": True}}
LIMITS: dict[str, Any] = {"memory": {"mode": "driver"}}
TRIED: dict[str, Any] = {"memory": {"mode": "watch", "dryRun": True}}


@pytest.mark.parametrize(
    ("plugged", "values"),
    [
        pytest.param({"resource": RESOURCE, **PER_POD}, PER_POD, id="of files, by pods"),
        pytest.param({"resource": RESOURCE, **LIMITS}, LIMITS, id="of files, with limits"),
        pytest.param({"resource": RESOURCE, **TRIED}, TRIED, id="of files, with limits that are tried"),
        pytest.param({"nvidia": {}, **PER_POD, **LIMITS}, {"nvidia": {"enabled": True, "driver": "a/b"}, **PER_POD,
                     **LIMITS}, id="of NVIDIA's"),
    ],
)  # fmt: skip
def test_the_use_of_devices_is_seen_as_in_the_chart(plugged: dict[str, Any], values: dict[str, Any]) -> None:
    """The node's processes, and the same folders in both containers; files of libraries and drivers apart."""
    pod, deployed = _made(plugged)[0], _of_chart(values)
    assert pod["hostPID"] is deployed["hostPID"] is True
    assert pod["automountServiceAccountToken"] is False
    assert [item["name"] for item in pod["containers"]] == ["device-plugin", "nvml"]
    other = {"/host/run/driverwright"}
    for number in (0, 1):
        ours, theirs = (_folders({**item, "containers": item["containers"][number:]}) for item in (pod, deployed))
        expected = {path: folder for path, folder in theirs.items() if path not in other}
        if "resource" in plugged and _STATE in expected:
            # A node may have agents of several drivers, each of which writes all that it knows.
            expected[_STATE] = (f"{_STATE}/drivers/{driver().key}", False)
        assert ours == expected
    assert pod["containers"][1]["securityContext"]["privileged"] is True
    assert pod["containers"][1]["args"] == deployed["containers"][1]["args"]
    assert pod["containers"][0]["securityContext"] == _made()[0]["containers"][0]["securityContext"]


def test_an_exporter_has_the_pods_own_network() -> None:
    """Where its port, and that of the pages, which probes ask, are free; both programs of the pod know their names."""
    pod, config = _made({"resource": RESOURCE, "exporter": {"enabled": True, "port": 9401}})
    (container,) = pod["containers"]
    assert {"hostNetwork", "hostPID"}.isdisjoint(pod)
    ports = {item["name"]: item["containerPort"] for item in container["ports"]}
    flags = run_flags(container["args"])
    assert flags is not None
    assert ports == {"http": build_settings(flags, {}).port, "exporter": 9401}
    written = yaml.safe_load(config["data"][plugin.CONFIG_KEY])
    assert parse_exporter(written["exporter"]).port == ports["exporter"]
    probes = {name: probe["httpGet"] for name, probe in container.items() if name.endswith("Probe")}
    before = _made()[0]["containers"][0]
    assert probes == {name: {"path": before[name]["exec"]["command"][-1], "port": "http"} for name in probes}
    assert probes.keys() == {"startupProbe", "livenessProbe"}
    deployed = _of_chart({"exporter": {"enabled": True, "port": 9401}})["containers"][0]
    assert container["ports"] == deployed["ports"]
    assert [item for item in container["env"] if "valueFrom" in item] == deployed["env"]


def test_containers_get_the_user_space_from_where_the_loader_exports_it() -> None:
    """The example's: path and link are one, and the agent sees the folder of both."""
    spec = yaml.safe_load((REPOSITORY / "examples/edu-driver/userspace.yaml").read_text())["spec"]
    container = driver(spec_changes=spec)
    (export,) = [
        item["value"]
        for item in manifests.daemon_set(
            container, spec_of(container), target=target(), image=IMAGE, identities={}, loader_image="r.io/loader:1"
        )["spec"]["template"]["spec"]["initContainers"][1]["env"]
        if item["name"] == "USERSPACE"
    ]
    settings = spec_of(container).stages
    assert settings is not None
    assert settings.device_plugin is not None
    (group,) = parse_resource(settings.device_plugin.resource).groups
    (mount,) = [path for path in group.paths if path.type is PathType.MOUNT]
    assert (export.partition(" ")[0], True) == (mount.path, mount.read_only)
    pod = plugin.daemon_set(container, spec_of(container), settings.device_plugin, agent_image="r.io/agent:1")
    folders = _folders(pod["spec"]["template"]["spec"])
    assert folders["/host/run/driverwright"] == ("/run/driverwright", True)
