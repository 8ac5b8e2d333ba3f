"""Which cards and MIG instances are offered, and under which resource, by the strategy for MIG. Pure.

Profiles give other names and shares to what is here; without one it is offered as it is.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from device_agent.gpu_state.state import CardState, InstanceState
from device_resources.nvidia import FULL_CARD, MigStrategy
from device_resources.resource import NVIDIA_DOMAIN

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,57}[a-z0-9])?")
"""What may follow ``mig-`` in the name of a resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What is given as a whole: a card, or an instance of it."""

    card: CardState
    instance: InstanceState | None = None

    @property
    def uuid(self) -> str:
        """Return its UUID."""
        return self.instance.uuid if self.instance else self.card.uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Resource -> what is offered as it, and why there is less than somebody may expect."""

    resources: Mapping[str, tuple[Part, ...]]
    reasons: tuple[str, ...] = ()


class Sorted:
    """A node's cards, and their parts by each strategy for MIG that is asked for, sorted once."""

    def __init__(self, cards: Sequence[CardState]) -> None:
        self.cards = cards
        self._parts: dict[MigStrategy, Parts] = {}

    def by(self, strategy: MigStrategy) -> Parts:
        """Return what is offered by a strategy."""
        if strategy not in self._parts:
            self._parts[strategy] = by_strategy(self.cards, strategy)
        return self._parts[strategy]


def by_strategy(cards: Sequence[CardState], strategy: MigStrategy) -> Parts:
    """Sort parts into resources. ``nvidia.com/gpu`` is always there, also without any part."""
    split = [card for card in cards if card.mig_mode == 1 and strategy is not MigStrategy.NONE]
    empty = [card.uuid for card in split if not card.instances and not card.why]
    reasons = [f"{uuid} is in MIG mode and has no instances" for uuid in empty]
    if strategy is MigStrategy.SINGLE and split:
        return _single(cards, split, reasons)
    resources: dict[str, tuple[Part, ...]] = {FULL_CARD: _whole(cards, split)}
    for part in _instances(split):
        name = resource_name(_profile(part))
        if name is None:
            reasons.append(f"{part.uuid} has a profile without a resource: {_profile(part) or 'none'}")
        else:
            resources[name] = (*resources.get(name, ()), part)
    return Parts(resources=resources, reasons=tuple(reasons))


def resource_name(profile: str) -> str | None:
    """Return the resource of a MIG profile: ``1g.10gb+me`` is ``nvidia.com/mig-1g.10gb.me``; None if it has none."""
    name = profile.replace("+", ".")
    return f"{NVIDIA_DOMAIN}mig-{name}" if _NAME.fullmatch(name) else None


def _whole(cards: Sequence[CardState], split: Sequence[CardState]) -> tuple[Part, ...]:
    return tuple(Part(card=card) for card in cards if card not in split)


def _instances(cards: Sequence[CardState]) -> Iterator[Part]:
    return (Part(card=card, instance=instance) for card in cards for instance in card.instances)


def _profile(part: Part) -> str:
    return part.instance.profile if part.instance else ""


def _single(cards: Sequence[CardState], split: Sequence[CardState], reasons: list[str]) -> Parts:
    """Offer what the GPUs that can be read are split into; what is remembered of others decides only without these."""
    basis = [card for card in cards if not card.why] or [card for card in cards if card.mig_mode is not None]
    if all(card.mig_mode != 1 for card in basis):
        return Parts(resources={FULL_CARD: _whole(cards, split)})
    reasons += _differences(basis)
    profiles = set(map(_profile, _instances(basis)))
    alike = tuple(part for part in _instances(split) if _profile(part) in profiles)
    return Parts(resources={FULL_CARD: () if reasons else alike}, reasons=tuple(reasons))


def _differences(cards: Sequence[CardState]) -> Iterator[str]:
    """Say how GPUs differ that have to be split alike."""
    whole = [card.uuid for card in cards if card.mig_mode != 1]
    if whole:
        yield f"migStrategy single needs MIG mode on all GPUs or on none: {whole[0]} is not in it, others are"
    profiles = sorted(set(map(_profile, _instances(cards))))
    if len(profiles) > 1:
        yield f"migStrategy single needs instances of one profile: there are {profiles[0]} and {profiles[1]}"
