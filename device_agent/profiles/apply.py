"""A profile, and the cards that are there: what is offered. Pure."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from device_agent.devices.model import MAX_DEVICES
from device_agent.errors import ProfileRefused
from device_agent.gpu_state.state import CardState
from device_agent.profiles.offered import Offered
from device_agent.profiles.profile import Naming, Profile, Shared
from device_agent.profiles.strategy import Part, Sorted
from device_resources.kinds import Problem, shown
from device_resources.nvidia import MigStrategy
from device_resources.resource import NVIDIA_DOMAIN
from kube_api.text import first_few, printable

_MAX_LISTED = 5
_MOST_KNOWN = 10
_LONGEST_MESSAGE = 2000


def apply(profile: Profile, cards: Sorted, default: MigStrategy) -> tuple[Offered, ...]:
    """Offer each card or instance of the strategy for MIG once, by index; ``default`` counts if the profile has none.

    Raises:
        ProfileRefused: it does not fit these cards: names each device that is wrong, and the remedy.
    """
    parts = _named(profile, cards.by(profile.mig_strategy or default).resources)
    names = _names_of_devices(cards.cards)
    problems: list[Problem] = []
    shares: dict[str, Shared] = {}
    for index, entry in enumerate(profile.shared):
        if not entry.name.startswith(NVIDIA_DOMAIN):
            continue
        chosen, wrong = _chosen(entry, parts, names)
        problems += (_problem(index, why) for why in (*wrong, *_twice(chosen, shares)))
        shares |= dict.fromkeys(chosen, entry)
    offered = tuple(_offered(unit, name, shares.get(unit)) for unit, name in parts.items())
    problems += [] if problems else [*_mixed(offered), *_too_many(offered)]
    if problems:
        listed = first_few(problems, _MAX_LISTED, separator="; ")
        raise ProfileRefused(printable(f"the profile does not fit this node: {listed}", _LONGEST_MESSAGE))
    return offered


def names_before_sharing(profile: Profile, cards: Sorted, default: MigStrategy) -> tuple[str, ...]:
    """Name the resources of these cards by patterns and the strategy for MIG, each once, as entries of sharing do."""
    parts = _named(profile, cards.by(profile.mig_strategy or default).resources)
    return tuple(dict.fromkeys(parts.values()))


def shares_of_others(profile: Profile, names: Collection[str]) -> dict[str, tuple[str, int]]:
    """Return for each resource of the node's files that the profile shares: under which name, and how many shares.

    Raises:
        ProfileRefused: two resources would have one name.
    """
    found = {entry.name: (entry.becomes, entry.replicas) for entry in profile.shared if entry.name in names}
    final = Counter(found.get(name, (name, 1))[0] for name in names)
    if many := [name for name, count in final.items() if count > 1]:
        raise ProfileRefused(f"the profile makes two resources {shown(min(many))}: use another rename")
    return found


def _named(profile: Profile, resources: Mapping[str, Sequence[Part]]) -> dict[str, str]:
    """Give each UUID its resource, before anything is shared: of the first pattern that matches, else as without."""
    return {
        part.uuid: _name(profile.migs, part.instance.profile, resource)
        if part.instance
        else _name(profile.gpus, part.card.name, resource)
        for resource, parts in resources.items()
        for part in parts
    }


def _name(namings: Sequence[Naming], text: str, otherwise: str) -> str:
    return next((one.name for one in namings if one.matches(text)), otherwise)


def _names_of_devices(cards: Sequence[CardState]) -> dict[str, str]:
    """Return how a profile may name a device -> its UUID. Cards that are not listed any more come last."""
    names: dict[str, str] = {}
    for card in cards:
        names.setdefault(str(card.index), card.uuid)
        for index, instance in enumerate(card.instances):
            names.setdefault(f"{card.index}:{index}", instance.uuid)
    units = [unit for card in cards for unit in (card.uuid, *(one.uuid for one in card.instances))]
    return names | {unit: unit for unit in units}


def _chosen(entry: Shared, parts: Mapping[str, str], names: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the UUIDs that an entry shares, and what is wrong with it. An entry of all may have none."""
    own = [unit for unit, name in parts.items() if name == entry.name]
    if entry.devices is None:
        return own, []
    if isinstance(entry.devices, int):
        count = f"{entry.devices} devices are not there: {shown(entry.name)} has {len(own)}"
        return own[: entry.devices], [] if entry.devices <= len(own) else [count]
    asked = [(text, names.get(text, names.get(_plain_index(text), ""))) for text in entry.devices]
    known = first_few([text for text, unit in names.items() if unit in own and text != unit], _MOST_KNOWN) or "none"
    wrong = [
        f"device {shown(text)} {_why_not(unit, parts)}: {shown(entry.name)} has {known}"
        for text, unit in asked
        if unit not in own
    ]
    return [unit for _, unit in asked if unit in own], wrong


def _plain_index(text: str) -> str:
    """Write an index without leading zeros."""
    return ":".join(str(int(one)) if one.isdigit() else one for one in text.split(":"))


def _why_not(unit: str, parts: Mapping[str, str]) -> str:
    if not unit:
        return "is not there"
    return f"is of {shown(parts[unit])}" if unit in parts else "is not offered with this migStrategy"


def _twice(chosen: Sequence[str], before: Collection[str]) -> Iterator[str]:
    for unit, count in Counter(chosen).items():
        if unit in before:
            yield f"{unit} is in two entries: remove it from one"
        elif count > 1:
            yield f"{unit} is named twice: remove one"


def _offered(unit: str, name: str, shared: Shared | None) -> Offered:
    if shared is None:
        return Offered(resource=name, unit=unit)
    return Offered(resource=shared.becomes, unit=unit, shares=shared.replicas)


def _mixed(offered: Sequence[Offered]) -> Iterator[Problem]:
    whole = {one.resource for one in offered if one.shares == 1}
    for name in sorted(whole & {one.resource for one in offered if one.shares > 1}):
        message = f"{shown(name)} would be whole and shared devices: write rename, or renameByDefault: true"
        yield Problem(path=("sharing", "timeSlicing"), message=message)


def _too_many(offered: Sequence[Offered]) -> Iterator[Problem]:
    count: Counter[str] = Counter()
    for one in offered:
        count[one.resource] += one.shares
    for name, total in sorted(count.items()):
        if total > MAX_DEVICES:
            message = f"{shown(name)} would have {total} shares: at most {MAX_DEVICES} are possible"
            yield Problem(path=("sharing", "timeSlicing"), message=message)


def _problem(index: int, message: str) -> Problem:
    return Problem(path=("sharing", "timeSlicing", "resources", index), message=message)
