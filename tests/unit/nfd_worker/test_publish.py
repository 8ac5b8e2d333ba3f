"""The publish child: what it sends, and which labels it keeps."""

from typing import Any, cast

from kube_api.client import Client
from nfd_worker.publish import kept_labels, owned_label_keys, publish
from nfd_worker.wire import PublishRequest

PREFIX = "feature.node.kubernetes.io/"


def node(labels: dict[str, str], *, owned: tuple[str, ...], manager: str = "nfd-worker") -> dict[str, Any]:
    """Make a Node as the API server shows it."""
    fields: dict[str, Any] = {"f:metadata": {"f:labels": {f"f:{key}": {} for key in owned}}}
    entry = {"manager": manager, "operation": "Apply", "fieldsV1": fields}
    return {"metadata": {"name": "n", "labels": labels, "managedFields": [entry]}}


class Recorder:
    """Stands in for a client: gives one Node and takes note of what is sent."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        self.calls: list[tuple[Any, ...]] = []

    def get(self, path: str) -> dict[str, Any]:
        """Take note, give the Node."""
        self.calls.append(("get", path))
        return self.answer

    def apply(self, path: str, body: dict[str, Any], *, field_manager: str, force: bool = True) -> dict[str, Any]:
        """Take note."""
        self.calls.append(("apply", path, body, field_manager, force))
        return self.answer


def test_without_labels_to_keep_the_node_is_not_read() -> None:
    """One request publishes."""
    client = Recorder({})
    publish(PublishRequest("n", {"a/b": "1"}, {"c/d": "2"}), cast(Client, client))
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "labels": {"a/b": "1"}, "annotations": {"c/d": "2"}},
    }
    assert client.calls == [("apply", "/api/v1/nodes/n", body, "nfd-worker", True)]


def test_labels_of_an_unknown_source_are_applied_as_the_node_has_them() -> None:
    """Server-side apply would otherwise remove what is not named."""
    pci, kernel = f"{PREFIX}pci-1.present", f"{PREFIX}kernel-version.full"
    client = Recorder(node({pci: "true", kernel: "old", "other": "x"}, owned=(pci, kernel)))
    publish(PublishRequest("n", {kernel: "new"}, {}, (f"{PREFIX}pci-",)), cast(Client, client))
    assert client.calls[0] == ("get", "/api/v1/nodes/n")
    assert client.calls[1][2]["metadata"]["labels"] == {pci: "true", kernel: "new"}


def test_only_what_we_own_is_kept() -> None:
    """A label of the same name from somebody else is not ours to take over."""
    pci = f"{PREFIX}pci-1.present"
    assert kept_labels(node({pci: "true"}, owned=(pci,), manager="kubectl"), (f"{PREFIX}pci-",)) == {}
    assert kept_labels(node({}, owned=(pci,)), (f"{PREFIX}pci-",)) == {}
    assert kept_labels({"metadata": {}}, (f"{PREFIX}pci-",)) == {}


def test_updates_of_ours_that_are_no_apply_own_nothing() -> None:
    """Only applied fields are removed by the next apply."""
    metadata = node({}, owned=("a/b",))["metadata"]
    assert owned_label_keys(metadata) == {"a/b"}
    metadata["managedFields"][0]["operation"] = "Update"
    assert owned_label_keys(metadata) == set()
