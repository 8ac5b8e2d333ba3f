"""What is read of cluster and registries, and that half a view is none."""

from typing import Any

import pytest

from driver_builder.cluster.observe import Observer
from driver_builder.model.build import OwnTemplate, SourceFiles, SourceImage
from driver_builder.planning import manifests
from driver_builder.planning.snapshot import Snapshot, SourceMissing
from kube_api.errors import ServerUnavailable
from kube_api.resources import CONFIG_MAPS
from tests.unit.driver_builder.factories import DIGEST, NAMESPACE, NOW, SETTINGS
from tests.unit.driver_builder.model_world import World
from tests.unit.driver_builder.worlds import DRIVER_PATH, small_world

TEMPLATE_PLACE = "ConfigMap driverwright/edu-template/k.j2"


def observed(world: World) -> Snapshot:
    """Observe a world."""
    return Observer(
        world.client,
        world.registries,
        namespaces=(NAMESPACE,),
        recipes=SETTINGS.recipes,
        clock=lambda: NOW,
    ).observe()


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
    source = observed(world).sources["driverwright/edu"]
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
    assert observed(world).sources["driverwright/edu"] == SourceImage(reference=reference, path="/")


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
