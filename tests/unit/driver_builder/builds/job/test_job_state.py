"""How far a build Job is: objects of the API server in, one state out."""

import json
from typing import Any

import pytest

from driver_builder.builds.job.job_state import (
    Building,
    HandedOver,
    HandingOver,
    JobState,
    Lost,
    NotBuilt,
    TimedOut,
    Waiting,
    job_state,
)

Json = dict[str, Any]


def job(*conditions: Json) -> Json:
    """Make a Job."""
    return {"metadata": {"name": "driver-build-k", "uid": "job-1"}, "status": {"conditions": list(conditions)}}


def failed(reason: str) -> Json:
    """Make the condition of a Job that failed."""
    return {"type": "Failed", "status": "True", "reason": reason}


def pod(build: Json | None = None, hand_over: Json | None = None, *, name: str = "p", **status: Any) -> Json:
    """Make the Job's pod, of containers in these states."""
    kinds = (("initContainerStatuses", "build", build), ("containerStatuses", "hand-over", hand_over))
    containers = {kind: [{"name": container, "state": state}] for kind, container, state in kinds if state is not None}
    created = {"p": "2026-01-01T00:00:00Z"}.get(name, "2026-01-02T00:00:00Z")
    return {
        "metadata": {"name": name, "creationTimestamp": created, "ownerReferences": [{"uid": "job-1"}]},
        "status": {"phase": "Pending", **containers, **status},
    }


def with_toolchain(state: Json, build: Json | None = None) -> Json:
    """Make a pod that pulls a toolchain before it builds."""
    made = pod(build or waits("PodInitializing"))
    made["status"]["initContainerStatuses"].insert(0, {"name": "toolchain", "state": state})
    return made


def ended(exit_code: int = 0, message: str = "", reason: str = "") -> Json:
    """Make the state of a container that ended."""
    return {"terminated": {"exitCode": exit_code, "message": message, "reason": reason}}


def deleted(made: Json) -> Json:
    """Mark a pod as being deleted."""
    return made | {"metadata": made["metadata"] | {"deletionTimestamp": "2026-01-03T00:00:05Z"}}


def waits(reason: str, message: str = "") -> Json:
    """Make the state of a container that waits."""
    return {"waiting": {"reason": reason, "message": message}}


RUNS: Json = {"running": {}}
DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
DIGEST = "sha256:" + "1" * 64
EMPTY_DIR = 'Usage of EmptyDir volume "work" exceeds the limit "20Gi".'


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([], Waiting(why="no pod was created for the Job"), id="no pod"),
        pytest.param([pod()], Waiting(), id="not looked at"),
        pytest.param([pod(conditions=[UNSCHEDULED])], Waiting(why="0/3 nodes are available"), id="no node fits"),
        pytest.param([pod(waits("PodInitializing"))], Waiting(), id="image is pulled"),
        pytest.param(
            [pod(waits("ErrImagePull", "not found"))],
            Waiting(why="ErrImagePull: not found", is_hopeless=True),
            id="image cannot be pulled",
        ),
        pytest.param(
            [pod(waits("InvalidImageName"))], Waiting(why="InvalidImageName", is_hopeless=True), id="no image"
        ),
        pytest.param([pod(RUNS, waits("PodInitializing"))], Building(pod="p"), id="building"),
        pytest.param([pod(ended(65))], NotBuilt(pod="p", exit_code=65), id="compile error"),
        pytest.param([pod(ended(1, reason="OOMKilled"))], NotBuilt(pod="p", exit_code=137), id="out of memory"),
        pytest.param([pod(ended(137, reason="Error"))], NotBuilt(pod="p", exit_code=137), id="killed"),
        pytest.param([deleted(pod(ended(137, reason="Error")))], Building(pod="p"), id="killed by a deletion"),
        pytest.param([deleted(pod(ended(143, reason="Error")))], Building(pod="p"), id="ended by a deletion"),
        pytest.param(
            [deleted(pod(ended(137, reason="OOMKilled")))],
            NotBuilt(pod="p", exit_code=137),
            id="out of memory, then deleted",
        ),
        pytest.param([deleted(pod(ended(65)))], NotBuilt(pod="p", exit_code=65), id="compile error, then deleted"),
        pytest.param(
            [deleted(pod(ended(), ended(137, reason="Error")))], HandingOver(pod="p"), id="deleted while handing over"
        ),
        pytest.param([pod(ended(), waits("PodInitializing"))], Waiting(), id="built, second image is pulled"),
        pytest.param(
            [pod(ended(), waits("ImagePullBackOff", "back-off"))],
            Waiting(why="ImagePullBackOff: back-off", is_hopeless=True),
            id="built, second image cannot be pulled",
        ),
        pytest.param([pod(ended(), RUNS)], HandingOver(pod="p"), id="handing over"),
        pytest.param(
            [pod(ended(), ended(message=json.dumps({"digest": DIGEST})))],
            HandedOver(pod="p", digest=DIGEST),
            id="handed over",
        ),
        pytest.param(
            [pod(ended(), ended(1, json.dumps({"error": "wrong password", "refused": True})))],
            HandedOver(pod="p", digest=None, why="wrong password", is_refused=True),
            id="registry refuses",
        ),
        pytest.param(
            [pod(ended(), ended(1, json.dumps({"error": "no answer", "refused": False})))],
            HandedOver(pod="p", digest=None, why="no answer"),
            id="registry away",
        ),
        pytest.param(
            [pod(ended(), ended(1, "Traceback"))], HandedOver(pod="p", digest=None, why="Traceback"), id="a bug"
        ),
        pytest.param(
            [pod(ended(), ended(2))],
            HandedOver(pod="p", digest=None, why="Error, exit code 2"),
            id="ended without a word",
        ),
        pytest.param([pod(ended(), ended(0, "[]"))], HandedOver(pod="p", digest=None, why="[]"), id="an odd word"),
        pytest.param(
            [pod(reason="Evicted", message=EMPTY_DIR, phase="Failed")],
            Lost(why=EMPTY_DIR, is_full=True),
            id="wrote too much",
        ),
        pytest.param(
            [pod(RUNS, reason="Evicted", message="The node was low on resource: memory.", phase="Failed")],
            Lost(why="The node was low on resource: memory."),
            id="evicted",
        ),
        pytest.param(
            [pod(reason="Shutdown", message="node is shutting down", phase="Failed")],
            Lost(why="Shutdown: node is shutting down"),
            id="node shut down",
        ),
        pytest.param(
            [pod(RUNS, reason="Evicted", message="low on memory", phase="Failed", conditions=[DISRUPTED])],
            Waiting(why="low on memory; the Job creates another pod"),
            id="evicted, and its Job has a policy",
        ),
        pytest.param(
            [pod(reason="Evicted", message=EMPTY_DIR, phase="Failed", conditions=[DISRUPTED])],
            Lost(why=EMPTY_DIR, is_full=True),
            id="wrote too much, as the next one would",
        ),
        pytest.param(
            [pod(ended(143), reason="Terminated", phase="Failed", conditions=[DISRUPTED])],
            Building(pod="p"),
            id="killed as its node is shut down",
        ),
        pytest.param(
            [pod(ended(65), phase="Failed", conditions=[DISRUPTED])],
            NotBuilt(pod="p", exit_code=65),
            id="compile error as its node is shut down",
        ),
        pytest.param([pod(ended(1)), pod(RUNS, name="q")], Building(pod="q"), id="the newest pod counts"),
        pytest.param(
            [with_toolchain(waits("ErrImagePull", "not found"))],
            Waiting(why="ErrImagePull: not found", is_hopeless=True),
            id="the first image cannot be pulled",
        ),
        pytest.param([with_toolchain(RUNS)], Building(pod="p"), id="the toolchain is pulled"),
        pytest.param([with_toolchain(ended())], Waiting(), id="the toolchain is there"),
        pytest.param([with_toolchain(ended(), RUNS)], Building(pod="p"), id="building from the toolchain"),
        pytest.param([with_toolchain(ended(), ended(65))], NotBuilt(pod="p", exit_code=65), id="an error with it"),
        pytest.param(
            [with_toolchain(ended(1, reason="OOMKilled"))],
            NotBuilt(pod="p", exit_code=125),
            id="no memory for the toolchain",
        ),
        pytest.param(
            [deleted(with_toolchain(ended(137, reason="Error")))], Building(pod="p"), id="deleted while it pulls"
        ),
    ],
)
def test_the_state_is_that_of_the_pod(pods: list[Json], expected: JobState) -> None:
    """Each moment of a build, as kubelet and scheduler report it."""
    assert job_state(job(), pods) == expected


def test_a_deadline_takes_the_pod_away() -> None:
    """The Job alone reports it."""
    assert job_state(job(failed("DeadlineExceeded")), []) == TimedOut()


def test_a_job_that_failed_without_a_pod_lost_it() -> None:
    """A failed Job without a pod counts as one whose pod was deleted."""
    assert job_state(job(failed("BackoffLimitExceeded")), []) == Lost(why="its pod was deleted")


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        pytest.param(RUNS, "Evicted", "low on memory", id="evicted"),
        pytest.param(ended(143), "Terminated", "Terminated: low on memory", id="killed"),
    ],
)
def test_a_job_that_failed_creates_no_other_pod(state: Json, reason: str, expected: str) -> None:
    """Its pod stays as it ended: nothing is waited for. Jobs of earlier releases have no policy."""
    made = pod(state, reason=reason, message="low on memory", phase="Failed", conditions=[DISRUPTED])
    assert job_state(job(failed("BackoffLimitExceeded")), [made]) == Lost(why=expected)


def test_a_pod_of_an_earlier_job_is_not_looked_at() -> None:
    """It has the same labels and another owner."""
    other = pod(RUNS)
    other["metadata"]["ownerReferences"] = [{"uid": "job-0"}]
    assert job_state(job(), [other]) == Waiting(why="no pod was created for the Job")
