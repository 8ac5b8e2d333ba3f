"""The DaemonSets of drivers in a real API server: nothing of them is refused, dropped or changed."""

from typing import Any

import pytest

from driver_builder.model.images import ImageRef
from driver_builder.objects import manifests
from kube_api.client import Client
from kube_api.resources import DAEMON_SETS, NAMESPACES
from testbed.testbed import Testbed
from tests.support.driver_builder.factories import DIGEST, IDENTITY, driver, spec_of, target

MODULE = {"names": ["edudrv"]}
EVERYTHING = {
    **MODULE,
    "inTreeModulesToRemove": ["a", "b"],
    "inTreeModulesToLoad": ["d"],
    "blacklist": ["c"],
    "firmwarePath": "/source/fw",
    "firmwareHostPath": "/var/lib/firmware",
}


VENDORS = {
    "loader": "image",
    "container": {
        "command": ["a"],
        "args": ["b"],
        "env": [{"name": "A", "value": "b"}, {"name": "C"}],
        "hostPaths": [
            {"path": "/run/a", "propagation": "Bidirectional"},
            {"path": "/etc/os-release", "mountPath": "/host/os-release", "readOnly": True},
        ],
    },
}


@pytest.mark.parametrize(
    ("module", "mapping"),
    [
        pytest.param(MODULE, None, id="little"),
        pytest.param(EVERYTHING, None, id="everything"),
        pytest.param(EVERYTHING, {"dirName": "/opt"}, id="modules of a vendor"),
        pytest.param(MODULE, VENDORS, id="program of a vendor"),
    ],
)
def test_an_api_server_takes_a_daemon_set_as_it_is(
    control_plane_ground: Testbed, module: dict[str, Any], mapping: dict[str, Any] | None
) -> None:
    """What it gives back has what was written, and defaults beside it."""
    client = Client.from_environment(str(control_plane_ground.kubeconfig))
    mappings = [{"regexp": ".*", "image": "r.io/edu:1", **mapping}] if mapping is not None else None
    container = driver(spec_changes={"module": module, "kernelMappings": mappings})
    path = NAMESPACES.path(name=container.namespace)
    client.apply(path, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": container.namespace}},
                 field_manager="test")  # fmt: skip
    image = ImageRef("r.io", "edu", DIGEST)
    written = manifests.daemon_set(
        container,
        spec_of(container),
        target=target(),
        image=image,
        identities={"edudrv": IDENTITY},
        loader_image="r.io/l:1",
        vendor=spec_of(container).kernel_mappings[0].vendor if mappings is not None else None,
    )
    # Its owner is not there: the garbage collector would take it.
    del written["metadata"]["ownerReferences"]
    path = DAEMON_SETS.path(namespace=container.namespace, name=written["metadata"]["name"])
    read = client.apply(path, written, field_manager="test")
    try:
        assert_contains(read["spec"]["template"]["spec"], written["spec"]["template"]["spec"])
    finally:
        client.delete(path)


def assert_contains(read: Any, written: Any) -> None:
    """Compare what was read with what was written, but for what a server adds."""
    if isinstance(written, dict):
        for name, value in written.items():
            assert_contains(read[name], value)
    elif isinstance(written, list):
        assert len(read) == len(written)
        for one, other in zip(read, written, strict=True):
            assert_contains(one, other)
    else:
        assert read == written
