"""Which devices a container should get. Pure.

First counts how many links there are between their units, then that they are of one NUMA node, then the policy: shares
of different units and of those least shared, or of those most shared. Of several NUMA nodes the one is taken that has
just enough, so that larger requests find a whole one later, and of units that are linked alike those that leave most
links to others. Devices that are not healthy, or that nobody knows, come last.
"""

from collections.abc import Mapping, Sequence

from device_agent.devices.linked import linked
from device_agent.devices.model import OfferedDevice, Policy
from device_agent.devices.nearest import nearest


def preferred(
    devices: Mapping[str, OfferedDevice],
    available: Sequence[str],
    must_include: Sequence[str],
    size: int,
    policy: Policy = Policy.DISTRIBUTED,
) -> tuple[str, ...]:
    """Choose ``size`` of the available devices; what must be included comes first."""
    chosen = list(dict.fromkeys(must_include))[: max(size, 0)]
    included = frozenset(chosen)
    every = [name for name in dict.fromkeys(available) if name not in included]
    free = {name: device for name in every if (device := devices.get(name)) and device.unit.is_healthy}
    given = [device.unit for name in chosen if (device := devices.get(name))]
    needed = max(size, 0) - len(chosen)
    picked = linked(free, given, needed, policy)
    left = {name: device for name, device in free.items() if name not in picked}
    given += [free[name].unit for name in picked]
    picked += nearest(left, given, needed - len(picked), policy)
    rest = [name for name in every if name not in free]
    return (*chosen, *picked, *rest[: needed - len(picked)])
