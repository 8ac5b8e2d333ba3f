"""What goes wrong with the plugin of a driver, though the spec is valid."""

from typing import Any

import pytest

from driver_builder.api.spec_parser import read_spec
from driver_builder.checks.lint_stages import without_devices, without_drain
from tests.support.driver_builder.factories import spec

NVIDIA: dict[str, Any] = {"devicePlugin": {"nvidia": {}}}
OTHER: dict[str, Any] = {"devicePlugin": {"image": "r.io/plugin:1", "resourceName": "nvidia.com/gpu"}}
USERSPACE: dict[str, Any] = {"packages": [{"name": "libnvidia-ml1", "version": "1"}]}
EARLY: dict[str, Any] = {"deviceNodes": ["/dev/nvidiactl", "/dev/other"]}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"stages": NVIDIA}, [], id="nothing"),
        pytest.param({"stages": OTHER, "validation": EARLY, "userspace": USERSPACE}, [], id="another plugin"),
        pytest.param({"stages": NVIDIA, "validation": {"deviceNodes": ["/dev/other"]}}, [], id="another node"),
        pytest.param(
            {"stages": NVIDIA, "validation": EARLY},
            ["spec.validation.deviceNodes: stages.devicePlugin.nvidia makes /dev/nvidiactl after the validation that"],
            id="a node that is made later",
        ),
        pytest.param(
            {"stages": NVIDIA, "userspace": USERSPACE},
            ["spec.userspace.hostPath: stages.devicePlugin.nvidia looks for the driver's library below /run/nvidia"],
            id="a library at another place",
        ),
        pytest.param(
            {"stages": NVIDIA, "userspace": {**USERSPACE, "hostPath": "/run/nvidia/driver"}}, [], id="a library there"
        ),
    ],
)
def test_what_keeps_the_devices_away_is_named(given: dict[str, Any], expected: list[str]) -> None:
    """With the field, and what to write."""
    reading = read_spec(spec(**given))
    assert reading.spec is not None, reading.problems
    found = [f"{'.'.join(map(str, path))}: {message}" for path, message in without_devices(reading.spec)]
    assert [message[: len(start)] for message, start in zip(found, expected, strict=True)] == expected


DRA: dict[str, Any] = {
    "devicePlugin": {"image": "r.io/dra:1", "dra": {"driver": "gpu.example.com", "serviceAccountName": "a"}}
}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"stages": DRA}, ["spec.rollout.drain"], id="a DRA driver without a drain"),
        pytest.param({"stages": DRA, "rollout": {"drain": {"resources": ["a.b/c"]}}}, [], id="with one"),
        pytest.param({"stages": OTHER}, [], id="a device plugin"),
        pytest.param({}, [], id="no stage"),
    ],
)
def test_a_dra_driver_wants_a_drain(given: dict[str, Any], expected: list[str]) -> None:
    """Otherwise it leaves before the pods whose claims it has to give back."""
    reading = read_spec(spec(**given))
    assert reading.spec is not None, reading.problems
    found = list(without_drain(reading.spec))
    assert [".".join(map(str, path)) for path, _ in found] == expected
    assert all("write draDrivers: [gpu.example.com]" in message for _, message in found)
