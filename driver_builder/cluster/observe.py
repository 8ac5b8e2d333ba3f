"""Cluster and registries to one frozen :class:`Snapshot`: the only reader.

Either everything was seen or an error is raised: a partial view would look like nodes and pods that are gone.
"""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from driver_builder import telemetry
from driver_builder.building.builds import BuildQueue, BuildStates
from driver_builder.building.look_up_queue import LookUpQueue, LookUpStates
from driver_builder.building.signing_secrets import SigningSecrets
from driver_builder.model.build import OwnTemplate, SourceFiles
from driver_builder.model.image_state import ImageState
from driver_builder.model.images import ImageRef
from driver_builder.named_objects import Missing, read_config_map, read_text
from driver_builder.oci.registries import Registries
from driver_builder.planning import manifests, proof
from driver_builder.planning.ahead import images_ahead
from driver_builder.planning.ahead_labels import images_of_moves
from driver_builder.planning.desired import Recipes, Wanted
from driver_builder.planning.inventory import Node
from driver_builder.planning.snapshot import Certificate, DaemonSet, DriverPod, Snapshot, Source, SourceMissing
from driver_builder.planning.wanted import desired_targets
from driver_builder.spec import driver_container
from driver_builder.spec.driver_container import DriverContainer
from driver_builder.spec.driver_spec import ConfigMapKey, ConfigMapSource, DriverSpec
from kube_api.client import Client
from kube_api.resources import DAEMON_SETS, DRIVER_CONTAINERS, NODES, PODS, Resource

Json = dict[str, Any]


class Observer:
    """Reads one moment of the cluster: the given namespaces' drivers, all nodes, the wanted images."""

    def __init__(
        self,
        client: Client,
        registries: Registries,
        *,
        namespaces: Iterable[str],
        recipes: Recipes,
        builds: BuildQueue | None = None,
        look_ups: LookUpQueue | None = None,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._registries = registries
        self._namespaces = tuple(namespaces)
        self._recipes = recipes
        self._builds = builds
        self._look_ups = look_ups
        self._clock = clock

    def observe(self) -> Snapshot:
        """Read everything.

        Raises:
            KubeApiError: when any part of the cluster cannot be read. A registry that cannot be read is part of the
                picture, not an error.
        """
        nodes = tuple(_node(obj) for obj in self._client.list(NODES.path(), metadata_only=True).items)
        drivers = tuple(driver_container.parse(obj) for obj in self._objects(DRIVER_CONTAINERS))
        # Builds are read before the images: a build that ends in between is then seen as running with its image
        # present, never as neither.
        builds = self._builds.states() if self._builds is not None else BuildStates()
        look_ups = self._look_ups.states() if self._look_ups is not None else LookUpStates()
        snapshot = Snapshot(
            now=self._clock(),
            nodes=nodes,
            drivers=drivers,
            sources=dict(self._sources(drivers)),
            templates=dict(self._templates(drivers)),
            certificates=dict(self._certificates(drivers)),
            daemon_sets=tuple(_daemon_set(obj) for obj in self._objects(DAEMON_SETS, manifests.DRIVER_LABEL)),
            pods=tuple(_pod(obj) for obj in self._objects(PODS, manifests.DRIVER_LABEL)),
            running_builds=builds.running,
            queued_builds={key: build.action.waiting for key, build in builds.queued.items()},
            builds_suspended=builds.suspended,
            probe_at=builds.probe_at,
            failed_builds=builds.failed,
            look_ups=look_ups.done,
            running_look_ups=look_ups.running,
        )
        return self.with_images(snapshot)

    def with_images(self, snapshot: Snapshot) -> Snapshot:
        """Ask the registries for the images that a snapshot wants: also one of a cluster that is yet to be."""
        return replace(snapshot, images=dict(self._images(snapshot)))

    def _objects(self, resource: Resource, label_selector: str = "") -> Iterator[Json]:
        for namespace in self._namespaces:
            yield from self._client.list(resource.path(namespace=namespace), label_selector=label_selector).items

    def _sources(self, drivers: Iterable[DriverContainer]) -> Iterator[tuple[str, Source]]:
        for driver in drivers:
            if not isinstance(driver.spec, DriverSpec):
                continue
            source = driver.spec.source
            if isinstance(source, ConfigMapSource):
                yield driver.key, self._config_map(driver.namespace, source.name)
            else:
                yield driver.key, source

    def _templates(self, drivers: Iterable[DriverContainer]) -> Iterator[tuple[str, OwnTemplate | SourceMissing]]:
        for driver in drivers:
            if isinstance(driver.spec, DriverSpec) and driver.spec.own_template is not None:
                yield driver.key, self._template(driver.namespace, driver.spec.own_template)

    def _certificates(self, drivers: Iterable[DriverContainer]) -> Iterator[tuple[str, Certificate]]:
        secrets = SigningSecrets(self._client)
        for driver in drivers:
            names = driver.spec.certificate_secrets if isinstance(driver.spec, DriverSpec) else ()
            for name in names:
                yield f"{driver.namespace}/{name}", secrets.certificate(driver.namespace, name)

    def _template(self, namespace: str, wanted: ConfigMapKey) -> OwnTemplate | SourceMissing:
        try:
            text = read_text(self._client, namespace, wanted, field="spec.build.templateConfigMap")
        except Missing as error:
            return SourceMissing(message=str(error))
        return OwnTemplate(place=f"ConfigMap {namespace}/{wanted.name}/{wanted.key}", text=text)

    def _config_map(self, namespace: str, name: str) -> SourceFiles | SourceMissing:
        try:
            obj = read_config_map(self._client, namespace, name, field="spec.source.configMap")
        except Missing as error:
            return SourceMissing(message=str(error))
        files = {path: text.encode() for path, text in (obj.get("data") or {}).items()}
        files |= {path: base64.b64decode(data) for path, data in (obj.get("binaryData") or {}).items()}
        if not files:
            return SourceMissing(message=f"spec.source.configMap: ConfigMap {namespace}/{name} is empty")
        return SourceFiles(files=files)

    def _images(self, snapshot: Snapshot) -> Iterator[tuple[ImageRef, ImageState]]:
        of_nodes = tuple(self._images_of_nodes(snapshot))
        asked = {item.image for _, item in of_nodes}
        ahead = {item.image: (driver, item) for driver, item in self._images_ahead(snapshot)}
        for driver, item in (*of_nodes, *(entry for image, entry in ahead.items() if image not in asked)):
            if isinstance(driver.spec, DriverSpec):
                architecture = item.target.architecture
                state = self._registries.inspect(driver.namespace, driver.spec.registry, item.image, architecture)
                telemetry.REGISTRY_CHECKS.labels(type(state).__name__).inc()
                yield item.image, state

    def _images_of_nodes(self, snapshot: Snapshot) -> Iterator[tuple[DriverContainer, Wanted]]:
        for driver in snapshot.drivers:
            if isinstance(driver.spec, DriverSpec) and not driver.deleting:
                wanted, _, _ = desired_targets(snapshot, driver, driver.spec, self._recipes)
                yield from ((driver, item) for item in wanted if isinstance(item, Wanted))

    def _images_ahead(self, snapshot: Snapshot) -> Iterator[tuple[DriverContainer, Wanted]]:
        yield from images_ahead(snapshot, self._recipes)
        yield from images_of_moves(snapshot, self._recipes)


def _node(obj: Json) -> Node:
    metadata = obj["metadata"]
    return Node(
        name=metadata["name"], labels=metadata.get("labels") or {}, annotations=metadata.get("annotations") or {}
    )


def _driver_key(metadata: Json) -> str:
    return f"{metadata['namespace']}/{metadata['labels'][manifests.DRIVER_LABEL]}"


def _daemon_set(obj: Json) -> DaemonSet:
    metadata = obj["metadata"]
    pod_spec = obj["spec"]["template"]["spec"]
    return DaemonSet(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        driver=_driver_key(metadata),
        target=metadata["labels"].get(manifests.TARGET_LABEL, ""),
        image=pod_spec["containers"][0]["image"],
        fingerprint=(metadata.get("annotations") or {}).get(manifests.FINGERPRINT_ANNOTATION, ""),
    )


def _pod(obj: Json) -> DriverPod:
    metadata, status = obj["metadata"], obj.get("status") or {}
    annotations = metadata.get("annotations") or {}
    load = _container_status(status.get("initContainerStatuses"), manifests.LOAD_CONTAINER)
    ended = (load.get("state") or {}).get("terminated") or (load.get("lastState") or {}).get("terminated") or {}
    return DriverPod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        node=obj["spec"].get("nodeName", ""),
        driver=_driver_key(metadata),
        target=metadata["labels"].get(manifests.TARGET_LABEL, ""),
        version=annotations.get(manifests.VERSION_ANNOTATION, ""),
        fingerprint=annotations.get(manifests.FINGERPRINT_ANNOTATION, ""),
        ready=_is_ready(status),
        deleting="deletionTimestamp" in metadata,
        proof=proof.parse(ended.get("message") or ""),
        expected=_expected(annotations),
        message=_trouble(status),
    )


def _is_ready(status: Json) -> bool:
    conditions = status.get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def _expected(annotations: Mapping[str, str]) -> dict[str, str]:
    try:
        return {str(name): str(value) for name, value in json.loads(annotations[manifests.MODULES_ANNOTATION]).items()}
    except (KeyError, ValueError, AttributeError):
        return {}


def _container_status(statuses: Iterable[Json] | None, name: str) -> Json:
    return next((status for status in statuses or () if status["name"] == name), {})


def _trouble(status: Json) -> str:
    """The kubelet's own words for why a pod's container does not run (a pull that fails, a crash), or nothing."""
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] not in ("PodInitializing", "ContainerCreating"):
            return f"{waiting['reason']}: {waiting.get('message', '')}".strip(": ")
    return ""
