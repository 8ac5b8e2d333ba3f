"""What a landing leaves in a cluster and a registry: written down once, put into a fresh cluster by test_landings.py.

``python -m tests.support.real_parts.landing_record NAME`` installs a driver as HEAD does it and writes
``tests/data/landings/NAME``: ``objects.yaml``, as the API server gives them, and ``image/``, the registry's repository
as an OCI image layout. A record is never written anew: what it holds is in clusters.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from kube_api import names
from kube_api.client import Client
from kube_api.errors import NotFound
from kube_api.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DRIVER_CONTAINERS,
    LEASES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    Resource,
)
from testbed.ports import free_ports
from testbed.testbed import Testbed
from tests.support.real_parts import oci_layout
from tests.support.real_parts.cluster_setup import make_namespace, path_of
from tests.support.real_parts.controller_life import KERNEL, WAIT_SECONDS, Life, Parts

Json = dict[str, Any]

FOLDER = Path(__file__).parents[2] / "data" / "landings"
OBJECTS, IMAGE = "objects.yaml", "image"

REGISTRY = ("127.9.9.9", 15009)
"""The registry's address is in what pods were made from: it is the same in every run."""

_KINDS = (CONFIG_MAPS, LEASES, DRIVER_CONTAINERS, PODS, DAEMON_SETS)
"""As they are put back: pods first, for a DaemonSet to adopt them before it knows of nodes to make others for."""
_APPLIED = frozenset({DRIVER_CONTAINERS.kind, DAEMON_SETS.kind})
"""Written by server-side apply: of a field that is left out the next time it counts who owned it."""
_METADATA = frozenset({"name", "namespace", "generateName", "labels", "annotations", "finalizers", "ownerReferences"})


def life_of(parts: Parts, name: str) -> Life:
    """Make a life that is the same in every run, to be recorded or to go on from a record."""
    (port,) = free_ports(1)
    return Life(parts, f"landing-{name}", registry_at=REGISTRY, port=port, resync_seconds=1)


# ------------------------------------------------------------ write


def install_driver(life: Life, client: Client) -> None:
    """Let a driver become ready on two nodes, as a user of most fields has it."""
    life.begin()
    for node in client.list(NODES.path(), label_selector=f"pool={life.name}").items:
        annotations = {names.BOOT_ID_ANNOTATION: "b", names.KERNEL_VERSION_ANNOTATION: KERNEL}
        client.patch(NODES.path(name=node["metadata"]["name"]), {"metadata": {"annotations": annotations}})
    life.apply("1.0.0", blacklist=["dw_other"], inTreeModulesToRemove=["dw_in_tree"])
    life.wait_for_version("1.0.0")
    life.settle()


def record(life: Life, parts: Parts, folder: Path) -> None:
    """Write what is there now."""
    folder.mkdir(parents=True)
    oci_layout.save(_repository(life, parts), folder / IMAGE)
    objects = list(_objects(life, parts.root))
    (folder / OBJECTS).write_text(yaml.dump_all(objects, Dumper=_Dumper, sort_keys=True, width=120))


def _objects(life: Life, client: Client) -> Iterator[Json]:
    for resource in _KINDS:
        for obj in client.list(resource.path(namespace=life.name)).items:
            if obj["metadata"]["name"] != "kube-root-ca.crt":
                yield _recorded(resource, obj)
    for obj in client.list(NODES.path(), label_selector=f"pool={life.name}").items:
        yield _recorded(NODES, {"metadata": obj["metadata"]})


def _recorded(resource: Resource, obj: Json) -> Json:
    kept = _METADATA | ({"managedFields"} if resource.kind in _APPLIED else set())
    metadata = {key: value for key, value in obj["metadata"].items() if key in kept}
    return {**obj, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


class _Dumper(yaml.SafeDumper):
    """Writes files line by line."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


# ------------------------------------------------------------ put back


def restore(life: Life, parts: Parts, folder: Path) -> None:
    """Put a record into cluster and registry, with the uids that the objects have now; two kubelets are played on."""
    client = parts.root
    make_namespace(client, life.name)
    _wait_for_account(client, life.name)
    oci_layout.push(folder / IMAGE, _repository(life, parts))
    objects = list(yaml.safe_load_all((folder / OBJECTS).read_text()))
    owner = ""
    for resource in _KINDS:
        for obj in (item for item in objects if item["kind"] == resource.kind):
            made = _create(client, resource, obj, owner)
            if resource is DRIVER_CONTAINERS:
                owner = made["metadata"]["uid"]
    _wait_for_adoption(client, life.name)
    for obj in (item for item in objects if item["kind"] == NODES.kind):
        life.nodes.register(obj["metadata"])
    life.nodes.start()


def _create(client: Client, resource: Resource, recorded: Json, owner: str) -> Json:
    metadata = {key: value for key, value in recorded["metadata"].items() if key != "ownerReferences"}
    if resource is DAEMON_SETS:
        metadata["ownerReferences"] = [{**item, "uid": owner} for item in recorded["metadata"]["ownerReferences"]]
    made = client.create(resource.path(namespace=metadata["namespace"]), {**recorded, "metadata": metadata})
    if "status" in recorded:
        client.patch(f"{path_of(recorded)}/status", {"status": recorded["status"]})
    if "managedFields" in metadata:
        client.patch(path_of(recorded), {"metadata": {"managedFields": metadata["managedFields"]}})
    return made


def _wait_for_account(client: Client, namespace: str) -> None:
    """Wait until pods can be created: each has an account, which a controller makes."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            client.get(SERVICE_ACCOUNTS.path(namespace=namespace, name="default"))
        except NotFound:
            assert time.monotonic() < end, "the namespace was given no account"
            time.sleep(0.1)
        else:
            return


def _wait_for_adoption(client: Client, namespace: str) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not all("ownerReferences" in pod["metadata"] for pod in client.list(PODS.path(namespace=namespace)).items):
        assert time.monotonic() < end, "no DaemonSet adopted the pods"
        time.sleep(0.1)


def _repository(life: Life, parts: Parts) -> str:
    return f"http://{parts.builds.registry.host}/v2/{life.name}/edu"


def main(name: str) -> None:
    """Record a landing."""
    folder = FOLDER / name
    assert not folder.exists(), f"{folder} is there: what it holds is in clusters, take another name"
    with Testbed.start(nodes=False) as ground, tempfile.TemporaryDirectory() as scratch:
        parts = Parts.on(ground, ground, Path(scratch))
        life = life_of(parts, name)
        try:
            install_driver(life, parts.root)
            record(life, parts, folder)
        finally:
            life.end()


if __name__ == "__main__":
    main(sys.argv[1])
