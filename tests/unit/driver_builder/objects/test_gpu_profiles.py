"""What the pod of a plugin has with profiles: folders, flags, and a token in one container."""

from typing import Any

import pytest

from driver_builder.model.driver_key import DriverKey
from driver_builder.objects import agent_token, gpu_profiles, plugin
from driver_builder.objects.plugin import PluginSet
from tests.support.driver_builder.factories import driver, spec_of

Json = dict[str, Any]

PROFILES: Json = {"profiles": {"configMap": "gpu-profiles"}}
WITH_ACCOUNT: Json = {**PROFILES, "serviceAccountName": "gpu"}


def daemon_set(nvidia: Json, *, has_token: bool = False) -> Json:
    """Return the DaemonSet of the plugin."""
    container = driver(spec_changes={"stages": {"devicePlugin": {"nvidia": nvidia}}})
    settings = spec_of(container).device_plugin
    assert settings is not None
    return plugin.daemon_set(container, spec_of(container), settings, agent_image="r.io/a:1", has_token=has_token)


def pod_of(nvidia: Json, *, has_token: bool = False) -> Json:
    """Return the spec of its pods."""
    found: Json = daemon_set(nvidia, has_token=has_token)["spec"]["template"]["spec"]
    return found


def mounts_of(container: Json) -> dict[str, bool]:
    """Return the folders of a container, and whether it only reads each."""
    return {item["mountPath"]: item.get("readOnly", False) for item in container["volumeMounts"]}


def known(pod: Json) -> PluginSet:
    """Make a DaemonSet that is there."""
    spec = {**daemon_set(PROFILES)["spec"], "template": {"spec": pod}}
    return PluginSet(namespace="a", name="b", uid="c", driver=DriverKey("a/b"), spec=spec, resource="nvidia.com/")


def test_profiles_add_two_folders_and_a_flag_to_the_agent_alone() -> None:
    """The profiles and who uses what, to read. A ConfigMap that is gone stops no pod."""
    before, after = pod_of({}), pod_of(PROFILES)
    (agent, nvml), (with_profiles, beside) = before["containers"], after["containers"]
    more = {
        "/etc/device-agent-profiles": True,
        "/var/lib/kubelet/pod-resources": True,
    }
    assert mounts_of(with_profiles) == {**mounts_of(agent), **more}
    assert with_profiles["args"] == [*agent["args"], "--profiles=/etc/device-agent-profiles"]
    assert (beside, with_profiles["env"]) == (nvml, agent["env"])
    assert {"name": "profiles", "configMap": {"name": "gpu-profiles", "optional": True}} in after["volumes"]
    assert "serviceAccountName" not in after
    assert after["automountServiceAccountToken"] is False


def test_a_default_is_one_more_flag() -> None:
    """Nodes that name no profile have it."""
    (agent, _) = pod_of({**PROFILES, "defaultProfile": "whole"})["containers"]
    assert agent["args"][-1] == "--default-profile=whole"


def test_the_token_is_in_the_agents_container_alone() -> None:
    """With the node's name, which it says which Node is its own; nothing is mounted into every container."""
    folder = "/var/run/secrets/kubernetes.io/serviceaccount"
    pod = pod_of(WITH_ACCOUNT, has_token=True)
    agent, nvml = pod["containers"]
    assert pod["serviceAccountName"] == "gpu"
    assert pod["automountServiceAccountToken"] is False
    assert mounts_of(agent)[folder] is True
    assert folder not in mounts_of(nvml)
    assert {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}} in agent["env"]
    (token,) = [item for item in pod["volumes"] if item["name"] == "token"]
    kinds = {next(iter(source)): next(iter(source.values())) for source in token["projected"]["sources"]}
    assert kinds.keys() == {"serviceAccountToken", "configMap", "downwardAPI"}
    assert kinds["serviceAccountToken"] == {"path": "token", "expirationSeconds": 3600}
    assert agent_token.has_token(pod)


def test_an_account_that_may_not_be_used_leaves_no_trace_in_the_pod() -> None:
    """It is as without one."""
    assert pod_of(WITH_ACCOUNT) == pod_of(PROFILES)
    assert not agent_token.has_token(pod_of(WITH_ACCOUNT))


MIG: Json = {"mig": {"enabled": True, "configMap": "layouts"}, "serviceAccountName": "gpu"}


def test_mig_changes_add_the_file_of_layouts_and_a_right_of_nvml() -> None:
    """The file and who uses what, to read; nothing but the flag to the privileged container."""
    token = "/var/run/secrets/kubernetes.io/serviceaccount"
    before, after = pod_of({}), pod_of(MIG, has_token=True)
    (agent, nvml), (changing, beside) = before["containers"], after["containers"]
    more = {"/etc/device-agent-mig": True, "/var/lib/kubelet/pod-resources": True, token: True}
    assert mounts_of(changing) == {**mounts_of(agent), **more}
    assert changing["args"] == [*agent["args"], "--mig-config=/etc/device-agent-mig"]
    assert beside == {**nvml, "args": [*nvml["args"], "--changes-mig=true"]}
    assert {"name": "mig-config", "configMap": {"name": "layouts", "optional": True}} in after["volumes"]
    assert after["serviceAccountName"] == "gpu"
    assert not gpu_profiles.is_answering(after), "it says nothing of names of resources"


def test_without_a_token_nobody_may_change_mig() -> None:
    """The Node could not ask for it; the configuration is the same, so that a token alone restarts pods once."""
    assert pod_of(MIG) == pod_of({})
    assert pod_of({**MIG, "mig": {**MIG["mig"], "enabled": False}}, has_token=False) == pod_of({})


def test_profiles_and_mig_share_what_both_need() -> None:
    """Each folder and volume once."""
    pod = pod_of({**WITH_ACCOUNT, **MIG}, has_token=True)
    for items, key in ((pod["volumes"], "name"), (pod["containers"][0]["volumeMounts"], "mountPath")):
        names = [item[key] for item in items]
        assert len(set(names)) == len(names)
    assert gpu_profiles.is_answering(pod)


def test_profiles_do_not_change_what_the_agent_reads() -> None:
    """The digest that restarts pods is that of its configuration: neither profiles nor the account are in it."""
    made = [daemon_set({})["spec"], daemon_set(WITH_ACCOUNT, has_token=True)["spec"]]
    digests = {spec["template"]["metadata"]["annotations"][plugin.CONFIG_ANNOTATION] for spec in made}
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("there", "account"),
    [
        pytest.param({}, None, id="never had one"),
        pytest.param({"serviceAccountName": "gpu", "serviceAccount": "gpu"}, "default", id="had one"),
        pytest.param({"serviceAccountName": "default"}, "default", id="had one long ago"),
    ],
)
def test_an_account_is_replaced_and_never_left_out(there: Json, account: str | None) -> None:
    """The API server restores what an apply leaves out from its old name, and refuses pods of a missing account."""
    pod = {**pod_of(PROFILES), **there}
    made = plugin.replacing(known(pod), daemon_set(PROFILES))
    assert made["spec"]["template"]["spec"].get("serviceAccountName") == account
    named = plugin.replacing(known(pod), daemon_set(WITH_ACCOUNT, has_token=True))
    assert named["spec"]["template"]["spec"]["serviceAccountName"] == "gpu"
