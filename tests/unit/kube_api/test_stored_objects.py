"""Objects in memory answer as an API server does."""

from typing import Any

import pytest

from kube_api.errors import Forbidden, NotFound
from kube_api.resources import NODES, PODS
from kube_api.stored_objects import StoredObjects

ONE, TWO, OTHER = (
    PODS.path(namespace=namespace, name=name) for namespace, name in (("a", "one"), ("b", "two"), ("a", "other"))
)
OBJECTS: dict[str, dict[str, Any]] = {
    TWO: {"metadata": {"name": "two", "labels": {"app": "x"}}, "spec": {"nodeName": "n"}},
    ONE: {"metadata": {"name": "one", "labels": {"app": "y"}}, "spec": {"nodeName": "m"}},
    OTHER: {"metadata": {"name": "other"}},
    NODES.path(name="n"): {"metadata": {"name": "n"}},
}


def named(path: str, **options: Any) -> list[str]:
    """Name the objects of a collection."""
    pages = list(StoredObjects(OBJECTS).pages(path, **options))
    return [obj["metadata"]["name"] for page in pages for obj in page.items]


def test_an_object_is_read_by_its_path() -> None:
    """One that is not there is not found."""
    assert StoredObjects(OBJECTS).get(ONE) is OBJECTS[ONE]
    with pytest.raises(NotFound):
        StoredObjects(OBJECTS).get(PODS.path(namespace="a", name="two"))


def test_a_collection_is_in_order_of_one_namespace_or_of_all() -> None:
    """And of one kind alone."""
    assert named(PODS.path(namespace="a")) == ["one", "other"]
    assert named(PODS.path()) == ["one", "other", "two"]
    assert named(NODES.path()) == ["n"]


def test_selectors_name_a_label_or_a_field() -> None:
    """A label with its value, or with any."""
    assert named(PODS.path(), label_selector="app") == ["one", "two"]
    assert named(PODS.path(), label_selector="app=x") == ["two"]
    assert named(PODS.path(), field_selector="spec.nodeName=m") == ["one"]
    assert named(PODS.path(), field_selector="metadata.name=other") == ["other"]


def test_metadata_alone_can_be_asked_for() -> None:
    """As of an API server that has more than that."""
    (found,) = StoredObjects(OBJECTS).list(PODS.path(namespace="b"), metadata_only=True).items
    assert found == {"metadata": OBJECTS[TWO]["metadata"]}


def test_what_was_refused_is_refused() -> None:
    """A collection, and an object."""
    stored = StoredObjects(OBJECTS, {PODS.path(): Forbidden("no", status=403), ONE: Forbidden("no", status=403)})
    with pytest.raises(Forbidden):
        stored.list(PODS.path())
    with pytest.raises(Forbidden):
        stored.get(ONE)


def test_nothing_changes() -> None:
    """So a watch ends at once."""
    assert list(StoredObjects(OBJECTS).watch(PODS.path(), resource_version="1")) == []
