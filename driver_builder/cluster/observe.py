"""Cluster and registries to one frozen :class:`Snapshot`: the only reader.

Either everything was seen or an error is raised: a partial view would look like nodes and pods that are gone. What may
not be read, a namespace or an object that one driver names, is said in the snapshot. What one driver, pod or image
makes go wrong stays its own (``boundary``). What others wrote is capped and made printable here.
"""

import base64
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from driver_builder import telemetry
from driver_builder.boundary import contained
from driver_builder.building.builds import BuildQueue, BuildStates
from driver_builder.building.look_up_queue import LookUpQueue, LookUpStates
from driver_builder.building.signing_secrets import SigningSecrets
from driver_builder.cluster import observe_images
from driver_builder.model.build import OwnTemplate, SourceFiles
from driver_builder.model.image_state import ImageState, Invalid
from driver_builder.model.images import ImageRef
from driver_builder.model.kernels import MAX_LENGTH
from driver_builder.named_objects import Missing, read_config_map, read_text
from driver_builder.oci.registries import Inspector
from driver_builder.planning import image_trust, loaded, manifests, proof, unload_pod
from driver_builder.planning.desired import Recipes, Wanted
from driver_builder.planning.inventory import Node
from driver_builder.planning.snapshot import (
    Certificate,
    CertificateMissing,
    DaemonSet,
    DriverPod,
    OrphanedPod,
    Snapshot,
    Source,
    SourceMissing,
)
from driver_builder.planning.status import parse_timestamp
from driver_builder.planning.unload_pod import UnloadPod
from driver_builder.spec import driver_container
from driver_builder.spec.driver_container import DriverContainer
from driver_builder.spec.driver_spec import ConfigMapKey, ConfigMapSource, DriverSpec, SourceSpec
from driver_builder.spec.spec_cache import SpecCache
from kube_api import names
from kube_api.client import Client
from kube_api.errors import Forbidden, NotFound
from kube_api.resources import DAEMON_SETS, DRIVER_CONTAINERS, NAMESPACES, NODES, PODS, Resource
from kube_api.text import bounded_token, printable

MAX_ANNOTATION = 16384
"""Characters of an annotation of ours on a Node; a longer one is none. Of a rebuild annotation a digest is kept."""
_LONGEST = {
    names.BOOT_ID_ANNOTATION: 64,
    names.KERNEL_VERSION_ANNOTATION: MAX_LENGTH,
    names.REBUILD_ANNOTATION: 1 << 20,
}

logger = logging.getLogger(__name__)

Json = dict[str, Any]

_Value = TypeVar("_Value")


class Observer:
    """Reads one moment of the cluster: the given namespaces' drivers, all nodes, the wanted images.

    ``registries`` either wait for answers (commands) or give what is known (the controller).
    """

    def __init__(
        self,
        client: Client,
        registries: Inspector,
        *,
        namespaces: Iterable[str],
        recipes: Recipes,
        builds: BuildQueue | None = None,
        look_ups: LookUpQueue | None = None,
        pushed: Callable[[], Mapping[ImageRef, str]] = dict,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._registries = registries
        self._namespaces = tuple(namespaces)
        self._recipes = recipes
        self._builds = builds
        self._look_ups = look_ups
        self._pushed = pushed
        self._clock = clock
        self._specs = SpecCache()

    def observe(self) -> Snapshot:
        """Read everything.

        Raises:
            KubeApiError: when any part of the cluster cannot be read. A registry that cannot be read is part of the
                picture, not an error.
        """
        nodes = tuple(_node(obj) for obj in self._client.list(NODES.path(), metadata_only=True).items)
        read = _Reading(self._client, self._namespaces)
        drivers = self._parsed(read.objects(DRIVER_CONTAINERS))
        unlisted = frozenset(read.forbidden)
        # Builds are read before the images: a build that ends in between is then seen as running with its image
        # present, never as neither.
        builds = self._builds.states() if self._builds is not None else BuildStates()
        look_ups = self._look_ups.states() if self._look_ups is not None else LookUpStates()
        daemon_sets = _daemon_sets(read.objects(DAEMON_SETS, manifests.DRIVER_LABEL), drivers)
        pods = tuple(read.objects(PODS, manifests.DRIVER_LABEL))
        owners = {item.uid for item in daemon_sets}
        snapshot = Snapshot(
            now=self._clock(),
            nodes=nodes,
            drivers=drivers,
            sources=dict(self._sources(drivers)),
            templates=dict(self._templates(drivers)),
            certificates=dict(self._certificates(drivers)),
            daemon_sets=daemon_sets,
            pods=_each("pod", _pod_or_shell, (obj for obj in pods if _controller(obj).get("uid") in owners)),
            orphaned_pods=_each("pod", _orphaned_pod, (obj for obj in pods if _is_orphan(obj, owners))),
            unload_pods=_unload_pods(pods, drivers),
            terminating_namespaces=frozenset(self._terminating(drivers)),
            forbidden=read.forbidden,
            # Whether the drivers of a namespace that may not be read still need their builds is not known.
            running_builds=frozenset(key for key in builds.running if builds.namespaces.get(key) not in unlisted),
            queued_builds={key: build.action.waiting for key, build in builds.queued.items()},
            suspended=builds.suspended,
            failed_builds=builds.failed,
            look_ups=look_ups.done,
            running_look_ups=look_ups.running,
        )
        read.report()
        return self.with_images(snapshot)

    def _terminating(self, drivers: Iterable[DriverContainer]) -> Iterator[str]:
        """Name the namespaces of deleted drivers that are being deleted as well."""
        for namespace in {driver.namespace for driver in drivers if driver.deleting}:
            try:
                obj = self._client.get(NAMESPACES.path(name=namespace))
            except (Forbidden, NotFound):
                # Not to be known is no reason to wait: an unload pod has a deadline.
                continue
            if "deletionTimestamp" in obj["metadata"]:
                yield namespace

    def with_images(self, snapshot: Snapshot) -> Snapshot:
        """Ask the registries for the images that a snapshot wants: also one of a cluster that is yet to be."""
        seen = observe_images.with_images(snapshot, self._recipes, self._image)
        # After the images: what was pushed in between is known as ours.
        return replace(seen, pushed=self._pushed())

    def _parsed(self, objects: Iterable[Json]) -> tuple[DriverContainer, ...]:
        found = tuple(driver_container.parse(obj, self._specs) for obj in objects)
        self._specs.keep(driver.uid for driver in found)
        return found

    def _sources(self, drivers: Iterable[DriverContainer]) -> Iterator[tuple[str, Source]]:
        for driver in drivers:
            if isinstance(driver.spec, DriverSpec):
                yield driver.key, self._source(driver, driver.spec.source)

    def _source(self, driver: DriverContainer, source: SourceSpec) -> Source:
        if not isinstance(source, ConfigMapSource):
            return source
        return contained(
            "driver",
            driver.key,
            lambda: self._config_map(driver.namespace, source.name),
            lambda error: SourceMissing(message=str(error)),
        )

    def _templates(self, drivers: Iterable[DriverContainer]) -> Iterator[tuple[str, OwnTemplate | SourceMissing]]:
        for driver in drivers:
            if isinstance(driver.spec, DriverSpec) and driver.spec.own_template is not None:
                yield driver.key, self._template(driver.namespace, driver.spec.own_template)

    def _certificates(self, drivers: Iterable[DriverContainer]) -> Iterator[tuple[str, Certificate]]:
        secrets = SigningSecrets(self._client)
        for driver in drivers:
            wanted = driver.spec.certificate_secrets if isinstance(driver.spec, DriverSpec) else ()
            for name in wanted:
                yield (
                    f"{driver.namespace}/{name}",
                    contained(
                        "driver",
                        driver.key,
                        partial(secrets.certificate, driver.namespace, name),
                        lambda error: CertificateMissing(message=str(error), is_invalid=True),
                    ),
                )

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

    def _image(self, driver: DriverContainer, spec: DriverSpec, item: Wanted) -> ImageState:
        return contained(
            "image",
            str(item.image),
            partial(
                self._registries.inspect,
                driver.namespace,
                spec.registry,
                item.image,
                item.target.architecture,
                signed_by=image_trust.image_key(spec, item),
            ),
            lambda error: Invalid(message=str(error)),
        )


class _Reading:
    """Lists of the watched namespaces; ``forbidden`` grows by those that may not be read."""

    def __init__(self, client: Client, namespaces: Iterable[str]) -> None:
        self._client = client
        self._namespaces = tuple(namespaces)
        self.forbidden: dict[str, str] = {}

    def objects(self, resource: Resource, label_selector: str = "") -> Iterator[Json]:
        """Give the objects of all namespaces that may be read.

        Raises:
            KubeApiError: for any other reason not to get them.
        """
        for namespace in self._namespaces:
            if namespace in self.forbidden:
                continue
            try:
                path = resource.path(namespace=namespace)
                yield from self._client.list(path, label_selector=label_selector).items
            except Forbidden as error:
                self.forbidden[namespace] = f"namespace {namespace} may not be read: {error}"

    def report(self) -> None:
        """Log and count what may not be read."""
        for namespace in self._namespaces:
            telemetry.NAMESPACES_FORBIDDEN.labels(namespace).set(1 if namespace in self.forbidden else 0)
        for words in self.forbidden.values():
            logger.warning("%s: nothing changes for its drivers", words)


def _each(what: str, read: Callable[[Json], _Value], objects: Iterable[Json]) -> tuple[_Value, ...]:
    """Read each object by itself; one that cannot be read is left out."""
    found = [contained(what, _place(obj), partial(read, obj), lambda _error: None) for obj in objects]
    return tuple(value for value in found if value is not None)


def _place(obj: Json) -> str:
    metadata = obj.get("metadata") or {}
    return f"{metadata.get('namespace')}/{metadata.get('name')}"


def _node(obj: Json) -> Node:
    metadata = obj["metadata"]
    annotations = metadata.get("annotations") or {}
    return Node(
        name=metadata["name"],
        labels=metadata.get("labels") or {},
        annotations={
            key: bounded_token(value) if key == names.REBUILD_ANNOTATION else value
            for key, value in annotations.items()
            # Ours alone: others hold up to 256 KiB each, on thousands of nodes.
            if key.startswith(f"{names.GROUP}/") and len(value) <= _LONGEST.get(key, MAX_ANNOTATION)
        }
        # One that is too long is not unknown: it is there, and cannot be read.
        | {key: value[: loaded.MAX_BYTES + 1] for key, value in annotations.items() if key.startswith(loaded.PREFIX)},
    )


def _driver_key(metadata: Json) -> str:
    return f"{metadata['namespace']}/{metadata['labels'][manifests.DRIVER_LABEL]}"


def _controller(obj: Json) -> Json:
    """Give the owner reference that names the object's controller, empty where it has none."""
    references = obj["metadata"].get("ownerReferences") or ()
    return next((item for item in references if item.get("controller")), {})


def _daemon_sets(objects: Iterable[Json], drivers: Iterable[DriverContainer]) -> tuple[DaemonSet, ...]:
    """Read the DaemonSets that their DriverContainer controls: a label alone makes none ours."""
    uids = {driver.key: driver.uid for driver in drivers}
    owners = ((obj, _controller(obj)) for obj in objects)
    ours = (obj for obj, owner in owners if owner and owner.get("uid") == uids.get(_driver_key(obj["metadata"])))
    return _each("DaemonSet", _daemon_set, ours)


def _unload_pods(objects: Iterable[Json], drivers: Iterable[DriverContainer]) -> tuple[UnloadPod, ...]:
    """Read the unload pods that their DriverContainer controls."""
    uids = {driver.key: driver.uid for driver in drivers}
    found = ((obj, _controller(obj)) for obj in objects if unload_pod.UNLOAD_LABEL in obj["metadata"]["labels"])
    ours = (obj for obj, owner in found if owner and owner.get("uid") == uids.get(_driver_key(obj["metadata"])))
    return _each("pod", _unload_pod, ours)


def _unload_pod(obj: Json) -> UnloadPod:
    metadata, status = obj["metadata"], obj.get("status") or {}
    container = _container_status(status.get("containerStatuses"), unload_pod.CONTAINER)
    ended = (container.get("state") or {}).get("terminated") or {}
    created_at = parse_timestamp(metadata.get("creationTimestamp")) or 0.0
    has_ended = bool(ended) or status.get("phase") in ("Succeeded", "Failed")
    return UnloadPod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        driver=_driver_key(metadata),
        node=obj["spec"].get("nodeName", ""),
        target=metadata["labels"][unload_pod.UNLOAD_LABEL],
        created_at=created_at,
        ended_at=(parse_timestamp(ended.get("finishedAt")) or created_at) if has_ended else None,
        started="startTime" in status,
        deleting="deletionTimestamp" in metadata,
        verdict=unload_pod.parse_verdict(ended.get("message") or ""),
        message=loaded.words(_trouble(status) or _end_of(ended) or str(status.get("message") or "")),
    )


def _end_of(ended: Json) -> str:
    """Say how a container ended that says nothing itself."""
    code, message = ended.get("exitCode") or 0, str(ended.get("message") or "").strip()
    return f"the unload pod failed ({code}): {message}".removesuffix(": ") if code else ""


def _is_orphan(obj: Json, owners: Set[str]) -> bool:
    """Tell whether a DaemonSet that is gone controlled a pod; the garbage collector removes it in a moment."""
    owner = _controller(obj)
    return owner.get("kind") == DAEMON_SETS.kind and owner.get("uid") not in owners


def _orphaned_pod(obj: Json) -> OrphanedPod:
    return OrphanedPod(driver=_driver_key(obj["metadata"]), node=obj["spec"].get("nodeName", ""))


def _daemon_set(obj: Json) -> DaemonSet:
    metadata = obj["metadata"]
    annotations = metadata.get("annotations") or {}
    pod_spec = obj["spec"]["template"]["spec"]
    template_annotations = (obj["spec"]["template"].get("metadata") or {}).get("annotations") or {}
    selector = pod_spec.get("nodeSelector") or {}
    basis, kept = manifests.parse_kept(annotations)
    return DaemonSet(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        driver=_driver_key(metadata),
        target=metadata["labels"].get(manifests.TARGET_LABEL, ""),
        image=pod_spec["containers"][0]["image"],
        fingerprint=annotations.get(manifests.FINGERPRINT_ANNOTATION, ""),
        template=annotations.get(manifests.TEMPLATE_ANNOTATION, ""),
        kernel=annotations.get(manifests.KERNEL_ANNOTATION, ""),
        # Before it was recorded, it was a part of the selector.
        os_version=annotations.get(manifests.OS_VERSION_ANNOTATION, selector.get(names.OS_VERSION_LABEL)),
        selects_os_version=names.OS_VERSION_LABEL in selector,
        adopted=annotations.get(manifests.ADOPTED_ANNOTATION, ""),
        folders=manifests.folders_of(pod_spec),
        hooks=tuple(item["name"] for item in pod_spec["containers"] if "lifecycle" in item),
        kept=kept,
        basis=basis,
        version=template_annotations.get(manifests.VERSION_ANNOTATION, ""),
        expected=_expected(template_annotations),
    )


def _pod(obj: Json) -> DriverPod:
    metadata, status = obj["metadata"], obj.get("status") or {}
    annotations = metadata.get("annotations") or {}
    load = _container_status(status.get("initContainerStatuses"), manifests.LOAD_CONTAINER)
    ended = _ended(load)
    hold = _container_status(status.get("containerStatuses"), manifests.HOLD_CONTAINER)
    ready = _ready_condition(status)
    is_ready = ready.get("status") == "True"
    is_refuted = is_ready or _was_ready_since(hold, ready)
    return DriverPod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        node=obj["spec"].get("nodeName", ""),
        driver=_driver_key(metadata),
        target=metadata["labels"].get(manifests.TARGET_LABEL, ""),
        version=annotations.get(manifests.VERSION_ANNOTATION, ""),
        fingerprint=annotations.get(manifests.FINGERPRINT_ANNOTATION, ""),
        ready=is_ready,
        deleting="deletionTimestamp" in metadata,
        proof=proof.parse(ended.get("message") or ""),
        expected=_expected(annotations),
        message=printable(_trouble(status)),
        leaves_modules=any(item["name"] == manifests.LOADER_CONTAINER for item in _init_containers(obj)),
        firmware=_mounts(obj, "/host/lib/firmware"),
        blacklist=_mounts(obj, "/host/etc/modprobe.d"),
        image=_image(obj),
        contrary=None if is_refuted else _contrary(load_ended=ended, hold_ended=_ended(hold)),
        unready_since=None if is_ready else _time(ready.get("lastTransitionTime")),
    )


def _pod_or_shell(obj: Json) -> DriverPod:
    """Read a pod; one whose status is beyond us is there all the same, and proves nothing."""
    return contained(
        "pod",
        _place(obj),
        lambda: _pod(obj),
        lambda error: replace(_pod({**obj, "status": {}}), message=str(error)),
    )


def _init_containers(obj: Json) -> list[Json]:
    return obj["spec"].get("initContainers") or []


def _mounts(obj: Json, path: str) -> bool:
    return any(mount["mountPath"] == path for item in _init_containers(obj) for mount in item.get("volumeMounts") or ())


def _ready_condition(status: Json) -> Json:
    return next((item for item in status.get("conditions") or () if item["type"] == "Ready"), {})


def _ended(container: Json) -> Json:
    """Give the last end of a container, empty where it never ended."""
    return (
        (container.get("state") or {}).get("terminated") or (container.get("lastState") or {}).get("terminated") or {}
    )


def _was_ready_since(hold: Json, ready: Json) -> bool:
    """Tell whether a pod that is not ready was so after ``hold`` last started: that refutes any verdict of before.

    The last end of a container stays in the status for as long as the pod lives.
    """
    started_at = _time(((hold.get("state") or {}).get("running") or {}).get("startedAt"))
    unready_at = _time(ready.get("lastTransitionTime"))
    return started_at is not None and unready_at is not None and started_at < unready_at


def _contrary(*, load_ended: Json, hold_ended: Json) -> proof.Proof | None:
    """Give a verdict of ``hold`` on the boot of ``load``'s verdict, and newer than that."""
    loaded, held = _time(load_ended.get("finishedAt")), _time(hold_ended.get("finishedAt"))
    if loaded is not None and held is not None and held < loaded:
        return None
    proven, verdict = proof.parse(load_ended.get("message") or ""), proof.parse(hold_ended.get("message") or "")
    if proven is None or verdict is None or verdict.boot_id != proven.boot_id:
        return None
    return verdict if verdict.result in proof.CONTRARY else None


def _time(text: Any) -> float | None:
    try:
        return parse_timestamp(text)
    except (ValueError, TypeError):
        return None


def _image(obj: Json) -> str:
    containers = obj["spec"].get("containers") or ()
    return next((item.get("image", "") for item in containers if item.get("name") == manifests.HOLD_CONTAINER), "")


def _expected(annotations: Mapping[str, str]) -> dict[str, str]:
    try:
        return {str(name): str(value) for name, value in json.loads(annotations[manifests.MODULES_ANNOTATION]).items()}
    except (KeyError, ValueError, AttributeError, RecursionError):
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
