"""How a validation pod ended, as its kubelet reports it."""

from typing import Any

import pytest

from driver_builder.cluster.read_pods import read_owned_pod
from driver_builder.tasks import validation_pod
from driver_builder.tasks.node_task import NodeTask
from driver_builder.tasks.task_kind import State
from tests.support.driver_builder.factories import NAMESPACE, driver, spec_of

ENDED_AT = 1_700_000_100.0


def read(status: dict[str, Any], **metadata: Any) -> NodeTask:
    """Read the pod of a driver with a status."""
    container = driver(spec_changes={"validation": {"image": "r.io/test", "command": ["/test"]}})
    obj = validation_pod.manifest(container, spec_of(container), node="node-a", subject="0123456789abcdef")
    obj["metadata"] |= {"uid": "uid", "creationTimestamp": "2023-11-14T22:13:20Z", **metadata}
    owned = read_owned_pod({**obj, "status": status})
    assert owned is not None
    assert owned.owner == container.uid
    assert isinstance(owned.pod, NodeTask)
    return owned.pod


def ended(code: int, message: str = "", **more: Any) -> dict[str, Any]:
    """Return the status of a pod whose container ended."""
    state = {"terminated": {"exitCode": code, "message": message, "finishedAt": "2023-11-14T22:15:00Z"}}
    return {"phase": "Failed", "containerStatuses": [{"name": "validate", "state": state}], **more}


UNKNOWN = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": "could not be located"}}
WAITING = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}

ENDS = [
    pytest.param({}, None, False, "", id="not seen"),
    pytest.param(ended(0), ENDED_AT, True, "", id="succeeded"),
    pytest.param(ended(2, "no\nanswer\n"), ENDED_AT, False, "the command failed (2): no answer", id="failed"),
    pytest.param({**ended(137), "reason": "DeadlineExceeded", "message": "Pod was active"}, ENDED_AT, False,
                 "not done within spec.validation.timeout: the command failed (137)", id="too long"),
    pytest.param(ended(0, reason="DeadlineExceeded"), ENDED_AT, False, "not done within spec.validation.timeout",
                 id="too long, and ended well"),
    pytest.param({"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory"}, None,
                 False, "The node was low on memory", id="evicted"),
    pytest.param({"phase": "Failed", "reason": "DeadlineExceeded", "message": "Pod was active on the node too long",
                  "containerStatuses": [{"name": "validate", "state": UNKNOWN}]}, None, False,
                 "not started within spec.validation.timeout: Pod was active on the node too long", id="never started"),
    pytest.param({**ended(137), "reason": "Evicted", "message": "The node was low on memory"}, ENDED_AT, False,
                 "The node was low on memory", id="evicted while it ran"),
    pytest.param({"phase": "Pending", "containerStatuses": [{"name": "validate", "state": WAITING}]}, None, False,
                 "ErrImagePull: not found", id="image cannot be pulled"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "ended_at", "succeeded", "message"), ENDS)
def test_a_pod_says_how_it_ended(status: dict[str, Any], ended_at: float | None, succeeded: bool, message: str) -> None:
    """Only its container's own end with 0 is a success."""
    pod = read(status)
    assert (pod.ended_at, pod.state is State.SUCCEEDED, pod.message) == (ended_at, succeeded, message)
    has_run = pod.state in (State.SUCCEEDED, State.FAILED)
    assert has_run is (ended_at == ENDED_AT and status.get("reason") != "Evicted")
    assert (pod.namespace, pod.node, pod.subject) == (NAMESPACE, "node-a", "0123456789abcdef")


def test_a_pod_that_is_being_deleted_says_so() -> None:
    """Its end is not counted."""
    assert read(ended(1), deletionTimestamp="2023-11-14T22:16:00Z").deleting
