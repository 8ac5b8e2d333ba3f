"""A real API server, the worker's account and Nodes for the tests of publishing.

There is no kubelet, and the controller manager is stopped: that of Kubernetes 1.20 writes lists of taints without
checking whether they have changed meanwhile.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from kube_api.client import Client
from kube_api.errors import NotFound
from kube_api.resources import NODES
from testbed.testbed import Testbed
from tests.support.nfd_worker.publishing import NAMESPACE, node_object
from tests.support.real_parts.cluster_setup import admin, as_service_account, install


@pytest.fixture(scope="module")
def root(control_plane_ground: Testbed) -> Iterator[Client]:
    """Install the accounts and stop the controller manager; give the administrator."""
    client = admin(control_plane_ground)
    install(client)
    control_plane_ground.control_plane.stop("kube-controller-manager")
    yield client
    control_plane_ground.control_plane.start("kube-controller-manager")


@pytest.fixture(scope="module")
def worker(control_plane_ground: Testbed, root: Client) -> Client:
    """Connect as nfd-worker."""
    assert root
    return as_service_account(control_plane_ground, NAMESPACE, "nfd-worker")


@pytest.fixture
def make_node(root: Client) -> Iterator[Callable[[], str]]:
    """Make Nodes that somebody else has labelled and tainted."""
    made: list[str] = []

    def make() -> str:
        made.append(f"publish-test-{time.monotonic_ns()}")
        root.create(NODES.path(), node_object(made[-1]))
        return made[-1]

    yield make
    for name in made:
        with suppress(NotFound):
            root.delete(NODES.path(name=name))


@pytest.fixture
def node(make_node: Callable[[], str]) -> str:
    """Make one Node."""
    return make_node()


@pytest.fixture
def kubeconfig(control_plane_ground: Testbed, worker: Client, tmp_path: Path) -> str:
    """Write the service account's credentials for a child process."""
    assert worker
    token = control_plane_ground.ca_file.with_name(f"token-{NAMESPACE}-nfd-worker").read_text()
    cluster = {
        "server": control_plane_ground.api_server,
        "certificate-authority": str(control_plane_ground.ca_file),
    }
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "users": [{"name": "it", "user": {"token": token}}],
        "clusters": [{"name": "it", "cluster": cluster}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }))  # fmt: skip
    return str(file)
