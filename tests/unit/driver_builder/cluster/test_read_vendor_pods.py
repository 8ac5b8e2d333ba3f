"""What a pod proves whose image loads its modules by its own program."""

import json
from typing import Any

from driver_builder.cluster.read_pods import read_pod
from driver_builder.objects import manifests
from driver_builder.observed.snapshot import DriverPod
from kube_api.client import Object
from tests.support.driver_builder.factories import KERNEL
from tests.unit.driver_builder.objects.test_vendor_pod import PROGRAM, made, with_mapping

LIVE = [{"name": "edudrv", "srcversion": "A", "devices": []}]
READY = [{"type": "Ready", "status": "True"}]


def ended(result: str, **more: Any) -> Object:
    """Make the end of a container that reported."""
    verdict = {"result": result, "kernel": KERNEL, "bootID": "1", **more}
    return {"terminated": {"exitCode": 0, "message": json.dumps(verdict), "finishedAt": "2023-11-14T22:14:00Z"}}


def read(*, prepare: Object, load: Object | None = None, hold: Object | None = None, ready: bool = False) -> DriverPod:
    """Read a pod with these states of its containers."""
    template = made(with_mapping(**PROGRAM))["spec"]["template"]
    others = {"load": load, "hold": hold}
    status = {
        "initContainerStatuses": [{"name": "prepare", **prepare}],
        "containerStatuses": [{"name": name, **item} for name, item in others.items() if item is not None],
        "conditions": READY if ready else [],
    }
    metadata = {**template["metadata"], "namespace": "driverwright", "name": "edu-a", "uid": "u"}
    return read_pod({"metadata": metadata, "spec": template["spec"], "status": status})


DONE: Object = {"state": {"terminated": {"exitCode": 0, "message": ""}}}
PROVEN: Object = {"state": {"running": {}}, "lastState": ended("Loaded", modules=LIVE)}


def test_the_report_is_that_of_the_container_beside_the_program() -> None:
    """It has ended with it and was started again."""
    seen = read(prepare=DONE, load=PROVEN, ready=True)
    assert seen.proof is not None
    assert [(module.name, module.identity) for module in seen.proof.modules] == [("edudrv", "A")]
    assert (seen.ready, seen.leaves_modules, seen.contrary) == (True, True, None)


def test_a_refusal_before_the_program_is_started_is_the_report() -> None:
    """Whatever was proven on an earlier boot."""
    seen = read(prepare={"state": {"waiting": {}}, "lastState": ended("ModuleConflict")}, load=PROVEN)
    assert seen.proof is not None
    assert seen.proof.result == "ModuleConflict"


def test_what_is_lost_later_is_contrary() -> None:
    """As in all driver pods."""
    seen = read(prepare=DONE, load=PROVEN, hold={"state": ended("NotLive")})
    assert seen.contrary is not None
    assert seen.contrary.result == "NotLive"


def test_the_device_nodes_are_those_of_the_loading_container() -> None:
    """Wherever it is in the pod."""
    container = with_mapping(**PROGRAM)
    template = made(container)["spec"]["template"]
    for item in template["spec"]["containers"]:
        if item["name"] == manifests.LOAD_CONTAINER:
            item["env"] = [*item["env"], {"name": manifests.DEVICE_NODES, "value": "/dev/edu0"}]
    metadata = {**template["metadata"], "namespace": "driverwright", "name": "edu-a", "uid": "u"}
    assert read_pod({"metadata": metadata, "spec": template["spec"], "status": {}}).device_nodes == ("/dev/edu0",)
