"""Which devices a container should get: of one NUMA node if possible, of different units, of those least shared. Pure.

Of several NUMA nodes the one is taken that has just enough, so that larger requests find a whole one later.
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence

from device_agent.devices.model import OfferedDevice

_NOWHERE: tuple[int, ...] = ()


def preferred(
    devices: Mapping[str, OfferedDevice], available: Sequence[str], must_include: Sequence[str], size: int
) -> tuple[str, ...]:
    """Choose ``size`` of the available devices; what must be included comes first. Unknown devices come last."""
    chosen = list(dict.fromkeys(must_include))[: max(size, 0)]
    included = frozenset(chosen)
    free = [name for name in dict.fromkeys(available) if name not in included]
    needed = min(max(size, 0) - len(chosen), len(free))
    nodes = _by_node(devices, free)
    order = _node_order(nodes, Counter(_node(devices, name) for name in chosen), needed)
    taken = Counter(_unit(devices, name) for name in chosen)
    for node in order:
        picked = _spread(devices, nodes[node], taken, needed)
        chosen += picked
        needed -= len(picked)
    return tuple(chosen)


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
