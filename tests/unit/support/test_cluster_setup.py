"""What tests with an API server leave there: nothing that it goes on working at."""

from kube_api.resources import DRIVER_CONTAINERS, NAMESPACES
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.real_parts.cluster_setup import remove_namespace


def test_a_namespace_goes_with_drivers_that_no_controller_lets_go() -> None:
    """Those of another namespace keep their finalizer: their controller may live."""
    client = MemoryClient()
    client.create(NAMESPACES.path(), {"metadata": {"name": "ours"}})
    for namespace in ("ours", "theirs"):
        metadata = {"name": "edu", "finalizers": ["driverwright.io/cleanup"]}
        client.create(DRIVER_CONTAINERS.path(namespace=namespace), {"metadata": metadata})
    remove_namespace(client, "ours")
    kept = {
        path: driver["metadata"].get("finalizers")
        for path, driver in client.objects.items()
        if "/drivercontainers/" in path
    }
    ours, theirs = (DRIVER_CONTAINERS.path(namespace=namespace, name="edu") for namespace in ("ours", "theirs"))
    assert not kept.get(ours)
    assert kept[theirs] == ["driverwright.io/cleanup"]
    assert NAMESPACES.path(name="ours") not in client.objects
