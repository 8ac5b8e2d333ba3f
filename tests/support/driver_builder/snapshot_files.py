"""Snapshot files: of a world, and of single objects."""

import json
from dataclasses import replace
from typing import Any

from driver_builder.cluster.observe import Observer
from driver_builder.cluster.recorder import Recorder
from driver_builder.cluster.snapshot_file import from_document, to_document
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.snapshot.snapshot import Snapshot
from kube_api import resources
from kube_api.client import Object
from kube_api.resources import NODES
from kube_api.stored_objects import StoredObjects
from tests.support.driver_builder.factories import NAMESPACE, NOW, SETTINGS, node_labels
from tests.support.driver_builder.model_world import World

WRITER = "driver-builder 0"


def written(world: World) -> tuple[Snapshot, dict[str, Any]]:
    """Take a snapshot of a world, and write it."""
    recorder = Recorder(world.client)
    observer = Observer(
        recorder,
        namespaces=world.namespaces,
        builds=world.builds,
        discoveries=world.discoveries,
        clock=lambda: world.now,
        refused_evictions=dict(world.refused_evictions),
        locks_seen=dict(world.locks_seen),
        accounts=world.settings.plugin_accounts,
        agent_drains=world.settings.agent_drains,
    )
    seen = world.images().read(observer.observe())
    document = to_document(recorder, seen, world.settings, namespaces=world.namespaces, writer=WRITER)
    return seen, json.loads(json.dumps(document))


def through(world: World) -> tuple[Snapshot, Snapshot, PlanSettings]:
    """Take a snapshot of a world, and read it again from a file."""
    seen, document = written(world)
    read, settings = from_document(document)
    return seen, read, settings


def file_of(*objects: Object, settings: PlanSettings = SETTINGS, **known: Any) -> dict[str, Any]:
    """Write a cluster of these objects, of which that is ``known`` besides."""
    found = {}
    for obj in objects:
        metadata = {"uid": f"uid-{obj['metadata']['name']}", **obj["metadata"]}
        path = resources.of(obj).path(namespace=metadata.get("namespace"), name=metadata["name"])
        found[path] = {**obj, "metadata": metadata}
    recorder = Recorder(StoredObjects(found))
    seen = Observer(recorder, namespaces=(NAMESPACE,), clock=lambda: NOW).observe()
    document = to_document(recorder, replace(seen, **known), settings, namespaces=(NAMESPACE,), writer=WRITER)
    made: dict[str, Any] = json.loads(json.dumps(document))
    return made


def node_object(name: str = "node-a", **metadata: Any) -> Object:
    """Make a Node of the pool that the driver selects."""
    metadata = {"name": name, "labels": node_labels(), **metadata}
    return {"apiVersion": NODES.api_version, "kind": NODES.kind, "metadata": metadata}
