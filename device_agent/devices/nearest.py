"""Which devices are of one NUMA node, and of which units their shares are. Pure."""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence

from device_agent.devices.model import OfferedDevice, Policy, Unit

_Node = tuple[int, ...]


def nearest(free: Mapping[str, OfferedDevice], given: Sequence[Unit], needed: int, policy: Policy) -> list[str]:
    """Choose by NUMA nodes and by units. ``given``: the units of devices that are chosen already, once for each."""
    nodes: dict[_Node, list[str]] = {}
    for name, device in free.items():
        nodes.setdefault(device.unit.numa_nodes, []).append(name)
    taken = Counter(unit.id for unit in given)
    chosen: list[str] = []
    for node in _node_order(nodes, Counter(unit.numa_nodes for unit in given), needed):
        chosen += _of_units(free, nodes[node], taken, needed - len(chosen), policy)
    return chosen


def used_shares(free: Mapping[str, OfferedDevice]) -> dict[str, int]:
    """Count the shares of each unit that are not free."""
    left = Counter(device.unit.id for device in free.values())
    return {device.unit.id: device.unit.shares - left[device.unit.id] for device in free.values()}


def _node_order(nodes: Mapping[_Node, Sequence[str]], near: Counter[_Node], needed: int) -> list[_Node]:
    """Order NUMA nodes: those of devices that are given, the smallest that has enough, the largest."""

    def rank(node: _Node) -> tuple[int, bool, int, _Node]:
        count = len(nodes[node])
        has_enough = count >= needed
        return -near[node], not has_enough, count if has_enough else -count, node

    return sorted(nodes, key=rank)


def _of_units(
    free: Mapping[str, OfferedDevice], names: Sequence[str], taken: Counter[str], needed: int, policy: Policy
) -> list[str]:
    """Choose shares of units, one after the other, as the policy says."""
    shares: dict[str, list[str]] = {}
    for name in sorted(names, reverse=True):
        shares.setdefault(free[name].unit.id, []).append(name)
    used = used_shares({name: free[name] for name in names})

    def rank(unit: str) -> tuple[int, int, str]:
        if policy is Policy.PACKED:  # the most used one, also by what is chosen now
            return -used[unit], len(shares[unit]), unit
        return taken[unit], -len(shares[unit]), unit

    heap = [rank(unit) for unit in shares]
    heapq.heapify(heap)
    chosen: list[str] = []
    while heap and len(chosen) < needed:
        unit = heapq.heappop(heap)[-1]
        chosen.append(shares[unit].pop())
        taken[unit] += 1
        used[unit] += 1
        if shares[unit]:
            heapq.heappush(heap, rank(unit))
    return chosen
