"""Applies ``deploy/`` to a cluster, changed where this cluster needs it: images, engine socket, nodes without a CNI."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from kube_api import resources
from kube_api.client import Client
from kube_api.errors import Conflict
from kube_api.resources import CUSTOM_RESOURCE_DEFINITIONS

Json = dict[str, Any]

DEPLOY = Path(__file__).parents[1] / "deploy"
ENGINE_PATCH = DEPLOY / "patches" / "builds-by-an-engine.yaml"
FIELD_MANAGER = "driverwright-story"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """What differs from the plain manifests.

    ``images`` maps the image's last name to a reference. ``environment`` and ``arguments`` are added to the first
    container of a workload, by its name; ``node_selectors`` replace its own. ``host_network`` is for clusters without a
    pod network. With ``engine_socket``, the path of a Docker Engine's on the controller's node, that engine builds
    instead of Jobs. ``pull_secret`` names a Secret in the namespace with which nodes pull the images.
    """

    images: Mapping[str, str]
    host_network: bool = False
    environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    probe_ports: Mapping[str, int] = field(default_factory=dict)
    engine_socket: str | None = None
    node_selectors: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    worker_config: str | None = None
    pull_secret: str | None = None


def manifests(overlay: Overlay) -> Iterator[Json]:
    """Yield every object of ``deploy/`` in the order to create it, with the overlay laid over."""
    order = ["namespace.yaml", "crds", "nfd-worker", "driver-builder"]
    for part in order:
        path = DEPLOY / part
        for file in sorted(path.glob("*.yaml")) if path.is_dir() else [path]:
            for obj in yaml.safe_load_all(file.read_text()):
                if obj is not None:
                    yield _overlaid(obj, overlay)


def apply(client: Client, objects: Iterable[Json]) -> list[str]:
    """Apply objects; gives ``Kind/name`` of each."""
    done = []
    for obj in objects:
        ensure(client, obj, field_manager=FIELD_MANAGER)
        done.append(f"{obj['kind']}/{obj['metadata']['name']}")
    return done


def ensure(client: Client, obj: Json, *, field_manager: str) -> None:
    """Apply one object.

    A definition is created or patched instead, as ``kubectl apply`` does: API servers before 1.25 do not know the rules
    (CEL) in its schema, and server-side apply refuses what it does not know.
    """
    if obj["kind"] != CUSTOM_RESOURCE_DEFINITIONS.kind:
        client.apply(path_of(obj), obj, field_manager=field_manager)
        return
    try:
        client.create(CUSTOM_RESOURCE_DEFINITIONS.path(), obj)
    except Conflict:
        client.patch(path_of(obj), obj)


def path_of(obj: Json) -> str:
    """Build the URL path of an object."""
    resource = resources.of(obj)
    namespace = obj["metadata"].get("namespace") if resource.namespaced else None
    return resource.path(namespace=namespace, name=obj["metadata"]["name"])


def _overlaid(obj: Json, overlay: Overlay) -> Json:
    if (obj["kind"], obj["metadata"]["name"]) == ("ConfigMap", "nfd-worker-conf") and overlay.worker_config is not None:
        obj["data"] = {"nfd-worker.conf": overlay.worker_config}
    if obj["kind"] == "ServiceAccount" and overlay.pull_secret is not None:
        obj["imagePullSecrets"] = [{"name": overlay.pull_secret}]
    if obj["kind"] not in ("DaemonSet", "Deployment"):
        return obj
    name = obj["metadata"]["name"]
    if name == "driver-builder" and overlay.engine_socket is not None:
        obj = patched(obj, yaml.safe_load(ENGINE_PATCH.read_text()))
        _engine_volume(obj["spec"]["template"]["spec"])["hostPath"]["path"] = overlay.engine_socket
    pod = obj["spec"]["template"]["spec"]
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        short = container["image"].rpartition("/")[2].partition(":")[0]
        container["image"] = overlay.images.get(short, container["image"])
        container["imagePullPolicy"] = "IfNotPresent"
    first = pod["containers"][0]
    added = overlay.environment.get(name, {})
    kept = [item for item in first.get("env", []) if item["name"] not in added]
    first["env"] = [*map(partial(_with_image, overlay), kept), *({"name": key, "value": added[key]} for key in added)]
    first["args"] = [*first.get("args", []), *overlay.arguments.get(name, ())]
    if overlay.host_network:
        pod["hostNetwork"] = True
    if name in overlay.probe_ports:
        _move_port(first, overlay.probe_ports[name])
    if name in overlay.node_selectors:
        pod["nodeSelector"] = dict(overlay.node_selectors[name])
    if overlay.pull_secret is not None:
        pod["imagePullSecrets"] = [{"name": overlay.pull_secret}]
    return obj


def patched(value: Json, patch: Json) -> Json:
    """Apply a strategic merge patch, as far as those of ``deploy/patches`` go."""
    result = dict(value)
    for name, change in patch.items():
        if change is None:
            result.pop(name)
        elif isinstance(change, dict):
            result[name] = patched(value.get(name, {}), change)
        elif isinstance(change, list):
            key = "mountPath" if name == "volumeMounts" else "name"
            kept = {item[key]: item for item in value.get(name, ())}
            for item in change:
                kept[item[key]] = patched(kept.get(item[key], {}), item)
            result[name] = list(kept.values())
        else:
            result[name] = change
    return result


def _with_image(overlay: Overlay, variable: Json) -> Json:
    """Name the image of this cluster in a variable that names one of ours."""
    if not variable["name"].endswith("_IMAGE"):
        return variable
    short = variable["value"].rpartition("/")[2].partition(":")[0]
    return {**variable, "value": overlay.images.get(short, variable["value"])}


def _engine_volume(pod: Json) -> Json:
    return next(item for item in pod["volumes"] if item["name"] == "engine")


def _move_port(container: Json, port: int) -> None:
    for item in container.get("ports", ()):
        item["containerPort"] = port
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            container[probe]["httpGet"]["port"] = port
