"""Known answers of Node Feature Discovery about writing to the Node (tests/data/nfd_cases.yaml)."""

from typing import Any

from nfd_worker.labels.node_content import NodeContent, Unknown
from nfd_worker.publish.node_taints import merge_taints
from nfd_worker.publish.publish_child import publish
from nfd_worker.publish.tracking import format_taints, parse_taints
from nfd_worker.publish.wire import PublishRequest
from tests.support.nfd_worker.nfd_cases import of
from tests.support.nfd_worker.node_server import NodeServer


@of("node_taints")
def test_node_taints(case: dict[str, Any]) -> None:
    """Taints and the annotation that tracks them."""
    given, expected = case["input"], case["expect"]
    merged = merge_taints(given["taints"], parse_taints(given["annotation"]), given["wanted"])
    assert list(merged.taints) == expected["taints"]
    assert (format_taints(merged.ours) or None) == expected["annotation"]


@of("node_update")
def test_node_update(case: dict[str, Any]) -> None:
    """Labels that upstream left and nobody knows better about stay: its ``skip_removal`` is our Unknown."""
    given, expected = case["input"], case["expect"]
    server = NodeServer()
    server.change("nfd-master", {"metadata": {key: given[key] for key in ("labels", "annotations")}})
    unknown = Unknown() if given["skip_removal"] else None
    request = PublishRequest("n", NodeContent(**given["wanted"]), unknown, take_over=True)
    publish(request, server.client)
    assert server.labels() == expected["labels"]
