"""``devicePlugin.dra``: what is accepted, and what is refused by name."""

from typing import Any

import pytest

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.environment import EnvironmentVariable
from driver_builder.api.spec_parser import read_spec
from driver_builder.api.stage_settings import DevicePluginSettings, DraSettings
from tests.support.driver_builder.factories import driver, spec

DRA: dict[str, Any] = {"driver": "gpu.nvidia.com", "serviceAccountName": "dra"}
PLUGIN: dict[str, Any] = {"image": "r.io/dra:1", "dra": DRA}
VALIDATION: dict[str, Any] = {"image": "r.io/t:1", "command": ["/t"]}


def read(plugin: Any, **others: Any) -> DriverSpec:
    """Return a good spec with a plugin."""
    reading = read_spec(spec(stages={"devicePlugin": plugin}, **others))
    assert reading.spec is not None, reading.problems
    assert reading.unknown == ()
    return reading.spec


def test_a_dra_driver_is_a_vendors_image_without_a_resource() -> None:
    """With its name, its account and variables; what it claims is no resource's name."""
    env = [{"name": "A", "value": "b"}, {"name": "CDI_ROOT"}]
    found = read({**PLUGIN, "privileged": True, "args": ["--x"], "dra": {**DRA, "env": env}}).device_plugin
    variables = (EnvironmentVariable(name="A", value="b"), EnvironmentVariable(name="CDI_ROOT"))
    settings = DraSettings(driver="gpu.nvidia.com", account="dra", env=variables)
    assert found == DevicePluginSettings(
        resource_name="", image="r.io/dra:1", args=("--x",), privileged=True, dra=settings
    )
    assert (found.claim, found.account, found.is_of_agent) == ("dra:gpu.nvidia.com", "dra", False)


def test_the_driver_says_whose_account_and_slices_are_read() -> None:
    """By its namespace; one without such a stage asks for nothing."""
    found = driver(spec_changes={"stages": {"devicePlugin": PLUGIN}})
    assert (found.plugin_account, found.dra_driver) == (f"{found.namespace}/dra", "gpu.nvidia.com")
    assert (driver().plugin_account, driver().dra_driver) == ("", "")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"dra": {"driver": "a"}}, "devicePlugin.dra.serviceAccountName: is missing or empty",
                     id="no account"),
        pytest.param({"dra": {"serviceAccountName": "a"}}, "devicePlugin.dra.driver: is missing or empty",
                     id="no driver"),
        pytest.param({"dra": {**DRA, "driver": "GPU"}}, "'GPU' is not the name of a driver of devices (DRA)",
                     id="a wrong name"),
        pytest.param({"dra": {**DRA, "env": [{"name": "NODE_NAME", "value": "a"}]}},
                     "env[0].name: 'NODE_NAME' is set by driver-builder: leave it out", id="a variable of ours"),
        pytest.param({"dra": {**DRA, "env": [{"name": "A"}, {"name": "A"}]}}, "dra.env: names a variable twice",
                     id="a variable twice"),
        pytest.param({"dra": {**DRA, "driverName": "a"}}, "there is no such field: write it to driver", id="KMM's"),
        pytest.param({"dra": {**DRA, "deviceClasses": [{}]}}, "write DeviceClasses yourself", id="classes"),
        pytest.param({"resourceName": "example.com/a"}, "dra excludes it", id="with a resource"),
        pytest.param({"exporter": {"enabled": True}}, "image excludes exporter", id="with an exporter"),
        pytest.param({"image": None, "nvidia": {}}, "nvidia excludes dra", id="with our agent"),
        pytest.param({"image": None}, "exactly one of resource, image, nvidia is needed", id="without an image"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(changes: dict[str, Any], words: str) -> None:
    """With the field and what to do."""
    problems = [str(item) for item in read_spec(spec(stages={"devicePlugin": {**PLUGIN, **changes}})).problems]
    assert any(words in text for text in problems), problems


def test_it_has_no_validation_of_ours() -> None:
    """Its pod would be bound to a node, and a claim needs the scheduler."""
    reading = read_spec(spec(stages={"devicePlugin": PLUGIN, "pluginValidation": VALIDATION}))
    (problem,) = reading.problems
    assert str(problem).startswith("spec.stages.pluginValidation: devicePlugin.dra excludes it")


@pytest.mark.parametrize(
    ("drain", "expected"),
    [
        pytest.param({"resources": ["example.com/a"]}, ("gpu.nvidia.com",), id="unasked"),
        pytest.param({"draDrivers": ["gpu.nvidia.com"]}, ("gpu.nvidia.com",), id="named as well"),
        pytest.param({"draDrivers": ["b.c"]}, ("b.c", "gpu.nvidia.com"), id="beside another"),
    ],
)
def test_a_drain_covers_its_claims_unasked(drain: dict[str, Any], expected: tuple[str, ...]) -> None:
    """And lets it leave last: without it no claim ends."""
    found = read(PLUGIN, rollout={"drain": drain}).rollout.drain
    assert found is not None
    assert (found.dra_drivers, found.plugin_leaves_last) == (expected, True)


def test_without_a_drain_there_is_none() -> None:
    """Nor does the stage of a device plugin change one."""
    assert read(PLUGIN).rollout.drain is None
    found = read({"image": "a", "resourceName": "b.c/d"}, rollout={"drain": {"resources": ["b.c/d"]}}).rollout.drain
    assert found is not None
    assert (found.dra_drivers, found.plugin_leaves_last) == ((), False)
