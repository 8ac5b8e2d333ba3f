"""Snapshot files: of a world, and of single objects."""

import json
from dataclasses import replace
from typing import Any

from driver_builder.api.driver_container import DriverContainer
from driver_builder.cluster.observe import Observer
from driver_builder.cluster.recorder import Recorder
from driver_builder.cluster.snapshot_file import from_document, to_document
from driver_builder.nodes.changes import StartBuild
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.plan.plan import Plan, plan
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


def told(decided: Plan) -> list[Any]:
    """Return all that a plan says: actions, states, when to look again. Of a build the request has no sources."""
    return [
        [
            [(str(action), action.request.key) if isinstance(action, StartBuild) else action for action in part.actions]
            for part in decided.drivers
        ],
        [(part.targets, part.unknown, part.wave, part.stages, part.ahead) for part in decided.drivers],
        decided.requeue_at,
    ]


def comparable(seen: Snapshot) -> Snapshot:
    """Return a snapshot without what no plan needs: contents of sources, the other labels of nodes."""
    return replace(seen, sources={}, templates={}, nodes=(), pods=tuple(seen.pods), drivers=(), images={}, images_of={})


def specs(seen: Snapshot) -> list[DriverContainer | str]:
    """Return the drivers, the errors of specs as text: two exceptions are never equal."""
    return [str(item.spec) if isinstance(item.spec, Exception) else item for item in seen.drivers]


def check(world: World) -> None:
    """Compare what is read of a file with what was seen, and the plans of both."""
    seen, read, known = through(world)
    assert known == world.settings
    assert comparable(read) == comparable(seen)
    assert specs(read) == specs(seen)
    assert told(plan(read, known)) == told(plan(seen, world.settings))
