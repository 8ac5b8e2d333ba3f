"""Which devices are of units that are linked with each other. Pure."""

from collections.abc import Mapping, Sequence
from itertools import combinations, permutations
from math import comb

from device_agent.devices.model import OfferedDevice, Policy, Unit
from device_agent.devices.nearest import nearest, used_shares

_MOST_LINKED, _MOST_CHOICES = 64, 20_000
"""Units, and choices of them, that are compared by links. Half of 16 GPUs are 12,870; of more, links do not count."""


def linked(free: Mapping[str, OfferedDevice], given: Sequence[Unit], needed: int, policy: Policy) -> list[str]:
    """Choose a device of each of those units that have most links between them; none where no unit has links.

    ``given``: the units of devices that are chosen already.
    """
    if needed <= 0 or not any(device.unit.links for device in free.values()):
        return []
    # As they are chosen without links: of sets that are equal, the first one is taken.
    first = _first(free, frozenset(unit.id for unit in given), nearest(free, given, needed, policy))
    size = min(needed, len(first))
    if len(first) > _MOST_LINKED or comb(len(first), size) > _MOST_CHOICES:
        return []
    units = {unit: free[name].unit for unit, name in first.items()}
    inner = {pair: _links(units[pair[0]], units[pair[1]]) for pair in permutations(units, 2)}
    to_given = {name: sum(_links(unit, other) for other in _unique(given)) for name, unit in units.items()}
    to_all = {name: sum(inner[name, other] for other in units if other != name) for name in units}
    given_nodes = {unit.numa_nodes for unit in given}
    used = used_shares(free)
    sign = 1 if policy is Policy.PACKED else -1

    def rank(names: tuple[str, ...]) -> tuple[int, int, int, int]:
        within = sum(inner[pair] for pair in combinations(names, 2))
        nodes = given_nodes.union(units[name].numa_nodes for name in names)
        cut = sum(to_all[name] for name in names) - 2 * within
        shared = sign * sum(used[name] for name in names)
        return within + sum(to_given[name] for name in names), -len(nodes), shared, -cut

    return [first[name] for name in max(combinations(units, size), key=rank)]


def _first(free: Mapping[str, OfferedDevice], given: frozenset[str], order: Sequence[str]) -> dict[str, str]:
    """Return a device of each unit of which none is given: unit -> device, those of ``order`` first."""
    first: dict[str, str] = {}
    for name in dict.fromkeys((*order, *free)):
        unit = free[name].unit.id
        if unit not in given:
            first.setdefault(unit, name)
    return first


def _unique(units: Sequence[Unit]) -> list[Unit]:
    return list({unit.id: unit for unit in units}.values())


def _links(unit: Unit, other: Unit) -> int:
    return max(unit.links.get(other.id, 0), other.links.get(unit.id, 0))
