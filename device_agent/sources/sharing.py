"""Devices by profiles: what is offered by the one that counts, and how the node gets there while containers run.

A profile that cannot be had, or does not fit the GPUs, changes nothing. Who has devices is looked at only while a
change is under way, and once at the start.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from device_agent.errors import ProfileRefused
from device_agent.profiles.apply import apply
from device_agent.profiles.current import Current
from device_agent.profiles.offered import Offered
from device_agent.profiles.profile import Profile
from device_agent.profiles.strategy import Sorted
from device_agent.profiles.transition import Held, Listing, held_before, transition, unknown, with_late
from device_agent.profiles.verdict import Verdict
from device_agent.sources.in_thread import in_thread
from device_agent.users.asking import Users
from device_agent.users.in_use import held_in, in_use
from device_resources.nvidia import MigStrategy
from kube_api.text import bounded_message, first_few, printable

if TYPE_CHECKING:
    from device_agent.allocations.remembered import Allocations

_MOST_NAMED = 3
_MOST_KEYS = 20
_LONGEST_ERROR, _LONGEST_KEYS = 320, 150
"""Characters of a failure's two parts: together they fit into an answer."""

Say = Callable[[str, str], None]
"""Logs what is wrong with a topic once, as long as it stays so; nothing: it is over."""


class Good(NamedTuple):
    """A profile that has been applied, and its key."""

    key: str = ""
    profile: Profile = Profile()


class Supply(NamedTuple):
    """What profiles are applied to. ``units``: all of them, by id; ``is_known``: whether they are known yet.

    ``offers``: what a profile offers of them; it may raise ProfileRefused. ``parent``: as :func:`transition` has it.
    """

    offers: Callable[[Profile], tuple[Offered, ...]]
    units: Collection[str]
    parent: Mapping[str, str] = {}
    is_known: bool = True


class Sharing:
    """What is offered. ``given``: remembers what was given; None: nobody has devices, as for who only looks.

    ``what``: is offered, for messages.
    ``listing``: what the kubelet is to be shown now. ``verdict``: what became of the profile.
    ``missing``: why nothing can be offered yet; empty if there is no reason.
    """

    def __init__(self, users: Users, given: "Allocations | None", say: Say, what: str = "GPUs") -> None:
        self.listing: Listing = {}
        self.good = Good()
        self.verdict = Verdict()
        self.missing = ""
        self._users = users
        self._given = given
        self._say = say
        self._what = what
        self._has_begun = False
        self._wanted: tuple[Offered, ...] = ()
        self._settled: tuple[Offered, ...] | None = None
        self._before: Listing = {}
        self._must_check = True
        self._is_beside = False
        self._is_due = True
        self._unknown = ""

    async def begin(self) -> bool:
        """Take up what was given before; False where that cannot be read: then nothing may be offered."""
        if self._has_begun or self._given is None:
            return True
        try:
            await in_thread(self._given.load, "nvidia")
        except OSError as error:
            self.missing = f"cannot read what was given in {self._given.path}: {error.strerror or error}"
            self._say("given", f"{self.missing}; nothing is offered")
            return False
        self.missing = ""
        self._say("given", "")
        self.listing = held_before(held_in(self._given.given or {}))
        await self._users.look()
        self._has_begun = True
        return True

    def advance(self, current: Current, cards: Sorted, default: MigStrategy) -> None:
        """Go one step with these cards, as :meth:`advance_on`."""
        parent = {one.uuid: card.uuid for card in cards.cards for one in card.instances}
        units = [card.uuid for card in cards.cards]
        self.advance_on(Supply(lambda profile: apply(profile, cards, default), units, parent, bool(units)), current)

    def advance_on(self, supply: Supply, current: Current) -> None:
        """Go one step towards what is asked for; the users wake whoever calls when there may be another one."""
        error = self._plan(supply, current) if supply.is_known else current.error
        if not supply.is_known:
            self._users.take()  # it would be old when there are some
        elif self._wanted != self._settled and not self._is_beside:
            self._step(supply)
        kept = f"{self.good.key} stays in force" if self.good.key else f"{self._what} are offered without a profile"
        self._say("profile", f"{error}; {kept}" if error else "")
        beside = "another plugin offers GPUs" if self._is_beside else ""
        waits = [
            *filter(None, (beside, self._unknown, "" if supply.is_known else "no GPU is known yet")),
            *self._waits(),
        ]
        self.verdict = Verdict(
            asked=current.key,
            applied=self.good.key,
            message=_with_keys(error, current.keys) if error else first_few(waits, _MOST_NAMED, separator="; "),
            resources=tuple(sorted(self.listing)),
            has_failed=bool(error),
            waiting=self._count_waiting() if supply.is_known else 0,
        )

    def beside(self, *, is_another: bool) -> bool:
        """Take in whether another plugin has one of the resources; True if there is another step because of it.

        What it gives is nobody's to say here: nothing counts as known until somebody has looked after it has gone.
        """
        if self._given is None or is_another is self._is_beside:
            return False
        self._is_beside = is_another
        self.forget()
        return True

    def forget(self) -> None:
        """List nothing that may be given until somebody has looked at who has devices: others may have given some."""
        if self._given is not None:
            self.listing, self._before = unknown(self.listing), {}
            self._settled, self._must_check, self._is_due = None, True, True
            self._users.forget()

    async def close(self) -> None:
        """End what is under way."""
        await self._users.close()

    def _plan(self, supply: Supply, current: Current) -> str:
        """Take what is asked for if it can be had and fits; else say why not, and keep what there is."""
        error = current.error
        if current.profile is not None:
            try:
                self._wanted = supply.offers(current.profile)
            except ProfileRefused as refused:
                error = f"profile {current.key}: {refused}"
            else:
                self._take(Good(current.key, current.profile))
                return ""
        before = current.before
        if before is not None and before.profile is not None and not self.good.key:
            with suppress(ProfileRefused):  # of other cards than then
                self._wanted = supply.offers(before.profile)
                self._take(Good(before.key, before.profile))
                return error
        with suppress(ProfileRefused):  # of other cards than before: what is offered stays
            self._wanted = supply.offers(self.good.profile)
        return error

    def _take(self, good: Good) -> None:
        if good == self.good:
            return
        self.good = good
        ignored = first_few(good.profile.ignored, 2 * _MOST_NAMED)
        self._say("ignored", f"profile {good.key}: means nothing here, and is ignored: {ignored}" if ignored else "")

    def _step(self, supply: Supply) -> None:
        target = transition(self._wanted, {}, frozenset())
        if self._given is None:
            self.listing = target
            return
        if not (supply.units or self.listing):  # nobody can have anything
            self._settled = self._wanted
            return
        self._keep_late(self._given)
        used = self._used(self._given)
        listing = transition(self._wanted, self.listing, used, supply.units, supply.parent)
        is_changed = listing != self.listing
        if used is not None:
            # What was given until the kubelet had this list is seen by another look only.
            self._must_check = is_changed
        self._before, self.listing = self.listing, listing
        self._settled = self._wanted if listing == target and not self._must_check else None
        if self._settled is None:
            self._users.ask(soon=is_changed or self._is_due)
            self._is_due = False
        else:
            self._unknown = ""
            self._say("users", "")

    def _keep_late(self, given: "Allocations") -> None:
        """Have on the list what was given in the way before until the kubelet had it."""
        listed = {(name, one.id) for name, devices in self.listing.items() for one in devices if not one.why}
        if late := given.recent.keys() - listed:
            self.listing = with_late(self.listing, self._before, late)

    def _used(self, given: "Allocations") -> frozenset[Held] | None:
        """Return what is in use, as far as somebody has looked since."""
        seen = self._users.take()
        if seen is None:
            return None
        given.see(seen.shown or (), seen.asked_at)
        self._unknown = f"it is not known which devices are in use: {seen.why}" if seen.why else ""
        self._say("users", f"{self._unknown}; changes of profiles wait" if self._unknown else "")
        return in_use(seen, given.given, given.recent)

    def _count_waiting(self) -> int:
        """Count the units that are not listed as they are to be."""
        if self._wanted == self._settled:
            return 0
        target = transition(self._wanted, {}, frozenset())
        now, then = ({(name, row) for name, rows in each.items() for row in rows} for each in (self.listing, target))
        return len({row.unit for _, row in now ^ then})

    def _waits(self) -> list[str]:
        return list(dict.fromkeys(one.why for devices in self.listing.values() for one in devices if one.why))


def _with_keys(error: str, keys: Sequence[str]) -> str:
    """Name the profiles that there are behind an error that does not."""
    if not keys:
        return error
    return (
        f"{bounded_message(error, _LONGEST_ERROR)}; there are {printable(first_few(keys, _MOST_KEYS), _LONGEST_KEYS)}"
    )
