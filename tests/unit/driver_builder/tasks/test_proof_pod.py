"""The pod that proves what an image's own program has loaded."""

from typing import Any

from driver_builder.tasks import proof_pod
from driver_builder.tasks.validation_pod import UNPRIVILEGED
from tests.support.driver_builder.factories import KERNEL, driver

ENVIRONMENT = {"DRIVER": "driverwright.edu-2c602ba5", "KERNEL": KERNEL, "MODULES": "edudrv"}


def made(**changes: Any) -> dict[str, Any]:
    """Make a proof pod."""
    words: dict[str, Any] = {"node": "node-a", "of_pod": "uid-1", "before": "", "image": "r.io/loader:1"}
    words |= {"environment": ENVIRONMENT, "seconds": 60.0, **changes}
    return proof_pod.manifest(driver(), **words)


def test_it_runs_once_on_its_node_without_privileges() -> None:
    """It reads sysfs, and writes to the loader's folder of the node as its owner."""
    pod = made()
    spec = pod["spec"]
    (container,) = spec["containers"]
    context = container["securityContext"]
    assert (spec["nodeName"], spec["restartPolicy"], spec["activeDeadlineSeconds"]) == ("node-a", "Never", 360)
    assert UNPRIVILEGED.items() <= context.items()
    assert (context["runAsUser"], context["readOnlyRootFilesystem"]) == (0, True)
    assert [item["mountPath"] for item in container["volumeMounts"]] == ["/driverwright", "/host/run/driverwright"]
    assert pod["metadata"]["labels"][proof_pod.PROOF.label] == "uid-1"
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "uid-edu"


def test_it_has_the_words_of_the_driver_pod() -> None:
    """And how long the program may take."""
    (container,) = made()["spec"]["containers"]
    given = {item["name"]: item["value"] for item in container["env"]}
    assert given == {**ENVIRONMENT, "LOADER": "image", "LIVE_TIMEOUT": "60", "POD_UID": "uid-1"}


def test_device_nodes_are_seen_where_they_are_waited_for() -> None:
    """No more of the node than that."""
    (container,) = made(environment={**ENVIRONMENT, "DEVICE_NODES": "/dev/edu0"})["spec"]["containers"]
    assert container["volumeMounts"][-1] == {"name": "dev", "mountPath": "/host/dev", "readOnly": True}


def test_each_proof_has_a_name_of_its_own() -> None:
    """The same step the same one: it is created once, whoever repeats it."""
    names = [made(**changes)["metadata"]["name"] for changes in ({}, {}, {"of_pod": "uid-2"}, {"before": "proof-1"})]
    assert names[0] == names[1]
    assert len({*names}) == 3
