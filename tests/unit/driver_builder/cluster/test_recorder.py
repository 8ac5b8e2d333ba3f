"""What is read through a recorder is kept, as far as a file may have it."""

from typing import Any

import pytest

from driver_builder.cluster.recorder import Recorder
from kube_api.errors import Forbidden, KubeApiError, NotFound, Unreachable
from kube_api.resources import CONFIG_MAPS, NAMESPACES, NODES, PODS, RESOURCE_SLICES, SECRETS
from kube_api.stored_objects import StoredObjects

NODE = {"metadata": {"name": "n", "managedFields": [1]}, "status": {"images": [1]}}
GROUP = "/apis/resource.k8s.io"
OBJECTS: dict[str, Any] = {
    NODES.path(name="n"): NODE,
    NAMESPACES.path(name="pods"): {"metadata": {"name": "pods"}},
    CONFIG_MAPS.path(namespace="a", name="c"): {"metadata": {"name": "c"}, "data": {"k": "x"}},
    SECRETS.path(namespace="a", name="s"): {"metadata": {"name": "s"}, "data": {"k": "x"}},
    GROUP: {"name": "resource.k8s.io", "versions": [{"version": "v1", "groupVersion": "resource.k8s.io/v1"}]},
}


def recorder(**errors: KubeApiError) -> Recorder:
    """Record what a server has that refuses some collections."""
    refused = {resource.path(): errors[resource.plural] for resource in (PODS, RESOURCE_SLICES, NODES)
               if resource.plural in errors}  # fmt: skip
    return Recorder(StoredObjects(OBJECTS, refused))


def test_an_object_is_given_as_it_is_and_kept_by_its_fields() -> None:
    """Whether it is read alone or in a collection."""
    made = recorder()
    assert made.list(NODES.path()).items == [NODE]
    assert made.get(NAMESPACES.path(name="pods")) == OBJECTS[NAMESPACES.path(name="pods")]
    kept = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {}}
    assert made.objects[NODES.path(name="n")] == kept
    assert made.objects[NAMESPACES.path(name="pods")]["kind"] == "Namespace"


@pytest.mark.parametrize("resource", [CONFIG_MAPS, SECRETS], ids=["ConfigMap", "Secret"])
def test_contents_are_given_and_not_kept(resource: Any) -> None:
    """Nor is their collection."""
    made = recorder()
    for obj in made.list(resource.path(namespace="a")).items:
        assert made.get(resource.path(namespace="a", name=obj["metadata"]["name"])) == obj
    assert made.objects == {}


def test_the_versions_of_a_group_are_kept() -> None:
    """They say which objects can be read."""
    made = recorder()
    made.get(GROUP)
    kept = {"apiVersion": "v1", "kind": "APIGroup", "name": "resource.k8s.io", "versions": [{"version": "v1"}]}
    assert made.objects == {GROUP: kept}


@pytest.mark.parametrize(
    ("plural", "error", "is_kept"),
    [
        pytest.param("pods", Forbidden("no", status=403), True, id="refused"),
        pytest.param("resourceslices", NotFound("none", status=404), True, id="a kind that does not exist"),
        pytest.param("nodes", Unreachable("away"), False, id="no answer"),
    ],
)
def test_a_refusal_is_raised_and_kept(plural: str, error: KubeApiError, is_kept: bool) -> None:
    """No answer is none: nothing is written then."""
    made = recorder(**{plural: error})
    (path,) = (resource.path() for resource in (PODS, RESOURCE_SLICES, NODES) if resource.plural == plural)
    with pytest.raises(type(error)):
        made.list(path)
    assert made.errors == ({path: error} if is_kept else {})


def test_an_object_that_is_not_there_is_known_by_its_absence() -> None:
    """It is no error of the file."""
    made = recorder()
    with pytest.raises(NotFound):
        made.get(NAMESPACES.path(name="gone"))
    assert (made.objects, made.errors) == ({}, {})
    assert list(made.watch(NODES.path(), resource_version="1")) == []
