"""Profiles of GPUs in the chart: what the agent finds in its pod, who has a token, and what that token may do."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import helm_python as helm
import pytest

from device_agent.cli.main import run as agent_cli
from device_agent.config.options import DEFAULT_POD_RESOURCES, OPTIONS, build_settings
from device_agent.profiles.folder import MOST_PROFILES
from device_agent.profiles.parse import LONGEST_PROFILE
from kube_api.credentials import SERVICE_ACCOUNT
from nfd_worker.sources.gpu import SHARING_FILE
from tests.contract.chart import PROFILES, VALUES, container, environment, objects, one, pod, rendered
from tests.support.yaml_files import read_documents
from tools.manifests import CHART

Json = dict[str, Any]

ACCOUNT = "device-agent-profiles"
RIGHTS = CHART / "admission" / f"{ACCOUNT}.yaml"
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
KINDS = (*POLICIES, "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
WITHOUT = [name for name in VALUES if not name.startswith(("profiles", "exporter", "MIG"))]


def with_profiles(profiles: Json, **nvidia: Any) -> Json:
    """Write values with profiles."""
    return {"deviceAgent": {"enabled": True, "nvidia": {"enabled": True, "profiles": profiles, **nvidia}}}


def mounts(found: list[Json], number: int = 0) -> dict[str, Json]:
    """Return the mounts of a container of the agent's pod by their path, each with its volume."""
    spec = pod(found, "device-agent")
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    return {
        mount["mountPath"]: {**mount, "volume": {k: v for k, v in volumes[mount["name"]].items() if k != "name"}}
        for mount in spec["containers"][number]["volumeMounts"]
    }


def added(of: str, number: int = 0) -> dict[str, Json]:
    """Return the mounts that a container has because of profiles."""
    before = mounts(rendered("nvidia"), number)
    return {path: mount for path, mount in mounts(rendered(of), number).items() if path not in before}


def rights(found: list[Json]) -> list[Json]:
    """Return roles and policies for the account of the profiles."""
    return [item for item in found if item["kind"] in KINDS and item["metadata"]["name"].endswith(ACCOUNT)]


# ---------------------------------------------------------------- the pod


@pytest.mark.parametrize(("of", "config_map"), [("profiles", ACCOUNT), ("profiles without a token", "shared")])
def test_the_agent_finds_the_profiles_where_it_is_told(of: str, config_map: str) -> None:
    """By its variables; a ConfigMap that is missing is a profile that failed, and no pod that does not start."""
    values = environment(rendered(of), "device-agent")
    settings = build_settings({}, values)
    mount = added(of)[settings.profiles]
    assert mount["readOnly"] is True
    assert mount["volume"] == {"configMap": {"name": config_map, "optional": True}}
    assert settings.default_profile == {"profiles": "plain", "profiles without a token": ""}[of]
    assert values["C"] == "3"


def test_the_agent_sees_who_has_devices() -> None:
    """The kubelet's podresources; cgroups in /sys, which it had before."""
    found = added("profiles without a token")
    settings = build_settings({}, environment(rendered("profiles"), "device-agent"))
    users = DEFAULT_POD_RESOURCES.rpartition("/")[0]
    assert set(found) == {settings.profiles, users}
    assert found[users]["readOnly"] is True
    assert found[users]["volume"] == {"hostPath": {"path": users, "type": "Directory"}}
    assert mounts(rendered("profiles"))["/host/sys"]["volume"] == {"hostPath": {"path": "/sys"}}


@pytest.mark.parametrize("of", ["nvidia", "profiles"])
def test_the_agent_reports_how_gpus_are_shared_or_takes_that_back(of: str) -> None:
    """In the folder that nfd-worker-gpu watches, also when profiles have ended."""
    report = f"/{SHARING_FILE.rpartition('/')[0]}"
    found = mounts(rendered(of))[report]
    assert "readOnly" not in found
    assert found["volume"] == {"hostPath": {"path": report, "type": "DirectoryOrCreate"}}
    assert report not in mounts(rendered(of), 1)


def test_the_agent_has_a_token_where_the_label_is_followed() -> None:
    """In the folder where it looks, with the files that it reads; replaced each hour; it knows its Node by name."""
    found = added("profiles")
    assert set(found) - set(added("profiles without a token")) == {SERVICE_ACCOUNT}
    assert found[SERVICE_ACCOUNT]["readOnly"] is True
    token, authority, namespace = found[SERVICE_ACCOUNT]["volume"]["projected"]["sources"]
    assert token["serviceAccountToken"] == {"path": "token", "expirationSeconds": 3600}
    assert authority["configMap"]["name"] == "kube-root-ca.crt"
    assert [item["path"] for part in (authority["configMap"], namespace["downwardAPI"]) for item in part["items"]] == [
        "ca.crt",
        "namespace",
    ]
    names = [item for item in container(rendered("profiles"), "device-agent")["env"] if "valueFrom" in item]
    assert names == [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]


@pytest.mark.parametrize("of", ["profiles", "profiles without a token"])
def test_the_privileged_container_has_nothing_more(of: str) -> None:
    """No token, no folder of the kubelet, no profile: it is as without profiles, and so is the pod around it."""
    spec, before = pod(rendered(of), "device-agent"), pod(rendered("nvidia"), "device-agent")
    assert spec["containers"][1] == before["containers"][1]
    assert spec["containers"][1]["securityContext"]["privileged"] is True
    assert spec["automountServiceAccountToken"] is False
    assert {key for key in before if spec[key] != before[key]} <= {"containers", "volumes", "serviceAccountName"}
    agent = spec["containers"][0]
    assert {key for key in agent if agent[key] != before["containers"][0].get(key)} == {"env", "volumeMounts"}


@pytest.mark.parametrize("of", WITHOUT)
def test_without_profiles_nothing_is_mounted_and_nobody_has_a_token(of: str) -> None:
    """Whatever else is on; the account that may change a Node is not there either."""
    found = rendered(of)
    agents = [item for item in found if item["metadata"]["name"] == "device-agent" and item["kind"] == "DaemonSet"]
    for agent in agents:
        spec = agent["spec"]["template"]["spec"]
        assert spec["serviceAccountName"] == "device-agent"
        assert spec["automountServiceAccountToken"] is False
        assert not [volume for volume in spec["volumes"] if "projected" in volume]
        paths = [mount["mountPath"] for item in spec["containers"] for mount in item["volumeMounts"]]
        assert not {SERVICE_ACCOUNT, "/var/lib/kubelet/pod-resources"} & set(paths)
        names = [variable["name"] for item in spec["containers"] for variable in item.get("env", ())]
        assert not [name for name in names if "PROFILE" in name or name == "NODE_NAME"]
    assert ACCOUNT not in json.dumps(found)


def test_the_variables_are_those_of_the_agents_flags() -> None:
    """One that no flag has would be ignored."""
    known = {option.environment for option in OPTIONS}
    before, after = (environment(rendered(of), "device-agent").keys() for of in ("nvidia", "profiles"))
    assert after - before == {"DEVICE_AGENT_PROFILES", "DEVICE_AGENT_DEFAULT_PROFILE"}
    assert after - before <= known


# ---------------------------------------------------------------- the ConfigMap and the values


def test_profiles_of_the_values_are_keys_of_a_config_map() -> None:
    """As text; with a ConfigMap of somebody's own the chart makes none."""
    assert one(rendered("profiles"), "ConfigMap", ACCOUNT)["data"] == PROFILES["map"]
    assert not [item for item in rendered("profiles without a token") if item["metadata"]["name"] == ACCOUNT]


def test_a_changed_profile_restarts_nobody() -> None:
    """The agent reads the folder anew; its DaemonSet stays as it is."""
    changed = {**PROFILES, "map": {**PROFILES["map"], "slice-4": "version: v1\n"}}
    agents = [one(objects(with_profiles(profiles)), "DaemonSet", "device-agent") for profiles in (PROFILES, changed)]
    assert agents[0] == agents[1]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param(with_profiles({"name": "a", "map": {"default": "x"}}), "set one of them", id="two sources"),
        pytest.param(with_profiles(PROFILES, enabled=False), "set deviceAgent.nvidia.enabled as well", id="no devices"),
        pytest.param(
            {"deviceAgent": {"nvidia": {"profiles": PROFILES}}}, "set deviceAgent.nvidia.enabled", id="no agent"
        ),
        pytest.param(with_profiles({"default": "a"}), "set name or map as well", id="no profiles"),
        pytest.param(
            with_profiles({"map": {"b": "x", "a": "x"}}), "no profile default .*: a, b", id="nothing without a label"
        ),
        pytest.param(with_profiles({"map": {"a": "x"}, "default": "A"}), "no profile A .*: a", id="a misspelt default"),
    ],
)
def test_values_that_do_not_fit_each_other_are_refused(values: Json, words: str) -> None:
    """With what to set."""
    with pytest.raises(helm.HelmRenderError, match=f"deviceAgent.nvidia.profiles.*{words}"):
        objects(values)


def test_the_bounds_of_the_values_are_those_of_the_agent() -> None:
    """What it would not read is not installed."""
    nvidia = json.loads((CHART / "values.schema.json").read_text())["properties"]["deviceAgent"]["properties"]["nvidia"]
    profiles = nvidia["properties"]["profiles"]["properties"]["map"]
    assert profiles["maxProperties"] == MOST_PROFILES
    assert profiles["additionalProperties"]["maxLength"] == LONGEST_PROFILE


# ---------------------------------------------------------------- the rights


def test_the_file_of_rights_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """Print it again: ``device-agent admission-policy --account=driverwright/device-agent-profiles``."""
    assert agent_cli(["admission-policy", f"--account=driverwright/{ACCOUNT}"], {}) == 0
    assert RIGHTS.read_text() == capsys.readouterr().out


@pytest.mark.parametrize("namespace", ["driverwright", "elsewhere"])
def test_the_account_has_the_printed_rights(namespace: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that the command prints for it, under names of the chart; no other policy is about it."""
    found = rendered("profiles", namespace)
    assert agent_cli(["admission-policy", f"--account={namespace}/{ACCOUNT}"], {}) == 0
    printed, name = capsys.readouterr().out, f"driverwright-device-agent.{namespace}.{ACCOUNT}"
    assert rights(found) == read_documents(printed.replace(name, f"driverwright-{ACCOUNT}"))
    assert pod(found, "device-agent")["serviceAccountName"] == ACCOUNT
    assert one(found, "ServiceAccount", ACCOUNT)["automountServiceAccountToken"] is False
    accounts = [item["metadata"]["name"] for item in found if item["kind"] == "ServiceAccount"]
    assert "device-agent" not in accounts


def test_a_token_never_comes_without_its_policy() -> None:
    """Whether policies of the other accounts are asked for or not; the one for agents without a token is not there."""
    for others in (False, True):
        values = {**with_profiles(PROFILES), "admissionPolicies": {"enabled": others}}
        policies = [item["metadata"]["name"] for item in objects(values) if item["kind"] in POLICIES]
        assert policies.count(f"driverwright-{ACCOUNT}") == len(POLICIES)
        assert "driverwright-device-agent" not in policies


def test_profiles_without_the_label_need_no_rights() -> None:
    """The account has none, and its policy allows none, as without profiles."""
    assert rights(rendered("profiles without a token")) == []
    assert pod(rendered("profiles without a token"), "device-agent")["serviceAccountName"] == "device-agent"
    values = with_profiles({**PROFILES, "followNodeLabel": False})
    found = objects({**values, "admissionPolicies": {"enabled": True}})
    assert one(found, "ValidatingAdmissionPolicy", "driverwright-device-agent")


@pytest.fixture(name="kinds_on")
def kinds_by_version(tmp_path: Path) -> Callable[[str, Json], list[str]]:
    """Render the account's rights on a server of a version, by a copy of the chart: a chart is rendered for one."""

    def render(version: str, values: Json) -> list[str]:
        copy = shutil.copytree(CHART, tmp_path / "chart")
        template = copy / "templates/device-agent/profiles.yaml"
        text = template.read_text()
        assert text.count(".Capabilities.KubeVersion.Version") == 1
        template.write_text(text.replace(".Capabilities.KubeVersion.Version", f'"{version}"'))
        with helm.Chart.load(copy) as chart:
            texts = chart.render(values, name="driverwright", namespace="driverwright")
        (text,) = [text for name, text in texts.items() if name.endswith("device-agent/profiles.yaml")]
        return [item["kind"] for item in read_documents(text)]

    return render


@pytest.mark.parametrize("version", ["v1.30.0", "v1.30.2-gke.1394000", "v1.34.1+k3s1"])
def test_a_server_with_policies_gets_them(version: str, kinds_on: Callable[[str, Json], list[str]]) -> None:
    """Also one that a vendor has built, and where it could do without."""
    assert kinds_on(version, with_profiles({**PROFILES, "tokenWithoutPolicy": True})) == ["ConfigMap", *KINDS]


@pytest.mark.parametrize("version", ["v1.20.15", "v1.29.9-eks-ce1d5eb"])
@pytest.mark.parametrize(
    ("profiles", "kinds"),
    [
        pytest.param({}, None, id="refused"),
        pytest.param({"tokenWithoutPolicy": True}, ["ConfigMap", *KINDS[len(POLICIES) :]], id="a token nevertheless"),
        pytest.param({"followNodeLabel": False}, ["ConfigMap"], id="no token"),
    ],
)
def test_an_older_server_gets_no_token_unless_that_is_accepted(
    version: str, profiles: Json, kinds: list[str] | None, kinds_on: Callable[[str, Json], list[str]]
) -> None:
    """It has no policy to limit it: the installation is refused, and says what to set."""
    if kinds is None:
        words = rf"Kubernetes {version} has no .* set followNodeLabel to false.* tokenWithoutPolicy to true"
        with pytest.raises(helm.HelmRenderError, match=words):
            kinds_on(version, with_profiles(PROFILES))
    else:
        assert kinds_on(version, with_profiles({**PROFILES, **profiles})) == kinds
