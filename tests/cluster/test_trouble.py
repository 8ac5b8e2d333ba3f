"""What goes wrong has its own reason in status and an Event, builds nothing wrongly, and recovers when mended.

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
def _lost_node(story: Scenario) -> None:
    """A third node, on a kernel that no archive has headers for."""
    label_lost_node(story, LOST_KERNEL)


def label_lost_node(story: Scenario, kernel: str) -> None:
    """Make the third node one that runs a kernel."""
    labels = {key: value for key, value in story.cluster.labels("guest-b").items() if "cpu" not in key}
    labels |= {names.KERNEL_VERSION_LABEL: kernel, "kubernetes.io/hostname": LOST}
    node: Json = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": LOST, "labels": labels}}
    story.cluster.client.apply(NODES.path(name=LOST), node, field_manager="test")


@pytest.fixture
def _password(story: Scenario) -> Iterator[None]:
    """A registry that wants a password, and is off."""
    story.ground.registry.set_auth("builder", PASSWORD)
    story.ground.registry.stop()
    yield
    story.ground.registry.set_auth(None)


@pytest.mark.usefixtures("_password")
def test_a_registry_that_is_off_and_then_refuses_the_password(story: Scenario) -> None:
    """Neither unreachable nor unauthorised counts as absent: each has its reason; nothing is built before both end."""
    kernel = story.guests["guest-b"].kernel.release
    write_secret(story, "the wrong one")
    settings = {
        # Where nothing is yet.
        "image": f"{story.ground.registry.host}/{REPOSITORY}",
        "registry": {"plainHttp": True, "secretRef": {"name": SECRET}},
        "imagePullSecrets": [{"name": SECRET}],
    }
    try:
        story.apply_driver(driver_spec=settings)
        target = acts.wait_for_reason(story, kernel, "RegistryUnreachable")
        assert target["state"] == "Blocked"
    finally:
        story.ground.registry.start()
    target = acts.wait_for_reason(story, kernel, "RegistryUnauthorized")
    assert "the wrong one" not in target["message"]
    assert acts.started_builds(story, REPOSITORY) == []
    acts.wait_for_events(story, "RegistryUnreachable", "RegistryUnauthorized")
    write_secret(story, PASSWORD)
    for guest in story.guests.values():
        story.wait_for_image(guest.kernel.release, acts.SILENT)
        story.wait_for_ready_label(guest, acts.SILENT)
    acts.wait_for_events(story, "TargetReady")
    assert PASSWORD not in acts.controller_log(story)


def write_secret(story: Scenario, password: str) -> None:
    """Write the pull secret that the DriverContainer names."""
    config = acts.docker_config(story.ground.registry.host, "builder", password)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": NAMESPACE},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": config},
    }
    path = SECRETS.path(namespace=NAMESPACE, name=SECRET)
    story.cluster.client.apply(path, secret, field_manager=deploy.FIELD_MANAGER)


def test_headers_that_do_not_exist(story: Scenario) -> None:
    """A kernel without headers fails alone and says which package is missing; the other nodes have become ready."""
    target = acts.wait_for_reason(story, LOST_KERNEL, "HeadersMissing")
    assert f"linux-headers-{LOST_KERNEL}" in target["message"]
    assert target["state"] == "Failed"
    assert isinstance(acts.inspect(story, target["image"].rpartition(":")[2], REPOSITORY), Absent)
    acts.wait_for_events(story, "HeadersMissing")
    for guest in story.guests.values():
        assert READY_LABEL in story.cluster.labels(guest.name)
    label_lost_node(story, story.guests["guest-b"].kernel.release)
    acts.wait_for("the lost kernel is gone", lambda: LOST_KERNEL not in story.cluster.targets(DRIVER))
    assert EDU_LABEL in story.cluster.labels(LOST)
    story.cluster.client.delete(NODES.path(name=LOST))
    story.wait_for_ready()


def test_a_driver_that_does_not_compile(story: Scenario) -> None:
    """The first error is named with file and line, nodes keep what works, and a mended source is taken up at once."""
    kernel = story.guests["guest-b"].kernel.release
    good = story.cluster.targets(DRIVER)[kernel]["imageDigest"]
    code = (EXAMPLE / "src/edudrv.c").read_text()
    story.apply_source(replace={"edudrv.c": f"{code}\nint broken(void) {{ return no_such_thing; }}\n"})
    target = acts.wait_for_reason(story, kernel, "CompileError")
    assert f"edudrv.c:{len(code.splitlines()) + 2}" in target["message"]
    assert "no_such_thing" in target["message"]
    assert isinstance(acts.inspect(story, target["image"].rpartition(":")[2], REPOSITORY), Absent)
    acts.wait_for_events(story, "CompileError")
    assert "edudrv" in story.guests["guest-b"].run("cat /proc/modules")[1]
    story.apply_source()
    story.wait_for_ready()
    assert story.cluster.targets(DRIVER)[kernel]["imageDigest"] == good
