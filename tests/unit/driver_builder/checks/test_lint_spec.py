"""What goes wrong with a valid spec is reported before it is applied: packages, signatures, plugins."""

from typing import Any

import pytest

from driver_builder.api.spec_parser import read_spec
from driver_builder.api.spec_reader import dotted
from driver_builder.checks.lint_spec import unsigned, without_devices, without_drain, without_packages
from driver_builder.cluster.snapshot_file import from_document
from kube_api import names
from tests.support.driver_builder.factories import KERNEL, OTHER_KERNEL, driver, node, node_labels, spec, spec_of
from tests.support.driver_builder.snapshot_files import file_of, node_object

DEBIAN = {"debian": ["g++"]}


def said(packages: dict[str, list[str]], **changes: Any) -> list[str]:
    """Return what is said of a driver, with a node of Debian and one of Rocky."""
    made = spec_of(driver(spec_changes={"build": {"packages": packages}, **changes}))
    nodes = (node("a"), node("b", os_id="rocky", os_version="9.4"))
    return [remark.message for remark in without_packages(made, nodes)]


def test_an_operating_system_without_an_entry_is_named() -> None:
    """Its packages have other names there."""
    assert said(DEBIAN) == [
        "nodes run rocky, for which it names none: add rocky: [NAME], or rocky: [] if none is needed"
    ]


@pytest.mark.parametrize(
    ("packages", "changes"),
    [
        pytest.param({}, {}, id="no packages at all"),
        pytest.param({**DEBIAN, "rocky": ["gcc-c++"]}, {}, id="both"),
        pytest.param({**DEBIAN, "rocky": []}, {}, id="none is meant"),
        pytest.param(DEBIAN, {"nodeSelector": {"pool": "other"}}, id="another pool"),
        pytest.param(DEBIAN, {"kernelMappings": [{"regexp": ".*", "skip": True}]}, id="nothing is built"),
    ],
)
def test_where_nothing_is_missing_nothing_is_said(packages: dict[str, list[str]], changes: dict[str, Any]) -> None:
    """A driver that needs nothing writes so."""
    assert said(packages, **changes) == []


SIGNED = {"keySecretRef": {"name": "k"}, "certificateSecretRef": {"name": "c"}}
SECURE = {names.SECURE_BOOT_LABEL: "true"}


def told(*nodes: Any, **changes: Any) -> list[str]:
    """What is said of a driver and these nodes."""
    return [remark.message for remark in unsigned(spec_of(driver(spec_changes=changes)), nodes)]


def test_unsigned_modules_are_reported_by_kernel_and_nodes() -> None:
    """Once for each kernel, with some of its nodes."""
    secure = [node(f"s{number}", labels=SECURE) for number in range(5)]
    (said,) = told(*secure, node("plain", OTHER_KERNEL))
    assert said.startswith(f"modules for {KERNEL} are not signed, and s0, s1, s2 and 2 more with Secure Boot")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"signing": SIGNED}, id="signed"),
        pytest.param({"kernelMappings": [{"regexp": ".*", "signing": SIGNED}]}, id="signed by a mapping"),
        pytest.param({"kernelMappings": [{"regexp": ".*", "skip": True}]}, id="skipped"),
        pytest.param({"kernelMappings": [{"regexp": ".*", "image": "r.io/x:1"}]}, id="prebuilt, of which nobody knows"),
        pytest.param({"kernelMappings": [{"regexp": "9"}]}, id="not wanted"),
        pytest.param({"nodeSelector": {"pool": "other"}}, id="another pool"),
    ],
)
def test_where_nothing_is_refused_nothing_is_reported(changes: dict[str, Any]) -> None:
    """Only what is known to go wrong."""
    assert told(node(labels=SECURE), **changes) == []


def test_a_signature_of_the_image_is_none_of_its_modules() -> None:
    """The kernel does not look at it."""
    assert told(node(labels=SECURE), signing={"imageKeySecretRef": {"name": "i"}})


def test_a_snapshot_on_file_keeps_the_label() -> None:
    """So that a driver can be checked against a fleet elsewhere."""
    (kept,) = from_document(file_of(node_object(labels={**node_labels(), **SECURE})))[0].nodes
    assert kept.labels[names.SECURE_BOOT_LABEL] == "true"


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
    found = [f"{dotted(remark.path)}: {remark.message}" for remark in without_devices(reading.spec)]
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
    assert [dotted(remark.path) for remark in found] == expected
    assert all("write draDrivers: [gpu.example.com]" in remark.message for remark in found)
