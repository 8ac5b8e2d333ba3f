"""What a pull pod proves: that its container ran, with an image's id."""

from typing import Any

import pytest

from driver_builder.cluster.read_pods import read_owned_pod
from driver_builder.model.driver_key import DriverKey
from driver_builder.tasks.pull_pod import PULL, manifest
from driver_builder.tasks.task_kind import State
from kube_api.client import Object
from tests.support.driver_builder.factories import NAMESPACE, driver, task

IMAGE = "registry.example.com/edu@sha256:1"


def pod(status: Object, **metadata: Any) -> Object:
    """Make a pull pod of the API server."""
    made = manifest(driver(), node="node-a", image=IMAGE, loader_image="l")
    return {**made, "metadata": {**made["metadata"], "uid": "u", **metadata}, "status": status}


def container(state: Object, image_id: str = "") -> Object:
    """Make the status of its container."""
    return {"containerStatuses": [{"name": PULL.container, "state": state, "imageID": image_id}]}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({}, {}, id="new"),
        pytest.param(container({"waiting": {"reason": "PodInitializing"}}), {}, id="the loader runs"),
        pytest.param(
            container({"waiting": {"reason": "ErrImagePull", "message": "not found"}}),
            {"message": "ErrImagePull: not found"}, id="it cannot be pulled",
        ),
        pytest.param(container({"running": {}}, IMAGE), {"state": State.SUCCEEDED}, id="it runs"),
        pytest.param(
            {"phase": "Succeeded", **container({"terminated": {"exitCode": 0}}, IMAGE)},
            {"state": State.SUCCEEDED}, id="it has ended",
        ),
        pytest.param(
            container({"terminated": {"finishedAt": "2026-11-24T10:00:00Z"}}, IMAGE),
            {"state": State.SUCCEEDED, "ended_at": 1795514400.0}, id="when it has",
        ),
        pytest.param(
            {"phase": "Failed", **container({"terminated": {"exitCode": 128}})},
            {"state": State.FAILED}, id="no image id"
        ),
        pytest.param(
            {"phase": "Failed", "message": "The node was low on resource"},
            {"state": State.FAILED, "message": "The node was low on resource"},
            id="the kubelet evicted it",
        ),
    ],
)  # fmt: skip
def test_what_a_pull_pod_proves(status: Object, expected: dict[str, Any]) -> None:
    """The words of the kubelet are those of a failure."""
    found = read_owned_pod(pod(status))
    assert found is not None
    name = PULL.name_of(DriverKey(f"{NAMESPACE}/edu"), "node-a", IMAGE)
    assert found.pod == task(PULL, IMAGE, name=name, uid="u", **expected)


def test_a_label_alone_makes_none_ours() -> None:
    """Nobody controls it."""
    assert read_owned_pod(pod({}, ownerReferences=[])) is None
