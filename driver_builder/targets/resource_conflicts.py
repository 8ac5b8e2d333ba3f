"""Device plugins that conflict: two drivers that offer one resource on one node. Pure.

A kubelet knows one plugin of a resource: the one that registered last. Which resources of ``nvidia.com/`` come with
``nvidia`` depends on the devices: it claims all of them. If two drivers claim a resource on one node, the
one whose stages are there keeps it, otherwise the older DriverContainer that the settings allow; the stages of the
other one do not come there, and it reports why. On different nodes each has its own. Where a spec is invalid, the
driver's plugin goes on with what it has offered, and keeps that.
"""

from collections.abc import Iterable, Mapping

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.model import resource_claim
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.permissions import Permissions
from driver_builder.objects.stage_labels import Stage
from driver_builder.snapshot import inventory
from driver_builder.snapshot.by_driver import of_driver
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.node_record import record_of
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets import permissions
from driver_builder.targets.conflicts import selected

Kept = Mapping[str, str]
"""By node, the driver that keeps the resource there."""


def resource_conflicts(snapshot: Snapshot, allowed: Permissions, *, has_agent: bool) -> Mapping[DriverKey, Kept]:
    """Return, by driver, the nodes where it leaves its resource to another one.

    ``has_agent`` says that there is an image of our device agent: without it no driver offers by it.
    """
    nodes = inventory.by_name(snapshot.nodes)
    found: dict[DriverKey, dict[str, str]] = {}
    for drivers in _overlapping(claims := _claims(snapshot), snapshot.drivers):
        chosen = {driver.key: _nodes_of(driver, snapshot) for driver in drivers}
        refused = {driver.key for driver in drivers if _is_refused(driver.spec, allowed, has_agent=has_agent)}
        # What the labels of these say is about another resource: their specs have changed since.
        others = {driver.key for driver in drivers if _offers_another(claims[driver.key], snapshot, driver)}
        for name in sorted(_in_several(chosen.values())):
            there = [driver for driver in drivers if name in chosen[driver.key]]
            ranks = {
                driver.key: _rank(driver, nodes[name], is_new=driver.key in others, is_refused=driver.key in refused)
                for driver in there
            }
            for driver, keeps in _losers(sorted(ranks, key=ranks.__getitem__), claims):
                found.setdefault(driver, {})[name] = keeps
    return found


def offered(spec: DriverSpec) -> str | None:
    """Return what a driver's device plugin claims: a resource, or all of a domain; None without a plugin."""
    return spec.device_plugin.claim if spec.device_plugin is not None else None


def words(driver: str, other: str, claim: str) -> str:
    """Return the message: both drivers, and which of them keeps what the first one claims."""
    them = "them" if claim.endswith("/") else "it"
    return f"drivers {driver} and {other} both offer {resource_claim.words(claim)}; {other} keeps {them}"


def _claims(snapshot: Snapshot) -> dict[DriverKey, str]:
    """Return what each driver claims that has a plugin."""
    found: dict[DriverKey, str] = {}
    for driver in snapshot.drivers:
        spec = driver.spec
        known = (item.resource for item in of_driver(snapshot.plugin_sets, driver.key))
        if claim := offered(spec) if isinstance(spec, DriverSpec) else next(known, None):
            found[driver.key] = claim
    return found


def _overlapping(
    claims: Mapping[DriverKey, str], drivers: Iterable[DriverContainer]
) -> Iterable[list[DriverContainer]]:
    """Put the drivers together that claim one resource: of hundreds, hardly any."""
    domains = sorted({claim for claim in claims.values() if claim.endswith("/")})
    found: dict[str, list[DriverContainer]] = {}
    for driver in sorted(drivers, key=lambda item: item.key):
        if claim := claims.get(driver.key):
            widest = next((domain for domain in domains if resource_claim.covers(domain, claim)), claim)
            found.setdefault(widest, []).append(driver)
    return [together for together in found.values() if len(together) > 1]


def _losers(ranked: Iterable[DriverKey], claims: Mapping[DriverKey, str]) -> Iterable[tuple[DriverKey, str]]:
    """Return who leaves a node to whom: to the first one that keeps something of what it claims."""
    kept: list[DriverKey] = []
    for driver in ranked:
        other = next((key for key in kept if resource_claim.overlap(claims[key], claims[driver])), None)
        if other is None:
            kept.append(driver)
        else:
            yield driver, other


def _offers_another(claim: str, snapshot: Snapshot, driver: DriverContainer) -> bool:
    known = (item.resource for item in of_driver(snapshot.plugin_sets, driver.key))
    return any(resource and not resource_claim.overlap(resource, claim) for resource in known)


def _in_several(sets: Iterable[frozenset[str]]) -> set[str]:
    """Return what is in more than one of the sets."""
    once: set[str] = set()
    twice: set[str] = set()
    for names in sets:
        twice |= once & names
        once |= names
    return twice


def _nodes_of(driver: DriverContainer, snapshot: Snapshot) -> frozenset[str]:
    """Return the nodes of a driver; of one that is being deleted or cannot be read those that its stages are on."""
    if isinstance(driver.spec, DriverSpec) and not driver.deleting:
        return selected(driver.spec, snapshot.nodes)
    return frozenset(node.name for node in snapshot.nodes if record_of(node, driver.key).has(Stage.RUN))


def _is_refused(spec: object, allowed: Permissions, *, has_agent: bool) -> bool:
    """Return whether a driver cannot have its plugin: it would never offer the resource that others wait for."""
    if not isinstance(spec, DriverSpec):
        return False
    plugin = spec.device_plugin
    is_without_image = plugin is not None and plugin.is_of_agent and not has_agent
    return is_without_image or bool(permissions.of_stages(spec, allowed))


def _rank(driver: DriverContainer, node: Node, *, is_new: bool, is_refused: bool) -> tuple[int, bool, float, str]:
    """Return what decides, the smallest first: how far the stages are on the node, and the age.

    One that ``is_new`` has not offered the resource yet, whatever its labels say. A driver that is being replaced has
    its ready label, and a record of its stages, although these have left.
    """
    found = record_of(node, driver.key)
    if is_new:
        standing = 3
    elif found.has(Stage.PLUG):
        standing = 0
    elif found.has(Stage.RUN):
        standing = 1
    else:
        standing = 2 if found.record(Stage.RUN) is not None and found.ready is not None else 3
    return standing, is_refused, driver.created_at, driver.key
