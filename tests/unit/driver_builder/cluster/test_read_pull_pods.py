"""What a pull pod proves: that its container ran, with an image's id."""

from typing import Any

import pytest

from driver_builder.cluster.read_pods import read_owned_pod
from driver_builder.model.driver_key import DriverKey
from driver_builder.tasks.pull_pod import CONTAINER, PullPod, manifest, name_of
from kube_api.client import Object
from tests.support.driver_builder.factories import NAMESPACE, driver

IMAGE = "registry.example.com/edu@sha256:1"


def pod(status: Object, **metadata: Any) -> Object:
    """Make a pull pod of the API server."""
    made = manifest(driver(), node="node-a", image=IMAGE, loader_image="l")
    return {**made, "metadata": {**made["metadata"], "uid": "u", **metadata}, "status": status}


def container(state: Object, image_id: str = "") -> Object:
    """Make the status of its container."""
    return {"containerStatuses": [{"name": CONTAINER, "state": state, "imageID": image_id}]}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({}, {}, id="new"),
        pytest.param(container({"waiting": {"reason": "PodInitializing"}}), {}, id="the loader runs"),
        pytest.param(
            container({"waiting": {"reason": "ErrImagePull", "message": "not found"}}),
            {"message": "ErrImagePull: not found"}, id="it cannot be pulled",
        ),
        pytest.param(container({"running": {}}, IMAGE), {"is_proven": True}, id="it runs"),
        pytest.param(
            {"phase": "Succeeded", **container({"terminated": {"exitCode": 0}}, IMAGE)},
            {"is_proven": True, "has_ended": True}, id="it has ended",
        ),
        pytest.param(
            container({"terminated": {"finishedAt": "2026-11-24T10:00:00Z"}}, IMAGE),
            {"is_proven": True, "ran_at": 1795514400.0}, id="when it has",
        ),
        pytest.param(
            {"phase": "Failed", **container({"terminated": {"exitCode": 128}})}, {"has_ended": True}, id="no image id"
        ),
        pytest.param(
            {"phase": "Failed", "message": "The node was low on resource"},
            {"has_ended": True, "message": "The node was low on resource"}, id="the kubelet evicted it",
        ),
    ],
)  # fmt: skip
def test_what_a_pull_pod_proves(status: Object, expected: dict[str, Any]) -> None:
    """The words of the kubelet are those of a failure."""
    found = read_owned_pod(pod(status))
    assert found is not None
    key = DriverKey(f"{NAMESPACE}/edu")
    assert found.pod == PullPod(
        namespace=NAMESPACE, name=name_of(key, "node-a", IMAGE), uid="u", driver=key, node="node-a", image=IMAGE,
        **expected,
    )  # fmt: skip


def test_a_label_alone_makes_none_ours() -> None:
    """Nobody controls it."""
    assert read_owned_pod(pod({}, ownerReferences=[])) is None
