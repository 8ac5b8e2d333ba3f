"""Nodes of a cluster of the user's as values."""

from typing import Any

import pytest

from demo.own_nodes import OwnNode
from kube_api import names


def raw(**info: str) -> dict[str, Any]:
    """A Ready Linux node, as the API server shows it."""
    known = {
        "kernelVersion": "6.1.0-44-amd64",
        "osImage": "Debian",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }
    return {
        "metadata": {"name": "a"},
        "status": {
            "nodeInfo": {**known, "containerRuntimeVersion": "docker://20", **info},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


@pytest.mark.parametrize(
    ("info", "right"),
    [
        pytest.param({}, True, id="linux on amd64"),
        pytest.param({"architecture": "arm64"}, False, id="another architecture"),
        pytest.param({"operatingSystem": "windows"}, False, id="another operating system"),
    ],
)
def test_our_programs_run_where_their_images_fit(info: dict[str, str], right: bool) -> None:
    """Other nodes are shown and left alone."""
    assert OwnNode.of(raw(**info)).can_run_us is right


def test_a_node_that_is_not_ready_is_left_alone() -> None:
    """A node that is not Ready is not waited for."""
    node = raw()
    node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    assert not OwnNode.of(node).can_run_us
    assert OwnNode.of(node).state == "NotReady"


def test_labels_count_when_they_are_about_the_running_kernel() -> None:
    """Labels of the kernel before the last boot are not there yet."""
    node = raw()
    assert not OwnNode.of(node).is_labelled
    node["metadata"]["annotations"] = {names.KERNEL_VERSION_ANNOTATION: "6.1.0-44-amd64"}
    assert OwnNode.of(node).is_labelled
