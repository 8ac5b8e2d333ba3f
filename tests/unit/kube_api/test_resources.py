"""Where objects live below the API server's root."""

import pytest

from kube_api import resources
from kube_api.resources import DAEMON_SETS, DRIVER_CONTAINERS, NODES, PODS, Resource


@pytest.mark.parametrize(
    ("resource", "words", "path"),
    [
        pytest.param(NODES, {}, "/api/v1/nodes", id="cluster-wide collection"),
        pytest.param(NODES, {"name": "a"}, "/api/v1/nodes/a", id="cluster-wide object"),
        pytest.param(
            NODES, {"name": "a", "subresource": "status"}, "/api/v1/nodes/a/status", id="cluster-wide subresource"
        ),
        pytest.param(PODS, {}, "/api/v1/pods", id="all namespaces"),
        pytest.param(PODS, {"namespace": "n"}, "/api/v1/namespaces/n/pods", id="collection"),
        pytest.param(PODS, {"namespace": "n", "name": "p"}, "/api/v1/namespaces/n/pods/p", id="object"),
        pytest.param(
            DAEMON_SETS, {"namespace": "n"}, "/apis/apps/v1/namespaces/n/daemonsets", id="collection of a group"
        ),
        pytest.param(
            DRIVER_CONTAINERS,
            {"namespace": "n", "name": "d", "subresource": "status"},
            "/apis/driverwright.io/v1alpha1/namespaces/n/drivercontainers/d/status",
            id="subresource of our own",
        ),
    ],
)
def test_a_path_is_built_from_its_parts(resource: Resource, words: dict[str, str], path: str) -> None:
    """Group, version, namespace, plural, name and subresource in the API server's order."""
    assert resource.path(**words) == path


def test_a_namespaced_object_needs_its_namespace() -> None:
    """Without a namespace a name means nothing."""
    with pytest.raises(ValueError, match="Pod p needs a namespace"):
        PODS.path(name="p")


@pytest.mark.parametrize("resource", resources._ALL, ids=lambda resource: resource.kind)
def test_a_resource_is_found_by_its_objects(resource: Resource) -> None:
    """The apiVersion and the kind lead back to the resource."""
    assert resources.of({"apiVersion": resource.api_version, "kind": resource.kind}) is resource


def test_an_unknown_kind_is_named() -> None:
    """A kind that this project never handles is a mistake."""
    with pytest.raises(KeyError, match="v1 Gadget"):
        resources.of({"apiVersion": "v1", "kind": "Gadget"})
