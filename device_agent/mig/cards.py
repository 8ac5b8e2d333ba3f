"""The cards that a plan is for: models by their names, or a file of cards. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from device_agent.errors import ConfigurationError
from device_agent.gpu_state.state import MOST_CARDS, MOST_SLICES, CardState
from device_agent.mig.model import Model, Profile, parse_device_name
from device_agent.mig.plan import MigCard
from device_agent.mig.solve import Existing, Instance
from device_agent.mig.tables import MODELS, model_of
from device_agent.profiles.cards_file import parse_with_plain
from device_resources.kinds import shown

_NAMED = re.compile(r"([A-Za-z0-9-]{1,32})(?::([0-9]{1,3}))?")

Plain = Mapping[str, Any]


def named_cards(names: Sequence[str]) -> tuple[MigCard, ...]:
    """Make cards of ``MODEL`` or ``MODEL:COUNT``, one after the other; they are not in MIG mode.

    Raises:
        ConfigurationError: one is not so written, there is no such model, or there are too many.
    """
    models: list[Model] = []
    for name in names:
        match = _NAMED.fullmatch(name)
        model = MODELS.get(match[1].upper()) if match else None
        if match is None or model is None:
            known = ", ".join(MODELS)
            raise ConfigurationError(
                f"--card: {shown(name)} is not MODEL or MODEL:COUNT with a model of {known}: for others use --cards"
            )
        models += [model] * int(match[2] or 1)
    if not 0 < len(models) <= MOST_CARDS:
        raise ConfigurationError(f"--card: {len(models)} cards: write 1 to {MOST_CARDS}")
    return tuple(
        MigCard(index=index, product=model.name, model=model, pci_ids=model.pci_ids)
        for index, model in enumerate(models)
    )


def parse_mig_cards(text: str, path: str) -> tuple[MigCard, ...]:
    """Read a file of cards, as ``device-agent cards`` writes it; ``path`` is for messages.

    Raises:
        ConfigurationError: names a wrong field, its value and the remedy.
    """
    return tuple(_card(card, plain, path) for card, plain in parse_with_plain(text, path))


def _card(card: CardState, plain: Plain, path: str) -> MigCard:
    where = f"{path}: card {card.index}"
    known = model_of(card.name)
    listed = plain.get("migProfiles")
    model = known if listed is None else Model(name=card.name, profiles=_profiles(listed, where))
    pci_id = plain.get("pciId")
    return MigCard(
        index=card.index,
        product=card.name,
        model=model,
        pci_ids=frozenset({pci_id.lower()}) if pci_id else known.pci_ids if known else frozenset(),
        enabled=card.mig_mode == 1,
        existing=_existing(plain.get("instances") or (), model, where),
    )


def _profiles(listed: Sequence[Plain], where: str) -> tuple[Profile, ...]:
    made = tuple(_profile(plain, where) for plain in listed)
    if len({one.name for one in made}) < len(made):
        raise ConfigurationError(f"{where}: migProfiles: two have one name: remove one of them")
    return made


def _profile(plain: Plain, where: str) -> Profile:
    name, starts, size = plain["name"], tuple(sorted(set(plain["starts"]))), plain["size"]
    device = parse_device_name(name)
    if device is None or name != device.profile:
        raise ConfigurationError(
            f"{where}: migProfiles: {shown(name)} is not a profile of GPU instances, such as 3g.20gb"
        )
    if starts[-1] + size > MOST_SLICES:
        raise ConfigurationError(
            f"{where}: migProfiles: {name} ends after slice {MOST_SLICES - 1}: correct starts or size"
        )
    return Profile(name=name, compute=device.of, size=size, starts=starts, most=plain.get("most") or len(starts))


def _existing(instances: Sequence[Plain], model: Model | None, where: str) -> tuple[Existing, ...]:
    """Put MIG devices of one GPU instance together: those with a part of it, and the same ``gi``."""
    groups: dict[object, list[Plain]] = {}
    for number, plain in enumerate(instances):
        device = parse_device_name(plain["profile"])
        if device is None:
            raise ConfigurationError(f"{where}: instances: {shown(plain['profile'])} is not a MIG profile")
        is_alone = device.is_whole or plain.get("gi") is None
        groups.setdefault(number if is_alone else (device.profile, plain["gi"]), []).append(plain)
    made = tuple(map(_together, groups.values()))
    _check_slices(made, model, where)
    return made


def _together(group: Sequence[Plain]) -> Existing:
    devices = [device for plain in group if (device := parse_device_name(plain["profile"])) is not None]
    compute = tuple(sorted((one.compute for one in devices), reverse=True))
    starts = {plain["start"] for plain in group if plain.get("start") is not None}
    return Existing(
        instance=Instance(profile=devices[0].profile, compute=compute, of=devices[0].of),
        start=starts.pop() if len(starts) == 1 else None,
    )


def _check_slices(existing: Sequence[Existing], model: Model | None, where: str) -> None:
    taken: set[int] = set()
    for one in existing:
        profile = model.profile(one.instance.profile) if model else None
        if profile is None or one.start is None:
            continue
        slices = set(range(one.start, one.start + profile.size))
        if one.start not in profile.starts or slices & taken:
            raise ConfigurationError(f"{where}: instances: {one.instance} cannot start at {one.start}: correct start")
        taken |= slices
