"""The journal of a world: what was true after each write of the controller and after each move of the cluster. Pure.

Nothing here knows how the controller decides: a journal has API objects, what kernels have loaded, and what registries
have. ``recorder`` writes it down, ``invariants`` says what holds for every journal.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from driver_builder.objects.manifests import DRIVER_LABEL, FINGERPRINT_ANNOTATION, MODULES_ANNOTATION, TARGET_LABEL
from kube_api import names
from kube_api.client import Object
from kube_api.node_lock import parse_lock
from kube_api.resources import NODES

KINDS = ("configmaps", "daemonsets", "drivercontainers", "nodes", "pods")
"""The objects of which a journal knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A node's kernel: its boot, the modules that are live with their identities, whether its device is broken."""

    boot: str
    live: Mapping[str, str] = field(default_factory=dict)
    is_broken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A request by which the controller changes something."""

    method: str
    path: str
    body: Object = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class State:
    """What is true at a moment: after ``write`` of the controller, or after somebody else's doings.

    ``seen`` is the last state that the controller has read. ``images`` are those of the registries with the identities
    of their modules, ``started`` those whose build it has begun, and ``bad`` modules that no kernel takes.
    """

    objects: Mapping[str, Object]
    kernels: Mapping[str, Kernel] = field(default_factory=dict)
    write: Write | None = None
    reconcile: int = 0
    seen: int = 0
    images: Mapping[str, frozenset[str]] = field(default_factory=dict)
    started: tuple[str, ...] = ()
    bad: frozenset[str] = frozenset()
    is_rest: bool = False
    """Whether nothing moves any more, and the controller has reconciled."""
    is_healed: bool = False
    """Whether nothing is in the way of any driver."""

    @cached_property
    def _by_kind(self) -> Mapping[str, Sequence[Object]]:
        found: dict[str, list[Object]] = {kind: [] for kind in KINDS}
        for path, obj in self.objects.items():
            found[kind_of(path)].append(obj)
        return found

    @cached_property
    def nodes(self) -> Mapping[str, Object]:
        """Return the Nodes by name."""
        return {obj["metadata"]["name"]: obj for obj in self._by_kind["nodes"]}

    @cached_property
    def drivers(self) -> Mapping[str, Object]:
        """Return the DriverContainers by ``namespace/name``."""
        return {key_of(obj, obj["metadata"]["name"]): obj for obj in self._by_kind["drivercontainers"]}

    @cached_property
    def daemon_sets(self) -> Sequence[Object]:
        """Return the DaemonSets of drivers."""
        return [obj for obj in self._by_kind["daemonsets"] if is_of_driver(obj)]

    @cached_property
    def _pods(self) -> Mapping[str, Sequence[Object]]:
        found: dict[str, list[Object]] = {}
        for pod in self._by_kind["pods"]:
            found.setdefault(pod["spec"]["nodeName"], []).append(pod)
        return found

    def pods_on(self, node: str) -> Sequence[Object]:
        """Return all pods of a node."""
        return self._pods.get(node, ())

    def driver_pods(self) -> Iterator[Object]:
        """Return the pods that load drivers."""
        return filter(is_of_driver, self._by_kind["pods"])

    def belongs(self, pod: Object) -> bool:
        """Return whether a pod's DaemonSet wants it on its node."""
        uid, node = pod["metadata"]["ownerReferences"][0]["uid"], self.nodes.get(pod["spec"]["nodeName"])
        owner = next((obj for obj in self.daemon_sets if obj["metadata"]["uid"] == uid), None)
        return owner is not None and node is not None and is_for(owner["spec"]["template"]["spec"], node)

    def proves(self, pod: Object) -> bool:
        """Return whether a pod proves its driver on the boot of its node."""
        kernel, report = self.kernels.get(pod["spec"]["nodeName"]), said(pod)
        is_loaded = is_ready(pod) and report.get("result") == "Loaded"
        return is_loaded and kernel is not None and report.get("bootID") == kernel.boot

    def works(self, pod: Object) -> bool:
        """Return whether a pod proves its driver, and stays."""
        return "deletionTimestamp" not in pod["metadata"] and self.proves(pod) and self.belongs(pod)

    def selects(self, driver: str, node: str) -> bool:
        """Return whether a driver's selector has a node."""
        return node in self.nodes and _matches(self.drivers[driver]["spec"].get("nodeSelector") or {}, self.nodes[node])

    def below(self, driver: str) -> frozenset[str]:
        """Return what a driver depends on, and what that depends on."""
        found: set[str] = set()
        due = [driver]
        while due and (obj := self.drivers.get(due.pop())) is not None:
            needs = {key_of(obj, need["name"]) for need in obj["spec"].get("dependsOn") or ()}
            due += needs - found
            found |= needs
        return frozenset(found)

    def rollout(self, driver: str) -> Object:
        """Return how a driver is to be rolled out."""
        found: Object = (self.drivers.get(driver) or {"spec": {}})["spec"].get("rollout") or {}
        return found

    def wave(self, driver: str) -> Object:
        """Return what the status says of a driver's wave."""
        found: Object = ((self.drivers.get(driver) or {}).get("status") or {}).get("rollout") or {}
        return found

    def identities_of(self, driver: str, fingerprints: frozenset[str]) -> frozenset[str]:
        """Return the modules of what has one of these fingerprints."""
        templates = [*(obj["spec"]["template"] for obj in self.daemon_sets), *self.driver_pods()]
        found = (item for item in templates if fingerprint_of(item) in fingerprints and driver_of(item) == driver)
        return frozenset(identity for item in found for identity in modules_of(item).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A write of the controller takes a pod that works from its node; another one is to come, or it yields."""

    index: int
    driver: str
    node: str
    pod: Object
    yields: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """A module that worked is replaced by another build of it, in one boot."""

    index: int
    driver: str
    node: str
    module: str
    old: str
    new: str


@dataclass(frozen=True, kw_only=True)
class Journal:
    """The states of a world in their order.

    ``symbols`` are, by the identity of a module, those of modules whose symbols it was built with; ``users`` says which
    module uses another one, by the other one.
    """

    states: Sequence[State]
    symbols: Mapping[str, frozenset[str]] = field(default_factory=dict)
    users: Mapping[str, str] = field(default_factory=dict)

    def steps(self) -> Iterator[tuple[int, State, State]]:
        """Return each state but the first with the one before it, and its number."""
        for index in range(1, len(self.states)):
            yield index, self.states[index - 1], self.states[index]

    def writes(self) -> Iterator[tuple[int, State, State, Write]]:
        """Return the states after writes of the controller."""
        for index, before, after in self.steps():
            if after.write is not None:
                yield index, before, after, after.write

    def is_by_waves(self, index: int, driver: str) -> bool:
        """Return whether a driver's strategy is waves, and was so for the last reconciles."""
        now = self.states[index].reconcile
        while index >= 0 and self.states[index].reconcile > now - _IN_FLIGHT:
            if self.states[index].rollout(driver).get("strategy") == "immediate":
                return False
            index -= 1
        return True

    @cached_property
    def taken(self) -> Sequence[Taken]:
        """Return what is taken from nodes by writes, where a wave replaces it."""
        found = (item for index, before, after, write in self.writes() for item in _taken(index, before, after, write))
        return [item for item in found if self._has_rules(item.index, item.driver, item.node)]

    @cached_property
    def replaced(self) -> Sequence[Replaced]:
        """Return what a wave replaces in kernels."""
        return [item for item in self.all_replaced if self._has_rules(item.index - 1, item.driver, item.node)]

    @cached_property
    def all_replaced(self) -> Sequence[Replaced]:
        """Return what is replaced in kernels, under any strategy."""
        return [item for index, before, after in self.steps() for item in _replaced(index, before, after)]

    def _has_rules(self, index: int, driver: str, node: str) -> bool:
        """Return whether waves have rules for a node: what is not valid there, or not known to be, returns at once."""
        state = self.states[index]
        is_valid = names.ready_label(*driver.split("/")) in labels_of(state.nodes[node])
        has_validation = bool(state.drivers[driver]["spec"].get("validation"))
        return self.is_by_waves(index, driver) and (is_valid or not has_validation)

    @cached_property
    def loads(self) -> Sequence[tuple[int, Object]]:
        """Return the pods whose loader has reported, with the state after it."""
        return [
            (index, pod)
            for index, before, after in self.steps()
            if after.write is None and before.objects is not after.objects
            for pod in after.driver_pods()
            if said(pod) and said(_same(before, pod) or {}) != said(pod)
        ]


_IN_FLIGHT = 4
"""So many reconciles what was written under another strategy still happens."""


def _taken(index: int, before: State, after: State, write: Write) -> Iterator[Taken]:
    kind, name = kind_of(write.path), write.path.rpartition("/")[2]
    if kind not in ("pods", "nodes", "daemonsets"):
        return
    for pod in before.driver_pods():
        node, driver = pod["spec"]["nodeName"], driver_of(pod)
        if (kind, name) not in (("nodes", node), ("pods", pod["metadata"]["name"])) and kind != "daemonsets":
            continue
        now = _same(after, pod)
        if not before.works(pod) or (now is not None and after.works(now)):
            continue
        yields = names.yield_label(*driver.split("/")) in after.nodes[node]["metadata"]["labels"]
        comes = any(
            driver_of(obj) == driver and is_for(obj["spec"]["template"]["spec"], after.nodes[node])
            for obj in after.daemon_sets
        )
        if yields or comes:
            yield Taken(index=index, driver=driver, node=node, pod=pod, yields=yields)


def _replaced(index: int, before: State, after: State) -> Iterator[Replaced]:
    if before.kernels is after.kernels:
        return
    for node in before.kernels.keys() & after.kernels.keys():
        old, new = before.kernels[node], after.kernels[node]
        if old.boot != new.boot or old.is_broken or old is new:
            continue
        for module in old.live.keys() & new.live.keys():
            if old.live[module] != new.live[module] and old.live[module] not in before.bad:
                for driver in before.drivers:
                    if module in before.drivers[driver]["spec"]["module"]["names"]:
                        yield Replaced(
                            index=index, driver=driver, node=node, module=module, old=old.live[module],
                            new=new.live[module],
                        )  # fmt: skip


def _same(state: State, pod: Object) -> Object | None:
    """Return a pod as it is in a state."""
    metadata = pod["metadata"]
    found = state.objects.get(f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}")
    return found if found is not None and found["metadata"]["uid"] == metadata["uid"] else None


# ---------------------------------------------------------------- what objects say


@lru_cache(maxsize=4096)
def kind_of(path: str) -> str:
    """Return the kind of the object at a path."""
    parts = path.split("/")
    return parts[-3] if parts[-1] in ("status", "eviction") else parts[-2]


def key_of(obj: Object, name: str) -> str:
    """Return ``namespace/name`` of what an object of a driver's namespace names."""
    return f"{obj['metadata']['namespace']}/{name}"


def labels_of(obj: Object) -> Mapping[str, str]:
    """Return the labels of an object."""
    found: Mapping[str, str] = obj["metadata"].get("labels") or {}
    return found


def annotations_of(obj: Object) -> Mapping[str, str]:
    """Return the annotations of an object."""
    found: Mapping[str, str] = obj["metadata"].get("annotations") or {}
    return found


def is_of_driver(obj: Object) -> bool:
    """Return whether an object is a pod or a DaemonSet that loads a driver."""
    return TARGET_LABEL in labels_of(obj)


def driver_of(obj: Object) -> str:
    """Return the driver of a pod, a DaemonSet or its template."""
    return f"{obj['metadata'].get('namespace') or _NAMESPACE}/{labels_of(obj)[DRIVER_LABEL]}"


_NAMESPACE = "driverwright"
"""Of templates, which name none."""


def modules_of(template: Object) -> Mapping[str, str]:
    """Return the modules of a pod or a template, with their identities."""
    found: Mapping[str, str] = json.loads(annotations_of(template).get(MODULES_ANNOTATION) or "{}")
    return found


def fingerprint_of(template: Object) -> str:
    """Return the fingerprint of a pod or a template."""
    return annotations_of(template).get(FINGERPRINT_ANNOTATION, "")


def said(pod: Object) -> Object:
    """Return what a pod's loader has reported, empty before that."""
    ended = (pod.get("status") or {}).get("initContainerStatuses") or [{}]
    found: Object = _parsed(((ended[0].get("state") or {}).get("terminated") or {}).get("message") or "{}")
    return found


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Object:
    found: Object = json.loads(text)
    return found


def is_ready(pod: Object) -> bool:
    """Return whether a pod is ready."""
    return any(item["status"] == "True" for item in (pod.get("status") or {}).get("conditions", ()))


def images_of(pod: Object) -> frozenset[str]:
    """Return the images of a pod's or a template's containers."""
    return frozenset(item["image"] for item in pod["spec"].get("containers") or () if "image" in item)


def is_cordoned(node: Object) -> bool:
    """Return whether a node is cordoned."""
    return (node.get("spec") or {}).get("unschedulable") is True


def is_away(node: Object) -> bool:
    """Return whether a node is cordoned, or not Ready."""
    conditions = (node.get("status") or {}).get("conditions", ())
    return is_cordoned(node) or any(item["status"] == "False" for item in conditions)


def holder_of(node: Object) -> str:
    """Return who holds the lock of a node, empty where there is none."""
    text = annotations_of(node).get(names.LOCK_ANNOTATION)
    return parse_lock(text).holder if text else ""


def is_skipped(node: Object) -> bool:
    """Return whether an admin leaves a node out."""
    return annotations_of(node).get(names.SKIP_ROLLOUT_ANNOTATION) == "true"


def is_tainted(node: Object) -> bool:
    """Return whether our taint keeps pods away."""
    return any(item["key"] == names.UPGRADING_TAINT for item in (node.get("spec") or {}).get("taints") or ())


def requests_of(pod: Object) -> frozenset[str]:
    """Return the resources that a pod requests."""
    containers = pod["spec"].get("containers") or ()
    return frozenset(key for item in containers for key in (item.get("resources") or {}).get("requests") or ())


def node_path(name: str) -> str:
    """Return the path of a Node."""
    return NODES.path(name=name)


def is_for(spec: Object, node: Object) -> bool:
    """Return whether a DaemonSet wants a pod on a node, by selector and affinity."""
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {"nodeSelectorTerms": [{"matchExpressions": []}]}
    labels = node["metadata"]["labels"]
    return _matches(spec.get("nodeSelector", {}), node) and any(
        all(
            item["key"] not in labels
            if item["operator"] == "DoesNotExist"
            else (labels.get(item["key"]) in item["values"]) is (item["operator"] == "In")
            for item in term["matchExpressions"]
        )
        for term in required["nodeSelectorTerms"]
    )


def _matches(selector: Mapping[str, str], node: Object) -> bool:
    return all(node["metadata"]["labels"].get(key) == value for key, value in selector.items())
