"""What goes wrong has its own reason in status and an Event, builds nothing wrongly, and recovers when mended."""

from collections.abc import Iterator

import pytest

from demo import deploy
from demo.cluster import NAMESPACE, Json
from demo.scenario import DRIVER, EDU_LABEL, EXAMPLE, Scenario
from driver_builder.model.image_state import Absent
from kube_api import names
from kube_api.resources import NODES, SECRETS
from tests.support import acts

PASSWORD = "the right one"
SECRET = "registry-password"


@pytest.fixture(autouse=True)
def _no_driver(story: Scenario) -> None:
    acts.delete_driver(story)


def into(story: Scenario, repository: str) -> Json:
    """A repository where nothing is yet."""
    return {"image": f"{story.ground.registry.host}/{repository}"}


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
    repository = "drivers/edu-password"
    write_secret(story, "the wrong one")
    settings = {
        **into(story, repository),
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
    assert acts.started_builds(story, repository) == []
    acts.wait_for_events(story, "RegistryUnreachable", "RegistryUnauthorized")
    write_secret(story, PASSWORD)
    story.wait_for_builds()
    story.wait_for_ready()
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
    """A kernel without headers fails alone and says which package is missing; the other nodes become ready."""
    gone = "6.1.0-9999-cloud-amd64"
    name = "node-on-a-lost-kernel"
    right = story.guests["guest-b"].kernel.release
    labels = {key: value for key, value in story.cluster.labels("guest-b").items() if "cpu" not in key}
    labels |= {names.KERNEL_VERSION_LABEL: gone, "kubernetes.io/hostname": name}
    node: Json = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    path = NODES.path(name=name)
    story.cluster.client.apply(path, node, field_manager="test")
    try:
        story.apply_driver(driver_spec=into(story, "drivers/edu-headers"))
        target = acts.wait_for_reason(story, gone, "HeadersMissing")
        assert f"linux-headers-{gone}" in target["message"]
        assert target["state"] == "Failed"
        assert isinstance(acts.inspect(story, target["image"].rpartition(":")[2], "drivers/edu-headers"), Absent)
        acts.wait_for_events(story, "HeadersMissing")
        for guest in story.guests.values():
            story.wait_for_image(guest.kernel.release, acts.SILENT)
            story.wait_for_ready_label(guest, acts.SILENT)
        node["metadata"]["labels"] = {**labels, names.KERNEL_VERSION_LABEL: right}
        story.cluster.client.apply(path, node, field_manager="test")
        acts.wait_for("the lost kernel is gone", lambda: gone not in story.cluster.targets(DRIVER))
        assert EDU_LABEL in story.cluster.labels(name)
    finally:
        story.cluster.client.delete(path)
    story.wait_for_ready()


def test_a_driver_that_does_not_compile(story: Scenario) -> None:
    """The first error is named with file and line, nodes keep what works, and a mended source is taken up at once."""
    kernel = story.guests["guest-b"].kernel.release
    story.apply_driver(driver_spec=into(story, "drivers/edu-broken"))
    story.wait_for_builds()
    story.wait_for_ready()
    good = story.cluster.targets(DRIVER)[kernel]["imageDigest"]
    code = (EXAMPLE / "src/edudrv.c").read_text()
    story.apply_source(replace={"edudrv.c": f"{code}\nint broken(void) {{ return no_such_thing; }}\n"})
    target = acts.wait_for_reason(story, kernel, "CompileError")
    assert f"edudrv.c:{len(code.splitlines()) + 2}" in target["message"]
    assert "no_such_thing" in target["message"]
    assert isinstance(acts.inspect(story, target["image"].rpartition(":")[2], "drivers/edu-broken"), Absent)
    acts.wait_for_events(story, "CompileError")
    assert "edudrv" in story.guests["guest-b"].run("cat /proc/modules")[1]
    story.apply_source()
    story.wait_for_ready()
    assert story.cluster.targets(DRIVER)[kernel]["imageDigest"] == good
