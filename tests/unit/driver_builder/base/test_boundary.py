"""What one author, registry or node can set stays a trouble of its own: no such value ends a pass."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import REGISTRY

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.base.boundary import contained
from driver_builder.base.reasons import with_remedy
from driver_builder.controller.execute import Executor
from driver_builder.controller.reconcile import Reconciler
from driver_builder.controller.report import Reporter
from driver_builder.model import images
from driver_builder.model.image_state import ImageState, Present, Unauthorized
from driver_builder.model.images import ImageRef
from driver_builder.nodes.plan_view import DriverPlan, DriverView
from driver_builder.plan import plan as plan_module
from kube_api import names
from kube_api.errors import Forbidden, KubeApiError
from kube_api.resources import DRIVER_CONTAINERS, NODES
from tests.support.driver_builder.factories import DIGEST, KERNEL, NAMESPACE, driver_object
from tests.support.driver_builder.model_parts import ModelRegistries
from tests.support.driver_builder.model_world import World
from tests.support.driver_builder.worlds import told

EVIL = ImageRef("evil.example.com", "x", "1")
PREBUILT: dict[str, Any] = {"kernelMappings": [{"regexp": ".*", "image": "evil.example.com/x:1"}]}


def count(boundary: str) -> float:
    """Return how many errors a kind of boundary has contained."""
    return REGISTRY.get_sample_value("driver_builder_internal_errors_total", {"boundary": boundary}) or 0.0


def degraded(world: World, name: str) -> tuple[str, str]:
    """Return reason and message of a driver's condition Degraded."""
    (condition,) = [item for item in world.status(name)["conditions"] if item["type"] == "Degraded"]
    return condition["reason"], condition["message"]


def one_pass(world: World) -> None:
    """Do a pass as the controller does."""
    Reconciler(
        observer=world.observer(),
        images=world.images(),
        executor=Executor(world.client, world.builds, world.discoveries),
        reporter=Reporter(world.client),
        builds=world.builds,
        settings=world.settings,
    ).reconcile()


def test_an_error_that_nothing_else_handles_ends_there() -> None:
    """It is counted, and what stands in for the result is given; what the API server answers passes through."""

    def broken() -> str:
        raise ValueError("no \ud800 here" + "x" * 1000)

    before = count("image")
    words = contained("image", "i", broken, str)
    assert count("image") == before + 1
    assert words.startswith("internal error: ValueError: no \ufffd here")
    assert len(words) < 400

    def refused() -> str:
        raise Forbidden("403", status=403)

    with pytest.raises(KubeApiError):
        contained("image", "i", refused, str)


def broken_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a bug be in the planning of one driver."""
    plain: Callable[..., DriverPlan] = plan_module._plan_driver

    def planned(view: DriverView, *more: object) -> DriverPlan:
        if view.driver.name == name:
            raise RuntimeError("a value that nobody foresaw")
        return plain(view, *more)

    monkeypatch.setattr(plan_module, "_plan_driver", planned)


def test_a_bug_in_one_drivers_plan_is_a_state_of_that_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is Degraded with one Event; its label and pod stay; the other driver goes on, and builds are not cancelled."""
    world = World()
    world.add_node("node-a", KERNEL)
    world.add_driver()
    world.settle()
    before = world.status()
    label = names.ready_label(NAMESPACE, "edu")
    broken_for("edu", monkeypatch)
    world.add_driver("other")
    for _ in range(3):
        one_pass(world)
        world.finish_builds()
        world.turn()
    assert degraded(world, "edu") == (
        "InternalError", with_remedy("InternalError", "internal error: RuntimeError: a value that nobody foresaw"),
    )  # fmt: skip
    assert told(world) == {"InternalError": 1}
    assert world.status()["targets"] == before["targets"]
    assert label in world.client.get(NODES.path(name="node-a"))["metadata"]["labels"]
    assert world.working() == {"node-a"}
    assert world.status("other")["targets"][0]["state"] == "Ready"


def test_a_driver_recovers_from_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the cause is gone its status is as ever."""
    world = World()
    world.add_node("node-a", KERNEL)
    world.add_driver()
    with monkeypatch.context() as patched:
        broken_for("edu", patched)
        one_pass(world)
    world.settle()
    assert degraded(world, "edu")[0] == "AsExpected"


class BrokenRegistries(ModelRegistries):
    """Registries whose client has a bug, for one host."""

    def inspect(
        self,
        namespace: str,
        settings: RegistrySettings,
        image: ImageRef,
        architecture: str = "",
        *,
        signed_by: str | None = None,
    ) -> ImageState:
        """Fail for one host."""
        if image.host == EVIL.host:
            raise ValueError("the answer is a number")
        return super().inspect(namespace, settings, image, architecture, signed_by=signed_by)


def test_an_image_that_cannot_be_judged_is_invalid() -> None:
    """The driver that wants it is blocked; the other is built."""
    world = World()
    world.registries = BrokenRegistries()
    world.add_node("node-a", KERNEL)
    world.add_driver(**PREBUILT)
    world.add_driver("other")
    one_pass(world)
    (target,) = world.status()["targets"]
    assert (target["state"], target["reason"]) == ("Blocked", "RegistryInvalid")
    assert "the answer is a number" in target["message"]
    assert world.builds.running


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Present(digest=DIGEST, labels={images.MODULES_LABEL: "[" * 100_000}), id="modules, nested"),
        pytest.param(
            Present(digest=DIGEST, labels={
                images.MODULES_LABEL: '[{"name": 1, "identity": "x"}, {"name": "a", "identity": "y"}]'
            }), id="a module called 1",
        ),
        pytest.param(Unauthorized(message="denied: \ud800"), id="an answer with half a character"),
    ],
)  # fmt: skip
def test_what_an_image_says_harms_its_driver_alone(answer: Present | Unauthorized) -> None:
    """Labels of a prebuilt image and a registry's words are its author's."""
    world = World()
    world.add_node("node-a", KERNEL)
    world.add_driver(**PREBUILT)
    world.add_driver("other")
    world.registries.answers[EVIL] = answer
    for _ in range(4):
        one_pass(world)
        world.finish_builds()
        world.turn()
    json.dumps(world.status()).encode()
    assert world.status("other")["targets"][0]["state"] == "Ready"


def test_what_a_pod_says_harms_nobody() -> None:
    """The termination message is the node's."""
    world = World()
    world.add_node("node-a", KERNEL)
    world.add_driver()
    world.settle()
    (pod,) = [obj for path, obj in world.client.objects.items() if "/pods/" in path]
    message = json.dumps({"result": "LoadFailed", "message": "\ud800" + "x" * 5000})
    pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["message"] = message
    one_pass(world)
    (target,) = world.status()["targets"]
    assert len(target["message"]) <= 500
    target["message"].encode()


def test_a_nodes_annotations_are_bounded() -> None:
    """A rebuild wish of 250 kB is one of a few digits, and no kernel release has 5,000."""
    world = World()
    world.add_node("node-a", KERNEL)
    world.add_driver()
    annotations = {
        names.REBUILD_ANNOTATION: "x" * 250_000,
        names.KERNEL_VERSION_ANNOTATION: "6.1." + "0" * 5000,
        "somebody.else/notes": "y" * 250_000,
    }
    world.client.patch(NODES.path(name="node-a"), {"metadata": {"annotations": annotations}})
    one_pass(world)
    assert len(json.dumps(world.status())) < 4000
    assert all(len(value) < 100 for node in world.observe().nodes for value in node.annotations.values())


def test_a_secret_that_may_not_be_read_is_a_state_of_its_driver() -> None:
    """The Role of the controller may name Secrets; an author may name another one."""
    world = World()
    world.add_node("node-a", KERNEL)
    world.add_driver()
    world.settle()
    certificate = {"keySecretRef": {"name": "other"}, "certificateSecretRef": {"name": "other"}}
    body = driver_object("greedy", spec_changes={"signing": certificate}, finalizer=False)
    world.client.create(DRIVER_CONTAINERS.path(namespace=NAMESPACE), body)
    forbid(world, "/secrets/other")
    one_pass(world)
    (target,) = world.status("greedy")["targets"]
    assert target["reason"] == "SigningCertificateMissing"
    assert "Secret driverwright/other cannot be read" in target["message"]
    assert degraded(world, "edu")[0] == "AsExpected"


@pytest.mark.parametrize("part", ["drivercontainers", "daemonsets", "pods"])
def test_a_namespace_that_may_not_be_read_harms_nobody(part: str) -> None:
    """With its RoleBinding gone, nothing of it is removed, and the drivers of other namespaces go on."""
    world = World()
    world.add_node("node-a", KERNEL)
    world.add_driver()
    world.settle()
    before = {path for path in world.client.objects if "/events" not in path}
    body = driver_object("far", namespace="team-b", finalizer=False)
    world.client.create(DRIVER_CONTAINERS.path(namespace="team-b"), body)
    forbid(world, f"/namespaces/{NAMESPACE}/{part}")
    world.namespaces = (NAMESPACE, "team-b")
    one_pass(world)
    assert before <= set(world.client.objects)
    assert world.working() == {"node-a"}
    far = world.client.get(DRIVER_CONTAINERS.path(namespace="team-b", name="far"))
    assert far["status"]["targets"]
    if part != "drivercontainers":
        assert degraded(world, "edu")[0] == "NamespaceForbidden"
        assert world.status()["targets"][0]["state"] == "Ready"


def forbid(world: World, needle: str) -> None:
    """Let the API server refuse to have something read."""
    world.client.forbidden += (needle,)
