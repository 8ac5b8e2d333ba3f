"""``spec.stages``: what is accepted, and what is refused by name."""

from typing import Any

import pytest

from driver_builder.api.driver_container import MAX_NAMES_LENGTH
from driver_builder.api.spec_parser import read_spec
from driver_builder.api.stage_settings import (
    DevicePluginSettings,
    MigSettings,
    PluginValidationSettings,
    ProfileSettings,
    StageSettings,
    UseSettings,
)
from driver_builder.model.driver_key import DriverKey
from driver_builder.objects.stage_labels import Stage, stage_label
from kube_api.names import is_qualified_name
from tests.support.driver_builder.factories import spec

RESOURCE: dict[str, Any] = {"name": "example.com/edu", "groups": [{"paths": [{"path": "/dev/edu*"}]}]}
PLUGIN: dict[str, Any] = {"resource": RESOURCE}
VENDOR: dict[str, Any] = {"image": "r.io/a:1", "resourceName": "example.com/edu"}
COMMAND: dict[str, Any] = {"image": "r.io/t:1", "command": ["/t"]}


def stages_of(given: Any) -> StageSettings | None:
    """Return the stages of a good spec."""
    reading = read_spec(spec(stages=given))
    assert reading.spec is not None, reading.problems
    assert reading.unknown == ()
    return reading.spec.stages


def problems(given: Any) -> list[str]:
    """Return what is wrong with the stages of a spec."""
    return [str(problem) for problem in read_spec(spec(stages=given)).problems]


def test_an_empty_object_is_something() -> None:
    """Nodes get the labels that DaemonSets of others select."""
    assert stages_of(None) is None
    assert stages_of({}) == StageSettings()


def test_the_resource_of_our_agent_names_itself() -> None:
    """Its validation requests the same one."""
    found = stages_of({"devicePlugin": PLUGIN, "pluginValidation": {**COMMAND, "deadline": "1m", "retries": 0}})
    plugin = DevicePluginSettings(resource_name="example.com/edu", resource=RESOURCE)
    validation = PluginValidationSettings(
        image="r.io/t:1", command=("/t",), resource_name="example.com/edu", deadline_seconds=60.0, retries=0
    )
    assert found == StageSettings(device_plugin=plugin, plugin_validation=validation)


def test_a_vendors_plugin_says_what_it_offers() -> None:
    """Its image has its own entry point unless a command is given."""
    found = stages_of({"devicePlugin": {**VENDOR, "args": ["--x"], "privileged": True}})
    plugin = DevicePluginSettings(resource_name="example.com/edu", image="r.io/a:1", args=("--x",), privileged=True)
    assert found == StageSettings(device_plugin=plugin)


def test_nvidias_devices_are_full_cards_unless_a_validation_names_others() -> None:
    """An empty object is enough; its plugin claims the whole domain, since what comes depends on the cards."""
    found = stages_of({"devicePlugin": {"nvidia": {}}, "pluginValidation": COMMAND})
    plugin = DevicePluginSettings(resource_name="nvidia.com/gpu", nvidia={})
    validation = PluginValidationSettings(image="r.io/t:1", command=("/t",), resource_name="nvidia.com/gpu")
    assert found == StageSettings(device_plugin=plugin, plugin_validation=validation)
    assert (plugin.claim, plugin.is_of_agent) == ("nvidia.com/", True)
    mig = {**COMMAND, "resourceName": "nvidia.com/mig-1g.5gb"}
    found = stages_of({"devicePlugin": {"nvidia": {"migStrategy": "mixed"}}, "pluginValidation": mig})
    assert found is not None
    assert found.plugin_validation is not None
    assert found.plugin_validation.resource_name == "nvidia.com/mig-1g.5gb"


PROFILES: dict[str, Any] = {"profiles": {"configMap": "gpu-profiles"}}


@pytest.mark.parametrize(
    ("given", "profiles"),
    [
        pytest.param(PROFILES, ProfileSettings(config_map="gpu-profiles"), id="profiles"),
        pytest.param({**PROFILES, "defaultProfile": "_a.b-1"}, ProfileSettings(config_map="gpu-profiles",
                     default="_a.b-1"), id="a default"),
        pytest.param({"profiles": None, "defaultProfile": None}, None, id="null is not given"),
    ],
)  # fmt: skip
def test_profiles_are_no_part_of_what_the_agent_reads(given: dict[str, Any], profiles: ProfileSettings | None) -> None:
    """Its configuration is the rest, as it was given."""
    found = stages_of({"devicePlugin": {"nvidia": {"migStrategy": "single", **given}}})
    assert found is not None
    plugin = DevicePluginSettings(resource_name="nvidia.com/gpu", nvidia={"migStrategy": "single"}, profiles=profiles)
    assert found.device_plugin == plugin


MIG: dict[str, Any] = {"enabled": True, "configMap": "layouts"}
GPU_ACCOUNT = {"serviceAccountName": "gpu.profiles"}
LAYOUTS = MigSettings(config_map="layouts", account="gpu.profiles")
SHARED = ProfileSettings(config_map="gpu-profiles", account="gpu.profiles")


@pytest.mark.parametrize(
    ("given", "config", "settings"),
    [
        pytest.param({**PROFILES, **GPU_ACCOUNT}, {}, {"profiles": SHARED}, id="an account for profiles"),
        pytest.param({"mig": MIG, **GPU_ACCOUNT}, {"mig": {"enabled": True}}, {"mig": LAYOUTS}, id="MIG changes"),
        pytest.param({"mig": {**MIG, "drain": True}, **GPU_ACCOUNT}, {"mig": {"enabled": True, "drain": True}},
                     {"mig": LAYOUTS}, id="with a drain"),
        pytest.param({"mig": MIG, **PROFILES, **GPU_ACCOUNT}, {"mig": {"enabled": True}},
                     {"mig": LAYOUTS, "profiles": SHARED}, id="both"),
        pytest.param({"mig": {**MIG, "enabled": False}, **GPU_ACCOUNT}, {}, {}, id="switched off: as without"),
        pytest.param({"mig": {}}, {}, {}, id="nothing said"),
        pytest.param({"mig": {**MIG, "enabled": False}, **PROFILES, **GPU_ACCOUNT}, {}, {"profiles": SHARED},
                     id="switched off beside profiles"),
    ],
)  # fmt: skip
def test_where_layouts_come_from_and_whose_token_it_is_are_of_the_pod(
    given: dict[str, Any], config: dict[str, Any], settings: dict[str, Any]
) -> None:
    """The agent reads what is switched on, and nothing of what is not: then pods are those without it."""
    found = stages_of({"devicePlugin": {"nvidia": given}})
    assert found is not None
    assert found.device_plugin == DevicePluginSettings(resource_name="nvidia.com/gpu", nvidia=config, **settings)
    assert found.device_plugin.account == ("gpu.profiles" if settings else None)


PER_POD: dict[str, Any] = {"enabled": True, "perPod": True}
DRIVER: dict[str, Any] = {"mode": "driver", "limits": {"example.com/edu": "1Gi"}}
TRIED: dict[str, Any] = {"mode": "watch", "dryRun": True}
OFF: dict[str, Any] = {"enabled": False, "perPod": True}


@pytest.mark.parametrize(
    ("given", "use", "has_nvml"),
    [
        pytest.param({"exporter": {"enabled": True}}, UseSettings(config={"exporter": {"enabled": True}}, port=9400),
                     False, id="an exporter"),
        pytest.param({"exporter": {**PER_POD, "port": 1}},
                     UseSettings(config={"exporter": {**PER_POD, "port": 1}}, port=1, sees_processes=True),
                     True, id="by pods"),
        pytest.param({"memory": {"mode": "watch"}},
                     UseSettings(config={"memory": {"mode": "watch"}}, sees_processes=True, limits_memory=True,
                                 ends_processes=True),
                     True, id="a watch"),
        pytest.param({"memory": TRIED},
                     UseSettings(config={"memory": TRIED}, sees_processes=True, limits_memory=True),
                     True, id="a watch that is tried"),
        pytest.param({"memory": DRIVER, "exporter": OFF},
                     UseSettings(config={"memory": DRIVER}, sees_processes=True, limits_memory=True,
                                 writes_cgroups=True, ends_processes=True),
                     True, id="limits by the driver"),
        pytest.param({"exporter": OFF, "memory": {"mode": "off", "dryRun": True}}, None, False, id="both off"),
        pytest.param({"exporter": {}, "memory": {"mode": False}}, None, False, id="nothing, and a bare off"),
        pytest.param({"exporter": None, "memory": None}, None, False, id="null is not given"),
    ],
)  # fmt: skip
def test_what_is_switched_off_is_as_if_it_were_not_there(
    given: dict[str, Any], use: UseSettings | None, has_nvml: bool
) -> None:
    """Nothing of it is in the agent's configuration; the privileged container comes where processes are looked at."""
    found = stages_of({"devicePlugin": {**PLUGIN, **given}})
    assert found is not None
    plugin = DevicePluginSettings(resource_name="example.com/edu", resource=RESOURCE, use=use)
    assert found.device_plugin == plugin
    assert plugin.has_nvml is has_nvml


@pytest.mark.parametrize(
    ("plugin", "expected"),
    [
        pytest.param({"nvidia": {}}, ("example.com/a", "nvidia.com/"), id="with NVIDIA's devices"),
        pytest.param(PLUGIN, ("example.com/a",), id="with a resource"),
        pytest.param(VENDOR, ("example.com/a",), id="with a vendor's plugin"),
    ],
)
def test_a_drain_covers_nvidias_devices_unasked(plugin: dict[str, Any], expected: tuple[str, ...]) -> None:
    """Beside what it names; which resources these are is not known before the cards are."""
    drain = {"resources": ["example.com/a"], "deadline": "5m"}
    reading = read_spec(spec(stages={"devicePlugin": plugin}, rollout={"drain": drain}))
    assert reading.spec is not None
    assert reading.spec.rollout.drain is not None
    assert (reading.spec.rollout.drain.resources, reading.spec.rollout.drain.deadline_seconds) == (expected, 300.0)


def test_without_a_drain_nvidias_devices_add_none() -> None:
    """Nothing is evicted unless an admin asks for it."""
    reading = read_spec(spec(stages={"devicePlugin": {"nvidia": {}}}))
    assert reading.spec is not None
    assert reading.spec.rollout.drain is None


WRONG: list[Any] = [
    pytest.param({"validation": COMMAND}, "spec.stages.validation", "write spec.validation", id="validation"),
    pytest.param({"monitoring": {}}, "spec.stages.monitoring", "a DaemonSet of your own", id="monitoring"),
    pytest.param({"exporter": {}}, "spec.stages.exporter", "write stages.devicePlugin.exporter", id="exporter"),
    pytest.param({"devicePlugin": {"nvidia": {"memory": {}}}}, "spec.stages.devicePlugin.nvidia.memory",
                 "it belongs to devicePlugin, beside nvidia", id="memory of NVIDIA's"),
    pytest.param({"devicePlugin": {**PLUGIN, "exporter": {"perpod": True}}},
                 "spec.stages.devicePlugin.exporter.perpod", "did you mean perPod?", id="a field of the exporter"),
    pytest.param({"devicePlugin": {**PLUGIN, "exporter": {"port": 8080}}}, "spec.stages.devicePlugin.exporter.port",
                 "is the port of the agent's own pages", id="the port of pages"),
    pytest.param({"devicePlugin": {**PLUGIN, "memory": {"mode": "on"}}}, "spec.stages.devicePlugin.memory.mode",
                 "use one of off, watch, driver", id="a mode"),
    pytest.param({"devicePlugin": {**PLUGIN, "memory": {"limits": {"example.com/edu": "10"}}}},
                 "spec.stages.devicePlugin.memory.limits.example.com/edu", "with its unit", id="a limit"),
    pytest.param({"devicePlugin": {**VENDOR, "exporter": {}, "memory": {}}}, "spec.stages.devicePlugin",
                 "image excludes exporter, memory, which belong to resource and nvidia", id="use of a vendor's"),
    pytest.param({"devicePlugin": {}}, "spec.stages.devicePlugin", "exactly one of resource, image", id="neither"),
    pytest.param({"devicePlugin": {**PLUGIN, **VENDOR}}, "spec.stages.devicePlugin", "exactly one of", id="both"),
    pytest.param({"devicePlugin": {"image": "r.io/a"}}, "spec.stages.devicePlugin.resourceName", "is missing",
                 id="no name"),
    pytest.param({"devicePlugin": {**PLUGIN, "args": ["x"]}}, "spec.stages.devicePlugin", "args, which belong to image",
                 id="arguments of our agent"),
    pytest.param({"devicePlugin": {**PLUGIN, "nvidia": {}}}, "spec.stages.devicePlugin", "exactly one of",
                 id="both ours"),
    pytest.param({"devicePlugin": {"image": "r.io/a:1", "nvidia": {}}}, "spec.stages.devicePlugin", "exactly one of",
                 id="NVIDIA's and a vendor's"),
    pytest.param({"devicePlugin": {"nvidia": {}, "privileged": True, "resourceName": "a/b"}},
                 "spec.stages.devicePlugin", "nvidia excludes privileged, resourceName, which belong to image",
                 id="NVIDIA's, privileged"),
    pytest.param({"devicePlugin": {"nvidia": {"migStrat": ""}}}, "spec.stages.devicePlugin.nvidia.migStrat",
                 "did you mean migStrategy?", id="a field of NVIDIA's"),
    pytest.param({"devicePlugin": {"nvidia": {"libraries": {"path": "/opt"}}}},
                 "spec.stages.devicePlugin.nvidia.libraries.path", "two or more folders", id="all of /"),
    pytest.param({"devicePlugin": {"nvidia": {"profiles": {}}}}, "spec.stages.devicePlugin.nvidia.profiles.configMap",
                 "is missing", id="no ConfigMap"),
    pytest.param({"devicePlugin": {"nvidia": {"configMap": "a"}}}, "spec.stages.devicePlugin.nvidia.configMap",
                 "belongs to profiles, or mig", id="a ConfigMap elsewhere"),
    pytest.param({"devicePlugin": {"nvidia": {"mig": {"enabled": True, "configMap": "a"}}}},
                 "spec.stages.devicePlugin.nvidia.serviceAccountName", "is missing: without a token",
                 id="MIG changes by nobody"),
    pytest.param({"devicePlugin": {"nvidia": {"mig": {"enabled": True}, "serviceAccountName": "a"}}},
                 "spec.stages.devicePlugin.nvidia.mig.configMap", "is missing", id="MIG changes without layouts"),
    pytest.param({"devicePlugin": {"nvidia": {"mig": {"enabled": "true"}}}},
                 "spec.stages.devicePlugin.nvidia.mig.enabled", "neither true nor false", id="a word for a switch"),
    pytest.param({"devicePlugin": {"nvidia": {"mig": {"config": "a"}}}},
                 "spec.stages.devicePlugin.nvidia.mig.config", "did you mean configMap?", id="a field of mig"),
    pytest.param({"devicePlugin": {"nvidia": {"profiles": {"configMap": "A_b"}}}},
                 "spec.stages.devicePlugin.nvidia.profiles.configMap", "the name of an object", id="no name"),
    pytest.param({"devicePlugin": {"nvidia": {**PROFILES, "defaultProfile": "..data"}}},
                 "spec.stages.devicePlugin.nvidia.defaultProfile", "no '.' in front", id="the kubelet's own key"),
    pytest.param({"devicePlugin": {"nvidia": {**PROFILES, "serviceAccountName": "other/gpu"}}},
                 "spec.stages.devicePlugin.nvidia.serviceAccountName", "the name of an object",
                 id="an account of another namespace"),
    pytest.param({"devicePlugin": {"nvidia": {"defaultProfile": "a"}}},
                 "spec.stages.devicePlugin.nvidia.defaultProfile", "write nvidia.profiles", id="a default of nothing"),
    pytest.param({"devicePlugin": {"nvidia": {"serviceAccountName": "a"}}},
                 "spec.stages.devicePlugin.nvidia.serviceAccountName", "write nvidia.profiles or nvidia.mig",
                 id="an account for nothing"),
    pytest.param({"devicePlugin": {"nvidia": True}}, "spec.stages.devicePlugin.nvidia", "not an object", id="a flag"),
    pytest.param({"devicePlugin": {"resource": {**RESOURCE, "group": []}}}, "spec.stages.devicePlugin.resource.group",
                 "did you mean groups?", id="a field of the resource"),
    pytest.param({"devicePlugin": {"resource": []}}, "spec.stages.devicePlugin.resource", "not an object", id="a list"),
    pytest.param({"pluginValidation": COMMAND}, "spec.stages.pluginValidation", "there is no devicePlugin", id="alone"),
    pytest.param({"devicePlugin": PLUGIN, "pluginValidation": {"image": "r.io/t"}},
                 "spec.stages.pluginValidation.command", "name at least the program", id="no command"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "path", "words"), WRONG)
def test_what_is_wrong_is_named(given: Any, path: str, words: str) -> None:
    """With its path, and what to write."""
    assert any(problem.startswith(f"{path}: ") and words in problem for problem in problems(given)), problems(given)


def test_labels_fit_whatever_the_names_are() -> None:
    """Namespace and name have 56 characters together."""
    key = DriverKey(f"{'n' * (MAX_NAMES_LENGTH - 20)}/{'d' * 20}")
    assert all(is_qualified_name(stage_label(key, stage)) for stage in Stage)
