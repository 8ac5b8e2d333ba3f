"""``spec.stages``: what is accepted, and what is refused by name."""

from typing import Any

import pytest

from driver_builder.api.driver_container import MAX_NAMES_LENGTH
from driver_builder.api.spec_parser import read_spec
from driver_builder.api.stage_settings import DevicePluginSettings, PluginValidationSettings, StageSettings
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


WRONG: list[Any] = [
    pytest.param({"validation": COMMAND}, "spec.stages.validation", "write spec.validation", id="validation"),
    pytest.param({"monitoring": {}}, "spec.stages.monitoring", "a DaemonSet of your own", id="monitoring"),
    pytest.param({"devicePlugin": {}}, "spec.stages.devicePlugin", "exactly one of resource, image", id="neither"),
    pytest.param({"devicePlugin": {**PLUGIN, **VENDOR}}, "spec.stages.devicePlugin", "exactly one of", id="both"),
    pytest.param({"devicePlugin": {"image": "r.io/a"}}, "spec.stages.devicePlugin.resourceName", "is missing",
                 id="no name"),
    pytest.param({"devicePlugin": {**PLUGIN, "args": ["x"]}}, "spec.stages.devicePlugin", "args, which belong to image",
                 id="arguments of our agent"),
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
    key = f"{'n' * (MAX_NAMES_LENGTH - 20)}/{'d' * 20}"
    assert all(is_qualified_name(stage_label(key, stage)) for stage in Stage)
