"""Labels that say which kernel a node may move to: ``driverwright.io/ready-for.<kernel>=true``. Pure.

A node has it exactly as long as ``gate`` lets it move to the newest kernel of its repository: every driver of the
node has a verified image for it. Tools that restart or upgrade nodes select by it (``docs/operations.md``).
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.prebuild_status import previous_ahead
from driver_builder.api.rebuild_status import Rebuilds, from_status
from driver_builder.base.boundary import contained
from driver_builder.base.check_result import failed
from driver_builder.base.memo import OfEach
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.kernels import KernelVersion
from driver_builder.model.permissions import Permissions
from driver_builder.nodes.changes import PatchNode
from driver_builder.prebuild.gate import Gate, gate, may_be_on, moved
from driver_builder.prebuild.node_pools import follows, known_of, pools_of
from driver_builder.snapshot import inventory
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets import resolve_target
from driver_builder.targets.desired_target import ImageTarget, TemplateVersions
from driver_builder.targets.resolve_node import resolve_node
from kube_api import names

_NAME_LENGTH = 63 - len("ready-for.")
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_.-]")
_READY_FOR: OfEach[Node, tuple[str, ...]] = OfEach(
    lambda node: tuple(sorted(key for key in node.labels if key.startswith(names.READY_FOR_PREFIX)))
)
"""The labels of this kind that nodes have: of a fleet's half a million labels hardly any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Move:
    """Nodes with the same answer of the gate, and the kernel they can move to; ``settable`` unless all is paused.

    ``unheard`` names a driver that has not yet acknowledged each node's request for a rebuild. A node that moves now
    would take the request along to the new kernel, where nothing is built for it.
    """

    kernel: str
    nodes: tuple[str, ...]
    settable: bool
    unheard: str = ""


def ready_for_label(kernel: str) -> str:
    """Return the label of a kernel: characters that no label can hold become ``_``, long names are cut and digested."""
    name = _FORBIDDEN.sub("_", kernel)
    if len(name) > _NAME_LENGTH or not name[-1:].isalnum():
        digest = hashlib.sha256(kernel.encode()).hexdigest()[:8]
        name = f"{name[: _NAME_LENGTH - 9]}-{digest}"
    return f"{names.READY_FOR_PREFIX}{name}"


def images_of_moves(snapshot: Snapshot, versions: TemplateVersions) -> Iterator[tuple[DriverContainer, ImageTarget]]:
    """Return the images that the gate needs, of every driver: the registries are asked for them."""
    for move in _moves(snapshot, versions):
        if move.unheard:
            continue
        node = moved(inventory.by_name(snapshot.nodes)[move.nodes[0]], move.kernel)
        for driver in snapshot.drivers:
            found = contained(
                "driver", driver.key, partial(_images_of_move, snapshot, driver, node, versions), lambda _error: ()
            )
            yield from ((driver, item) for item in found)


def _images_of_move(
    snapshot: Snapshot, driver: DriverContainer, node: Node, versions: TemplateVersions
) -> tuple[ImageTarget, ...]:
    if not isinstance(driver.spec, DriverSpec) or driver.deleting:
        return ()
    items = resolve_node(snapshot, driver, driver.spec, node, versions).targets
    return tuple(item for item in items if isinstance(item, ImageTarget) and node.name in item.nodes)


def label_moves(snapshot: Snapshot, versions: TemplateVersions) -> dict[DriverKey, tuple[PatchNode, ...]]:
    """Make the labels of all nodes true; the actions by the key of the driver they are done for.

    A paused driver removes labels and sets none. If no driver follows a repository, and none did until
    now, labels are not ours: another controller may act for drivers in other namespaces.
    """
    owner = _owner(snapshot)
    # Invalid drivers may be against a move: existing labels stay.
    if owner is None or snapshot.forbidden:
        return {}
    answers: dict[str, list[tuple[_Move, Gate]]] = {}
    for move in _moves(snapshot, versions):
        answer = _not_yet(move) if move.unheard else gate(snapshot, move.nodes[0], move.kernel, versions)
        for name in move.nodes:
            answers.setdefault(name, []).append((move, answer))
    nodes = inventory.by_name(snapshot.nodes)
    labelled = _READY_FOR.of(nodes)
    actions = [
        action
        for name, labels in labelled.items()
        if labels or name in answers
        for action in _relabel(owner, nodes[name], labels, answers.get(name, ()))
    ]
    return {owner.key: tuple(actions)} if actions else {}


def _not_yet(move: _Move) -> Gate:
    words = "a request for a rebuild has not been acknowledged"
    return Gate(node=move.nodes[0], kernel=move.kernel, findings=(failed(move.unheard, words),))


def _relabel(
    owner: DriverContainer, node: Node, labels: tuple[str, ...], answers: Iterable[tuple[_Move, Gate]]
) -> Iterator[PatchNode]:
    by_label = {ready_for_label(move.kernel): (move, answer) for move, answer in answers}
    for label, (move, answer) in sorted(by_label.items()):
        if answer.is_open and move.settable and node.labels.get(label) != "true":
            yield PatchNode(node=node.name, driver=owner.key, labels={label: "true"})
    for label in labels:
        known = by_label.get(label)
        if known is None or not known[1].is_open:
            # The gate names a group's first node; the reason is the same for all of them.
            against = [item.check for item in known[1].findings if not item.is_ok] if known is not None else []
            why = f"not built and verified: {', '.join(against)}" if against else "not the kernel it moves to next"
            yield PatchNode(node=node.name, driver=owner.key, labels={label: None}, why=why)


def _owner(snapshot: Snapshot) -> DriverContainer | None:
    """Choose the driver whose plan has the labels: one that follows, else one that did and still has them."""
    ours = [driver for driver in snapshot.drivers if follows(driver) is not None or previous_ahead(driver.status)]
    drivers = sorted(ours, key=lambda driver: (follows(driver) is None, not driver.deleting, driver.key))
    return drivers[0] if drivers else None


def _moves_of(snapshot: Snapshot, driver: DriverContainer) -> tuple[tuple[str, str, str], ...]:
    """Return the nodes of a driver that can move to a newer kernel, that kernel, and the pool that they are in."""
    spec = follows(driver)
    known = (
        [(pool, known_of(snapshot, driver, pool).newest) for pool in pools_of(snapshot, driver, spec)] if spec else []
    )
    return tuple(
        (name, str(newest), "/".join(pool.key))
        for pool, newest in known
        if newest is not None
        for name in pool.behind(newest)
    )


def _moves(snapshot: Snapshot, versions: TemplateVersions) -> tuple[_Move, ...]:
    """Return which nodes can move to which newest kernel."""
    # Of a driver that is not allowed, the gate asks whether the node has it.
    limited = snapshot.drivers if versions.permissions != Permissions() else ()
    found: dict[tuple[str, str], tuple[str, bool]] = {}
    for driver in snapshot.drivers:
        for name, newest, pool in contained(
            "driver", driver.key, partial(_moves_of, snapshot, driver), lambda _error: ()
        ):
            _, settable = found.get((name, newest), ("", False))
            found[name, newest] = (pool, settable or not driver.paused)
    nodes = inventory.by_name(snapshot.nodes)
    keys = {key for driver in snapshot.drivers if isinstance(driver.spec, DriverSpec)
            for key in driver.spec.node_selector}  # fmt: skip
    unheard = _unheard_by(snapshot.drivers)
    groups: dict[tuple[object, ...], list[str]] = {}
    for (name, kernel), (pool_key, settable) in sorted(found.items()):
        node = nodes[name]
        face = (*(node.labels.get(key, "") for key in sorted(keys)), *(may_be_on(node, driver) for driver in limited))
        groups.setdefault((kernel, settable, unheard(node, kernel), pool_key, face), []).append(name)
    return tuple(
        _Move(kernel=str(kernel), settable=bool(settable), unheard=str(not_by), nodes=tuple(names_))
        for (kernel, settable, not_by, *_), names_ in groups.items()
    )


def _unheard_by(drivers: Iterable[DriverContainer]) -> Callable[[Node, str], str]:
    """Return a function that names a driver that builds for a node, and has not acknowledged the node's request."""
    known = [
        (driver.key, driver.spec, _rebuilds(driver))
        for driver in drivers
        if isinstance(driver.spec, DriverSpec) and not driver.deleting
    ]

    def unheard(node: Node, kernel: str) -> str:
        value = node.rebuild
        if not value:
            return ""
        labels = {**node.labels, names.KERNEL_VERSION_LABEL: names.label_value(kernel)}
        waits = (
            key
            for key, spec, rebuilds in known
            if not rebuilds.has_heard(node.name, value)
            and spec.node_selector.items() <= labels.items()
            and _builds(spec, kernel)
        )
        return next(waits, "")

    return unheard


def _builds(spec: DriverSpec, kernel: str) -> bool:
    rule = resolve_target.mapping_for(spec, KernelVersion(kernel))
    return rule is not None and not rule.skip and rule.image is None


def _rebuilds(driver: DriverContainer) -> Rebuilds:
    nothing = Rebuilds(requests={}, tokens={})
    return contained("driver", driver.key, lambda: from_status(driver.status.get("rebuild")), lambda _error: nothing)
