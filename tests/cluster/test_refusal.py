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
def _driver(story: Scenario) -> None:
    acts.delete_driver(story)
    story.apply_driver()
    story.wait_for_builds()
    story.wait_for_ready()


def kernels(story: Scenario) -> tuple[str, str]:
    """The kernels that guest-a and guest-b run."""
    return story.guests["guest-a"].kernel.release, story.guests["guest-b"].kernel.release


def module_for(story: Scenario, kernel: str) -> bytes:
    """Read edudrv.ko for a kernel out of the image that was pushed for it."""
    api = story.ground.engine.client()
    image = acts.image_of(story, kernel)
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


def test_the_loader_refuses_before_insmod(story: Scenario) -> None:
    """The image for another kernel says so, loads nothing and does not fail: labels will move it away."""
    wrong, _ = kernels(story)
    guest = story.guests["guest-b"]
    state = acts.run_pod(story, "wrong-loader", guest, acts.image_of(story, wrong), [*acts.LOADER, "load"])
    assert state["exitCode"] == 0
    verdict = acts.verdict(state)
    assert verdict["result"] == "WrongKernel"
    assert (verdict["kernel"], verdict["builtFor"]) == (guest.kernel.release, wrong)


def test_the_kernel_itself_refuses(story: Scenario) -> None:
    """Past all our checks, insmod of the other kernel's module ends with the kernel's own refusal."""
    wrong, _ = kernels(story)
    guest = story.guests["guest-b"]
    path = f"/lib/modules/{wrong}/updates/edudrv.ko"
    command = [
        *acts.SHELL,
        "-c",
        f"insmod {path} && exit 0; dmesg | grep edudrv | tail -2; exit 9",
    ]
    state = acts.run_pod(story, "wrong-insmod", guest, acts.image_of(story, wrong), command)
    assert state["exitCode"] == 9
    said = state["message"]
    assert "disagrees about version of symbol" in said or "section size must match" in said or "Unknown symbol" in said


def test_verification_refuses_before_the_push(story: Scenario) -> None:
    """A source that brings a ready-made module for another kernel ends with a reason, and nothing is pushed."""
    wrong, right = kernels(story)
    prebuilt = module_for(story, wrong)
    source = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "edu-prebuilt", "namespace": NAMESPACE},
        "data": {"Makefile": PREBUILT_MAKEFILE},
        "binaryData": {"edudrv.ko": base64.b64encode(prebuilt).decode()},
    }
    path = CONFIG_MAPS.path(namespace=NAMESPACE, name="edu-prebuilt")
    story.cluster.client.apply(path, source, field_manager=deploy.FIELD_MANAGER)
    driver = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER)
    story.cluster.client.patch(driver, {"spec": {"source": {"configMap": {"name": "edu-prebuilt"}}}})
    target = acts.wait_for_reason(story, right, "WrongVermagic")
    assert "edudrv" in target["message"]
    assert wrong in target["message"]
    assert isinstance(acts.inspect(story, target["image"].rpartition(":")[2]), Absent)
    acts.wait_for_events(story, "WrongVermagic")
    # The nodes keep what works meanwhile, and the driver recovers with its source.
    story.cluster.client.patch(driver, {"spec": {"source": {"configMap": {"name": SOURCE}}}})
    story.wait_for_ready()
