"""What the API server refuses to publish, and the message for it."""

import os
import time

import pytest

from kube_api.client import Client
from kube_api.errors import Forbidden, Invalid, NotFound
from kube_api.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NODES, SERVICE_ACCOUNTS
from nfd_worker.labels.node_content import NodeContent
from nfd_worker.publish.publish_child import publish
from nfd_worker.publish.publish_errors import explain
from testbed.testbed import Testbed
from tests.support.nfd_worker.publishing import BARE, GPU, NAMESPACE, PUBLISHED, carried, node_object, read, request
from tests.support.real_parts.cluster_setup import Json, as_service_account


def test_a_missing_node_is_not_made_and_is_reported(root: Client, worker: Client) -> None:
    """The API server says 403, because applying would create it; we say that it is missing."""
    with pytest.raises(NotFound) as caught:
        publish(request("no-such-node"), worker)
    assert "node no-such-node does not exist" in explain(caught.value, "no-such-node")
    with pytest.raises(NotFound):
        read(root, "no-such-node")


def test_a_node_that_is_made_anew_gets_everything_again(root: Client, worker: Client, node: str) -> None:
    """As when a machine is reinstalled under its old name."""
    publish(request(node), worker)
    root.delete(NODES.path(name=node))
    with pytest.raises(NotFound):
        publish(request(node), worker)
    root.create(NODES.path(), node_object(node))
    publish(request(node), worker)
    assert carried(root, node) == PUBLISHED


def test_a_value_that_cannot_be_is_named(root: Client, worker: Client, node: str) -> None:
    """It should have been left out before; the words to find the bug are there."""
    with pytest.raises(Invalid) as caught:
        publish(request(node, NodeContent({GPU: "not a value"})), worker)
    assert "not a value" in explain(caught.value, node)
    assert carried(root, node) == BARE


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        pytest.param([], "the verb get on nodes,", id="nothing at all"),
        pytest.param([{"resources": ["nodes"], "verbs": ["get"]}], "the verb patch on nodes,", id="no patch"),
        pytest.param(
            [{"resources": ["nodes"], "verbs": ["get", "patch"]}],
            "the verb patch on nodes/status,",
            id="no status",
        ),
    ],
)
def test_a_missing_right_is_named(
    control_plane_ground: Testbed, root: Client, node: str, rules: list[Json], words: str
) -> None:
    """Which rule the ClusterRole lacks."""
    name = f"poor-{os.getpid()}-{time.monotonic_ns()}"
    root.create(SERVICE_ACCOUNTS.path(namespace=NAMESPACE), {"metadata": {"name": name}})
    role = {"metadata": {"name": name}, "rules": [{"apiGroups": [""], **rule} for rule in rules]}
    root.create(CLUSTER_ROLES.path(), role)
    root.create(CLUSTER_ROLE_BINDINGS.path(), {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
    })  # fmt: skip
    poor = as_service_account(control_plane_ground, NAMESPACE, name)
    said = ""
    # The authorizer reads its rules from a cache.
    end = time.monotonic() + 600
    while words not in said and time.monotonic() < end:
        with pytest.raises(Forbidden) as caught:
            publish(request(node), poor)
        said = explain(caught.value, node)
        time.sleep(0.2)
    assert words in said
    for resource in (CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES):
        root.delete(resource.path(name=name))
