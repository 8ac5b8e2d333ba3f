"""Which kernels the nodes run: nodes grouped into targets. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from driver_builder.model.kernels import MAX_LENGTH, KernelTarget, KernelVersion
from kube_api import names


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What the controller reads of a node: metadata only."""

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @property
    def kernel_version(self) -> str:
        """All of ``uname -r``: the annotation where it agrees with the label, which cannot hold every character."""
        label = self.labels.get(names.KERNEL_VERSION_LABEL, "")
        release = self.annotations.get(names.KERNEL_VERSION_ANNOTATION, "")
        is_same = len(release) <= MAX_LENGTH and names.label_value(release) == label
        return release if is_same else label

    @property
    def boot_id(self) -> str | None:
        """The boot that the labels describe, where nfd_worker says it."""
        return self.annotations.get(names.BOOT_ID_ANNOTATION)

    @property
    def rebuild(self) -> str | None:
        """An admin's wish to have this node's drivers rebuilt."""
        return self.annotations.get(names.REBUILD_ANNOTATION) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """``targets`` in order, each with its sorted node names; ``unknown`` says why a node has no target.

    ``divided`` are targets that differ in nothing but the version of the operating system, see
    :mod:`driver_builder.desired.targets`.
    """

    targets: Mapping[KernelTarget, tuple[str, ...]]
    unknown: Mapping[str, str]
    divided: frozenset[KernelTarget] = frozenset()


def take(nodes: Iterable[Node], selector: Mapping[str, str]) -> Inventory:
    """Group the nodes that ``selector`` picks (equality on every label; empty picks all) by what their labels say."""
    groups: dict[KernelTarget, list[str]] = {}
    unknown: dict[str, str] = {}
    for node in sorted(nodes, key=lambda node: node.name):
        if any(node.labels.get(key) != value for key, value in selector.items()):
            continue
        target = target_of(node)
        if isinstance(target, KernelTarget):
            groups.setdefault(target, []).append(node.name)
        else:
            unknown[node.name] = target
    return Inventory(targets={target: tuple(groups[target]) for target in sorted(groups)}, unknown=unknown)


def target_of(node: Node) -> KernelTarget | str:
    """Read the target that a node's own labels name, or say which label is missing or wrong."""
    wanted = (names.KERNEL_VERSION_LABEL, names.OS_ID_LABEL, names.ARCHITECTURE_LABEL)
    missing = [label for label in wanted if not node.labels.get(label)]
    if missing:
        return f"node {node.name} has no label {', '.join(missing)}"
    try:
        return KernelTarget(
            kernel_version=KernelVersion(node.kernel_version),
            os_id=node.labels[names.OS_ID_LABEL],
            os_version=node.labels.get(names.OS_VERSION_LABEL, ""),
            architecture=node.labels[names.ARCHITECTURE_LABEL],
        )
    except ValueError as error:
        return f"node {node.name}: {error}"
