"""Which kernels the nodes run: what a Node says, capped, and nodes grouped into targets. Pure."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from driver_builder.base.memo import OfEach, remembers_last
from driver_builder.base.persistent import Layered, Pieces, changes, cut
from driver_builder.model.kernels import MAX_LENGTH, KernelTarget, KernelVersion
from driver_builder.objects import loaded, validated
from driver_builder.objects.node_keys import LONGEST, MAX_ANNOTATION
from driver_builder.snapshot.label_owners import LabelOwner, read_label_owners
from driver_builder.snapshot.node_labels import NodeLabels
from driver_builder.snapshot.offered import offered_on
from kube_api import names
from kube_api.drain_contract import MAX_REQUEST
from kube_api.text import bounded_token, printable

MAX_TAINTS = 50
MAX_RESOURCES = 256
"""Resources of a node that are read."""
_OURS = (f"{names.GROUP}/", validated.PREFIX, names.PENDING_PREFIX)
_READ_HERE = frozenset({names.GPU_PROFILE_ANNOTATION})
"""Annotations of ours of which only a part is kept."""
_ASKED = (names.DRAIN_REQUEST_ANNOTATION,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A taint of a node (``core/v1.Taint``)."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """Write it as kubectl does: ``key=value:effect``."""
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"

    def is_tolerated(self, toleration: Mapping[str, Any]) -> bool:
        """Return whether a toleration (``core/v1.Toleration``) is for it; without an effect it is for all."""
        if toleration.get("effect") not in (None, "", self.effect):
            return False
        if toleration.get("operator") == "Exists":
            return toleration.get("key") in (None, "", self.key)
        return (toleration.get("key"), toleration.get("value") or "") == (self.key, self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What the controller reads of a node."""

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    ready: bool = True
    """Whether its kubelet reports it as Ready; so it is where nothing is known of it."""
    unschedulable: bool = False
    """Whether somebody has cordoned it."""
    taints: tuple[Taint, ...] = ()
    allocatable: frozenset[str] = frozenset()
    """The extended resources that it has for pods now, at least one of each."""
    offered: tuple[str, ...] = ()
    """The resources that its device agent says it offers, or that containers still have; none where it says nothing."""
    reported_at: float = field(default=0.0, compare=False)
    """When its kubelet had reported last as something else here changed: it may have reported since. Of a node that
    has such resources; alone it is no news."""
    disk_pressure: bool = False
    """Whether its kubelet reports too little disk space: it removes images, and refuses new pods."""
    disk_changed: float | None = None
    """Since when it reports what it does of that, by its own clock."""
    label_owners: tuple[LabelOwner, ...] = ()
    """Who owns those of its labels that third parties may set."""

    @property
    def kernel_version(self) -> str:
        """All of ``uname -r``: the annotation where it agrees with the label, which cannot hold every character."""
        label = self.labels.get(names.KERNEL_VERSION_LABEL, "")
        return _kernel_version(label, self.annotations.get(names.KERNEL_VERSION_ANNOTATION, ""))

    @property
    def boot_id(self) -> str | None:
        """The boot that the labels describe, where nfd_worker says it."""
        return self.annotations.get(names.BOOT_ID_ANNOTATION)

    def is_on_boot(self, boot_id: str) -> bool:
        """Return whether what was said on a boot holds for the one of now: also while that is not known."""
        return self.boot_id in (None, boot_id)

    def has_taint(self, key: str) -> bool:
        """Return whether a taint of this key is there, with whatever effect."""
        return any(taint.key == key for taint in self.taints)

    @property
    def rebuild(self) -> str | None:
        """The value by which an admin requests a rebuild of this node's drivers."""
        return self.annotations.get(names.REBUILD_ANNOTATION) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """``targets`` in order, each with its sorted node names; ``unknown`` says why a node has no target.

    ``divided`` are targets that differ in nothing but the version of the operating system, see
    :mod:`driver_builder.targets.resolve`.
    """

    targets: Mapping[KernelTarget, tuple[str, ...]]
    unknown: Mapping[str, str]
    divided: frozenset[KernelTarget] = frozenset()


def read_node(obj: Mapping[str, Any]) -> Node:
    """Read a Node: its labels, the annotations that are ours, and whether pods can start there."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    return Node(
        name=sys.intern(metadata["name"]),
        # Thousands of nodes have the same hundred keys, and mostly the same values.
        labels=NodeLabels(
            {sys.intern(key): sys.intern(value) for key, value in (metadata.get("labels") or {}).items()}
        ),
        # Beside each ready label stands the same boot.
        annotations={
            sys.intern(key): sys.intern(bounded_token(value) if key == names.REBUILD_ANNOTATION else value)
            for key, value in annotations.items()
            # Ours alone: others hold up to 256 KiB each, on thousands of nodes.
            if key.startswith(_OURS) and key not in _READ_HERE and len(value) <= LONGEST.get(key, MAX_ANNOTATION)
        }
        # One that is too long is not unknown: it is there, and cannot be read.
        | {
            sys.intern(key): value[: loaded.MAX_BYTES + 1]
            for key, value in annotations.items()
            if key.startswith(loaded.PREFIX)
        }
        | {key: annotations[key][: MAX_REQUEST + 1] for key in _ASKED if key in annotations},
        ready=_condition(obj, "Ready").get("status", "True") == "True",
        unschedulable=spec.get("unschedulable") is True,
        taints=tuple(_taint(item) for item in (spec.get("taints") or ())[:MAX_TAINTS]),
        allocatable=(allocatable := _allocatable(obj.get("status") or {})),
        reported_at=(_time(_condition(obj, "Ready").get("lastHeartbeatTime")) or 0.0) if allocatable else 0.0,
        offered=offered_on(annotations),
        disk_pressure=(pressure := _condition(obj, "DiskPressure")).get("status") == "True",
        disk_changed=_time(pressure.get("lastTransitionTime")),
        label_owners=read_label_owners(metadata),
    )


def _allocatable(status: Mapping[str, Any]) -> frozenset[str]:
    """Return the extended resources of a Node; how many there are is not kept, because that changes."""
    found = status.get("allocatable") or {}
    return frozenset(
        sys.intern(name) for name in list(found)[:MAX_RESOURCES] if "/" in name and str(found[name]) not in ("", "0")
    )


def _condition(obj: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((item for item in conditions if item.get("type") == name), {})


def _time(text: Any) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except (ValueError, TypeError, OverflowError):
        return None


def _taint(item: Mapping[str, Any]) -> Taint:
    key, value, effect = (printable(str(item.get(name) or "")) for name in ("key", "value", "effect"))
    return Taint(key=sys.intern(key), value=sys.intern(value), effect=sys.intern(effect))


def take(nodes: Iterable[Node], selector: Mapping[str, str]) -> Inventory:
    """Group the nodes that ``selector`` picks (equality on every label; empty picks all) by what their labels say."""
    fleet = _fleet(nodes if isinstance(nodes, tuple | Pieces) else tuple(nodes))
    wanted = tuple(sorted(selector.items()))
    known = fleet.taken.get(wanted)
    if known is None:
        known = fleet.taken[wanted] = _take(fleet, wanted)
    return known


def by_name(nodes: Sequence[Node]) -> Layered[Node]:
    """Return the nodes by their names, in the order of these."""
    return _fleet(nodes).by_name


def every_name(nodes: Sequence[Node]) -> frozenset[str]:
    """Return the names of the nodes: the same object while no node comes or goes."""
    return _fleet(nodes).names


def asking(nodes: Sequence[Node]) -> Mapping[str, str]:
    """Return the nodes that request a rebuild, by name, with what they request."""
    return _fleet(nodes).asking


def held(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes that somebody works on: with a lock, or with what a wave leaves there until it has ended."""
    return _fleet(nodes).held


def pressed(nodes: Sequence[Node]) -> frozenset[str]:
    """Return the names of the nodes with too little disk space."""
    return _fleet(nodes).pressed


@dataclass(frozen=True, slots=True)
class _Fleet:
    """The nodes of one moment: what every driver asks of them is computed once."""

    nodes: Pieces[Node]
    by_name: Layered[Node]
    names: frozenset[str]
    targets: Mapping[str, KernelTarget | str]
    asking: Mapping[str, str]
    held: tuple[Node, ...]
    pressed: frozenset[str]
    taken: dict[tuple[tuple[str, str], ...], Inventory]

    def changed_to(self, nodes: Pieces[Node]) -> "_Fleet | None":
        """Return the fleet of the same nodes of which a few are other objects now; None where a node came or went."""
        gone, came = changes(self.nodes, nodes)
        after = {node.name: node for node in came}
        if len(gone) != len(came) or after.keys() != {node.name for node in gone}:
            return None
        changed = [(old, after[old.name]) for old in gone]
        by_name = self.by_name.with_changes(after)
        targets = {name: target_of(new) for name, new in after.items()}
        is_same = all(self.targets[name] == target for name, target in targets.items())
        asks_the_same = all(old.rebuild == new.rebuild for old, new in changed)
        return _Fleet(
            nodes=nodes,
            by_name=by_name,
            names=self.names,
            targets=self.targets if is_same else {**self.targets, **targets},
            asking=self.asking if asks_the_same else _asking(by_name),
            held=_held_of((*(node for node in self.held if node.name not in after), *came)),
            pressed=self.pressed.difference(after) | _pressed_of(came),
            taken={
                wanted: found
                for wanted, found in self.taken.items()
                if is_same
                and all(old.labels.get(key) == new.labels.get(key) for old, new in changed for key, _ in wanted)
            },
        )


_last: list[_Fleet] = []
"""The newest fleet: in the next one mostly a node or two have changed."""


@remembers_last(4)
def _fleet(nodes: Sequence[Node]) -> _Fleet:
    pieces = cut(nodes)
    found = _last[0].changed_to(pieces) if _last else None
    if found is None:
        by_name = {node.name: node for node in sorted(nodes, key=lambda node: node.name)}
        found = _Fleet(
            nodes=pieces,
            by_name=Layered(by_name),
            names=frozenset(by_name),
            targets=_TARGETS.of(by_name),
            asking=_asking(by_name),
            held=_held_of(nodes),
            pressed=_pressed_of(nodes),
            taken={},
        )
    _last[:] = [found]
    return found


def _asking(by_name: Mapping[str, Node]) -> Mapping[str, str]:
    return {name: value for name, node in by_name.items() if (value := node.rebuild)}


_HOLDS = frozenset(
    {names.LOCK_ANNOTATION, names.DRAINING_ANNOTATION, names.YIELDING_ANNOTATION, names.DRAIN_REQUEST_ANNOTATION,
     names.DRAIN_STATE_ANNOTATION}
)  # fmt: skip


def _held_of(nodes: Iterable[Node]) -> tuple[Node, ...]:
    return tuple(sorted(filter(_is_held, nodes), key=lambda node: node.name))


def _pressed_of(nodes: Iterable[Node]) -> frozenset[str]:
    return frozenset(node.name for node in nodes if node.disk_pressure)


def _is_held(node: Node) -> bool:
    is_annotated = not _HOLDS.isdisjoint(node.annotations)
    return is_annotated or node.has_taint(names.UPGRADING_TAINT)


def _take(fleet: _Fleet, wanted: tuple[tuple[str, str], ...]) -> Inventory:
    groups: dict[KernelTarget, list[str]] = {}
    unknown: dict[str, str] = {}
    for name, node in fleet.by_name.items():
        if any(node.labels.get(key) != value for key, value in wanted):
            continue
        target = fleet.targets[name]
        if isinstance(target, KernelTarget):
            groups.setdefault(target, []).append(name)
        else:
            unknown[name] = target
    return Inventory(targets={target: tuple(groups[target]) for target in sorted(groups)}, unknown=unknown)


def target_of(node: Node) -> KernelTarget | str:
    """Read the target that a node's own labels name, or say which label is missing or wrong."""
    labels = node.labels
    target = _target(
        labels.get(names.KERNEL_VERSION_LABEL, ""),
        node.annotations.get(names.KERNEL_VERSION_ANNOTATION, ""),
        labels.get(names.OS_ID_LABEL, ""),
        labels.get(names.OS_VERSION_LABEL, ""),
        labels.get(names.ARCHITECTURE_LABEL, ""),
    )
    return target if isinstance(target, KernelTarget) else f"node {node.name}{target}"


_TARGETS: OfEach[Node, KernelTarget | str] = OfEach(target_of)
"""The targets that nodes name: of a fleet of which one has changed, one is read."""


@lru_cache(maxsize=4096)
def _kernel_version(label: str, release: str) -> str:
    is_same = len(release) <= MAX_LENGTH and names.label_value(release) == label
    return release if is_same else label


@lru_cache(maxsize=4096)
def _target(kernel_label: str, release: str, os_id: str, os_version: str, architecture: str) -> KernelTarget | str:
    wanted = {
        names.KERNEL_VERSION_LABEL: kernel_label,
        names.OS_ID_LABEL: os_id,
        names.ARCHITECTURE_LABEL: architecture,
    }
    missing = [label for label, value in wanted.items() if not value]
    if missing:
        return f" has no label {', '.join(missing)}"
    try:
        return KernelTarget(
            kernel_version=KernelVersion(_kernel_version(kernel_label, release)),
            os_id=os_id,
            os_version=os_version,
            architecture=architecture,
        )
    except ValueError as error:
        return f": {error}"
