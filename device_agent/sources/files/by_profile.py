"""What a profile makes of the units of the node's files: of which resources, and as how many shares. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from device_agent.devices.model import MAX_DEVICES, Unit
from device_agent.errors import ProfileRefused
from device_agent.profiles.apply import shares_of_others
from device_agent.profiles.offered import Offered
from device_agent.profiles.profile import Profile
from device_agent.profiles.transition import Listed, Listing
from device_resources.kinds import shown
from device_resources.resource import NVIDIA_DOMAIN

Resources = Mapping[str, Sequence[Unit]]
"""Resource -> its units, as they are described."""


def shares_in(profile: Profile, names: Collection[str]) -> dict[str, tuple[str, int]]:
    """Return for each of these resources that the profile shares: under which name, and how many shares.

    Raises:
        ProfileRefused: two resources would have one name.
    """
    return shares_of_others(profile, [name for name in names if not name.startswith(NVIDIA_DOMAIN)])


def offers(profile: Profile, resources: Resources, of: Collection[str]) -> tuple[Offered, ...]:
    """Offer each unit of the resources ``of`` once: shared by the profile, or as it is described.

    Raises:
        ProfileRefused: two resources would have one name, or have one device, or one would have too many shares.
    """
    shared = shares_in(profile, resources)
    for name in shared.keys() & with_common_units(resources):
        raise ProfileRefused(f"{shown(name)} has a device that another resource has too: it cannot be shared")
    offered = tuple(_offered(name, unit, shared) for name in resources if name in of for unit in resources[name])
    totals: Counter[str] = Counter()
    for one in offered:
        totals[one.resource] += one.shares
    for name, (becomes, _) in shared.items():
        if totals[becomes] > MAX_DEVICES:
            message = f"{shown(name)} would have {totals[becomes]} shares: at most {MAX_DEVICES} are possible"
            raise ProfileRefused(f"the profile does not fit this node: {message}")
    return offered


def with_common_units(resources: Resources) -> set[str]:
    """Name the resources of which a unit is one of another resource, too: by its id alone nobody can tell whose it is.

    Other units of the same files are other ones: which files are whose is what is described.
    """
    count = Counter(unit.id for unit in chain.from_iterable(resources.values()))
    return {name for name, units in resources.items() if any(count[unit.id] > 1 for unit in units)}


def in_another_way(listing: Listing, resources: Resources) -> set[str]:
    """Name the resources of which a unit is listed in another way than any that it is described in, or waits for one.

    Of a unit that several resources have, these are all of them: none may give it before that way has ended.
    """
    own: dict[str, dict[str, int]] = {}
    for name, units in resources.items():
        for unit in units:
            own.setdefault(unit.id, {})[name] = unit.shares
    return {
        name
        for resource, devices in listing.items()
        for one in devices
        if one.unit in own and (one.why or own[one.unit].get(resource) != one.shares)
        for name in own[one.unit]
    }


def as_described(resources: Resources) -> Listing:
    """List all units in their own way."""
    return {
        name: tuple(Listed(id=one, unit=unit.id, shares=unit.shares) for unit in units for one in unit.device_ids)
        for name, units in resources.items()
    }


def only_of(listing: Listing, units: Collection[str]) -> Listing:
    """Leave out what is listed of other units, and resources without any."""
    kept = {name: tuple(one for one in devices if one.unit in units) for name, devices in listing.items()}
    return {name: devices for name, devices in kept.items() if devices}


def together(one: Listing, other: Listing) -> Listing:
    """List what both list; no unit is in both."""
    return {name: (*one.get(name, ()), *other.get(name, ())) for name in {**one, **other}}


def _offered(name: str, unit: Unit, shared: Mapping[str, tuple[str, int]]) -> Offered:
    becomes, shares = shared.get(name, (name, unit.shares))
    return Offered(resource=becomes, unit=unit.id, shares=shares)
