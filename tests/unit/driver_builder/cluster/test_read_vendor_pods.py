"""What a pod says whose image loads its modules by its own program, and the pod that proves it."""

import json
from typing import Any

from driver_builder.cluster.read_pods import read_owned_pod, read_pod
from driver_builder.objects import manifests
from driver_builder.snapshot.snapshot import DriverPod
from driver_builder.tasks import proof_pod
from driver_builder.tasks.node_task import NodeTask
from kube_api.client import Object
from tests.support.driver_builder.factories import KERNEL, driver
from tests.unit.driver_builder.objects.test_vendor_pod import PROGRAM, made, with_mapping

LIVE = [{"name": "edudrv", "srcversion": "A", "devices": []}]
READY = [{"type": "Ready", "status": "True"}]
DONE: Object = {"state": {"terminated": {"exitCode": 0, "message": ""}}}
RUNS: Object = {"state": {"running": {"startedAt": "2023-11-14T22:13:20Z"}}}


def ended(result: str, **more: Any) -> Object:
    """Make the end of a container that reported."""
    verdict = {"result": result, "kernel": KERNEL, "bootID": "1", **more}
    return {"terminated": {"exitCode": 0, "message": json.dumps(verdict), "finishedAt": "2023-11-14T22:14:00Z"}}


def read(
    *, prepare: Object, driver: Object | None = None, hold: Object | None = None, ready: bool = False
) -> DriverPod:
    """Read a pod with these states of its containers."""
    template = made(with_mapping(**PROGRAM))["spec"]["template"]
    others = {"driver": driver, "hold": hold}
    status = {
        "initContainerStatuses": [{"name": "prepare", **prepare}],
        "containerStatuses": [{"name": name, **item} for name, item in others.items() if item is not None],
        "conditions": READY if ready else [],
    }
    metadata = {**template["metadata"], "namespace": "driverwright", "name": "edu-a", "uid": "u"}
    return read_pod({"metadata": metadata, "spec": template["spec"], "status": status})


def test_a_running_program_proves_nothing() -> None:
    """The pod has what a proof pod needs to know."""
    seen = read(prepare=DONE, driver=RUNS)
    assert (seen.proof, seen.leaves_modules) == (None, True)
    assert seen.program is not None
    assert seen.program.started_at == 1700000000.0
    assert dict(seen.program.environment) == {
        "DRIVER": "driverwright.edu-2c602ba5",
        "KERNEL": KERNEL,
        "MODULES": "edudrv",
    }


def test_a_program_that_ends_at_once_has_run() -> None:
    """It may never be seen to run: its container is started again with growing waits."""
    waits: Object = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}}
    for state, has_ended in ((waits, True), ({"state": {"waiting": {"reason": "PodInitializing"}}}, False)):
        program = read(prepare=DONE, driver=state).program
        assert program is not None
        assert (program.started_at, program.has_ended) == (None, has_ended)


def test_a_refusal_before_the_program_is_started_is_the_report() -> None:
    """Nothing runs then."""
    seen = read(prepare={"state": {"waiting": {}}, "lastState": ended("ModuleConflict")})
    assert seen.proof is not None
    assert seen.proof.result == "ModuleConflict"
    assert seen.program is not None
    assert seen.program.started_at is None


def test_what_hold_has_lost_is_kept_for_the_proof() -> None:
    """Unless the pod was ready since: then it is refuted."""
    seen = read(prepare=DONE, driver=RUNS, hold={"state": ended("NotLive")})
    assert seen.program is not None
    assert seen.program.held is not None
    assert (seen.program.held.result, seen.program.held_at) == ("NotLive", 1700000040.0)
    later = read(prepare=DONE, driver=RUNS, hold={"state": ended("NotLive")}, ready=True).program
    assert later is not None
    assert later.held is None


def test_the_device_nodes_are_those_of_the_preparing_container() -> None:
    """It is the one that the proof is made from."""
    template = made(with_mapping(**PROGRAM))["spec"]["template"]
    for item in template["spec"]["initContainers"]:
        if item["name"] == "prepare":
            others = [variable for variable in item["env"] if variable["name"] != manifests.DEVICE_NODES]
            item["env"] = [*others, {"name": manifests.DEVICE_NODES, "value": "/dev/edu0"}]
    metadata = {**template["metadata"], "namespace": "driverwright", "name": "edu-a", "uid": "u"}
    assert read_pod({"metadata": metadata, "spec": template["spec"], "status": {}}).device_nodes == ("/dev/edu0",)


def proof(status: Object) -> NodeTask:
    """Read a proof pod with this status."""
    pod = proof_pod.manifest(
        driver(), node="node-a", of_pod="u", before="", environment={}, image="r.io/loader:1", seconds=60.0
    )
    pod["metadata"] |= {"uid": "proof-1", "creationTimestamp": "2023-11-14T22:13:20Z"}
    owned = read_owned_pod({**pod, "status": status})
    assert owned is not None
    assert isinstance(owned.pod, NodeTask)
    return owned.pod


def test_a_proof_pod_says_of_which_pod_its_report_is() -> None:
    """Its end is that of its container."""
    found = proof(
        {"phase": "Succeeded", "containerStatuses": [{"name": "prove", "state": ended("Loaded", modules=LIVE)}]}
    )
    assert (found.subject, found.node, found.ended_at, found.message) == ("u", "node-a", 1700000040.0, "")
    assert found.report is not None
    assert [(module.name, module.identity) for module in found.report.modules] == [("edudrv", "A")]


def test_a_proof_pod_that_does_not_run_says_why() -> None:
    """The kubelet's words, while it waits and after it gave up."""
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    pulls = proof({"phase": "Pending", "containerStatuses": [{"name": "prove", "state": waiting}]})
    assert (pulls.ended_at, pulls.message) == (None, "ImagePullBackOff: no such image")
    late = proof({"phase": "Failed", "reason": "DeadlineExceeded"})
    assert (late.ended_at, late.over_at, late.report, late.message) == (None, 1700000000.0, None, "DeadlineExceeded")
