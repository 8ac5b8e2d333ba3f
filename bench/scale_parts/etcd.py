"""Objects written into etcd, where the API server keeps its own: tens of thousands in a minute.

Through the API server the same would take the controllers of a real cluster an hour. The API server reads JSON beside
its own encoding, so all that comes after, listings, watches and writes, is its own work.
"""

import base64
import json
from collections.abc import Iterator
from typing import Any

import requests

from kube_api.resources import CONFIG_MAPS, DAEMON_SETS, DRIVER_CONTAINERS, NODES, PODS, Resource
from tests.support.driver_builder.factories import NAMESPACE

Json = dict[str, Any]

PLACES = {
    NODES: "/registry/minions",
    PODS: f"/registry/pods/{NAMESPACE}",
    DAEMON_SETS: f"/registry/daemonsets/{NAMESPACE}",
    CONFIG_MAPS: f"/registry/configmaps/{NAMESPACE}",
    DRIVER_CONTAINERS: f"/registry/driverwright.io/drivercontainers/{NAMESPACE}",
}
"""Where the API server keeps the objects of a kind. Nodes were once called minions."""
_BYTES, _OPERATIONS = 600_000, 120
"""Limits of one transaction, below etcd's own: a request may have 1.5 MiB, and 128 operations."""


def load(address: str, resource: Resource, objects: Iterator[Json]) -> Iterator[int]:
    """Write objects; gives now and then how many there are so far. ``address`` is where clients reach etcd."""
    count = 0
    with requests.Session() as session:
        for batch in batches(puts(resource, objects)):
            session.post(f"{address}/v3/kv/txn", json={"success": batch}, timeout=60).raise_for_status()
            count += len(batch)
            yield count


def empty(address: str) -> None:
    """Take all objects of a fleet away, and their history, for which etcd has 2 GiB."""
    revision = ""
    for place in PLACES.values():
        body = {"key": _base64(f"{place}/"), "range_end": _base64(f"{place}0")}
        answer = requests.post(f"{address}/v3/kv/deleterange", json=body, timeout=120)
        answer.raise_for_status()
        revision = answer.json()["header"]["revision"]
    requests.post(f"{address}/v3/kv/compaction", json={"revision": revision}, timeout=120).raise_for_status()


def puts(resource: Resource, objects: Iterator[Json]) -> Iterator[Json]:
    """Make the operation that writes each object."""
    for obj in objects:
        metadata = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
        text = json.dumps({**obj, "metadata": metadata}, separators=(",", ":"))
        key = f"{PLACES[resource]}/{metadata['name']}"
        yield {"requestPut": {"key": _base64(key), "value": _base64(text)}}


def batches(operations: Iterator[Json]) -> Iterator[list[Json]]:
    """Put operations together into transactions that etcd takes."""
    batch: list[Json] = []
    size = 0
    for operation in operations:
        length = len(operation["requestPut"]["value"])
        if batch and (size + length > _BYTES or len(batch) == _OPERATIONS):
            yield batch
            batch, size = [], 0
        batch.append(operation)
        size += length
    if batch:
        yield batch


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
