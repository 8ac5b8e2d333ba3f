"""Which devices a container should get. Pure.

First counts how many links there are between their units, then that they are of one NUMA node, of different units, and
of those least shared. Of several NUMA nodes the one is taken that has just enough, so that larger requests find a whole
one later, and of units that are linked alike those that leave most links to others.
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, permutations
from math import comb

from device_agent.devices.model import OfferedDevice, Unit

_NOWHERE: tuple[int, ...] = ()
_MOST_LINKED, _MOST_CHOICES = 64, 20_000
"""Units, and choices of them, that are compared by links. Half of 16 GPUs are 12,870; of more, links do not count."""


def preferred(
    devices: Mapping[str, OfferedDevice], available: Sequence[str], must_include: Sequence[str], size: int
) -> tuple[str, ...]:
    """Choose ``size`` of the available devices; what must be included comes first. Unknown devices come last."""
    chosen = list(dict.fromkeys(must_include))[: max(size, 0)]
    included = frozenset(chosen)
    free = [name for name in dict.fromkeys(available) if name not in included]
    needed = min(max(size, 0) - len(chosen), len(free))
    if linked := _linked(devices, free, chosen, needed):
        chosen += linked
        free = [name for name in free if name not in linked]
        needed -= len(linked)
    return (*chosen, *_nearest(devices, free, chosen, needed))


def _linked(devices: Mapping[str, OfferedDevice], free: Sequence[str], chosen: Sequence[str], needed: int) -> list[str]:
    """Choose a device of each of those units that have most links between them; none where no unit has links."""
    given = {device.unit.id: device.unit for name in chosen if (device := devices.get(name))}
    if not needed or not any(device.unit.links for name in free if (device := devices.get(name))):
        return []
    # As they are chosen without links: of sets that are equal, the first one is taken.
    picked = _nearest(devices, free, chosen, needed)
    first: dict[str, str] = {}
    for name in dict.fromkeys((*picked, *free)):
        if name in devices and devices[name].unit.id not in given:
            first.setdefault(devices[name].unit.id, name)
    size = min(needed, len(first))
    if len(first) > _MOST_LINKED or comb(len(first), size) > _MOST_CHOICES:
        return []
    units = {unit: devices[name].unit for unit, name in first.items()}
    inner = {pair: _links(units[pair[0]], units[pair[1]]) for pair in permutations(units, 2)}
    to_given = {name: sum(_links(unit, other) for other in given.values()) for name, unit in units.items()}
    to_all = {name: sum(inner[name, other] for other in units if other != name) for name in units}
    given_nodes = {unit.numa_nodes for unit in given.values()}

    def rank(names: tuple[str, ...]) -> tuple[int, int, int]:
        within = sum(inner[pair] for pair in combinations(names, 2))
        nodes = given_nodes.union(units[name].numa_nodes for name in names)
        cut = sum(to_all[name] for name in names) - 2 * within
        return within + sum(to_given[name] for name in names), -len(nodes), -cut

    return [first[name] for name in max(combinations(units, size), key=rank)]


def _links(unit: Unit, other: Unit) -> int:
    return max(unit.links.get(other.id, 0), other.links.get(unit.id, 0))


def _nearest(devices: Mapping[str, OfferedDevice], free: Sequence[str], given: Sequence[str], needed: int) -> list[str]:
    """Choose by NUMA nodes and by units."""
    chosen: list[str] = []
    nodes = _by_node(devices, free)
    order = _node_order(nodes, Counter(_node(devices, name) for name in given), needed)
    taken = Counter(_unit(devices, name) for name in given)
    for node in order:
        picked = _spread(devices, nodes[node], taken, needed)
        chosen += picked
        needed -= len(picked)
    return chosen


def _by_node(devices: Mapping[str, OfferedDevice], names: Sequence[str]) -> dict[tuple[int, ...], list[str]]:
    nodes: dict[tuple[int, ...], list[str]] = {}
    for name in names:
        nodes.setdefault(_node(devices, name), []).append(name)
    return nodes


def _node_order(
    nodes: Mapping[tuple[int, ...], Sequence[str]], near: Counter[tuple[int, ...]], needed: int
) -> list[tuple[int, ...]]:
    """Order NUMA nodes: those of devices that must be included, the smallest that has enough, the largest."""

    def rank(node: tuple[int, ...]) -> tuple[int, bool, int, tuple[int, ...]]:
        count = len(nodes[node])
        has_enough = count >= needed
        return -near[node], not has_enough, count if has_enough else -count, node

    return sorted(nodes, key=rank)


def _spread(devices: Mapping[str, OfferedDevice], names: Sequence[str], taken: Counter[str], needed: int) -> list[str]:
    """Choose of different units: first of those of which fewest are chosen, then of those with most left."""
    shares: dict[str, list[str]] = {}
    for name in sorted(names, reverse=True):
        shares.setdefault(_unit(devices, name), []).append(name)
    heap = [(taken[unit], -len(left), unit) for unit, left in shares.items()]
    heapq.heapify(heap)
    chosen: list[str] = []
    while heap and len(chosen) < needed:
        count, _, unit = heapq.heappop(heap)
        left = shares[unit]
        chosen.append(left.pop())
        taken[unit] = count + 1
        if left:
            heapq.heappush(heap, (count + 1, -len(left), unit))
    return chosen


def _node(devices: Mapping[str, OfferedDevice], name: str) -> tuple[int, ...]:
    device = devices.get(name)
    return device.unit.numa_nodes if device else _NOWHERE


def _unit(devices: Mapping[str, OfferedDevice], name: str) -> str:
    device = devices.get(name)
    return device.unit.id if device else name
