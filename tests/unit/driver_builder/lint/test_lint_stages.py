"""What keeps NVIDIA's devices from coming, though the spec is valid."""

from typing import Any

import pytest

from driver_builder.api.spec_parser import read_spec
from driver_builder.lint.lint_stages import without_devices
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
