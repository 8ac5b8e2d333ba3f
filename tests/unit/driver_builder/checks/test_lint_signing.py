"""Drivers that nodes with Secure Boot would refuse are reported before they are applied."""

from typing import Any

import pytest

from driver_builder.checks.lint_signing import unsigned
from driver_builder.cluster.snapshot_file import from_document
from kube_api import names
from tests.support.driver_builder.factories import KERNEL, OTHER_KERNEL, driver, node, node_labels, spec_of
from tests.support.driver_builder.snapshot_files import file_of, node_object

SIGNED = {"keySecretRef": {"name": "k"}, "certificateSecretRef": {"name": "c"}}
SECURE = {names.SECURE_BOOT_LABEL: "true"}


def told(*nodes: Any, **changes: Any) -> list[str]:
    """What is said of a driver and these nodes."""
    return list(unsigned(spec_of(driver(spec_changes=changes)), nodes))


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
