"""The client against a real API server: every verb, every error that it can be brought to give."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from kube_api.client import JSON_PATCH, Client
from kube_api.errors import Conflict, Forbidden, Gone, Invalid, NotFound, Unauthorized, Unreachable
from kube_api.resources import CONFIG_MAPS, NODES, PODS
from testbed.testbed import Testbed
from tests.support.real_parts.cluster_setup import admin, as_service_account, make_namespace

NAMESPACE = "kube-api"
COLLECTION = CONFIG_MAPS.path(namespace=NAMESPACE)


@pytest.fixture(scope="module")
def client(control_plane_ground: Testbed) -> Client:
    """Connect as administrator, with a namespace to work in."""
    made = admin(control_plane_ground)
    make_namespace(made, NAMESPACE)
    return made


@pytest.fixture(autouse=True)
def _clean(client: Client) -> Iterator[None]:
    """Remove what a test left."""
    yield
    for obj in client.list(COLLECTION, label_selector="test").items:
        client.delete(path(obj["metadata"]["name"]))


def path(name: str) -> str:
    """Return where a ConfigMap lives."""
    return CONFIG_MAPS.path(namespace=NAMESPACE, name=name)


def config_map(name: str, **data: str) -> dict[str, object]:
    """Make a ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"test": "yes"}},
        "data": data,
    }


def test_an_object_lives_from_create_to_delete(client: Client) -> None:
    """Create, get, replace, patch and delete change what they say."""
    made = client.create(COLLECTION, config_map("a", x="1"))
    assert client.get(path("a")) == made
    made["data"]["x"] = "2"
    assert client.replace(path("a"), made)["data"] == {"x": "2"}
    assert client.patch(path("a"), {"data": {"x": None, "y": "3"}})["data"] == {"y": "3"}
    operations = [{"op": "test", "path": "/data/y", "value": "3"}, {"op": "replace", "path": "/data/y", "value": "4"}]
    assert client.patch(path("a"), operations, content_type=JSON_PATCH)["data"] == {"y": "4"}
    client.delete(path("a"))
    with pytest.raises(NotFound):
        client.get(path("a"))


def test_apply_owns_what_it_wrote(client: Client) -> None:
    """A field left out of the next apply is removed; fields of other managers stay."""
    client.apply(path("a"), config_map("a", mine="1", old="1"), field_manager="us")
    client.patch(path("a"), {"data": {"theirs": "1"}})
    client.apply(path("a"), config_map("a", mine="2"), field_manager="us")
    assert client.get(path("a"))["data"] == {"mine": "2", "theirs": "1"}


def test_apply_without_force_respects_others(client: Client) -> None:
    """A field that another manager owns is a Conflict unless forced."""
    client.apply(path("a"), config_map("a", x="1"), field_manager="them")
    with pytest.raises(Conflict, match="them"):
        client.apply(path("a"), config_map("a", x="2"), field_manager="us", force=False)


def test_a_long_list_comes_in_pages(client: Client) -> None:
    """More than one page is one list; a selector picks; metadata alone is enough for names and labels."""
    for number in range(510):
        client.create(COLLECTION, config_map(f"many-{number}", x="1"))
    listing = client.list(COLLECTION, label_selector="test=yes")
    assert len({obj["metadata"]["name"] for obj in listing.items}) == 510
    lean = client.list(COLLECTION, label_selector="test=yes", metadata_only=True)
    assert len(lean.items) == 510
    assert "data" not in lean.items[0]
    assert lean.items[0]["metadata"]["labels"] == {"test": "yes"}
    one = client.list(COLLECTION, field_selector="metadata.name=many-7")
    assert [obj["metadata"]["name"] for obj in one.items] == ["many-7"]


@pytest.mark.parametrize("metadata_only", [pytest.param(False, id="whole"), pytest.param(True, id="metadata")])
def test_a_watch_reports_every_change_in_order(client: Client, metadata_only: bool) -> None:
    """From the version of a list on, each change is an event."""
    version = client.list(COLLECTION, label_selector="test").resource_version
    client.create(COLLECTION, config_map("w", x="1"))
    client.patch(path("w"), {"data": {"x": "2"}, "metadata": {"labels": {"test": "2"}}})
    client.delete(path("w"))
    client.create(COLLECTION, config_map("last"))
    events = []
    for event in client.watch(
        COLLECTION, resource_version=version, label_selector="test", metadata_only=metadata_only, seconds=600
    ):
        if event.kind == "BOOKMARK":
            continue
        if event.object["metadata"]["name"] == "last":
            break
        events.append((event.kind, event.object["metadata"]["labels"]["test"], "data" in event.object))
    whole = not metadata_only
    assert events == [("ADDED", "yes", whole), ("MODIFIED", "2", whole), ("DELETED", "2", whole)]


@pytest.mark.parametrize(
    ("request_name", "kind"),
    [
        pytest.param("get what is not there", NotFound, id="not found"),
        pytest.param("create twice", Conflict, id="already exists"),
        pytest.param("replace an older version", Conflict, id="version conflict"),
        pytest.param("delete another uid", Conflict, id="uid conflict"),
        pytest.param("create what is invalid", Invalid, id="invalid"),
        pytest.param("fail a test operation", Invalid, id="JSON patch test"),
    ],
)
def test_what_the_server_refuses_has_its_class(client: Client, request_name: str, kind: type[Exception]) -> None:
    """The API server's own answers arrive as the class that names them."""
    made = client.create(COLLECTION, config_map("e", x="1"))
    stale = {**made, "metadata": {**made["metadata"], "resourceVersion": "1"}}
    requests: dict[str, Callable[[], object]] = {
        "get what is not there": lambda: client.get(path("missing")),
        "create twice": lambda: client.create(COLLECTION, config_map("e")),
        "replace an older version": lambda: client.replace(path("e"), stale),
        "delete another uid": lambda: client.delete(path("e"), uid="00000000-0000-0000-0000-000000000000"),
        "create what is invalid": lambda: client.create(COLLECTION, config_map("Not_A_Name")),
        "fail a test operation": lambda: client.patch(
            path("e"), [{"op": "test", "path": "/data/x", "value": "other"}], content_type=JSON_PATCH
        ),
    }
    with pytest.raises(kind):
        requests[request_name]()


@pytest.mark.usefixtures("client")
def test_another_identity_is_refused(control_plane_ground: Testbed) -> None:
    """Without permission: Forbidden. Without valid credentials: Unauthorized."""
    nobody = as_service_account(control_plane_ground, NAMESPACE, "default")
    with pytest.raises(Forbidden):
        nobody.list(NODES.path())
    # The kubelet replaces this file; what stands in it is sent with the next request.
    control_plane_ground.ca_file.with_name(f"token-{NAMESPACE}-default").write_text("not-a-token")
    with pytest.raises(Unauthorized):
        nobody.list(NODES.path())


def test_text_endpoints_answer_with_text(client: Client) -> None:
    """The health endpoint returns text that is not parsed as JSON."""
    assert list(client.follow("/readyz", silence_seconds=60.0)) == ["ok"]
    assert "[+]ping ok" in list(client.follow("/readyz", query={"verbose": "true"}, silence_seconds=60.0))


def test_an_api_server_that_dies_is_unreachable_until_it_is_back(control_plane_ground: Testbed, client: Client) -> None:
    """A watch breaks off and requests fail as Unreachable; the same client works again afterwards."""
    version = client.list(COLLECTION).resource_version
    ended: list[BaseException | None] = []

    def follow() -> None:
        try:
            for _ in client.watch(COLLECTION, resource_version=version, seconds=60):
                pass
        except Unreachable as error:
            ended.append(error)
        else:
            ended.append(None)

    thread = threading.Thread(target=follow)
    thread.start()
    client.create(COLLECTION, config_map("before", x="1"))
    control_plane_ground.control_plane.kill("kube-apiserver")
    thread.join(timeout=600)
    assert ended
    with pytest.raises(Unreachable, match="no response from the API server"):
        client.get(path("before"))
    control_plane_ground.control_plane.start("kube-apiserver")
    assert client.get(path("before"))["data"] == {"x": "1"}
    # The new API server remembers no changes from before its start.
    with pytest.raises(Gone):
        list(client.watch(COLLECTION, resource_version="1", seconds=1))


def test_a_version_of_the_future_is_no_foreign_error(client: Client) -> None:
    """A watch from a version that does not exist yet ends in an error of ours, or in nothing.

    One that did not end would be Unreachable half a minute later.
    """
    with suppress(Gone):
        list(client.watch(PODS.path(), resource_version="9999999999", seconds=1))
