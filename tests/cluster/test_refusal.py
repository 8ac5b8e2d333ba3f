"""A module for the wrong kernel is refused three times over: before the push, before insmod, and by the kernel."""

import base64
import tarfile

import pytest

from demo import deploy
from demo.cluster import NAMESPACE
from demo.scenario import DRIVER, SOURCE, Scenario
from driver_builder.model.image_state import Absent
from kube_api.resources import CONFIG_MAPS, DRIVER_CONTAINERS
from tests.support.real_parts import acts

PREBUILT_MAKEFILE = "# Builds nothing: the module lies here ready-made.\nobj-m :=\n"


@pytest.fixture(scope="module", autouse=True)
def _driver(scenario: Scenario) -> None:
    acts.delete_driver(scenario)
    scenario.apply_driver()
    scenario.wait_for_builds()
    scenario.wait_for_ready()


def kernels(scenario: Scenario) -> tuple[str, str]:
    """The kernels that guest-a and guest-b run."""
    return scenario.guests["guest-a"].kernel.release, scenario.guests["guest-b"].kernel.release


def module_for(scenario: Scenario, kernel: str) -> bytes:
    """Read edudrv.ko for a kernel from the image that was pushed for it."""
    api = scenario.ground.engine.client()
    image = acts.image_of(scenario, kernel)
    api.pull(image)
    container = api.create_container(image, ["none"])["Id"]
    try:
        stream, _ = api.get_archive(container, f"/lib/modules/{kernel}/updates/edudrv.ko")
        with tarfile.open(fileobj=acts.spooled(stream)) as tar:
            member = tar.extractfile("edudrv.ko")
            assert member is not None
            return member.read()
    finally:
        api.remove_container(container)


def test_the_loader_refuses_before_insmod(scenario: Scenario) -> None:
    """The image for another kernel says so, loads nothing and does not fail: labels will move it away."""
    wrong, _ = kernels(scenario)
    guest = scenario.guests["guest-b"]
    state = acts.run_pod(scenario, "wrong-loader", guest, acts.image_of(scenario, wrong), [*acts.LOADER, "load"])
    assert state["exitCode"] == 0
    verdict = acts.verdict(state)
    assert verdict["result"] == "WrongKernel"
    assert (verdict["kernel"], verdict["builtFor"]) == (guest.kernel.release, wrong)


def test_the_kernel_itself_refuses(scenario: Scenario) -> None:
    """Past all our checks, insmod of the other kernel's module ends with the kernel's own refusal."""
    wrong, _ = kernels(scenario)
    guest = scenario.guests["guest-b"]
    path = f"/lib/modules/{wrong}/updates/edudrv.ko"
    command = [
        *acts.SHELL,
        "-c",
        f"insmod {path} && exit 0; dmesg | grep edudrv | tail -2; exit 9",
    ]
    state = acts.run_pod(scenario, "wrong-insmod", guest, acts.image_of(scenario, wrong), command)
    assert state["exitCode"] == 9
    said = state["message"]
    assert "disagrees about version of symbol" in said or "section size must match" in said or "Unknown symbol" in said


def test_verification_refuses_before_the_push(scenario: Scenario) -> None:
    """A source that brings a ready-made module for another kernel ends with a reason, and nothing is pushed."""
    wrong, right = kernels(scenario)
    prebuilt = module_for(scenario, wrong)
    source = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "edu-prebuilt", "namespace": NAMESPACE},
        "data": {"Makefile": PREBUILT_MAKEFILE},
        "binaryData": {"edudrv.ko": base64.b64encode(prebuilt).decode()},
    }
    path = CONFIG_MAPS.path(namespace=NAMESPACE, name="edu-prebuilt")
    scenario.cluster.client.apply(path, source, field_manager=deploy.FIELD_MANAGER)
    driver = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER)
    scenario.cluster.client.patch(driver, {"spec": {"source": {"configMap": {"name": "edu-prebuilt"}}}})
    target = acts.wait_for_reason(scenario, right, "WrongVermagic")
    assert "edudrv" in target["message"]
    assert wrong in target["message"]
    assert isinstance(acts.inspect(scenario, target["image"].rpartition(":")[2]), Absent)
    acts.wait_for_events(scenario, "WrongVermagic")
    # The nodes keep what works meanwhile, and the driver recovers with its source.
    scenario.cluster.client.patch(driver, {"spec": {"source": {"configMap": {"name": SOURCE}}}})
    scenario.wait_for_ready()
