"""What is in a cluster and on its nodes: recorded before an installation, and compared after its end."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

from kube_api.client import Client
from kube_api.errors import NotFound
from testbed.guest.guest import Guest

Json = dict[str, Any]

NODES = "nodes"
_EVENTS = "events"
"""Of these the API server forgets each after an hour."""
_LOOK = """{
    find / /run -xdev -path /run/containerd -prune -o -print
    find /etc /usr/lib/firmware -type f -exec md5sum {} +
    cut -d ' ' -f 1 /proc/modules | sed 's/^/module /'
    cut -d ' ' -f 2 /proc/mounts | sed 's/^/mount /'
    sed 's/^/firmware path /' /sys/module/firmware_class/parameters/path
} | sort"""
"""Files that a node has on its disk and in /run, what some of them hold, modules, mounts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Objects that the API server lists, by their paths, and what others may change of each Node, by its name."""

    objects: frozenset[str]
    nodes: dict[str, Json]


def record(client: Client, guests: Iterable[Guest]) -> Record:
    """Record a cluster, and each guest in its own memory."""
    for guest in guests:
        guest.check(f"{_LOOK} >/tmp/before")
    return of_cluster(client)


def of_cluster(client: Client) -> Record:
    """Record the cluster alone."""
    found = objects(client)
    nodes = {path.rpartition("/")[2]: _node(item) for path, item in found.items() if path.startswith(f"{NODES}/")}
    return Record(objects=frozenset(found), nodes=nodes)


def objects(client: Client) -> dict[str, Json]:
    """Return every object of every kind but Events."""
    groups = client.get("/apis")["groups"]
    versions = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
    found = {}
    for path in chain.from_iterable(_kinds(client, version) for version in versions):
        # A definition that was deleted a moment ago is still named.
        with suppress(NotFound):
            for item in client.list(path).items:
                metadata = item["metadata"]
                name = path.rpartition("/")[2]
                found["/".join((name, *filter(None, (metadata.get("namespace"), metadata["name"]))))] = item
    return found


def _kinds(client: Client, version: str) -> list[str]:
    """Return the paths of all that can be listed in a version; none where its last definition has just gone."""
    try:
        resources = client.get(version)["resources"]
    except NotFound:
        return []
    return [f"{version}/{item['name']}" for item in resources if "list" in item["verbs"] and item["name"] != _EVENTS]


def on_node(guest: Guest) -> set[str]:
    """Return what has come to a guest since its record (+) and what has gone (-)."""
    lines = guest.run(f"{_LOOK} >/tmp/after; diff -U 0 /tmp/before /tmp/after")[1].splitlines()
    return {line for line in lines if line[:1] in "+-" and not line.startswith(("+++", "---"))}


def _node(item: Json) -> Json:
    metadata, status = item["metadata"], item["status"]
    return {
        "labels": metadata.get("labels"),
        "annotations": metadata.get("annotations"),
        "managers": {entry["manager"] for entry in metadata["managedFields"]},
        "taints": item["spec"].get("taints"),
        "resources": {*status["capacity"], *status["allocatable"]},
    }
