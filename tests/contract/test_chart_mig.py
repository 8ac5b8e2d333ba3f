"""MIG layouts in the chart: what the agent finds in its pod, who may change a layout, and what its token may do."""

from collections.abc import Callable
from typing import Any

import helm_python as helm
import pytest

from device_agent.cli.main import run as agent_cli
from device_agent.config.config_file import parse_description
from device_agent.config.options import DEFAULT_POD_RESOURCES, build_settings
from device_agent.mig.layouts_file import FILE_NAME
from kube_api.credentials import SERVICE_ACCOUNT
from tests.contract.chart import MIG, PROFILES, VALUES, environment, objects, one, pod, rendered
from tests.contract.test_chart_profiles import KINDS, POLICIES, kinds_by_version, mounts
from tests.support.yaml_files import read_documents
from tools.manifests import CHART

Json = dict[str, Any]

ACCOUNT = "device-agent-mig"
RIGHTS = CHART / "admission" / f"{ACCOUNT}.yaml"
CHANGES = "--changes-mig=true"
WITHOUT = [name for name in VALUES if not name.startswith("MIG")]

__all__ = ["kinds_by_version"]


def with_mig(mig: Json, **nvidia: Any) -> Json:
    """Write values with MIG layouts."""
    return {"deviceAgent": {"enabled": True, "nvidia": {"enabled": True, "mig": mig, **nvidia}}}


def flags_of_nvml(found: list[Json]) -> list[str]:
    """Return the flags of the privileged containers."""
    return [
        word
        for item in found
        if item["kind"] == "DaemonSet"
        for container in item["spec"]["template"]["spec"]["containers"]
        if container["name"] == "nvml"
        for word in container["args"]
    ]


# ---------------------------------------------------------------- the pod


def test_the_agent_finds_the_layouts_where_it_is_told() -> None:
    """By its variable; a ConfigMap that is missing is a layout that cannot be had, and no pod that does not start."""
    settings = build_settings({}, environment(rendered("MIG"), "device-agent"))
    mount = mounts(rendered("MIG"))[settings.mig_config]
    assert mount["readOnly"] is True
    assert mount["volume"] == {"configMap": {"name": "layouts", "optional": True}}
    assert FILE_NAME == "config.yaml", "as docs and values say"


def test_the_agent_sees_its_node_and_who_has_devices() -> None:
    """With a token, and podresources to read; nothing else is there."""
    before, after = mounts(rendered("nvidia")), mounts(rendered("MIG"))
    users = DEFAULT_POD_RESOURCES.rpartition("/")[0]
    settings = build_settings({}, environment(rendered("MIG"), "device-agent"))
    assert after.keys() - before.keys() == {settings.mig_config, users, SERVICE_ACCOUNT}
    assert after[users]["readOnly"] is True
    assert "projected" in after[SERVICE_ACCOUNT]["volume"]


def test_its_configuration_says_so() -> None:
    """Read by the agent's own parser; the ConfigMap is not for it."""
    text = one(rendered("MIG"), "ConfigMap", "device-agent-config")["data"]["config.yaml"]
    nvidia = parse_description(text, "config.yaml").nvidia
    assert nvidia is not None
    assert (nvidia.changes_mig, nvidia.drains_for_mig) == (True, True)


def test_the_privileged_container_gets_a_flag_and_nothing_else() -> None:
    """No token and no folder more: it takes changes from the agent alone, over their socket."""
    before, after = (pod(rendered(of), "device-agent")["containers"][1] for of in ("nvidia", "MIG"))
    assert after == {**before, "args": [*before["args"], CHANGES]}


@pytest.mark.parametrize("of", WITHOUT)
def test_nobody_changes_a_layout_unless_that_is_switched_on(of: str) -> None:
    """No flag, no file, no account, whatever else is on."""
    found = rendered(of)
    assert CHANGES not in flags_of_nvml(found)
    assert ACCOUNT not in [item["metadata"]["name"] for item in found]
    for item in found:
        if item["kind"] == "DaemonSet" and item["metadata"]["name"] == "device-agent":
            names = [volume["name"] for volume in item["spec"]["template"]["spec"]["volumes"]]
            assert "mig-config" not in names
            assert "DEVICE_AGENT_MIG_CONFIG" not in environment(found, "device-agent")


def test_switched_off_it_is_as_if_nothing_was_said() -> None:
    """Whatever else is in the value."""
    off = objects(with_mig({**MIG, "enabled": False, "tokenWithoutPolicy": True}))
    assert off == objects({"deviceAgent": {"enabled": True, "nvidia": {"enabled": True}}})


def test_profiles_beside_it_are_mounted_as_well() -> None:
    """Both by one token; each folder once."""
    found = mounts(rendered("MIG and profiles"))
    settings = build_settings({}, environment(rendered("MIG and profiles"), "device-agent"))
    assert {settings.mig_config, settings.profiles, SERVICE_ACCOUNT} <= found.keys()
    names = [volume["name"] for volume in pod(rendered("MIG and profiles"), "device-agent")["volumes"]]
    assert len(set(names)) == len(names)


# ---------------------------------------------------------------- the values


@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param(with_mig(MIG, enabled=False), "set deviceAgent.nvidia.enabled as well", id="no devices"),
        pytest.param({"deviceAgent": {"nvidia": {"mig": MIG}}}, "set deviceAgent.nvidia.enabled", id="no agent"),
        pytest.param(with_mig({"enabled": True}), "set configMap as well", id="no layouts"),
        pytest.param(
            with_mig(MIG, profiles={"name": "shared", "followNodeLabel": False}),
            "set profiles.followNodeLabel to true",
            id="a token that may not be used for profiles",
        ),
    ],
)
def test_values_that_do_not_fit_each_other_are_refused(values: Json, words: str) -> None:
    """With what to set."""
    with pytest.raises(helm.HelmRenderError, match=f"deviceAgent.nvidia.mig.*{words}"):
        objects(values)


# ---------------------------------------------------------------- the rights


def test_the_file_of_rights_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """Print it again: ``device-agent admission-policy --account=driverwright/device-agent-mig --mig``."""
    assert agent_cli(["admission-policy", f"--account=driverwright/{ACCOUNT}", "--mig"], {}) == 0
    assert RIGHTS.read_text() == capsys.readouterr().out


@pytest.mark.parametrize("of", ["MIG", "MIG and profiles"])
@pytest.mark.parametrize("namespace", ["driverwright", "elsewhere"])
def test_the_account_has_the_printed_rights(of: str, namespace: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that the command prints for it, under names of the chart; no other account and no other policy is there."""
    found = rendered(of, namespace)
    assert agent_cli(["admission-policy", f"--account={namespace}/{ACCOUNT}", "--mig"], {}) == 0
    printed, name = capsys.readouterr().out, f"driverwright-device-agent.{namespace}.{ACCOUNT}"
    rights = [item for item in found if item["kind"] in KINDS and "device-agent" in item["metadata"]["name"]]
    assert rights == read_documents(printed.replace(name, f"driverwright-{ACCOUNT}"))
    assert pod(found, "device-agent")["serviceAccountName"] == ACCOUNT
    assert one(found, "ServiceAccount", ACCOUNT)["automountServiceAccountToken"] is False


def test_a_token_never_comes_without_its_policy() -> None:
    """Whether policies of the other accounts are asked for or not."""
    for others in (False, True):
        found = objects({**with_mig(MIG, profiles=PROFILES), "admissionPolicies": {"enabled": others}})
        policies = [item["metadata"]["name"] for item in found if item["kind"] in POLICIES]
        assert policies.count(f"driverwright-{ACCOUNT}") == len(POLICIES)
        assert not [name for name in policies if "device-agent" in name and name != f"driverwright-{ACCOUNT}"]


@pytest.mark.parametrize("version", ["v1.30.0", "v1.34.1+k3s1"])
def test_a_server_with_policies_gets_them(version: str, kinds_on: Callable[[str, Json], list[str]]) -> None:
    """Also where it could do without."""
    assert kinds_on(version, with_mig({**MIG, "tokenWithoutPolicy": True})) == list(KINDS)


def test_an_older_server_gets_no_token_unless_that_is_accepted(kinds_on: Callable[[str, Json], list[str]]) -> None:
    """The refusal names what the token would be worth there; what is accepted for profiles is not for this."""
    words = r"Kubernetes v1.29.9 .* have pods of every node evicted: set enabled to false.* tokenWithoutPolicy to true"
    profiles = {**PROFILES, "tokenWithoutPolicy": True}
    with pytest.raises(helm.HelmRenderError, match=words):
        kinds_on("v1.29.9", with_mig(MIG, profiles=profiles))


def test_an_older_server_may_be_accepted(kinds_on: Callable[[str, Json], list[str]]) -> None:
    """Then the roles come without a policy."""
    assert kinds_on("v1.20.15", with_mig({**MIG, "tokenWithoutPolicy": True})) == list(KINDS[len(POLICIES) :])
