"""What is read of cluster and registries, and that half a view is none."""

import json
from typing import Any

import pytest

from driver_builder.cluster.observe import Observer
from driver_builder.model.build import OwnTemplate, SourceFiles, SourceImage
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.image_state import Absent, ImageState, NotAsked, Unauthorized, Unreachable
from driver_builder.model.images import ImageRef
from driver_builder.objects import manifests
from driver_builder.snapshot.snapshot import Snapshot, SourceMissing
from kube_api import names
from kube_api.errors import ServerUnavailable
from kube_api.resources import CONFIG_MAPS, DRIVER_CONTAINERS, PODS
from tests.support.driver_builder.factories import DIGEST, KERNEL, NAMESPACE, NOW, OTHER_KERNEL, driver_object, target
from tests.support.driver_builder.model_world import World, pod_status
from tests.support.driver_builder.worlds import DRIVER_PATH, small_world

TEMPLATE_PLACE = "ConfigMap driverwright/edu-template/k.j2"


def observed(world: World) -> Snapshot:
    """Observe a world."""
    return world.images().read(Observer(world.client, namespaces=(NAMESPACE,), clock=lambda: NOW).observe())


@pytest.fixture
def world() -> World:
    """Make a world of one node and one driver."""
    return small_world()


def test_everything_is_read(world: World) -> None:
    """Nodes, drivers, sources, images, DaemonSets and pods, in the words of the plan."""
    world.settle()
    seen = observed(world)
    assert [item.name for item in seen.nodes] == ["node-a"]
    assert [item.key for item in seen.drivers] == ["driverwright/edu"]
    assert seen.sources == {"driverwright/edu": SourceFiles(files={"edudrv.c": b"int x;"})}
    (daemon_set,), (pod,) = seen.daemon_sets, seen.pods
    assert daemon_set.fingerprint == pod.fingerprint != ""
    assert (pod.node, pod.ready, pod.version) == ("node-a", True, "1.0.0")
    assert pod.proof is not None
    assert pod.expected == {module.name: module.identity for module in pod.proof.modules}
    assert len(seen.images) == 1
    assert (seen.running_builds, seen.failed_builds) == (frozenset(), {})


@pytest.mark.parametrize("read", ["nodes", "drivercontainers", "configmaps", "daemonsets", "pods"])
def test_a_part_that_cannot_be_read_is_an_error(world: World, monkeypatch: pytest.MonkeyPatch, read: str) -> None:
    """Half a view would look like nodes and pods that are gone; there is none."""
    error = ServerUnavailable("500", status=500)
    for verb in ("get", "list"):
        plain = getattr(world.client, verb)

        def failing(path: str, plain: Any = plain, **words: Any) -> Any:
            if f"/{read}" in path:
                raise error
            return plain(path, **words)

        monkeypatch.setattr(world.client, verb, failing)
    with pytest.raises(ServerUnavailable):
        observed(world)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param({"data": {"a.c": "x"}}, SourceFiles(files={"a.c": b"x"}), id="text"),
        pytest.param({"binaryData": {"b.bin": "AAE="}}, SourceFiles(files={"b.bin": b"\0\1"}), id="binary"),
        pytest.param(
            {"data": {"a.c": "x"}, "binaryData": {"b": "AA=="}}, SourceFiles(files={"a.c": b"x", "b": b"\0"}), id="both"
        ),
        pytest.param({"data": None}, "is empty", id="empty"),
        pytest.param(None, "kubectl -n driverwright create configmap edu-source", id="missing"),
    ],
)
def test_a_config_map_is_a_source(world: World, data: dict[str, Any] | None, expected: SourceFiles | str) -> None:
    """Its keys are files; where it is missing or empty the message says what to do."""
    path = CONFIG_MAPS.path(namespace=NAMESPACE, name="edu-source")
    del world.client.objects[path]
    if data is not None:
        world.client.create(CONFIG_MAPS.path(namespace=NAMESPACE), {"metadata": {"name": "edu-source"}, **data})
    source = observed(world).sources[DriverKey("driverwright/edu")]
    if isinstance(expected, str):
        assert isinstance(source, SourceMissing)
        assert expected in source.message
    else:
        assert source == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param({"data": {"k.j2": "FROM x"}}, OwnTemplate(place=TEMPLATE_PLACE, text="FROM x"), id="a text"),
        pytest.param({"data": {"a": "", "b": ""}}, "has no text 'k.j2' (it has a, b)", id="other keys"),
        pytest.param({"binaryData": {"k.j2": "AA=="}}, "has no text 'k.j2' (it has none)", id="no text"),
        pytest.param(None, "create configmap edu-template --from-file=k.j2", id="missing"),
    ],
)
def test_a_template_of_the_admins_is_read(
    world: World, data: dict[str, Any] | None, expected: OwnTemplate | str
) -> None:
    """Its text, or what is missing and how to make it; and the plan waits for it."""
    template = {"name": "edu-template", "key": "k.j2"}
    world.client.patch(DRIVER_PATH, {"spec": {"build": {"templateConfigMap": template}}})
    if data is not None:
        obj = {"metadata": {"name": "edu-template"}, **data}
        world.client.create(CONFIG_MAPS.path(namespace=NAMESPACE), obj)
    (found,) = observed(world).templates.values()
    if isinstance(expected, str):
        assert isinstance(found, SourceMissing)
        assert found.message.startswith("spec.build.templateConfigMap: ConfigMap driverwright/edu-template ")
        assert expected in found.message
    else:
        assert found == expected


def test_a_source_image_is_not_fetched(world: World) -> None:
    """A pinned reference is its own content."""
    reference = "r.io/src@" + DIGEST
    spec = {"source": {"image": {"reference": reference}}}
    world.client.patch(DRIVER_PATH, {"spec": {"source": None}})
    world.client.patch(DRIVER_PATH, {"spec": spec})
    assert observed(world).sources[DriverKey("driverwright/edu")] == SourceImage(reference=reference, path="/")


def test_a_driver_with_a_wrong_spec_is_seen_without_source(world: World) -> None:
    """There is nothing to ask for."""
    world.client.patch(DRIVER_PATH, {"spec": {"image": "nonsense"}})
    seen = observed(world)
    assert (len(seen.drivers), seen.sources, seen.images) == (1, {}, {})


def loading(name: str = "load", **status: Any) -> dict[str, Any]:
    """Make the status of a pod with one init container."""
    return {"initContainerStatuses": [{"name": name, **status}]}


@pytest.mark.parametrize(
    ("status", "ready", "message", "result"),
    [
        pytest.param({}, False, "", None, id="no status"),
        pytest.param(
            {"containerStatuses": [{"name": "hold", "state": {"waiting": {"reason": "PodInitializing"}}}]},
            False,
            "",
            None,
            id="initialising is no trouble",
        ),
        pytest.param(
            {
                "initContainerStatuses": [
                    {"name": "load", "state": {"waiting": {"reason": "ErrImagePull", "message": "x"}}}
                ]
            },
            False,
            "ErrImagePull: x",
            None,
            id="image cannot be pulled",
        ),
        pytest.param(
            {
                "initContainerStatuses": [
                    {
                        "name": "load",
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": {"terminated": {"message": '{"result": "LoadFailed", "message": "no"}'}},
                    }
                ]
            },
            False,
            "CrashLoopBackOff",
            "LoadFailed",
            id="the last verdict while it waits to try again",
        ),
        pytest.param(
            {
                "initContainerStatuses": [
                    {"name": "other", "state": {"terminated": {"message": '{"result": "Loaded"}'}}}
                ]
            },
            False,
            "",
            None,
            id="another container's words do not count",
        ),
        pytest.param({"conditions": [{"type": "Ready", "status": "True"}]}, True, "", None, id="ready"),
    ],
)
def test_a_pods_status_becomes_facts(
    world: World, status: dict[str, Any], ready: bool, message: str, result: str | None
) -> None:
    """Readiness, the loader's last verdict, and the kubelet's words where something does not run."""
    world.settle()
    pod = next(obj for path, obj in world.client.objects.items() if "/pods/" in path)
    pod["status"] = status
    (seen,) = observed(world).pods
    assert (seen.ready, seen.message, seen.proof.result if seen.proof else None) == (ready, message, result)


def test_a_pod_with_damaged_annotations_expects_nothing(world: World) -> None:
    """What cannot be read is no identity."""
    world.settle()
    pod = next(obj for path, obj in world.client.objects.items() if "/pods/" in path)
    pod["metadata"]["annotations"][manifests.MODULES_ANNOTATION] = "{"
    assert observed(world).pods[0].expected == {}


def test_what_the_modules_of_a_pod_need_is_read(world: World) -> None:
    """Of the pod and of its DaemonSet's template."""
    world.settle()
    needed = {manifests.NEEDED_ANNOTATION: '{"educore": "A"}'}
    for path, obj in world.client.objects.items():
        if "/pods/" in path:
            obj["metadata"]["annotations"] |= needed
        if "/daemonsets/" in path:
            obj["spec"]["template"]["metadata"]["annotations"] |= needed
    seen = observed(world)
    assert seen.pods[0].needed == seen.daemon_sets[0].needed == {"educore": "A"}
    assert seen.pods[0].builds == seen.daemon_sets[0].builds


def forged(**metadata: Any) -> dict[str, Any]:
    """Make a pod that says of itself that it proves another version of the driver."""
    labels = {manifests.DRIVER_LABEL: "edu", manifests.TARGET_LABEL: target().short_hash}
    verdict = {"result": "Loaded", "kernel": KERNEL, "bootID": f"boot-{KERNEL}", "modules": []}
    return {
        "metadata": {"name": "forged", "labels": labels, **metadata},
        "spec": {"nodeName": "node-a", "nodeSelector": {}},
        "status": pod_status(verdict, ready=True),
    }


@pytest.mark.parametrize(
    "owners",
    [
        pytest.param([], id="no owner"),
        pytest.param([{"kind": "DaemonSet", "uid": "uid-of-ours"}], id="an owner that does not control it"),
        pytest.param([{"kind": "ReplicaSet", "controller": True, "uid": "uid-other"}], id="another controller"),
        pytest.param([{"kind": "DaemonSet", "controller": True, "uid": "gone"}], id="a DaemonSet that is gone"),
    ],
)
def test_a_pod_counts_only_when_a_daemon_set_of_ours_controls_it(world: World, owners: list[dict[str, Any]]) -> None:
    """Labels make no pod ours: it is no proof, whatever it reports."""
    world.settle()
    (ours,) = world.observe().daemon_sets
    owners = [{**item, "uid": item["uid"].replace("uid-of-ours", ours.uid)} for item in owners]
    world.client.create(PODS.path(namespace=NAMESPACE), forged(ownerReferences=owners))
    assert [pod.name for pod in world.observe().pods] == [f"{ours.name}-node-a"]


@pytest.mark.parametrize(
    "owners",
    [
        pytest.param([], id="no owner"),
        pytest.param([{"controller": True, "uid": "uid-other"}], id="another DriverContainer"),
        pytest.param([{"uid": "uid-edu"}], id="an owner that does not control it"),
    ],
)
def test_a_daemon_set_counts_only_when_its_driver_container_controls_it(
    world: World, owners: list[dict[str, Any]]
) -> None:
    """A DaemonSet that somebody made with our labels is neither ours nor are its pods."""
    world.settle()
    (path,) = [path for path in world.client.objects if "/daemonsets/" in path]
    world.client.patch(path, {"metadata": {"ownerReferences": owners}})
    seen = world.observe()
    assert (seen.daemon_sets, seen.pods) == ((), ())


def test_a_forged_pod_holds_no_deletion(world: World) -> None:
    """A pod that nobody of ours made neither sets the ready label nor keeps the DriverContainer."""
    world.fail_builds = 10**6
    world.reconcile()
    world.client.create(PODS.path(namespace=NAMESPACE), forged(annotations={manifests.VERSION_ANNOTATION: "9.9"}))
    world.reconcile()
    assert world.nodes()["node-a"] == {}
    world.delete_driver("edu")
    for _ in range(5):
        world.reconcile()
    assert DRIVER_PATH not in world.client.objects


def test_drivers_in_two_namespaces_ask_for_themselves() -> None:
    """One prebuilt image, two passwords: each driver has the answer that its own gets."""
    world = small_world()
    mappings = [{"regexp": ".*", "image": "r.io/vendor/edu:1"}]
    for namespace in (NAMESPACE, "other"):
        body = driver_object("vendor", namespace=namespace, spec_changes={"kernelMappings": mappings}, finalizer=False)
        world.client.create(DRIVER_CONTAINERS.path(namespace=namespace), body)
    plain = world.registries.inspect

    def inspect(namespace: str, *words: Any, **more: Any) -> ImageState:
        return Unauthorized(message="no") if namespace == "other" else plain(namespace, *words, **more)

    world.registries.inspect = inspect  # type: ignore[method-assign]
    observer = Observer(world.client, namespaces=(NAMESPACE, "other"), clock=lambda: NOW)
    seen = world.images().read(observer.observe())
    image = ImageRef("r.io", "vendor/edu", "1")
    assert seen.image(DriverKey(f"{NAMESPACE}/vendor"), image) == Absent()
    assert seen.image(DriverKey("other/vendor"), image) == Unauthorized(message="no")


def test_no_build_starts_while_answers_are_missing(world: World) -> None:
    """An image that exists for the other version of the operating system is what its target is built as."""
    world.add_node("other", OTHER_KERNEL)
    first, second = sorted(observed(world).images)
    world.registries.answers[first] = NotAsked()
    assert observed(world).images[second] == Absent(is_fresh=False)
    world.registries.answers[first] = Unreachable(message="x")
    assert observed(world).images[second] == Absent()


VERDICT = {"result": "NotLive", "kernel": KERNEL, "bootID": "1-boot-node-a", "module": "edudrv",
           "message": "it is gone"}  # fmt: skip


def ended(verdict: dict[str, Any] | str, at: str) -> dict[str, Any]:
    """Make the end of a container."""
    message = verdict if isinstance(verdict, str) else json.dumps(verdict)
    return {"terminated": {"exitCode": 1, "message": message, "finishedAt": at}}


@pytest.mark.parametrize(
    ("hold", "ready", "expected"),
    [
        pytest.param({"state": ended(VERDICT, "2023-11-14T22:14:00Z")}, "False", "NotLive", id="it ended just now"),
        pytest.param({"state": {"running": {}}, "lastState": ended(VERDICT, "2023-11-14T22:14:00Z")}, "False",
                     "NotLive", id="it was started again"),
        pytest.param({"state": {"running": {}}, "lastState": ended(VERDICT, "2023-11-14T22:14:00Z")}, "True", None,
                     id="the probe is content since"),
        pytest.param({"lastState": ended(VERDICT, "2023-11-14T22:12:00Z")}, "False", None, id="older than the load"),
        pytest.param({"state": ended({**VERDICT, "result": "OtherBuild"}, "")}, "False", "OtherBuild", id="no time"),
        pytest.param({"state": ended({**VERDICT, "result": "Loaded"}, "2023-11-14T22:14:00Z")}, "False", None,
                     id="no verdict against it"),
        pytest.param({"state": ended("Killed", "2023-11-14T22:14:00Z")}, "False", None, id="no verdict"),
        pytest.param({"state": ended(VERDICT, "soon")}, "False", "NotLive", id="a time that is none"),
        pytest.param({"state": {"running": {}}}, "False", None, id="it runs"),
        pytest.param({"state": {"running": {"startedAt": "2023-11-14T22:13:30Z"}},
                      "lastState": ended(VERDICT, "2023-11-14T22:13:20Z")}, "False", None, id="ready in between"),
        pytest.param({"state": {"running": {"startedAt": "2023-11-14T22:14:01Z"}},
                      "lastState": ended(VERDICT, "2023-11-14T22:14:00Z")}, "False", "NotLive",
                     id="not ready since it was started again"),
        pytest.param({"state": {"waiting": {"reason": "CrashLoopBackOff"}},
                      "lastState": ended(VERDICT, "2023-11-14T22:13:20Z")}, "False", "NotLive", id="it does not run"),
        pytest.param({"state": ended({**VERDICT, "bootID": "0-boot-node-a"}, "2023-11-14T22:14:00Z")}, "False", None,
                     id="of another boot"),
    ],
)  # fmt: skip
def test_a_verdict_of_hold_is_read_when_it_is_newer_than_the_load(
    world: World, hold: dict[str, Any], ready: str, expected: str | None
) -> None:
    """A pod that is not ready says nothing by itself; a container that ended with a verdict does."""
    world.settle()
    (pod,) = world.pods_on("node-a")
    pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["finishedAt"] = "2023-11-14T22:13:00Z"
    pod["status"]["containerStatuses"] = [{"name": manifests.HOLD_CONTAINER, **hold}]
    pod["status"]["conditions"] = [{"type": "Ready", "status": ready, "lastTransitionTime": "2023-11-14T22:14:01Z"}]
    (seen,) = world.observe().pods
    assert (seen.contrary.result if seen.contrary else None) == expected
    assert seen.unready_since == (None if ready == "True" else NOW + 41)
    assert seen.image == world.observe().daemon_sets[0].image


def test_a_daemon_set_of_an_earlier_release_reports_its_version_by_its_selector(world: World) -> None:
    """Its annotations do not have it yet; version and modules are those of the template."""
    world.settle()
    (daemon_set,) = [obj for path, obj in world.client.objects.items() if "/daemonsets/" in path]
    del daemon_set["metadata"]["annotations"][manifests.OS_VERSION_ANNOTATION]
    daemon_set["spec"]["template"]["spec"]["nodeSelector"][names.OS_VERSION_LABEL] = "11"
    (seen,) = world.observe().daemon_sets
    assert (seen.os_version, seen.version, [*seen.expected]) == ("11", "1.0.0", ["edudrv"])
