"""What each card is to become, as the key asks or as before the change, and what has to be done for it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from device_agent.errors import MigRefused
from device_agent.gpu_state.mig_change import MigChange, NewInstance
from device_agent.gpu_state.state import CardState
from device_agent.mig.model import Model, Profile, parse_device_name
from device_agent.mig.parse import Entry, Layout
from device_agent.mig.plan import CardPlan, MigCard, plan_cards
from device_agent.mig.record import Before, CardBefore, PlacedInstance
from device_agent.mig.solve import Existing, Instance, Placed
from device_agent.mig.tables import model_of
from device_agent.mig.values import Holding

Users = Mapping[str, frozenset[Holding]]
"""UUID of a GPU or a MIG instance -> who has it."""
_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a card is to become. ``is_ours``: a change that is under way may have touched it."""

    card: CardState
    plan: CardPlan
    is_ours: bool = False

    @property
    def mode(self) -> int:
        """Return what its MIG mode is to be."""
        return int(self.plan.layout.enabled) if self.plan.layout is not None else self.card.mig_mode or 0

    @property
    def is_reached(self) -> bool:
        """Return whether nothing has to be done. A switch of the mode that others have begun stays as it is."""
        return self.plan.is_as_asked and not (self.is_ours and self.has_switch)

    @property
    def has_switch(self) -> bool:
        """Return whether its mode changes with the next reset or boot."""
        return self.card.mig_pending is not None and self.card.mig_pending != self.card.mig_mode

    @property
    def is_switching(self) -> bool:
        """Return whether the mode that it is to have is pending: with a boot, or while others use the card."""
        return self.has_switch and self.card.mig_pending == self.mode

    @property
    def units(self) -> frozenset[str]:
        """Return the UUIDs of what goes: instances, and the card itself."""
        if self.is_reached:
            return frozenset()
        gone = {one.gi for one in self.plan.destroyed}
        going = (one.uuid for one in self.card.instances if self.plan.changes_mode or one.gi in gone)
        return frozenset({self.card.uuid, *going})

    def change(self, clock: float) -> MigChange:
        """Make the request that the container ``nvml`` changes the card."""
        card = self.card
        return MigChange(
            id=max(int(clock * _MICROSECONDS), 1),
            card=card.uuid,
            mode=self.mode,
            destroy=tuple(sorted(one.gi for one in self.plan.destroyed if one.gi is not None)),
            create=tuple(
                NewInstance(one.instance.profile, one.start, one.instance.compute) for one in self.plan.created
            ),
            at=clock,
            seen=tuple((one.gi, one.profile, one.start) for one in card.gpu_instances),
        )


def targets_asked(
    cards: Sequence[CardState], entries: Sequence[Entry], before: Before, users: Users
) -> tuple[Target, ...]:
    """Say what cards are to become by the entries of a key; those without one, if they were changed, as before.

    Raises:
        MigRefused: a card cannot be so; the message names the card and the profile. Then no card is to be touched.
    """
    plans = plan_cards(entries, [_planned(card, entries, users) for card in cards])
    if refused := [plan.refused for plan in plans if plan.refused]:
        raise MigRefused("; ".join(refused))
    return tuple(
        _back(card, before[card.uuid], users)
        if plan.layout is None and card.uuid in before
        else Target(card=card, plan=plan, is_ours=card.uuid in before)
        for card, plan in zip(cards, plans, strict=True)
    )


def targets_before(cards: Sequence[CardState], before: Before, users: Users) -> tuple[Target, ...]:
    """Say what cards are to become that are to be as before a change.

    Raises:
        MigRefused: it is not known what one of them has.
    """
    return tuple(_back(card, before[card.uuid], users) for card in cards if card.uuid in before)


def before_of(card: CardState) -> CardBefore:
    """Write down how a card is."""
    instances = (PlacedInstance(one.profile, one.start, one.compute) for one in card.gpu_instances)
    return CardBefore(mode=card.mig_mode or 0, instances=tuple(sorted(instances, key=lambda one: one.start)))


def present(card: CardState, users: Users) -> MigCard:
    """Say what a card has, for a plan.

    Raises:
        MigRefused: that is not known.
    """
    if unknown := {one.gi for one in card.instances} - {one.gi for one in card.gpu_instances}:
        raise MigRefused(
            f"card {card.index} ({card.name}): it is not known where its GPU instance {min(unknown)} is: "
            "the driver, or the rights of the container nvml, do not say"
        )
    return replace(_without_instances(card), existing=tuple(_existing(card, users)))


def described(card: CardState) -> str:
    """Say what a card has, for people."""
    if card.mig_mode != 1:
        return f"card {card.index} is not in MIG mode"
    there = ", ".join(f"{one.profile} at {one.start}" for one in card.gpu_instances)
    return f"card {card.index} has {there or 'no instances'}"


def _planned(card: CardState, entries: Sequence[Entry], users: Users) -> MigCard:
    """Say what a card has; of one that no entry is for it need not be known.

    Raises:
        MigRefused: that is not known, and an entry is for it.
    """
    try:
        return present(card, users)
    except MigRefused:
        bare = _without_instances(card)
        (plan,) = plan_cards(entries, (bare,))
        if plan.layout is not None or plan.refused:
            raise
        return bare


def _without_instances(card: CardState) -> MigCard:
    known = model_of(card.name)
    return MigCard(
        index=card.index,
        product=card.name,
        model=Model(name=card.name, profiles=_profiles(card)) if card.mig_profiles else known,
        pci_ids=frozenset({card.pci_id}) if card.pci_id else known.pci_ids if known else frozenset(),
        enabled=card.mig_mode == 1,
        tells_when_enabled=card.mig_mode == 0,
    )


def _existing(card: CardState, users: Users) -> list[Existing]:
    found = []
    for one in card.gpu_instances:
        device = parse_device_name(one.profile)
        if device is None:
            raise MigRefused(
                f"card {card.index} ({card.name}): it has {one.profile}, which is no profile that is known"
            )
        pods = {holding for unit in card.instances if unit.gi == one.gi for holding in users.get(unit.uuid, ())}
        instance = Instance(profile=one.profile, compute=one.compute, of=device.of)
        found.append(Existing(instance=instance, start=one.start, users=len(pods), gi=one.gi))
    return found


def _profiles(card: CardState) -> tuple[Profile, ...]:
    named = ((one, parse_device_name(one.name)) for one in card.mig_profiles)
    return tuple(
        Profile(name=one.name, compute=device.of, size=one.size, starts=one.starts, most=one.most)
        for one, device in named
        if device is not None and device.profile == one.name
    )


def _back(card: CardState, before: CardBefore, users: Users) -> Target:
    here = present(card, users)
    wanted = {_instance(one): one for one in before.instances}
    is_on = before.mode == 1
    kept = tuple(one for one in here.existing if is_on and here.enabled and (one.instance, one.start) in wanted)
    there = {(one.instance, one.start) for one in kept}
    made = tuple(
        Placed(instance=instance, start=start, size=_size(here, instance.profile), kept=False)
        for instance, start in wanted
        if (instance, start) not in there
    )
    layout = Layout(enabled=is_on, devices={})
    destroyed = tuple(one for one in here.existing if one not in kept)
    plan = CardPlan(card=here, layout=layout, stays=kept, destroyed=destroyed, created=made)
    return Target(card=card, plan=plan, is_ours=True)


def _instance(one: PlacedInstance) -> tuple[Instance, int]:
    device = parse_device_name(one.profile)
    return Instance(profile=one.profile, compute=one.compute, of=device.of if device else 0), one.start


def _size(card: MigCard, name: str) -> int:
    profile = card.model.profile(name) if card.model else None
    return profile.size if profile else 1
