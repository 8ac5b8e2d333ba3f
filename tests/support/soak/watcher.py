"""Reads a soak's API server and registry directly, past the proxies: all that becomes of nodes, pods and DaemonSets.

Place in the flow: a thread for each collection keeps histories, ``invariants`` judges them.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import requests

from driver_builder.api import rebuild_status
from driver_builder.model import images
from driver_builder.objects import load_report, manifests, slots
from driver_builder.rollout.plan_rollout import identities
from driver_builder.tasks import pull_pod
from kube_api import names
from kube_api.client import Client
from kube_api.errors import Gone, KubeApiError
from kube_api.resources import DAEMON_SETS, DRIVER_CONTAINERS, NODES, PODS
from tests.support.soak.fleet import Fleet, load_report_of, lost_report_of
from tests.support.soak.invariants import (
    At,
    DriverFace,
    NodeFace,
    PodFace,
    PullFace,
    Pushed,
    SetFace,
    is_older_than_request,
    last,
)
from tests.support.soak.world import MODULE_PATH, module_for

Json = dict[str, Any]
Face = TypeVar("Face")

ACCEPT = {"Accept": "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json"}


class Follow(threading.Thread, Generic[Face]):
    """Follows a collection from its beginning: ``history`` has by ``key`` what ``face`` says, where that changes."""

    def __init__(
        self, client: Client, path: str, selector: str, key: Callable[[Json], str], face: Callable[[Json], Face]
    ) -> None:
        super().__init__(name=f"soak follows {path}", daemon=True)
        self.history: dict[str, list[At[Face]]] = defaultdict(list)
        self.trouble = ""
        self._client = client
        self._path = path
        self._selector = selector
        self._key = key
        self._face = face
        self._version = client.list(path, label_selector=selector).resource_version
        self._ended = threading.Event()

    def run(self) -> None:
        """Watch on, some seconds each time."""
        while not self._ended.is_set():
            try:
                for event in self._client.watch(
                    self._path, resource_version=self._version, label_selector=self._selector, seconds=20
                ):
                    self._version = event.object["metadata"]["resourceVersion"]
                    self._keep(event.kind, event.object)
            except Gone as error:
                # Part of the history is lost: no verdict can be given.
                self.trouble = str(error)
                return
            except KubeApiError as error:
                print(f"{self.name}: {error}")
                self._ended.wait(0.5)

    def _keep(self, kind: str, obj: Json) -> None:
        if kind == "BOOKMARK":
            return
        face = None if kind == "DELETED" else self._face(obj)
        history = self.history[self._key(obj)]
        if not history or history[-1].face != face:
            history.append(At(int(obj["metadata"]["resourceVersion"]), face))

    def now(self) -> list[Face]:
        """Return what there is now."""
        return [face for history in list(self.history.values()) if (face := last(history)) is not None]

    def stop(self) -> None:
        """End with the next event, or soon."""
        self._ended.set()


class Watcher:
    """Follows all that a soak's verdict is about."""

    def __init__(self, client: Client, *, namespace: str, label: str) -> None:
        self._label = label
        self.nodes = Follow(client, NODES.path(), f"pool={namespace}", _name, self._node_face)
        self.pods = Follow(client, PODS.path(namespace=namespace), manifests.TARGET_LABEL, _name, pod_face)
        self.pulls = Follow(client, PODS.path(namespace=namespace), pull_pod.PULL.label, _name, pull_face)
        self.sets = Follow(client, DAEMON_SETS.path(namespace=namespace), manifests.TARGET_LABEL, _target, set_face)
        self.drivers = Follow(client, DRIVER_CONTAINERS.path(namespace=namespace), "", _name, driver_face)
        self._all = (self.nodes, self.pods, self.pulls, self.sets, self.drivers)

    def start(self) -> None:
        """Begin."""
        for follow in self._all:
            follow.start()

    def stop(self) -> None:
        """End."""
        for follow in self._all:
            follow.stop()

    def troubles(self) -> Iterator[str]:
        """Say what could not be followed."""
        yield from (f"{item.name}: {item.trouble}" for item in self._all if item.trouble)

    def node(self, name: str) -> NodeFace | None:
        """Say how a node is now."""
        return last(self.nodes.history.get(name, []))

    def pods_on(self, node: str) -> list[PodFace]:
        """Return the driver pods on a node that stay."""
        return [pod for pod in self.pods.now() if pod.node == node and not pod.is_deleted]

    def has_served(self, node: str) -> bool:
        """Tell whether the driver pods on a node are younger than its last request for a rebuild."""
        asked = self.nodes.history.get(node, [])
        histories = list(self.pods.history.values())
        there = [history for history in histories if (pod := last(history)) is not None and pod.node == node]
        return not any(is_older_than_request(history, asked) for history in there)

    def _node_face(self, obj: Json) -> NodeFace:
        labels, annotations = obj["metadata"]["labels"], obj["metadata"].get("annotations") or {}
        boot, driver = annotations.get(names.BOOT_ID_ANNOTATION, ""), self._label.removesuffix(".ready")
        return NodeFace(
            place=f"{boot} {labels.get(names.KERNEL_VERSION_LABEL, '')}",
            ready=labels.get(self._label),
            proven_on=annotations.get(self._label, ""),
            request=annotations.get(names.REBUILD_ANNOTATION, ""),
            wave=labels.get(f"{driver}.wave", ""),
            is_tainted=any(taint["key"] == driver for taint in obj["spec"].get("taints") or ()),
        )


def _name(obj: Json) -> str:
    name: str = obj["metadata"]["name"]
    return name


def _target(obj: Json) -> str:
    target: str = obj["metadata"]["labels"][manifests.TARGET_LABEL]
    return target


def pod_face(obj: Json) -> PodFace:
    """Say what of a pod counts."""
    metadata = obj["metadata"]
    found, lost = load_report_of(obj), lost_report_of(obj)
    has_loaded = found is not None and found.result == load_report.LOADED
    refuting = lost if has_loaded else found
    return PodFace(
        node=obj["spec"].get("nodeName", ""),
        target=metadata["labels"][manifests.TARGET_LABEL],
        fingerprint=(metadata.get("annotations") or {}).get(manifests.FINGERPRINT_ANNOTATION, ""),
        proven_on=f"{found.boot_id} {found.kernel}" if found is not None and has_loaded else "",
        is_deleted="deletionTimestamp" in metadata,
        refuted_on=f"{refuting.boot_id} {refuting.kernel}" if refuting is not None else "",
        digest=_loaded_from(obj["spec"]),
    )


def pull_face(obj: Json) -> PullFace:
    """Say what of a pull pod counts."""
    (pull,) = (item for item in obj["spec"]["containers"] if item["name"] == pull_pod.PULL.container)
    states = (item.get("state") or {} for item in obj["status"].get("containerStatuses") or ())
    return PullFace(
        node=obj["spec"]["nodeName"],
        digest=pull["image"].partition("@")[2],
        has_run=any("terminated" in state for state in states),
    )


def set_face(obj: Json) -> SetFace:
    """Say what of a DaemonSet counts."""
    template = obj["spec"]["template"]
    annotations, pod = template["metadata"]["annotations"], template["spec"]
    load, labels = _load_container(pod), obj["metadata"]["labels"]
    environment = {item["name"]: item.get("value", "") for item in load.get("env") or ()}
    return SetFace(
        target=_target(obj),
        kernel=annotations[manifests.KERNEL_ANNOTATION],
        fingerprint=annotations[manifests.FINGERPRINT_ANNOTATION],
        version=annotations[manifests.VERSION_ANNOTATION],
        rebuild=environment.get("REBUILD", ""),
        digest=_loaded_from(pod),
        kept=manifests.parse_kept(obj["metadata"]["annotations"])[1],
        modules=frozenset(json.loads(annotations[manifests.MODULES_ANNOTATION]).items()),
        place=slots.place_of(pod, names.wave_label(obj["metadata"]["namespace"], labels[manifests.DRIVER_LABEL])),
    )


def _load_container(pod: Json) -> Json:
    load: Json
    (load,) = (item for item in pod["initContainers"] if item["name"] == manifests.LOAD_CONTAINER)
    return load


def _loaded_from(pod: Json) -> str:
    image: str = _load_container(pod)["image"]
    return image.partition("@")[2]


def driver_face(obj: Json) -> DriverFace:
    """Say what of a driver counts."""
    heard = rebuild_status.from_status((obj.get("status") or {}).get("rebuild")).times
    return DriverFace(uid=obj["metadata"]["uid"], heard=heard)


def _sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class RegistryCheck:
    """Looks once into each image that was tagged; ``repository`` is the URL of it in the registry itself.

    For the kernel ``compiled`` it is the compiler that knows how its module looks.
    """

    def __init__(self, repository: str, compiled: str) -> None:
        self._repository = repository
        self._compiled = compiled
        self._checked: set[str] = set()
        self.modules: dict[str, frozenset[tuple[str, str]]] = {}
        """The modules with their identities of each image that was looked into, by digest."""

    def violations(self, pushed: list[Pushed]) -> Iterator[str]:
        """Find images that are not what the product verified: damaged, mislabelled, without records, other modules."""
        for item in pushed:
            if item.tag not in self._checked:
                self._checked.add(item.tag)
                yield from (f"{item.tag}: {words}" for words in self._image(item))

    def digest(self, tag: str) -> str:
        """Return what a tag names now."""
        answer = requests.head(f"{self._repository}/manifests/{tag}", headers=ACCEPT, timeout=60)
        return answer.headers.get("Docker-Content-Digest", "") if answer.status_code == 200 else ""

    def _image(self, pushed: Pushed) -> Iterator[str]:
        answer = requests.get(f"{self._repository}/manifests/{pushed.tag}", headers=ACCEPT, timeout=60)
        if answer.status_code != 200 or _sha256(answer.content) != pushed.digest:
            yield f"the registry has {answer.status_code} {_sha256(answer.content)} instead of {pushed.digest}"
            return
        manifest = answer.json()
        blobs = {item["digest"]: self._blob(item["digest"]) for item in (manifest["config"], *manifest["layers"])}
        for digest, content in blobs.items():
            if _sha256(content) != digest:
                yield f"blob {digest} is damaged"
                return
        labels = manifest.get("annotations") or {}
        kernel = labels.get(images.KERNEL_LABEL, "")
        self.modules[pushed.digest] = frozenset(identities(labels).items())
        if labels.get(images.KEY_LABEL) != pushed.key or not labels.get(images.MODULES_LABEL):
            yield f"it is not labelled as verified: {labels}"
        layers = [blobs[item["digest"]] for item in manifest["layers"]]
        module = _file(layers, f"lib/modules/{kernel}/{MODULE_PATH}")
        is_it = f"vermagic={kernel} ".encode() in module if kernel == self._compiled else module == module_for(kernel)
        if not is_it:
            yield f"its module is not the one for {kernel!r}"
        if not self.digest(pushed.digest.replace(":", "-")):
            yield "it has no bill of materials"

    def _blob(self, digest: str) -> bytes:
        return requests.get(f"{self._repository}/blobs/{digest}", timeout=60).content


def _file(layers: list[bytes], path: str) -> bytes:
    found = b""
    for layer in layers:
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(layer))) as tar:
            for member in tar:
                if member.name.lstrip("./") == path and (file := tar.extractfile(member)):
                    found = file.read()
    return found


def is_proven(fleet: Fleet, node: str, face: NodeFace) -> bool:
    """Tell whether a node's label stands on a proof of the boot and kernel that the node is on."""
    return face.proven_on == fleet.place(node) and (node, face.proven_on) in fleet.proofs
