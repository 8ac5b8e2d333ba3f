"""Drivers that conflict: two drivers with the same module, or one with a module that another removes. Pure.

A kernel holds one module of a name. If two drivers name it on one node, the one whose build is live keeps it, otherwise
the older DriverContainer that the settings allow; the other one replaces nothing there and reports the conflict.
``lint`` finds it earlier.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.kernels import KernelTarget
from driver_builder.model.permissions import Permissions
from driver_builder.objects import loaded
from driver_builder.objects.loaded import plain
from driver_builder.snapshot import inventory
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.node_record import record_of
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets import permissions, resolve_target
from kube_api.text import first_few

_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Another driver keeps a module that this one would replace or remove on some nodes."""

    other: str
    module: str
    nodes: tuple[str, ...]

    def __str__(self) -> str:
        return words(self.module, self.other, self.nodes)


def words(module: str, other: str, nodes: Iterable[str]) -> str:
    """Return the message: which driver has the module as well, and where."""
    return f"module {module} is also named by driver {other} {on_nodes(nodes)}"


def on_nodes(nodes: Iterable[str]) -> str:
    """Say on which nodes two drivers meet."""
    every = sorted(nodes)
    count = f"{len(every)} node{'' if len(every) == 1 else 's'}"
    return f"on {count}: {first_few(every, _SHOWN)}"


def conflicts(snapshot: Snapshot, allowed: Permissions) -> dict[DriverKey, tuple[Conflict, ...]]:
    """Return, by driver, what it must leave to others."""
    drivers = [item for item in snapshot.drivers if isinstance(item.spec, DriverSpec)]
    nodes = inventory.by_name(snapshot.nodes)
    found: dict[DriverKey, dict[tuple[str, str], list[str]]] = {}
    refused = partial(_is_refused, snapshot.drivers, allowed)
    for one, two in _pairs(drivers):
        module = shared_module(_spec(one), _spec(two))
        if module is None:
            continue
        for name in sorted(_shared_nodes(one, two, snapshot)):
            keeps = _winner(one, two, nodes[name], module, refused)
            if keeps is None:
                continue
            loses = two if keeps is one else one
            found.setdefault(loses.key, {}).setdefault((keeps.key, module), []).append(name)
    return {
        driver: tuple(
            Conflict(other=other, module=module, nodes=tuple(names))
            for (other, module), names in sorted(theirs.items())
        )
        for driver, theirs in found.items()
    }


def shared_module(one: DriverSpec, two: DriverSpec) -> str | None:
    """Return the first module that both load, or that one loads and the other removes."""
    loads = [{plain(name): name for name in spec.module.names} for spec in (one, two)]
    removes = [{plain(name): name for name in spec.module.in_tree_modules_to_remove} for spec in (one, two)]
    shared = (
        *(loads[0].keys() & loads[1].keys()),
        *(loads[0].keys() & removes[1].keys()),
        *(removes[0].keys() & loads[1].keys()),
    )
    return min(shared, default=None)


def selected(spec: DriverSpec, nodes: Iterable[Node]) -> frozenset[str]:
    """Return the nodes that get a driver by its selector and its mappings."""
    chosen: set[str] = set()
    for target, names in inventory.take(nodes, spec.node_selector).targets.items():
        rule = resolve_target.mapping_for(spec, target.kernel_version)
        if rule is not None and not rule.skip:
            chosen.update(names)
    return frozenset(chosen)


def _pairs(drivers: Iterable[DriverContainer]) -> Iterator[tuple[DriverContainer, DriverContainer]]:
    """Pair the drivers that name a module in common: of hundreds, hardly any."""
    by_module: dict[str, list[DriverContainer]] = {}
    for driver in sorted(drivers, key=lambda item: item.key):
        spec = _spec(driver)
        for name in {*map(plain, spec.module.names), *map(plain, spec.module.in_tree_modules_to_remove)}:
            by_module.setdefault(name, []).append(driver)
    pairs: Mapping[tuple[str, str], tuple[DriverContainer, DriverContainer]] = {
        (one.key, two.key): (one, two) for theirs in by_module.values() for one, two in combinations(theirs, 2)
    }
    for key in sorted(pairs):
        yield pairs[key]


def _shared_nodes(one: DriverContainer, two: DriverContainer, snapshot: Snapshot) -> frozenset[str]:
    """Return the nodes of both drivers; a driver that is being deleted is where it is loaded, whatever it selects."""
    staying = [driver for driver in (one, two) if not driver.deleting]
    chosen = [selected(_spec(driver), snapshot.nodes) for driver in staying]
    return frozenset.intersection(*chosen) if chosen else frozenset()


def _winner(
    one: DriverContainer,
    two: DriverContainer,
    node: Node,
    module: str,
    is_refused: Callable[[DriverContainer, Node], bool],
) -> DriverContainer | None:
    """Return the driver that keeps the module. A driver that is being deleted does while only its build is live."""
    live = [driver for driver in (one, two) if _is_live(driver, node, module)]
    if one.deleting or two.deleting:
        return live[0] if len(live) == 1 and live[0].deleting else None
    if len(live) == 1:
        return live[0]
    return min((one, two), key=lambda item: (is_refused(item, node), item.created_at, item.key))


def _is_refused(
    drivers: tuple[DriverContainer, ...], allowed: Permissions, driver: DriverContainer, node: Node
) -> bool:
    """Return whether the settings keep a driver from a node: it would never load the module that it waits for."""
    target = inventory.target_of(node)
    spec = _spec(driver)
    rule = resolve_target.mapping_for(spec, target.kernel_version) if isinstance(target, KernelTarget) else None
    if rule is None or not isinstance(target, KernelTarget):
        return False
    base_image = resolve_target.base_image_for(spec, target)
    template = resolve_target.shipped_template_for(spec, rule, target)
    secrets = permissions.protected_secrets(driver.key, spec, lambda: permissions.specs_of(drivers), allowed)
    return bool(permissions.of_target(spec, rule, allowed, base_image=base_image, template=template, secrets=secrets))


def _is_live(driver: DriverContainer, node: Node, module: str) -> bool:
    """Return whether a driver's build is live on a node: by the Node's record, else by its ready label."""
    found = record_of(node, driver.key)
    known = found.loaded
    if known is None or known.given_up == loaded.UNREADABLE:
        is_loader = plain(module) in map(plain, _spec(driver).module.names)
        return is_loader and found.ready is not None
    return any(plain(name) == plain(module) for load in found.loads_now for name, _ in load.modules)


def _spec(driver: DriverContainer) -> DriverSpec:
    if not isinstance(driver.spec, DriverSpec):
        raise driver.spec
    return driver.spec
