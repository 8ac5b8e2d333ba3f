"""What goes wrong has its own reason in status and an Event, builds nothing wrongly, and recovers when fixed.

The tests build on each other, in the order they are written in: the driver is installed once.
"""

from collections.abc import Iterator

import pytest

from demo import deploy
from demo.cluster import NAMESPACE, Json
from demo.scenario import DRIVER, EDU_LABEL, EXAMPLE, READY_LABEL, Scenario
from driver_builder.model.image_state import Absent
from kube_api import names
from kube_api.resources import NODES, SECRETS
from tests.support.real_parts import acts

PASSWORD = "the right one"
SECRET = "registry-password"
REPOSITORY = "drivers/edu-trouble"
LOST, LOST_KERNEL = "node-on-a-lost-kernel", "6.1.0-9999-cloud-amd64"


@pytest.fixture(scope="module", autouse=True)
def _lost_node(scenario: Scenario) -> None:
    """A third node, on a kernel that no archive has headers for."""
    label_lost_node(scenario, LOST_KERNEL)


def label_lost_node(scenario: Scenario, kernel: str) -> None:
    """Make the third node one that runs a kernel."""
    labels = {key: value for key, value in scenario.cluster.labels("guest-b").items() if "cpu" not in key}
    labels |= {names.KERNEL_VERSION_LABEL: kernel, "kubernetes.io/hostname": LOST}
    node: Json = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": LOST, "labels": labels}}
    scenario.cluster.client.apply(NODES.path(name=LOST), node, field_manager="test")


@pytest.fixture
def _password(scenario: Scenario) -> Iterator[None]:
    """A registry that wants a password, and is off."""
    scenario.ground.registry.set_auth("builder", PASSWORD)
    scenario.ground.registry.stop()
    yield
    scenario.ground.registry.set_auth(None)


@pytest.mark.usefixtures("_password")
def test_a_registry_that_is_off_and_then_refuses_the_password(scenario: Scenario) -> None:
    """Neither unreachable nor unauthorised counts as absent: each has its reason; nothing is built before both end."""
    kernel = scenario.guests["guest-b"].kernel.release
    write_secret(scenario, "the wrong one")
    settings = {
        # Where nothing is yet.
        "image": f"{scenario.ground.registry.host}/{REPOSITORY}",
        "registry": {"plainHttp": True, "secretRef": {"name": SECRET}},
        "imagePullSecrets": [{"name": SECRET}],
    }
    try:
        scenario.apply_driver(driver_spec=settings)
        target = acts.wait_for_reason(scenario, kernel, "RegistryUnreachable")
        assert target["state"] == "Blocked"
    finally:
        scenario.ground.registry.start()
    target = acts.wait_for_reason(scenario, kernel, "RegistryUnauthorized")
    assert "the wrong one" not in target["message"]
    assert acts.started_builds(scenario, REPOSITORY) == []
    acts.wait_for_events(scenario, "RegistryUnreachable", "RegistryUnauthorized")
    write_secret(scenario, PASSWORD)
    for guest in scenario.guests.values():
        scenario.wait_for_image(guest.kernel.release, acts.SILENT)
        scenario.wait_for_ready_label(guest, acts.SILENT)
    acts.wait_for_events(scenario, "TargetReady")
    assert PASSWORD not in acts.controller_log(scenario)


def write_secret(scenario: Scenario, password: str) -> None:
    """Write the pull secret that the DriverContainer names."""
    config = acts.docker_config(scenario.ground.registry.host, "builder", password)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": NAMESPACE},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": config},
    }
    path = SECRETS.path(namespace=NAMESPACE, name=SECRET)
    scenario.cluster.client.apply(path, secret, field_manager=deploy.FIELD_MANAGER)


def test_headers_that_do_not_exist(scenario: Scenario) -> None:
    """A kernel without headers fails alone and says which package is missing; the other nodes have become ready."""
    target = acts.wait_for_reason(scenario, LOST_KERNEL, "HeadersMissing")
    assert f"linux-headers-{LOST_KERNEL}" in target["message"]
    assert target["state"] == "Failed"
    assert isinstance(acts.inspect(scenario, target["image"].rpartition(":")[2], REPOSITORY), Absent)
    acts.wait_for_events(scenario, "HeadersMissing")
    for guest in scenario.guests.values():
        assert READY_LABEL in scenario.cluster.labels(guest.name)
    label_lost_node(scenario, scenario.guests["guest-b"].kernel.release)
    acts.wait_for("the lost kernel is gone", lambda: LOST_KERNEL not in scenario.cluster.targets(DRIVER))
    assert EDU_LABEL in scenario.cluster.labels(LOST)
    scenario.cluster.client.delete(NODES.path(name=LOST))
    scenario.wait_for_ready()


def test_a_driver_that_does_not_compile(scenario: Scenario) -> None:
    """The first error is named with file and line, nodes keep what works, and a mended source is taken up at once."""
    kernel = scenario.guests["guest-b"].kernel.release
    good = scenario.cluster.targets(DRIVER)[kernel]["imageDigest"]
    code = (EXAMPLE / "src/edudrv.c").read_text()
    scenario.apply_source(replace={"edudrv.c": f"{code}\nint broken(void) {{ return no_such_thing; }}\n"})
    target = acts.wait_for_reason(scenario, kernel, "CompileError")
    assert f"edudrv.c:{len(code.splitlines()) + 2}" in target["message"]
    assert "no_such_thing" in target["message"]
    assert isinstance(acts.inspect(scenario, target["image"].rpartition(":")[2], REPOSITORY), Absent)
    acts.wait_for_events(scenario, "CompileError")
    assert "edudrv" in scenario.guests["guest-b"].run("cat /proc/modules")[1]
    scenario.apply_source()
    scenario.wait_for_ready()
    assert scenario.cluster.targets(DRIVER)[kernel]["imageDigest"] == good


def test_a_driver_that_does_not_load_halts_its_wave(scenario: Scenario) -> None:
    """It compiles for both kernels: the first node gets it and fails, the other keeps what works."""
    pods = acts.pod_uids(scenario)
    modules = {name: acts.live_module(guest) for name, guest in scenario.guests.items()}
    code, begin = (EXAMPLE / "src/edudrv.c").read_text(), "static int __init edu_init(void)\n{\n"
    assert code.count(begin) == 1
    scenario.apply_source(
        replace={"edudrv.c": code.replace(begin, f"{begin}\tif (THIS_MODULE)\n\t\treturn -EINVAL;\n")}
    )
    targets = [acts.wait_for_reason(scenario, it.kernel.release, "RolloutHalted") for it in scenario.guests.values()]
    assert {target["state"] for target in targets} == {"Blocked"}
    wave = scenario.cluster.driver(DRIVER)["status"]["rollout"]
    assert (wave["phase"], wave["failedNodes"], wave["maxUnavailable"]) == ("Halted", 1, 1)
    now = acts.pod_uids(scenario)
    (failed,) = [name for name in scenario.guests if now[name] != pods[name]]
    (kept,) = scenario.guests.keys() - {failed}
    assert f"it failed on {failed}" in wave["message"]
    assert READY_LABEL in scenario.cluster.labels(kept)
    assert READY_LABEL not in scenario.cluster.labels(failed)
    assert acts.live_module(scenario.guests[kept]) == modules[kept]
    acts.wait_for_events(scenario, "RolloutHalted")
    scenario.apply_source()
    scenario.wait_for_ready()
    assert "rollout" not in scenario.cluster.driver(DRIVER)["status"]
    assert acts.pod_uids(scenario)[kept] == pods[kept]
    assert acts.live_module(scenario.guests[kept]) == modules[kept]
