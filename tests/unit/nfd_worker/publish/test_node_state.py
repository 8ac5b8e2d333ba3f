"""A Node as publishing sees it: whose labels are whose."""

from typing import Any

import pytest

from kube_api.errors import Unreachable
from nfd_worker.publish.node_state import NodeState, disown

Json = dict[str, Any]


def entry(manager: str, operation: str = "Update", **fields: list[str]) -> Json:
    """Make an entry of managedFields."""
    metadata: Json = {f"f:{field}": {f"f:{key}": {} for key in keys} for field, keys in fields.items()}
    return {"manager": manager, "operation": operation, "fieldsV1": {"f:metadata": metadata}}


def state(*entries: Json) -> NodeState:
    """Make a Node with these managers."""
    return NodeState.from_dict({"kind": "Node", "metadata": {"name": "n", "managedFields": list(entries)}})


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({}, id="empty"),
        pytest.param({"kind": "Status", "metadata": {}}, id="another kind"),
        pytest.param({"kind": "Node"}, id="no metadata"),
        pytest.param({"kind": "Node", "metadata": []}, id="metadata is a list"),
    ],
)
def test_what_is_no_node_is_refused(answer: Json) -> None:
    """A proxy that answers with JSON of its own is as good as no answer."""
    with pytest.raises(Unreachable, match="not a Node"):
        NodeState.from_dict(answer)


def test_a_bare_node_is_empty() -> None:
    """All parts may be missing or null."""
    node = NodeState.from_dict(
        {"kind": "Node", "metadata": {"labels": None}, "spec": None, "status": {"capacity": None}}
    )
    assert node == NodeState("", "", "", {}, {}, {}, {}, (), ())


def test_only_what_we_applied_is_ours() -> None:
    """Neither an update of ours nor an apply of somebody else counts."""
    ours = entry("nfd-worker", "Apply", labels=["a/b"], annotations=["c/d"])
    node = state(ours, entry("nfd-worker", labels=["x"]), entry("kubectl", "Apply", labels=["y"]))
    assert (node.applied("labels"), node.applied("annotations")) == ({"a/b"}, {"c/d"})


def test_the_writers_of_an_annotation_are_named_but_for_us() -> None:
    """The other writers of an annotation are listed without nfd-worker."""
    node = state(entry("nfd-master", annotations=["a", "b"]), entry("nfd-worker", annotations=["a"]), entry("x"))
    assert node.writers(("a",)) == {"nfd-master"}
    assert node.writers(("c",)) == set()


def test_disowning_takes_out_only_what_is_named() -> None:
    """Other fields, other managers and applied fields stay as they are."""
    upstream = entry("nfd-master", labels=["a", "b"], annotations=["a"])
    upstream["fieldsV1"] |= {"f:spec": {"f:taints": {}}}
    others = [entry("nfd-worker", "Apply", labels=["a"]), entry("kubectl", labels=["a"])]
    left = disown((upstream, *others), {"nfd-master"}, labels=["a"], annotations=["a"])
    expected = entry("nfd-master", labels=["b"])
    expected["fieldsV1"] |= {"f:spec": {"f:taints": {}}}
    assert left == [expected, *others]


def test_a_manager_that_owns_nothing_any_more_goes() -> None:
    """Also when only the mark of the map itself is left."""
    upstream = entry("nfd-master", labels=["a"])
    upstream["fieldsV1"]["f:metadata"]["f:labels"]["."] = {}
    assert disown((upstream,), {"nfd-master"}, labels=["a"], annotations=[]) == []
    status: Json = {"manager": "nfd-master", "operation": "Update", "fieldsV1": {"f:status": {"f:capacity": {}}}}
    assert disown((status,), {"nfd-master"}, labels=["a"], annotations=[]) == [status]
